"""The grid of runs, each recorded when it is done and never repeated."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.task_report.settings import DATASETS, Cell, Dataset, ReportSettings, cells
from elmo import __version__
from elmo.errors import (
    ConfigError,
    DivergedError,
    ElmoError,
    GpuMemoryError,
    InputError,
    MissingFileError,
)
from elmo.runtime.files import locked, try_lock, write_text
from elmo.tasks.heads import find_task
from elmo.tasks.readers.splits import SPLITS, Parts
from elmo.tasks.run.training import Examples, TaskReport, read_examples, train_task
from elmo.tasks.settings import TaskSettings
from elmo.text.files import COMPRESSED

_QUICK = {"epochs": 1, "min_steps": 0, "hidden_size": 8}
_QUICK_EXAMPLES = 100
WORKER = "ELMO_REPORT_WORKER"
"""Environment variable of processes that another one started: they do not write the page."""
_REPOSITORY = Path(__file__).parents[2]
CELLS_FOLDER, RUNS_FOLDER, DATA_FOLDER = "cells", "runs", "data"


def run_report(settings: ReportSettings, say: Callable[[str], None]) -> bool:
    """Run what is missing and what no other process is running.

    Args:
        settings: Which runs.
        say: Called with lines about the progress.

    Returns:
        Whether everything is done; False if the time was up or the user interrupted it.
    """
    if settings.data is None:
        raise ConfigError("--data is missing: expected the folder of the task data")
    minutes = math.inf if settings.minutes is None else settings.minutes
    deadline = time.monotonic() + 60 * minutes
    wanted = cells(settings)
    todo = _to_do(wanted, settings, settings.data)
    say(f"{len(wanted)} runs, {len(wanted) - len(todo)} of them done before")
    known: dict[str, Examples] = {}
    failed: list[str] = []
    for number, cell in enumerate(todo, start=1):
        if time.monotonic() > deadline:
            break
        lock = settings.folder / RUNS_FOLDER / f"{cell.name}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = try_lock(lock)
        if held is None:  # another process is at this run
            continue
        with held:
            if cell_file(settings.folder, cell).is_file():
                continue
            say(f"[{number}/{len(todo)}] {cell.name}")
            report = _try(cell, settings, known, say)
        if report is None:
            failed.append(cell.name)
        elif not report.finished:
            break
    if failed:
        say(f"{len(failed)} runs failed, see above: {', '.join(failed)}")
    left = len(_missing(wanted, settings))
    if left:
        say(f"{left} runs are left for the next time, or being done by other processes")
    return not left


def _try(
    cell: Cell,
    settings: ReportSettings,
    known: dict[str, Examples],
    say: Callable[[str], None],
) -> TaskReport | None:
    """Run a cell; return None if it failed for a reason that does not concern the others."""
    try:
        report = _run(cell, settings, known)
    except Exception as error:
        if not _concerns_one_run(error):
            raise
        traceback.print_exc()
        say(f"    {cell.name} failed ({type(error).__name__}: {error})"[:500])
        return None
    if report.finished:
        say(f"    {cell.name}: {_figures(report)}")
    return report


def _to_do(wanted: Sequence[Cell], settings: ReportSettings, data: Path) -> list[Cell]:
    """Return the missing runs, in an order in which data are read once."""
    todo = _missing(wanted, settings)
    if todo:
        _require_readable(data, "the folder of the task data, as --data")
    return sorted(todo, key=lambda cell: (list(DATASETS).index(cell.dataset), cell.seed))


def _require_readable(folder: Path, expected: str) -> None:
    """Refuse a folder with which one run after the other would fail."""
    try:
        next(folder.iterdir(), None)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"no folder {folder}: expected {expected}") from None
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read ({error.strerror or error}): expected {expected}"
        ) from None


def _concerns_one_run(error: Exception) -> bool:
    """Check whether other runs may still succeed; wrong settings concern all of them."""
    return isinstance(error, DivergedError | GpuMemoryError) or not isinstance(error, ElmoError)


def run_in_processes(settings: ReportSettings, each: ReportSettings) -> bool:
    """Let several processes share the runs; return whether everything is done.

    Args:
        settings: Which runs, and how many processes.
        each: The settings of every process.
    """
    command = [sys.executable, "-m", "benchmarks.task_report", *_as_flags(each)]
    threads = str(max(1, (os.cpu_count() or 1) // settings.workers))
    path = os.pathsep.join([str(_REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"OMP_NUM_THREADS": threads, **os.environ, WORKER: "1", "PYTHONPATH": path}
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        for _ in range(settings.workers)
    ]
    try:
        codes = [process.wait() for process in processes]
    except BaseException:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        raise
    if any(code not in (0, 1) for code in codes):
        raise ConfigError(f"processes of the report ended with {codes}; see above")
    return not _missing(cells(settings), settings)


def _as_flags(settings: ReportSettings) -> list[str]:
    flags: list[str] = []
    for name, value in settings.changes().items():
        flags.append(f"--{name.replace('_', '-')}")
        if value is not True:
            flags += map(str, value) if isinstance(value, tuple) else [str(value)]
    return flags


def _missing(wanted: Sequence[Cell], settings: ReportSettings) -> list[Cell]:
    return [cell for cell in wanted if not cell_file(settings.folder, cell).is_file()]


def cell_file(out: Path, cell: Cell) -> Path:
    """Return the file in which a run is recorded."""
    return out / CELLS_FOLDER / f"{cell.name}.json"


def read_cells(out: Path) -> list[dict[str, Any]]:
    """Read the records of all runs."""
    found = sorted((out / CELLS_FOLDER).glob("*.json"))
    if not found:
        raise MissingFileError(f"no runs in {out / CELLS_FOLDER}: nothing to write")
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def _run(cell: Cell, settings: ReportSettings, known: dict[str, Examples]) -> TaskReport:
    dataset = DATASETS[cell.dataset]
    folder = settings.folder / RUNS_FOLDER / cell.name
    chosen = _task_settings(cell, dataset, settings, folder)
    with warnings.catch_warnings():
        # Warn about a data set once, not in each of its many runs.
        warnings.simplefilter("ignore" if cell.dataset in known else "default")
        if cell.dataset not in known:
            known.clear()  # the data of one data set at a time
            read = _read(dataset, chosen)
            known[cell.dataset] = _a_few(read) if settings.quick else read
        report = train_task(dataset.task, chosen, known[cell.dataset])
    if not report.finished:
        return report
    record = {
        "dataset": cell.dataset,
        "changes": dict(cell.changes),
        "seed": cell.seed,
        "version": __version__,
        "model": settings.model,
        "report": report.as_dict(),
        "curve": _curve(folder),
    }
    path = cell_file(settings.folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(record, indent=2) + "\n")
    if not settings.keep:
        shutil.rmtree(folder)
    return report


def _read(dataset: Dataset, settings: TaskSettings) -> Examples:
    try:
        return read_examples(find_task(dataset.task), settings)
    except OSError as error:
        if isinstance(error, ElmoError):
            raise
        raise InputError(f"the data of {dataset.title} cannot be read: {error}") from None


def _task_settings(
    cell: Cell, dataset: Dataset, settings: ReportSettings, folder: Path
) -> TaskSettings:
    parts = find_parts(cell.dataset, dataset, settings)
    choices: dict[str, Any] = {**dataset.choices, **dict(cell.changes)}
    choices |= _QUICK if settings.quick else {}
    return TaskSettings(
        data=(parts.train,),
        dev=(parts.dev,),
        test=(parts.test,),
        out=folder,
        resume=True,
        seed=cell.seed,
        model=settings.model,
        vectors=settings.vectors,
        device=settings.device,
        precision=settings.precision,
        cache_dir=settings.cache,
        quiet=settings.quiet,
        **choices,
    )


def _a_few(examples: Examples) -> Examples:
    """Cut data down to what is enough for a smoke test."""
    few = [
        part[: min(_QUICK_EXAMPLES, max(2, len(part) // 40))]
        for part in (examples.train, examples.dev, examples.test)
    ]
    return Examples(*few)


def find_parts(name: str, dataset: Dataset, settings: ReportSettings) -> Parts:
    """Find the three files of a data set, or cut it into them (in the folder of the report)."""
    assert settings.data is not None
    source = settings.data / dataset.folder
    _require_readable(source, f"the data of {dataset.title}; leave it out with --tasks")
    if dataset.parts is not None:
        return Parts(*(_packed_or_not(source / file) for file in dataset.parts))
    target = settings.out / DATA_FOLDER / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock")):
        if not target.is_dir():
            unfinished = target.with_name(f".{name}")
            SPLITS[dataset.folder](source, unfinished)
            unfinished.rename(target)
    by_name = {path.stem: path for path in target.iterdir()}
    return Parts(*(by_name[field] for field in Parts._fields))


def _packed_or_not(path: Path) -> Path:
    candidates = [path, *(path.with_name(path.name + suffix) for suffix in COMPRESSED)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise MissingFileError(f"no such file, packed or not: {path}")


def _curve(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _figures(report: TaskReport) -> str:
    scores = report.test or report.dev
    return (
        f"{report.metric} {100 * scores[report.metric]:.2f} on test, "
        f"{100 * report.dev[report.metric]:.2f} on dev, {report.epochs} epochs in "
        f"{report.seconds_training:.0f} s after {report.seconds_preparing:.0f} s"
    )


def values_of(
    found: Sequence[dict[str, Any]], dataset: str, changes: dict[str, Any]
) -> list[float]:
    """Return the main figure, in percent, of all runs of one kind, in the order of their seeds."""
    chosen = [c for c in found if c["dataset"] == dataset and c["changes"] == changes]
    chosen.sort(key=lambda c: c["seed"])
    return [
        100 * (c["report"]["test"] or c["report"]["dev"])[c["report"]["metric"]] for c in chosen
    ]

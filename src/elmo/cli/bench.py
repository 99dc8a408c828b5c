"""`elmo bench`: how fast a model is on this machine, what memory it takes, and how exact it is."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import re
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Parameter

from elmo import __version__
from elmo.cli.main import DONE, Flags, app, say, show
from elmo.errors import ConfigError, MissingFileError
from elmo.runtime.files import write_text
from elmo.runtime.tables import NOTHING, text_table
from elmo.settings import Precision

if TYPE_CHECKING:
    import torch

    from elmo.embedder import ELMo

    Sentences = list[list[str]]

_SENTENCES = {"cpu": 256, "cuda": 10_000}
"""Sentences of the text, about 21 words each, by the kind of device."""
_CHECKED = 64
"""Sentences whose vectors are compared with fp32."""
_RUNS, _LATENCY_RUNS, _LATENCY_WORDS = 3, 20, 20
_THREADS_PER_CORE = 4
"""PyTorch crashes with more threads than a process can start."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is measured."""

    precision: Annotated[
        tuple[Precision, ...], Parameter(consume_multiple=True, show_default=False)
    ] = ()
    """One or more; by default all that the device has instructions for."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto: the CPU and, where there is one, the GPU."""
    threads: int | None = None
    """Threads on a CPU; by default one for each core."""
    json: Path | None = None
    """Write the figures to this file, too."""
    quiet: bool = False
    """No progress."""

    def __post_init__(self) -> None:
        most = _THREADS_PER_CORE * (os.cpu_count() or 1)
        if self.threads is not None and not 1 <= self.threads <= most:
            raise ConfigError(f"--threads is {self.threads}, expected at least 1, at most {most}")


@dataclass(frozen=True)
class Figures:
    """What was measured of one precision on one device."""

    precision: Precision
    device: str
    words_per_second: float
    """Of a text whose words are new to the model, all layers."""
    milliseconds: float
    """One sentence of 20 words that are new to the model."""
    milliseconds_known: float
    """The same sentence when the context-free vectors of its words are cached."""
    load_seconds: float
    peak_mb: float | None
    """Peak memory: of the process on a CPU (None where the system does not tell), else of the
    GPU."""
    largest_error: float
    """Largest absolute difference of a value from fp32 on the CPU."""
    least_cosine: float
    """Smallest cosine of a word's vector with the same in fp32 on the CPU."""


_SETTINGS = BenchSettings()


@app.command
def bench(
    model: Annotated[str | None, Parameter(name="MODEL")] = None,
    /,
    *,
    settings: Annotated[BenchSettings, Flags] = _SETTINGS,
) -> int:
    """Measure a model on this machine: speed, memory and exactness of each precision.

    The text is made up, with the statistics of English; every time is a median, after a warm-up.
    Errors are differences from fp32 vectors of the same text.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub;
        by default the default model.
    settings
        What is measured.
    """
    from elmo.hub.names import default_model, require_known

    require_known(model)
    if settings.json is not None and not settings.json.parent.is_dir():
        folder = settings.json.parent
        raise MissingFileError(f"cannot write {settings.json}: there is no folder {folder}")
    import torch

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    name = model or default_model()
    rows = _measure_all(name, settings)
    machine = _machine({row.device for row in rows})
    show(f"{name} on {machine}\n\n{_table(rows)}")
    if settings.json is not None:
        report = {"model": name, "machine": machine, "figures": [asdict(row) for row in rows]}
        write_text(settings.json, json.dumps(report, indent=2) + "\n")
    return DONE


def _measure_all(name: str, settings: BenchSettings) -> list[Figures]:
    """Measure all precisions on all devices, and tell about progress."""
    import torch

    from elmo.backends.cpu.products import runs_natively
    from elmo.embedder import ELMo
    from elmo.runtime.devices import find_device
    from elmo.text.made_up import make_sentences

    both = settings.device == "auto" and torch.cuda.is_available()
    devices = [find_device(kind) for kind in (("cpu", "cuda") if both else (settings.device,))]
    checked = make_sentences(_CHECKED, seed=1)
    exact = ELMo.from_pretrained(name, device="cpu").encode_tokens(checked)
    rows: list[Figures] = []
    refused: ConfigError | None = None
    for device in devices:
        on_cpu = device.type == "cpu"
        usable = [p for p in get_args(Precision) if not on_cpu or runs_natively(p)]
        for precision in dict.fromkeys(settings.precision or usable):
            if not settings.quiet:
                say(f"{name}: {precision} on {device}")
            try:
                rows.append(_measure(name, precision, device, checked, exact))
            except ConfigError as error:  # such as int8 on a GPU
                refused = error
                say(f"note: left out: {error}")
    if refused is not None and not rows:
        raise refused
    return rows


def _measure(
    name: str, precision: Precision, device: torch.device, checked: Sentences, exact: list[Any]
) -> Figures:
    """Load a model, compare its vectors with exact ones, each `(n_layers, n, dim)`, and time it."""
    from elmo.embedder import ELMo
    from elmo.text.made_up import make_sentence, make_sentences

    knows_peak = _restart_peak(device)
    start = time.perf_counter()
    model = ELMo.from_pretrained(name, precision=precision, device=device)
    load_seconds = time.perf_counter() - start
    largest, least = _errors(model.encode_tokens(checked), exact)
    text = make_sentences(_SENTENCES.get(device.type, _SENTENCES["cpu"]))
    one = [make_sentence(_LATENCY_WORDS)]
    return Figures(
        precision=precision,
        device=str(device),
        words_per_second=sum(map(len, text)) / _median_seconds(model, text, _RUNS),
        milliseconds=1000 * _median_seconds(model, one, _LATENCY_RUNS),
        milliseconds_known=1000 * _median_seconds(model, one, _LATENCY_RUNS, known=True),
        load_seconds=load_seconds,
        peak_mb=_peak_mb(device) if knows_peak else None,
        largest_error=largest,
        least_cosine=least,
    )


def _median_seconds(model: ELMo, sentences: Sentences, runs: int, known: bool = False) -> float:
    """Return the median time of embedding sentences after a warm-up.

    Args:
        model: The model.
        sentences: Lists of words.
        runs: Runs that count.
        known: Whether the cache of words is kept from one run to the next.
    """
    times = []
    for _ in range(1 + runs):
        if not known:
            model._pipeline.words.clear()
        start = time.perf_counter()
        vectors = model.encode_tokens(sentences)  # in host memory: nothing is left to wait for
        times.append(time.perf_counter() - start)
        del vectors
    return statistics.median(times[1:])


def _errors(found: list[Any], exact: list[Any]) -> tuple[float, float]:
    """Return the largest difference and the smallest cosine of vectors, `(n_layers, n, dim)`."""
    import numpy as np

    left, right = np.concatenate(found, axis=1), np.concatenate(exact, axis=1)
    norms = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
    cosines = (left * right).sum(axis=-1) / np.maximum(norms, np.finfo(np.float32).tiny)
    return float(np.abs(left - right).max()), float(cosines.min())


def _restart_peak(device: torch.device) -> bool:
    """Free memory and restart its peak; returns False where the system cannot: all but Linux."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        return False
    return True


def _peak_mb(device: torch.device) -> float:
    """Return the peak of memory since `_restart_peak`, in units of 10^6 bytes."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def _machine(devices: set[str]) -> str:
    """Return a line on the hardware and the software."""
    import torch

    file = Path("/proc/cpuinfo")  # of Linux; elsewhere the name is shorter
    name = re.search(r"model name\s*: (.+)", file.read_text()) if file.exists() else None
    cpu = name[1] if name else platform.processor() or platform.machine()
    gpus = [torch.cuda.get_device_name(device) for device in sorted(devices - {"cpu"})]
    hardware = ", ".join([cpu, f"{torch.get_num_threads()} threads", *gpus])
    return f"{hardware}; torch {torch.__version__}, elmo {__version__}"


def _table(rows: list[Figures]) -> str:
    """Return the figures as a table."""
    names = "precision", "words/s", "ms a sentence", "known words", "load s", "peak MB"
    cells = (
        (
            f"{row.precision} on {row.device}",
            f"{row.words_per_second:,.0f}",
            f"{row.milliseconds:.1f}",
            f"{row.milliseconds_known:.1f}",
            f"{row.load_seconds:.2f}",
            NOTHING if row.peak_mb is None else f"{row.peak_mb:,.0f}",
            f"{row.largest_error:.1e}",
            f"{row.least_cosine:.5f}",
        )
        for row in rows
    )
    return text_table((*names, "largest error", "least cosine"), cells)

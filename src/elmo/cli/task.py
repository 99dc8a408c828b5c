"""The commands of tasks: task train, evaluate, predict, split."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmo.cli.main import DONE, STOPPED, App, Flags, app, say, show
from elmo.cli.main import read_config as read_flags
from elmo.errors import MissingFileError
from elmo.runtime.files import output_errors
from elmo.settings import TokenizerName
from elmo.tasks.heads import TASKS
from elmo.tasks.settings import SplitName, TaskName, TaskSettings, read_config

if TYPE_CHECKING:
    from elmo.tasks.run.training import TaskReport

_TRAIN = TaskSettings()
_AT_ONCE = 512
"""Lines that are predicted at once."""
_Several = Parameter(consume_multiple=True)

task = App(
    name="task",
    help="Train, evaluate and use small models on top of ELMo: "
    f"{', '.join(f'{name} ({about})' for name, about in TASKS.items())}.",
)
app.command(task)


@task.command(config=read_flags)
def train(
    kind: Annotated[TaskName, Parameter(name="TASK")],
    /,
    *,
    config: Path | None = None,
    settings: Annotated[TaskSettings, Flags] = _TRAIN,
) -> int:
    """Train a task; needs --data and --out.

    ELMo's layers of all sentences are computed once and cached, so the next run on the same
    sentences starts at once. The best model on the --dev files is written to --out, for evaluate
    and predict.

    Parameters
    ----------
    kind
        The task.
    config
        TOML file whose keys are the names of these flags; flags take precedence.
    settings
        The settings.
    """
    _require(settings.model, *settings.data, *settings.dev, *settings.test)
    from elmo.tasks.run.training import train_task

    del config  # read by `read_flags`
    return _show_report(train_task(kind, settings))


@task.command
def evaluate(
    folder: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    data: Annotated[tuple[Path, ...], _Several],
    model: str | None = None,
    device: str = "auto",
    cache_dir: Path | None = None,
    predictions: Path | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Evaluate a trained head on files of the format that it was trained on.

    Parameters
    ----------
    folder
        Folder that elmo task train --out wrote.
    data
        Files to evaluate on.
    model
        Path or name of the biLM, if not that of training.
    device
        auto, cpu, cuda, cuda:1, ...
    cache_dir
        Folder for the layers of sentences; by default the user's cache folder.
    predictions
        Write all predictions to this file, as JSON lines.
    json
        Print scores as JSON.
    quiet
        No progress.
    """
    read_config(folder)
    _require(model, *data)
    from elmo.runtime.files import cache_folder
    from elmo.tasks.run.trained import TrainedTask
    from elmo.text.files import refuse_to_replace

    if predictions is not None:
        for path in data:
            refuse_to_replace(path, predictions)
    head = TrainedTask(
        folder,
        model=model,
        device=device,
        cache_dir=cache_dir or cache_folder("layers"),
        quiet=quiet,
    )
    _show_scores(head.evaluate(data, predictions), json)
    return DONE


@task.command
def predict(
    folder: Annotated[Path, Parameter(name="DIR")],
    text: Annotated[str, Parameter(name="TEXT|FILE|-", allow_leading_hyphen=True)] = "-",
    /,
    *,
    out: Path | None = None,
    model: str | None = None,
    device: str = "auto",
    tokenizer: TokenizerName | None = None,
) -> int:
    """Predict for raw text; one JSON record a line, for each text or each of its sentences.

    Parameters
    ----------
    folder
        Folder that elmo task train --out wrote.
    text
        A text; or a file with a text on each line; or - for standard input.
    out
        Write to this file instead of standard output.
    model
        Path or name of the biLM, if not that of training.
    device
        auto, cpu, cuda, cuda:1, ...
    tokenizer
        Tokenizer of the texts, if not that of training; whitespace for texts that are already
        split into words.
    """
    read_config(folder)
    _require(model)
    from elmo.tasks.run.trained import TrainedTask
    from elmo.text.files import refuse_to_replace

    head = TrainedTask(folder, model=model, device=device, tokenizer=tokenizer)
    if out is not None and text != "-":
        refuse_to_replace(text, out)
    with _opened(out) as file:
        for first, lines in _blocks(_texts(text)):
            records = head(lines)
            _write(file, ({**record, "input": first + record["input"]} for record in records))
    return DONE


@task.command
def split(
    name: Annotated[SplitName, Parameter(name="NAME")],
    source: Annotated[Path, Parameter(name="SOURCE")],
    out: Annotated[Path, Parameter(name="OUT")],
    /,
) -> int:
    """Split a data set that comes in one piece into train, dev and test.

    The same files result in the same parts: sampling has a fixed seed.

    Parameters
    ----------
    name
        The data set.
    source
        Folder with its published files, compressed or not.
    out
        Folder for the three files.
    """
    from elmo.tasks.readers.splits import SPLITS

    for path in SPLITS[name](source, out):
        show(str(path))
    return DONE


def _require(model: str | None, *files: Path) -> None:
    """Refuse a model or files that are not there, before PyTorch is imported."""
    from elmo.hub.names import find_folder, is_untrained

    for path in files:
        if not path.exists():
            raise MissingFileError(f"no such file: {path}")
    if model is not None and not is_untrained(model):
        find_folder(model)


def _show_report(report: TaskReport) -> int:
    say(str(report))
    if not report.finished:
        return STOPPED
    _show_scores(report.dev if report.test is None else report.test, as_json=False)
    return DONE


def _show_scores(scores: dict[str, float], as_json: bool) -> None:
    if as_json:
        show(json.dumps(scores))
        return
    width = max(map(len, scores))
    for name, value in scores.items():
        show(f"{name.ljust(width)}  {100 * value:6.2f}")


def _texts(given: str) -> Iterator[str]:
    """Yield the lines of a file or of standard input, or the text itself."""
    from elmo.text.files import COMPRESSED, TextFile, is_readable

    path = Path(given)
    if given == "-" or is_readable(given):
        with TextFile(given) as file:
            yield from file
    elif " " not in given and ("/" in given or path.suffix in (".txt", *COMPRESSED)):
        raise MissingFileError(f"no such file: {given}")
    else:
        yield given


def _blocks(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield lines in lists, each with the number of its first line."""
    first = 0
    while block := list(islice(lines, _AT_ONCE)):
        yield first, block
        first += len(block)


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with output_errors(path), path.open("w", encoding="utf-8") as file:
        yield file


def _write(file: IO[str], records: Iterable[dict[str, Any]]) -> None:
    lines = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
    with output_errors("to standard output" if file is sys.stdout else file.name):
        file.write(lines)
        file.flush()

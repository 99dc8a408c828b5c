"""The tasks of the paper, and classification: small models on top of ELMo.

from elmo import tasks

tasks.train("classify", data="train.csv", out="head")  # the flags of elmo task train
classifier = tasks.load("head")
classifier(["A gorgeous film .", "Two hours of nothing ."])  # a record for each

- `settings`: the user's choices, and defaults by task.
- `tag_schemes`: spans of words as tags: IOB, BIOES.
- `readers`: files of task data -> examples.
- `features`: words -> vectors.
- `heads`: the table of tasks, and their networks.
- `metrics`: evaluation.
- `run`: training, trained heads.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmo.settings import TokenizerName
    from elmo.tasks.run.trained import TrainedTask
    from elmo.tasks.run.training import TaskReport
    from elmo.tasks.settings import TaskName, TaskSettings


def train(task: TaskName, settings: TaskSettings | None = None, **changes: Any) -> TaskReport:
    """Train a task, or resume an interrupted run; as `elmo task train` does.

    Args:
        task: The task, such as `classify` or `tag`.
        settings: All settings; `data` and `out` are required.
        changes: Fields of `TaskSettings`, instead of `settings` or to replace some of them.
    """
    from elmo.tasks.run.training import train_task
    from elmo.tasks.settings import TaskSettings

    return train_task(task, (settings or TaskSettings()).replace(**changes))


def evaluate(
    folder: str | Path,
    data: str | Path | Iterable[str | Path],
    *,
    model: str | None = None,
    device: str = "auto",
    cache_dir: Path | None = None,
    quiet: bool = False,
) -> dict[str, float]:
    """Evaluate a trained head on files; return its scores, from 0 to 1, by name.

    Args:
        folder: Folder of the head.
        data: A file of the format that the head was trained on, or several.
        model: Path or name of its biLM, if not that of training.
        device: Where to compute.
        cache_dir: Folder for the layers of sentences; without it nothing is cached.
        quiet: Whether to hide the progress bar.
    """
    from elmo.tasks.run.trained import TrainedTask

    paths = [data] if isinstance(data, str | Path) else data
    head = TrainedTask(Path(folder), model=model, device=device, cache_dir=cache_dir, quiet=quiet)
    return head.evaluate([Path(path) for path in paths])


def predict(
    folder: str | Path,
    texts: str | Iterable[str],
    *,
    model: str | None = None,
    device: str = "auto",
    tokenizer: TokenizerName | None = None,
) -> list[dict[str, Any]]:
    """Predict for raw texts with a trained head; one record for each text or sentence.

    Args:
        folder: Folder of the head; to use it more than once, `load` it.
        texts: One text or many; what a text is depends on the task.
        model: Path or name of its biLM, if not that of training.
        device: Where to compute.
        tokenizer: Tokenizer of the texts, if not that of training.
    """
    return load(folder, model=model, device=device, tokenizer=tokenizer)(texts)


def load(
    folder: str | Path,
    *,
    model: str | None = None,
    device: str = "auto",
    tokenizer: TokenizerName | None = None,
) -> TrainedTask:
    """Load a trained head; the arguments are those of `predict`."""
    from elmo.tasks.run.trained import TrainedTask

    return TrainedTask(Path(folder), model=model, device=device, tokenizer=tokenizer)

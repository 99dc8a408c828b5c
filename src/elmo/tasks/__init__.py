"""The tasks of the paper, and classification: small models on top of ELMo.

from elmo import tasks

classifier = tasks.load("folder")  # what elmo task train --out wrote
classifier(["A gorgeous film .", "Two hours of nothing ."])  # a record for each

| room or module | what |
|---|---|
| `kinds` | the table of tasks |
| `settings`, `recipe` | the user's choices, and defaults by task |
| `tag_schemes` | spans of words as tags: IOB, BIOES |
| `readers` | files of task data -> examples |
| `features` | words -> vectors |
| `heads` | the six tasks and their networks |
| `metrics` | evaluation |
| `run` | training, trained heads |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmo.tasks.run.trained import TrainedTask


def load(folder: str | Path, *, model: str | None = None, device: str = "auto") -> TrainedTask:
    """Load a trained head.

    Args:
        folder: Folder that `elmo task train --out` wrote.
        model: Path or name of its biLM, if not that of training.
        device: Where to compute.
    """
    from elmo.tasks.run.trained import TrainedTask

    return TrainedTask(Path(folder), model=model, device=device)

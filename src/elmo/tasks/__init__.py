"""The tasks of the paper, and classification: small models that read ELMo.

from elmo import tasks

classifier = tasks.load("folder")  # what elmo task train --out wrote
classifier(["A gorgeous film .", "Two hours of nothing ."])  # a record for each
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmo.tasks.run.trained import TrainedTask


def load(folder: str | Path, *, model: str | None = None, device: str = "auto") -> TrainedTask:
    """Load a trained head.

    Args:
        folder: What `elmo task train --out` wrote.
        model: Where its biLM is, if not where it was in training.
        device: Where to compute.
    """
    from elmo.tasks.run.trained import TrainedTask

    return TrainedTask.load(Path(folder), model=model, device=device)

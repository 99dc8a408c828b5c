"""The progress of a run: the snapshot from which it is resumed, and its metrics as a plot."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elmo.errors import WeightsError
from elmo.runtime.files import replacing

SNAPSHOT_FILE = "last.pt"


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """Progress of a run."""

    epochs: int = 0
    """Epochs that are done."""
    step: int = 0
    seconds: float = 0.0
    """Time spent on epochs, evaluation included."""
    metrics_bytes: int = 0
    """Length of `metrics.jsonl`."""
    best: float | None = None
    """Highest value of the main metric so far."""
    best_epoch: int = 0
    """The epoch after which the main metric was highest."""


def save_progress(
    folder: Path, progress: TaskProgress, network: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write a snapshot: progress, parameters, and the state of the optimizer."""
    content = {
        "progress": dataclasses.asdict(progress),
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    with replacing(folder / SNAPSHOT_FILE) as temporary:
        torch.save(content, temporary)


def restore_progress(
    folder: Path, network: nn.Module, optimizer: torch.optim.Optimizer
) -> TaskProgress:
    """Load the snapshot of a run, if there is one, and return its progress."""
    path = folder / SNAPSHOT_FILE
    if not path.is_file():
        return TaskProgress()
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        network.load_state_dict(content["network"])
        optimizer.load_state_dict(content["optimizer"])
        return TaskProgress(**content["progress"])
    except (RuntimeError, KeyError, TypeError, ValueError, EOFError, pickle.PickleError) as error:
        reason = (str(error) or "it is cut short").splitlines()[0]
        raise WeightsError(
            f"{path} is damaged or of another run: {reason}; start over with --overwrite"
        ) from None


def draw_curve(rows: Sequence[dict[str, Any]], metric: str, path: Path) -> None:
    """Plot the rows of `metrics.jsonl`; skip it if matplotlib is missing or the file unwritable.

    Args:
        rows: Those of the whole run.
        metric: Name of the main figure.
        path: File to write.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    train = [row for row in rows if row["split"] == "train"]
    dev = [row for row in rows if row["split"] == "dev"]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([r["step"] for r in train], [r["loss"] for r in train], color="0.6", marker=".")
    axes.set_xlabel("steps")
    axes.set_ylabel("training loss", color="0.4")
    axes.set_ylim(bottom=0)
    right = axes.twinx()
    values = [100 * row[metric] for row in dev]
    right.plot([r["step"] for r in dev], values, color="#1f6f8b", marker="o", markersize=4)
    right.set_ylabel(f"dev {metric}, %", color="#1f6f8b")
    if values:
        best = max(range(len(values)), key=values.__getitem__)
        place = (dev[best]["step"], values[best])
        right.annotate(
            f"{values[best]:.2f}", place, (0, 6), textcoords="offset points", ha="center"
        )
    right.margins(y=0.15)
    axes.spines["top"].set_visible(False)
    right.spines["top"].set_visible(False)
    with suppress(OSError):  # a full disk: everything that matters has been saved
        figure.savefig(path, dpi=150)

"""The snapshot from which a run is resumed: one file, written atomically."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from elmo.errors import WeightsError
from elmo.runtime.files import replacing
from elmo.runtime.optimizer_state import optimizer_tensors, restore_optimizer

SNAPSHOT_FILE = "last.safetensors"


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """Progress of a run."""

    rounds: int = 0
    """Rounds that are done; each ends with an evaluation."""
    step: int = 0
    seconds: float = 0.0
    """Time spent on rounds, evaluation included."""
    metrics_bytes: int = 0
    """Length of `metrics.jsonl`."""
    best: float | None = None
    """Highest value of the main metric so far."""
    best_round: int = 0


def save_progress(
    folder: Path, progress: TaskProgress, network: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write a snapshot."""
    moments, rest = optimizer_tensors(optimizer)
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors = {k: v.detach().cpu().contiguous() for k, v in (tensors | moments).items()}
    header = {"progress": json.dumps(dataclasses.asdict(progress)), "rest": json.dumps(rest)}
    with replacing(folder / SNAPSHOT_FILE) as temporary:
        save_file(tensors, temporary, header)


def restore_progress(
    folder: Path, network: nn.Module, optimizer: torch.optim.Optimizer
) -> TaskProgress:
    """Load the snapshot of a run, if there is one, and return its progress."""
    path = folder / SNAPSHOT_FILE
    if not path.is_file():
        return TaskProgress()
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}
        weights = {
            name.removeprefix("network."): tensor
            for name, tensor in tensors.items()
            if name.startswith("network.")
        }
        network.load_state_dict(weights)
        rest: dict[str, Any] = json.loads(header["rest"])
        progress = TaskProgress(**json.loads(header["progress"]))
    except (SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(
            f"{path} is damaged or of another run: {str(error).splitlines()[0]}; start over with "
            "--overwrite"
        ) from None
    restore_optimizer(optimizer, tensors, rest)
    return progress

"""Snapshots of a run: everything that is needed to resume it exactly.

A snapshot is a safetensors file (weights, optimizer, state of the streams) with the progress of the
run in its header, and a file with its checksum. Both are written atomically; a snapshot without a
checksum, or with another one, is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import WeightsError
from elmo.runtime.files import output_errors, remove_partial_files, replacing, sha256_of, write_text

FOLDER = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    window: int = 0
    seconds: float = 0.0
    metrics_bytes: int = 0
    """Length of `metrics.jsonl` when the snapshot was taken."""
    best_loss: float | None = None
    """Lowest held-out loss so far."""
    best_perplexity: float | None = None
    """Perplexity at that step, the geometric mean of both directions."""
    best_step: int = 0
    n_worse: int = 0
    """Held-out measurements since that step."""


@dataclass(frozen=True)
class Snapshot:
    """The content of a snapshot."""

    progress: Progress
    tensors: dict[str, Tensor]
    settings: Mapping[str, Any]
    """Values that are not tensors: of the optimizer, the corpus."""


def save_snapshot(folder: Path, snapshot: Snapshot, keep: int) -> Path:
    """Write a snapshot, then remove old ones.

    Args:
        folder: The folder of the run.
        snapshot: What to save.
        keep: How many snapshots remain.
    """
    path = folder / FOLDER / f"{snapshot.progress.step:09d}.safetensors"
    header = {
        "progress": json.dumps(asdict(snapshot.progress)),
        "settings": json.dumps(snapshot.settings),
    }
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in snapshot.tensors.items()
    }
    advice = f"resume from the checkpoint before it with elmo train --resume {folder}"
    with output_errors(path, advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_partial_files(path.parent)
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata=header)
            checksum = sha256_of(temporary)
        write_text(_checksum_file(path), checksum + "\n")
    for old in _paths(folder)[keep:]:
        old.unlink()
        _checksum_file(old).unlink(missing_ok=True)
    return path


def load_snapshot(folder: Path) -> tuple[Snapshot | None, list[str]]:
    """Read the newest snapshot that is complete.

    Returns:
        The snapshot, or None if none was taken yet; and a note about each damaged one that was
        skipped.
    """
    notes: list[str] = []
    for path in _paths(folder):
        problem = _problem(path)
        if problem is None:
            return _read(path), notes
        notes.append(f"{path} {problem}: going back to the one before")
    if notes:
        raise WeightsError(f"no checkpoint in {folder / FOLDER} is complete: {'; '.join(notes)}")
    return None, ["the run was stopped before its first checkpoint: it starts again"]


def newest_snapshot(folder: Path) -> Path | None:
    """Return the path of the last snapshot of a run, if there is one."""
    return next(iter(_paths(folder)), None)


def _paths(folder: Path) -> list[Path]:
    """List snapshots, newest first."""
    return sorted((folder / FOLDER).glob("[0-9]*.safetensors"), reverse=True)


def _problem(path: Path) -> str | None:
    checksum = _checksum_file(path)
    if not checksum.is_file():
        return "has no checksum"
    if checksum.read_text(encoding="ascii", errors="replace").strip() != sha256_of(path):
        return "is damaged (its checksum differs)"
    return None


def _read(path: Path) -> Snapshot:
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    return Snapshot(
        Progress(**json.loads(header["progress"])), tensors, json.loads(header["settings"])
    )


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")

"""Snapshots of a run: everything it needs to go on as if nothing had happened.

A snapshot is a safetensors file (weights, optimizer, state of the streams) with the progress of the
run in its header, and a small file beside it with its checksum. Both are written under other names
and renamed when complete; a snapshot without its checksum, or with another content, is not used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import OutputError, WeightsError, reason_of

FOLDER = "snapshots"
_BLOCK = 1 << 24


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
    best_ppl: float | None = None
    """Perplexity then, the mean of both directions."""
    best_step: int = 0
    worse: int = 0
    """Measurements since then."""


@dataclass(frozen=True)
class Snapshot:
    """What is saved."""

    progress: Progress
    tensors: dict[str, Tensor]
    settings: Mapping[str, Any]
    """What is not a tensor in the optimizer's state."""


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _completed(path) as temporary:
            save_file(tensors, temporary, metadata=header)
            checksum = _checksum(temporary)
        with _completed(_checksum_file(path)) as temporary:
            temporary.write_text(checksum + "\n", encoding="ascii")
    except (OSError, SafetensorError) as error:
        raise OutputError(
            f"cannot write the snapshot {path}: {reason_of(error)}; the run can go on from the "
            f"one before with elmo train --resume {folder}"
        ) from error
    for old in _paths(folder)[keep:]:
        old.unlink()
        _checksum_file(old).unlink(missing_ok=True)
    return path


def load_snapshot(folder: Path) -> tuple[Snapshot | None, list[str]]:
    """Read the newest snapshot that is whole.

    Returns:
        The snapshot, or None if none was taken yet; and lines for people: about each damaged one
        that was passed over.
    """
    notes: list[str] = []
    for path in _paths(folder):
        problem = _problem(path)
        if problem is None:
            return _read(path), notes
        notes.append(f"{path} {problem}: going back to the one before")
    if notes:
        raise WeightsError(f"no snapshot in {folder / FOLDER} is whole: {'; '.join(notes)}")
    return None, ["the run was stopped before its first snapshot: it starts again"]


def newest_snapshot(folder: Path) -> Path | None:
    """Give the last snapshot of a run, if it has taken one."""
    return next(iter(_paths(folder)), None)


def _paths(folder: Path) -> list[Path]:
    """List snapshots, newest first."""
    return sorted((folder / FOLDER).glob("[0-9]*.safetensors"), reverse=True)


def _problem(path: Path) -> str | None:
    checksum = _checksum_file(path)
    if not checksum.is_file():
        return "has no checksum"
    if checksum.read_text(encoding="ascii", errors="replace").strip() != _checksum(path):
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


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _completed(path: Path) -> Iterator[Path]:
    """Write under another name; rename when everything is on the disk."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# --- the optimizer's state ----------------------------------------------------------------------


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Take an optimizer's state apart into tensors and the rest."""
    state = optimizer.state_dict()["state"]
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for number, values in state.items():
        for key, value in values.items():
            name = f"optimizer.{number}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                rest[name] = value
    return tensors, rest


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]
) -> None:
    """Put an optimizer's state together again."""
    description = optimizer.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **rest}.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**description, "state": state})

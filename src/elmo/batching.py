"""Which sentences run together, and in which order their words meet the recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.characters import ragged_positions


@dataclass(frozen=True)
class Packing:
    """A batch of sentences laid out time step by time step, longest sentence first.

    The words of the batch stand one sentence after another in a flat list of n places; `forward`
    and `backward` say which place comes next when reading from the left and from the right.
    """

    order: Tensor
    """Sentences from longest to shortest, int64 `(sentences,)`."""
    batch_sizes: list[int]
    """Sentences that still have a word at each time step."""
    forward: Tensor
    """Flat places in the order in which the forward layers read them, int64 `(n,)`."""
    backward: Tensor
    """The same for the backward layers, int64 `(n,)`."""


def pack(lengths: Sequence[int], device: torch.device | None = None) -> Packing:
    """Lay sentences of these lengths, each at least 1, out for the recurrent layers."""
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order]
    # Rows of a time step are a prefix of the ordered sentences: count those long enough.
    steps = np.arange(ordered[0] if len(ordered) else 0)
    batch_sizes = np.searchsorted(-ordered, -steps, side="left")
    row, step = _time_major(batch_sizes)
    starts = (np.cumsum(sizes) - sizes)[order]
    forward = starts[row] + step
    backward = starts[row] + ordered[row] - 1 - step
    return Packing(
        order=torch.from_numpy(order).to(device),
        batch_sizes=batch_sizes.tolist(),
        forward=torch.from_numpy(forward).to(device),
        backward=torch.from_numpy(backward).to(device),
    )


def _time_major(
    batch_sizes: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    step, row = ragged_positions(batch_sizes)
    return row, step


def inverse(permutation: Tensor) -> Tensor:
    """Invert a permutation of `(n,)`."""
    places = torch.empty_like(permutation)
    places[permutation] = torch.arange(len(permutation), device=permutation.device)
    return places


def plan_batches(lengths: Sequence[int], max_tokens: int, max_rows: int) -> list[list[int]]:
    """Group sentences of similar length, within a budget of words and of sentences.

    Args:
        lengths: Words of each sentence.
        max_tokens: Words in a batch; one longer sentence makes a batch of its own.
        max_rows: Sentences in a batch.

    Returns:
        Numbers of sentences, longest first; every one stands in exactly one batch.
    """
    batches: list[list[int]] = []
    tokens = 0
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        full = not batches or tokens + lengths[number] > max_tokens or len(batches[-1]) >= max_rows
        if full:
            batches.append([])
            tokens = 0
        batches[-1].append(number)
        tokens += lengths[number]
    return batches

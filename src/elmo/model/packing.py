"""Packed batches: sentences laid out time step by time step, so that no padding is computed.

Sentences are sorted by length, longest first, and step t holds the t-th word of the
`batch_sizes[t]` sentences that still have one, as in `torch.nn.utils.rnn.PackedSequence`. Lengths
3, 1 and 2 (sentences a, b, c) become

    step             0     1     2          batch_sizes = [3, 2, 1]
    forward reads    a0 c0 b0   a1 c1   a2
    backward reads   a2 c1 b0   a1 c0   a0

The backward layers read each sentence from its own last word, so they need another order, not
another layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.runtime.devices import send
from elmo.text.characters import ragged_positions

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """A packed batch; its n words stand one sentence after another in a flat list."""

    order: Tensor
    """Sentences from longest to shortest, int64 `(sentences,)`."""
    batch_sizes: list[int]
    """Sentences that still have a word at each time step."""
    forward: Tensor
    """Flat places in the order in which the forward layers read them, int64 `(n,)`."""
    backward: Tensor
    """The same for the backward layers, int64 `(n,)`."""


def pack(lengths: Sequence[int], device: torch.device | None = None) -> Packing:
    """Pack sentences of these lengths, each at least 1."""
    order, first, last, sizes = _sorted_by_length(lengths)
    step, row = ragged_positions(sizes)
    return Packing(
        order=torch.from_numpy(order).to(device),
        batch_sizes=sizes.tolist(),
        forward=torch.from_numpy(first[row] + step).to(device),
        backward=torch.from_numpy(last[row] - step).to(device),
    )


def pack_on(device: torch.device, lengths: Sequence[int]) -> Packing:
    """Pack sentences as `pack` does, expanding to words on the device without waiting for it."""
    order, first, last, sizes = _sorted_by_length(lengths)
    parts = (order, first, last, sizes, np.cumsum(sizes) - sizes)
    sent = torch.split(send(np.concatenate(parts), device), [len(part) for part in parts])
    on_order, on_first, on_last, on_sizes, before_step = sent
    n = int(sizes.sum())
    # With the size known beforehand, repeat_interleave need not ask the device for it.
    step = torch.repeat_interleave(on_sizes, output_size=n)
    row = torch.arange(n, device=device) - before_step[step]
    return Packing(
        order=on_order,
        batch_sizes=sizes.tolist(),
        forward=on_first[row] + step,
        backward=on_last[row] - step,
    )


def _sorted_by_length(lengths: Sequence[int]) -> tuple[Integers, Integers, Integers, Integers]:
    """Sort sentences, longest first.

    Returns:
        Their numbers, the flat places of their first and of their last words, all `(sentences,)`;
        and the batch sizes, `(steps,)`.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    descending = sizes[order]
    first = (np.cumsum(sizes) - sizes)[order]
    # The rows of a step are a prefix of the sorted sentences: count those longer than the step.
    steps = np.arange(descending[0] if len(descending) else 0)
    batch_sizes = np.searchsorted(-descending, -steps, side="left")
    return order, first, first + descending - 1, batch_sizes


def padded_places(sizes: Integers, steps: int) -> Integers:
    """Lay sentences out side by side, all as long as the longest may be.

    Args:
        sizes: Words of each sentence, at most `steps`, `(rows,)`; 0 for those that are not there.
        steps: Time steps.

    Returns:
        Which word stands at each place of each time step, reading forwards and backwards,
        `(2, steps * rows)`; 0 where there is none.
    """
    starts = np.cumsum(sizes) - sizes
    step = np.arange(steps)[:, None]
    both = np.stack([starts + step, starts + sizes - 1 - step])
    return np.where(step < sizes, both, 0).reshape(2, -1)


def inverse(permutation: Tensor) -> Tensor:
    """Invert a permutation of `(n,)`."""
    places = torch.empty_like(permutation)
    places[permutation] = torch.arange(len(permutation), device=permutation.device)
    return places


def step_runs(batch_sizes: Sequence[int], max_rows: int) -> Iterator[list[int]]:
    """Cut time steps into runs of at most `max_rows` rows, but at least one step."""
    for start, end in runs(np.asarray(batch_sizes, dtype=np.int64), max_rows, len(batch_sizes)):
        yield list(batch_sizes[start:end])


def runs(sizes: Integers, max_size: int, max_items: int) -> Iterator[tuple[int, int]]:
    """Cut consecutive items into runs, each as long as it may be.

    Args:
        sizes: Size of each item, `(n,)`.
        max_size: Total size of a run; a larger item makes a run of its own.
        max_items: Items in a run.

    Yields:
        Where a run begins, and where it ends.
    """
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(ends):
        within = int(np.searchsorted(ends, before + max_size, side="right"))
        end = max(start + 1, min(within, start + max_items))
        yield start, end
        start, before = end, int(ends[end - 1])

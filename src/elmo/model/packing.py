"""Which sentences run together, and in which order their words meet the recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.runtime.devices import send
from elmo.text.characters import ragged_positions


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


def pack_on(device: torch.device, lengths: Sequence[int]) -> Packing:
    """Do as `pack`, but leave what grows with the words to the device, and wait for nothing."""
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order]
    steps = np.arange(ordered[0] if len(ordered) else 0)
    batch_sizes = np.searchsorted(-ordered, -steps, side="left")
    starts = (np.cumsum(sizes) - sizes)[order]
    parts = (order, starts, starts + ordered - 1, batch_sizes, np.cumsum(batch_sizes) - batch_sizes)
    sent = torch.split(send(np.concatenate(parts), device), [len(part) for part in parts])
    on_order, on_starts, on_lasts, on_sizes, on_firsts = sent
    n = int(sizes.sum())
    step = torch.repeat_interleave(on_sizes, output_size=n)
    row = torch.arange(n, device=device) - on_firsts[step]
    return Packing(
        order=on_order,
        batch_sizes=batch_sizes.tolist(),
        forward=on_starts[row] + step,
        backward=on_lasts[row] - step,
    )


def padded_places(sizes: npt.NDArray[np.int64], steps: int) -> npt.NDArray[np.int64]:
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


def step_runs(batch_sizes: Sequence[int], max_rows: int) -> Iterator[list[int]]:
    """Cut time steps into runs of at most `max_rows` rows, but at least one step."""
    for start, end in _runs(np.asarray(batch_sizes, dtype=np.int64), max_rows, len(batch_sizes)):
        yield list(batch_sizes[start:end])


def _runs(sizes: npt.NDArray[np.int64], most: int, most_things: int) -> Iterator[tuple[int, int]]:
    """Cut things in a row into runs, each as long as it may be.

    Args:
        sizes: Of the things, `(n,)`.
        most: What those of a run may have together; one that is larger makes a run of its own.
        most_things: How many of them a run may have.

    Yields:
        Where a run begins, and where it ends.
    """
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(ends):
        within = int(np.searchsorted(ends, before + most, side="right"))
        end = max(start + 1, min(within, start + most_things))
        yield start, end
        start, before = end, int(ends[end - 1])


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
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    numbers = order.tolist()
    return [numbers[start:end] for start, end in _runs(sizes[order], max_tokens, max_rows)]

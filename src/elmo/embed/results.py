"""Vectors of batches -> one result a sentence: in host memory, or where they were computed.

On a CPU every sentence gets memory of its own. On a GPU that would be a kernel a sentence, longer
than all the computing; there, some sentences share a tensor of a few megabytes, and keeping the
vectors of one of them keeps that. Copies to host memory are made while the next batches are
computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends import host_copies
from elmo.backends.base import SHARED_BYTES
from elmo.errors import ElmoError
from elmo.model.packing import step_runs
from elmo.runtime.devices import is_out_of_memory
from elmo.runtime.interrupts import interrupts_later
from elmo.settings import OutputDtype
from elmo.text.sentences import Words, collector_paused

if TYPE_CHECKING:
    from elmo.backends.gpu.host_copies import HostCopies

_COPYING = 2
"""Batches of a GPU that are copied at a time, each by a thread that waits for it."""
_MOST_ON_THEIR_WAY = 2
"""Batches that are copied, or wait for it, while the next one is launched: they take memory."""
_DTYPES = {"float32": torch.float32, "float16": torch.float16}

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class EmbeddedBatch:
    """The vectors of some sentences."""

    numbers: list[int]
    """Which sentences."""
    sizes: list[int]
    """Words of each of them."""
    vectors: Tensor
    """Of all words, one sentence after another, `(n, dim)` or `(n_layers, n, dim)`."""

    @property
    def row_bytes(self) -> int:
        """Size of the vectors of one word."""
        return self.vectors.nbytes // max(1, self.vectors.shape[-2])


def deliver_tensors(
    batches: Iterable[EmbeddedBatch], dtype: OutputDtype = "float32"
) -> Iterator[tuple[EmbeddedBatch, Sequence[Tensor]]]:
    """Yield the vectors of each sentence of each batch, where they were computed.

    Args:
        batches: Batches that were computed, or on a GPU launched.
        dtype: Type of the tensors.
    """
    for computed in batches:
        with _advice_where_full(computed.vectors.device):
            batch = replace(computed, vectors=computed.vectors.to(_DTYPES[dtype]))
            is_here = batch.vectors.device.type == "cpu"
            parts = own_parts(batch) if is_here else shared_parts(batch)
        yield batch, parts


def own_parts(batch: EmbeddedBatch) -> list[Tensor]:
    """Copy the vectors of each sentence, so that keeping them does not keep the batch."""
    parts = torch.split(batch.vectors, batch.sizes, dim=-2)
    # By NumPy: a copy by PyTorch wakes its threads, and where other programs are on their cores
    # they wait for each other a hundred times longer than the copy takes.
    return [torch.from_numpy(part.numpy().copy()) for part in parts]


def shared_parts(batch: EmbeddedBatch, most_bytes: int = SHARED_BYTES) -> list[Tensor]:
    """Return views of each sentence's vectors in tensors of limited size."""
    parts: list[Tensor] = []
    start = 0
    for run in step_runs(batch.sizes, most_bytes // max(1, batch.row_bytes)):
        words = sum(run)
        shared = batch.vectors.narrow(-2, start, words).clone()
        with collector_paused():
            parts += torch.split(shared, run, dim=-2)
        start += words
    return parts


@contextmanager
def _advice_where_full(device: torch.device) -> Iterator[None]:
    """Raise an error that says what to change if the memory of a GPU does not hold all results."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ElmoError(
            f"the vectors of all sentences do not fit on {device}: take arrays in host memory "
            "(convert_to_tensor=False), fewer layers, or fewer sentences a call"
        ) from error


def deliver_arrays(
    batches: Iterable[EmbeddedBatch], dtype: OutputDtype = "float32"
) -> Iterator[tuple[EmbeddedBatch, Sequence[Array]]]:
    """Yield the vectors of each sentence of each batch in host memory.

    Args:
        batches: Batches that were computed, or on a GPU launched.
        dtype: Type of the arrays; on a GPU, converted before they are copied.
    """
    copies: HostCopies | None = None
    on_their_way: deque[tuple[EmbeddedBatch, Callable[[], list[Array]]]] = deque()
    with ThreadPoolExecutor(_COPYING, thread_name_prefix="elmo-copies") as workers:
        failures: list[Exception] = []
        for batch in _until_failure(batches, failures):
            if batch.vectors.device.type == "cpu":
                own = replace(batch, vectors=batch.vectors.to(_DTYPES[dtype]))
                yield batch, [part.numpy() for part in own_parts(own)]
                continue
            copies = copies or host_copies(batch.vectors.device, _DTYPES[dtype], workers)
            # In place of the batch: what it was must not stay in the GPU's memory.
            batch = replace(batch, vectors=copies.converted(batch.vectors))
            on_their_way.append((batch, copies.begin(batch.vectors, batch.sizes)))
            if len(on_their_way) > _MOST_ON_THEIR_WAY:
                yield _arrived(*on_their_way.popleft())
        while on_their_way:
            yield _arrived(*on_their_way.popleft())
        if failures:
            raise failures[0]


def _arrived(
    batch: EmbeddedBatch, wait: Callable[[], list[Array]]
) -> tuple[EmbeddedBatch, list[Array]]:
    with interrupts_later():  # the thread that copies takes the same locks
        return batch, wait()


def _until_failure(
    batches: Iterable[EmbeddedBatch], failures: list[Exception]
) -> Iterator[EmbeddedBatch]:
    """Yield batches until the last or a failure: those before it are delivered first."""
    try:
        yield from batches
    except Exception as error:  # raised again by the caller
        failures.append(error)


def deliver_windows(
    windows: Iterable[tuple[list[Words], Iterable[EmbeddedBatch]]], dtype: OutputDtype = "float32"
) -> Iterator[tuple[list[Words], list[Array]]]:
    """Yield windows of sentences with the vectors of each sentence, in host memory.

    While a GPU's last results of a window are copied, the batches of the next one are launched.

    Args:
        windows: Lists of sentences, none of them empty, with their batches.
        dtype: Type of the arrays.
    """
    begun: deque[list[Words]] = deque()

    def batches() -> Iterator[EmbeddedBatch]:
        for window, of_window in windows:
            begun.append(window)
            yield from of_window

    found: dict[int, Array] = {}
    for batch, arrays in deliver_arrays(batches(), dtype):
        found.update(zip(batch.numbers, arrays, strict=True))
        if len(found) == len(begun[0]):  # batches come in the order in which they were launched
            yield begun.popleft(), [found.pop(number) for number in range(len(found))]

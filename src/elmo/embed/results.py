"""Vectors of batches -> one result a sentence: in host memory, or where they were computed.

On a CPU every sentence gets memory of its own. On a GPU that would be a kernel a sentence, longer
than all the computing; there, some sentences share a tensor of a few megabytes, and keeping the
vectors of one of them keeps that.

Copying from a GPU is slow, too, so that it is done beside everything else, by threads and streams
of its own (`kernels/sentence_copies.py`), while the GPU computes and more is launched.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends.gpu.kernels.sentence_copies import SentenceCopies, sentence_copies
from elmo.errors import ElmoError
from elmo.model.packing import step_runs
from elmo.runtime.devices import is_out_of_memory
from elmo.runtime.interrupts import interrupts_later
from elmo.settings import OutputDtype
from elmo.text.characters import ragged_positions
from elmo.text.sentences import Words, collector_paused

SHARED_BYTES = 64 << 20
"""Sentences of a GPU share memory up to this size."""

_SMALL_BYTES = 1 << 20
"""Results up to this size are copied at once: a single sentence should not wait for anything."""
_MODEST_BYTES = 16 << 20
"""Up to this one, without a thread of Python to wait for."""
_COPYING = 2
"""Batches that are copied at a time: Python has something to do for one, another goes on."""
_MOST_THREADS = 8
"""Threads that copy a batch: more wait for the memory, or for the GPU."""
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
    """Give the vectors of each sentence of each batch, where they were computed.

    Args:
        batches: What was computed, or on a GPU launched.
        dtype: Type of the tensors.
    """
    for computed in batches:
        with _told_where_full(computed.vectors.device):
            batch = replace(computed, vectors=computed.vectors.to(_DTYPES[dtype]))
            is_here = batch.vectors.device.type == "cpu"
            parts = own_parts(batch) if is_here else shared_parts(batch)
        yield batch, parts


def own_parts(batch: EmbeddedBatch) -> list[Tensor]:
    """Give each sentence a copy of its vectors, so that keeping it does not keep the batch."""
    parts = torch.split(batch.vectors, batch.sizes, dim=-2)
    # By NumPy: a copy by PyTorch wakes its threads, and where other programs are on their cores
    # they wait for each other a hundred times longer than the copy takes.
    return [torch.from_numpy(part.numpy().copy()) for part in parts]


def shared_parts(batch: EmbeddedBatch, most_bytes: int = SHARED_BYTES) -> list[Tensor]:
    """Give each sentence a view of its vectors in a tensor of limited size."""
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
def _told_where_full(device: torch.device) -> Iterator[None]:
    """Say what to change where the memory of a GPU does not hold all results."""
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
    """Give the vectors of each sentence of each batch in host memory.

    Args:
        batches: What was computed, or on a GPU launched.
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
            copies = copies or HostCopies(batch.vectors.device, _DTYPES[dtype], workers)
            batch = copies.converted(batch)  # what it was must not stay in memory
            on_their_way.append((batch, copies.begin(batch)))
            if len(on_their_way) > _MOST_ON_THEIR_WAY:
                yield _arrived(*on_their_way.popleft())
        while on_their_way:
            yield _arrived(*on_their_way.popleft())
        if failures:
            raise failures[0]


def _arrived(
    batch: EmbeddedBatch, wait: Callable[[], list[Array]]
) -> tuple[EmbeddedBatch, list[Array]]:
    with interrupts_later():  # the thread that copies needs the same locks
        return batch, wait()


def _until_failure(
    batches: Iterable[EmbeddedBatch], failures: list[Exception]
) -> Iterator[EmbeddedBatch]:
    """Give batches until there is none, for whatever reason: those before a failure are wanted."""
    try:
        yield from batches
    except Exception as error:  # raised again by the caller
        failures.append(error)


def deliver_windows(
    windows: Iterable[list[Words]],
    batches_of: Callable[[list[Words]], Iterable[EmbeddedBatch]],
    dtype: OutputDtype = "float32",
) -> Iterator[tuple[list[Words], list[Array]]]:
    """Give one window of sentences after another, and the vectors of each sentence in host memory.

    While a GPU's last results of a window are copied, the batches of the next one are launched.

    Args:
        windows: Lists of sentences, none of them empty.
        batches_of: Computes, or on a GPU launches, the batches of a window.
        dtype: Type of the arrays.
    """
    begun: deque[list[Words]] = deque()

    def batches() -> Iterator[EmbeddedBatch]:
        for window in windows:
            begun.append(window)
            yield from batches_of(window)

    found: dict[int, Array] = {}
    for batch, arrays in deliver_arrays(batches(), dtype):
        found.update(zip(batch.numbers, arrays, strict=True))
        if len(found) == len(begun[0]):  # batches come in the order in which they were launched
            yield begun.popleft(), [found.pop(number) for number in range(len(found))]


class _Lane(threading.local):
    """What each thread that copies has for itself."""

    streams: Sequence[torch.cuda.Stream] = ()
    copies: SentenceCopies | None = None


class HostCopies:
    """Copies results of a GPU to host memory while everything else goes on.

    Args:
        device: The GPU.
        dtype: Type of the arrays.
        workers: Threads for it.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, workers: ThreadPoolExecutor
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._workers = workers
        self._lane = _Lane()

    def converted(self, batch: EmbeddedBatch) -> EmbeddedBatch:
        """Give a batch the type of the arrays, if there is room for it on the GPU."""
        try:
            return replace(batch, vectors=batch.vectors.to(self._dtype).contiguous())
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        return batch

    def begin(self, batch: EmbeddedBatch) -> Callable[[], list[Array]]:
        """Begin to copy the results of a batch that was launched last, if they are large.

        Args:
            batch: As `converted` gave it.

        Returns:
            What waits for the arrays of its sentences, and gives them.
        """
        rounded_later = batch.vectors.dtype != self._dtype
        if rounded_later or self._device.type != "cuda" or batch.vectors.nbytes <= _SMALL_BYTES:
            return partial(plain_copy, batch, self._dtype)
        launched = torch.cuda.Event()  # type: ignore[no-untyped-call]
        launched.record(torch.cuda.current_stream(self._device))
        copy = partial(self._copied, batch, launched)
        if batch.vectors.nbytes <= _MODEST_BYTES:
            return copy
        with interrupts_later():
            return self._workers.submit(copy).result

    def _copied(self, batch: EmbeddedBatch, launched: torch.cuda.Event) -> list[Array]:
        """Copy the results of a batch in a way that is fast, unless there is no room for it."""
        try:
            with torch.cuda.device(self._device):
                return self._copy(batch, launched)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, not above: what the error holds must be free. Whatever was launched has to end: it
        # may be on another stream than this thread's.
        torch.cuda.synchronize(self._device)
        return plain_copy(batch, self._dtype)

    @torch.no_grad()
    def _copy(self, batch: EmbeddedBatch, launched: torch.cuda.Event) -> list[Array]:
        lane = self._lane
        if not lane.streams:
            # Of another priority than those of recordings: PyTorch has 32 of each, taken in turn.
            threads = range(_threads_of_a_copy())
            lane.streams = [torch.cuda.Stream(priority=-1) for _ in threads]  # type: ignore[no-untyped-call]
        for stream in lane.streams:
            stream.wait_event(launched)
        lane.copies = lane.copies or sentence_copies(lane.streams, batch.row_bytes)
        *lead, _, dim = batch.vectors.shape
        layers = batch.vectors if lead else batch.vectors[None]
        runs = list(step_runs(batch.sizes, SHARED_BYTES // max(1, batch.row_bytes)))
        # NumPy asks for large pages, without which fresh memory costs more than the copy.
        dtype = str(self._dtype).removeprefix("torch.")
        arrays = [np.empty((len(layers) * sum(run), dim), dtype) for run in runs]
        if lane.copies is not None:
            targets = np.concatenate(list(map(sentence_addresses, arrays, runs)))
            lane.copies.bring(layers, np.array(batch.sizes), targets)
        else:
            copy_by_torch(layers, runs, arrays, lane.streams[0])
        with collector_paused():
            cut = partial(sentence_views, lead=lead)
            return [part for parts in map(cut, arrays, runs) for part in parts]


def _threads_of_a_copy() -> int:
    """Say how many threads copy a batch: PyTorch's, but for one that launches."""
    return max(1, min(_MOST_THREADS, (torch.get_num_threads() - 1) // _COPYING))


def plain_copy(batch: EmbeddedBatch, dtype: torch.dtype) -> list[Array]:
    """Copy the results of a batch: the reference, and the way for a few, or without any room.

    Args:
        batch: On any device.
        dtype: Type of the arrays.
    """
    here = replace(batch, vectors=batch.vectors.detach().cpu().to(dtype))
    parts = [here.vectors] if len(batch.sizes) == 1 else own_parts(here)
    return [part.numpy() for part in parts]


def copy_by_torch(
    layers: Tensor, runs: Sequence[list[int]], arrays: Sequence[Array], stream: torch.cuda.Stream
) -> None:
    """Copy vectors so that the layers of each sentence lie together: the way without a compiler.

    Args:
        layers: Shape `(n_layers, n, dim)`, on a GPU.
        runs: Words of each sentence, those that share an array together.
        arrays: Receive the vectors, `(n_layers * words of the run, dim)`.
        stream: Where to copy.
    """
    start = 0
    for run, array in zip(runs, arrays, strict=True):
        words = sum(run)
        part = layers.narrow(1, start, words)
        with torch.cuda.stream(stream):
            pinned = _pinned_like(part)
            pinned.copy_(part, non_blocking=True)
        stream.synchronize()
        rows = rows_by_sentence(len(layers), run)
        torch.index_select(pinned.flatten(0, 1), 0, rows, out=torch.from_numpy(array))
        start += words


def _pinned_like(vectors: Tensor) -> Tensor:
    return torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)


def rows_by_sentence(n_layers: int, sizes: Sequence[int]) -> Tensor:
    """Say which rows of `(n_layers * n, dim)` stand one after another in the layers of sentences.

    Args:
        n_layers: Number of layers.
        sizes: Words of each sentence, n together.
    """
    counts = np.asarray(sizes, dtype=np.int64)
    sentence, place = ragged_positions(n_layers * counts)
    starts = (np.cumsum(counts) - counts)[sentence]
    layer, word = np.divmod(place, counts[sentence])
    return torch.from_numpy(layer * counts.sum() + starts + word)


def sentence_addresses(array: Array, sizes: Sequence[int]) -> Array:
    """Say where the vectors of each sentence of an array begin in memory, int64 `(sentences,)`."""
    ends = np.cumsum(sizes)
    word_bytes = array.nbytes // max(1, int(ends[-1]))
    return array.ctypes.data + (ends - sizes) * word_bytes


def sentence_views(array: Array, sizes: Sequence[int], lead: Sequence[int]) -> list[Array]:
    """Cut an array into the vectors of its sentences.

    Args:
        array: Shape `(n_layers * n, dim)`.
        sizes: Words of each sentence, n together.
        lead: The number of layers, if the vectors of a sentence have such an axis.
    """
    views = []
    start = 0
    for size in sizes:
        end = start + size * (lead[0] if lead else 1)
        views.append(array[start:end].reshape(*lead, size, array.shape[1]))
        start = end
    return views

"""Vectors of batches -> one result a sentence: in host memory, or where they were computed.

On a CPU every sentence gets memory of its own. On a GPU that would be a kernel a sentence, longer
than all the computing; there, some sentences share a tensor of a few megabytes, and keeping the
vectors of one of them keeps that.

Copying from a GPU is slow, too, so that it is done beside everything else: two threads copy batches
through pinned memory, on streams of their own, while the GPU computes and more is launched.
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

from elmo.batching import step_runs
from elmo.characters import ragged_positions
from elmo.devices import is_out_of_memory
from elmo.errors import ElmoError
from elmo.kernels.sentence_copies import copy_by_sentence
from elmo.sentences import Words, collector_paused
from elmo.settings import OutputDtype
from elmo.signals import interrupts_later

SHARED_BYTES = 64 << 20
"""Sentences of a GPU share memory up to this size."""

_SMALL_BYTES = 1 << 20
"""Results up to this size are copied at once: a single sentence should not wait for anything."""
_MODEST_BYTES = 16 << 20
"""Up to this one, without a thread and a stream, for which new memory has to be found first."""
_COPYING = 2
"""Batches that are copied at a time: Python has something to do for one, another goes on."""
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

    stream: torch.cuda.Stream | None = None

    def __init__(self) -> None:
        self.pinned: dict[int, Tensor] = {}
        """Memory for two parts: one on its way from the GPU, one that goes on from there."""


class HostCopies:
    """Copies results of a GPU to host memory while everything else goes on.

    Args:
        device: The GPU.
        dtype: Type of the arrays.
        workers: The threads for it.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype, workers: ThreadPoolExecutor
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._workers = workers
        self._lane = _Lane()

    def begin(self, batch: EmbeddedBatch) -> Callable[[], list[Array]]:
        """Begin to copy the results of a batch that was launched last.

        Returns:
            What waits for the arrays of its sentences, and gives them.
        """
        if batch.vectors.nbytes <= _SMALL_BYTES:
            return partial(self._copied, batch, self._copy_small)
        if batch.vectors.nbytes <= _MODEST_BYTES:
            return partial(self._copied, batch, self._copy_modest)
        launched = torch.cuda.Event()  # type: ignore[no-untyped-call]
        launched.record(torch.cuda.current_stream(self._device))
        copy = partial(self._copy_large, launched=launched)
        with interrupts_later():
            return self._workers.submit(self._copied, batch, copy).result

    def _copied(
        self, batch: EmbeddedBatch, copy: Callable[[EmbeddedBatch], list[Array]]
    ) -> list[Array]:
        """Copy the results of a batch in a way that is fast, unless there is no room for it."""
        try:
            return copy(batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, not above: what the error holds must be free. Whatever was launched has to end: it
        # may be on another stream than this thread's.
        torch.cuda.synchronize(self._device)
        return copied_without_room(batch, self._dtype)

    def _copy_small(self, batch: EmbeddedBatch) -> list[Array]:
        here = batch.vectors.to(self._dtype).cpu().numpy()
        return [here] if len(batch.sizes) == 1 else array_parts(here, batch.sizes)

    @torch.no_grad()
    def _copy_modest(self, batch: EmbeddedBatch) -> list[Array]:
        current = torch.cuda.current_stream(self._device)
        return self._end_part(*self._begin_part(batch.vectors, batch.sizes, 0, current))

    @torch.no_grad()
    def _copy_large(self, batch: EmbeddedBatch, launched: torch.cuda.Event) -> list[Array]:
        """Copy the results of a batch, in parts; in one of the workers."""
        stream = self._lane.stream
        if stream is None:  # first in its turn, or float16 would wait for kernels of the model
            stream = torch.cuda.Stream(self._device, priority=-1)  # type: ignore[no-untyped-call]
            self._lane.stream = stream
        stream.wait_event(launched)
        parts: list[Array] = []
        copying: tuple[Tensor, list[int], torch.cuda.Event] | None = None
        start = 0
        runs = step_runs(batch.sizes, SHARED_BYTES // max(1, batch.row_bytes))
        for number, run in enumerate(runs):
            words = sum(run)
            vectors = batch.vectors.narrow(-2, start, words)
            begun = self._begin_part(vectors, run, number % 2, stream)
            start += words
            if copying is not None:
                parts += self._end_part(*copying)
            copying = begun
        if copying is not None:
            parts += self._end_part(*copying)
        return parts

    def _begin_part(
        self, vectors: Tensor, sizes: list[int], buffer: int, stream: torch.cuda.Stream
    ) -> tuple[Tensor, list[int], torch.cuda.Event]:
        """Start to copy the vectors of some sentences to one of the pinned buffers."""
        with torch.cuda.stream(stream):
            target = self._buffer(buffer, vectors.numel()).view(vectors.shape)
            # Each layer is without gaps: PyTorch would close those between them in more memory.
            for own, layer in zip(_layers(target), _layers(vectors), strict=True):
                own.copy_(layer.to(self._dtype), non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(stream)
        return target, sizes, done

    def _end_part(self, pinned: Tensor, sizes: list[int], done: torch.cuda.Event) -> list[Array]:
        done.synchronize()
        threads = (torch.get_num_threads() - 1) // _COPYING  # and one that launches
        return array_parts(pinned.numpy(), sizes, max(1, threads))

    def _buffer(self, number: int, values: int) -> Tensor:
        pinned = self._lane.pinned.get(number)
        if pinned is None or pinned.numel() < values:
            pinned = torch.empty(values, dtype=self._dtype, pin_memory=True)
            self._lane.pinned[number] = pinned
        return pinned[:values]


@torch.no_grad()
def copied_without_room(batch: EmbeddedBatch, dtype: torch.dtype) -> list[Array]:
    """Copy the results of a batch as they are, and do on the host what the GPU has no memory for.

    Args:
        batch: On any device.
        dtype: Type of the arrays.
    """
    here = replace(batch, vectors=batch.vectors.cpu().to(dtype))
    return [part.numpy() for part in own_parts(here)]


def array_parts(vectors: Array, sizes: Sequence[int], threads: int = 1) -> list[Array]:
    """Give each sentence its vectors, all of them in fresh memory that they share.

    Args:
        vectors: Of all words, one sentence after another, `(n, dim)` or `(n_layers, n, dim)`.
        sizes: Words of each sentence.
        threads: How many may copy.
    """
    *lead, _, dim = vectors.shape
    layers = vectors if lead else vectors[None]
    # NumPy asks for large pages, without which fresh memory costs more than the copy.
    flat = np.empty((vectors.size // dim, dim), dtype=vectors.dtype)
    counts = np.asarray(sizes, dtype=np.int64)
    if not copy_by_sentence(layers, counts, flat, threads):
        copy_by_sentence_in_torch(layers, counts, flat)
    parts = []
    start = 0
    with collector_paused():
        for size in sizes:
            end = start + size * len(layers)
            parts.append(flat[start:end].reshape(*lead, size, dim))
            start = end
    return parts


def copy_by_sentence_in_torch(vectors: Array, sizes: Array, out: Array) -> None:
    """Do as `copy_by_sentence`: the reference, and the way where nothing can be built."""
    n_layers, n, dim = vectors.shape
    sentence, place = ragged_positions(n_layers * sizes)
    starts = (np.cumsum(sizes) - sizes)[sentence]
    layer, word = np.divmod(place, sizes[sentence])
    rows = torch.from_numpy(layer * n + starts + word)
    given, target = torch.from_numpy(vectors.reshape(-1, dim)), torch.from_numpy(out)
    torch.index_select(given, 0, rows, out=target)


def _layers(vectors: Tensor) -> Tensor:
    """Give `(n, dim)` or `(n_layers, n, dim)` as the latter."""
    return vectors if vectors.dim() == 3 else vectors.unsqueeze(0)

"""Copies of results from a GPU to host memory, while the GPU computes and more is launched.

Copying is slow, so it runs concurrently, on threads and streams of its own
(`kernels/sentence_copies.py`, or PyTorch where that cannot be built).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends.base import SHARED_BYTES
from elmo.backends.gpu.kernels.sentence_copies import SentenceCopies, sentence_copies
from elmo.model.bilm import step_runs
from elmo.runtime.devices import is_out_of_memory
from elmo.runtime.interrupts import interrupts_later
from elmo.text.characters import ragged_positions
from elmo.text.sentences import collector_paused

_SMALL_BYTES = 1 << 20
"""Results up to this size are copied at once: a single sentence should not wait for anything."""
_MODEST_BYTES = 16 << 20
"""Results up to this size are copied by the thread that wants them."""
_COPYING = 2
"""Batches that are copied at a time by threads of their own, see `elmo.embed.pipeline`."""
_MOST_THREADS = 8
"""Threads that copy a batch: more wait for the memory, or for the GPU."""

Array = npt.NDArray[Any]


class _Lane(threading.local):
    """What each thread that copies keeps."""

    streams: Sequence[torch.cuda.Stream] = ()
    copies: SentenceCopies | None = None


class HostCopies:
    """Copies results of a GPU to host memory while everything else goes on.

    Args:
        device: The GPU.
        dtype: Type of the arrays.
        workers: Threads for it.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, workers: Executor) -> None:
        self._device = device
        self._dtype = dtype
        self._workers = workers
        self._lane = _Lane()

    def converted(self, vectors: Tensor) -> Tensor:
        """Return the vectors of a batch in the type of the arrays, if the GPU has memory for it."""
        try:
            return vectors.to(self._dtype).contiguous()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        return vectors

    def begin(self, vectors: Tensor, sizes: list[int]) -> Callable[[], list[Array]]:
        """Begin to copy the results of a batch that was launched last, if they are large.

        Args:
            vectors: As `converted` returned them, `(n, dim)` or `(n_layers, n, dim)`.
            sizes: Words of each sentence, n together.

        Returns:
            A function that waits for the arrays of the sentences and returns them.
        """
        rounded_later = vectors.dtype != self._dtype
        if rounded_later or self._device.type != "cuda" or vectors.nbytes <= _SMALL_BYTES:
            return partial(plain_copy, vectors, sizes, self._dtype)
        # The streams that copy wait for this event, not for what is launched after it.
        launched = torch.cuda.Event()  # type: ignore[no-untyped-call]
        launched.record(torch.cuda.current_stream(self._device))
        copy = partial(self._copied, vectors, sizes, launched)
        if vectors.nbytes <= _MODEST_BYTES:  # a thread would take longer to wake
            return copy
        with interrupts_later():
            return self._workers.submit(copy).result

    def _copied(self, vectors: Tensor, sizes: list[int], launched: torch.cuda.Event) -> list[Array]:
        """Copy the results of a batch by the fast way, or the plain one if memory is short."""
        try:
            with torch.cuda.device(self._device):
                return self._copy(vectors, sizes, launched)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, not above: what the error holds must be free. Whatever was launched has to end: it
        # may be on another stream than this thread's.
        torch.cuda.synchronize(self._device)
        return plain_copy(vectors, sizes, self._dtype)

    @torch.no_grad()
    def _copy(self, vectors: Tensor, sizes: list[int], launched: torch.cuda.Event) -> list[Array]:
        """Copy the results of a batch to arrays that sentences share; see `begin`."""
        lane = self._lane
        # The vectors of a word, all layers together.
        row_bytes = vectors.nbytes // max(1, vectors.shape[-2])
        if not lane.streams:
            # Of another priority than those of recordings: PyTorch has 32 of each, taken in turn.
            threads = range(_threads_of_a_copy())
            lane.streams = [torch.cuda.Stream(priority=-1) for _ in threads]  # type: ignore[no-untyped-call]
        # The GPU waits, not this thread: copies start as soon as the batch is computed.
        for stream in lane.streams:
            stream.wait_event(launched)
        lane.copies = lane.copies or sentence_copies(lane.streams, row_bytes)
        *lead, _, dim = vectors.shape  # lead: [n_layers], or [] for one vector a word
        layers = vectors if lead else vectors[None]
        # Sentences share arrays of bounded size: one array each would cost more than the copy.
        runs = list(step_runs(sizes, SHARED_BYTES // max(1, row_bytes)))
        # NumPy asks for large pages, without which fresh memory costs more than the copy.
        dtype = str(self._dtype).removeprefix("torch.")
        arrays = [np.empty((len(layers) * sum(run), dim), dtype) for run in runs]
        if lane.copies is not None:
            targets = np.concatenate(list(map(sentence_addresses, arrays, runs)))
            lane.copies.copy(layers, np.array(sizes), targets)
        else:
            copy_by_torch(layers, runs, arrays, lane.streams[0])
        # Many small arrays are made: the garbage collector would run again and again.
        with collector_paused():
            cut = partial(sentence_views, lead=lead)
            return [part for parts in map(cut, arrays, runs) for part in parts]


def _threads_of_a_copy() -> int:
    """Return how many threads copy a batch: PyTorch's, less one that launches."""
    return max(1, min(_MOST_THREADS, (torch.get_num_threads() - 1) // _COPYING))


def plain_copy(vectors: Tensor, sizes: list[int], dtype: torch.dtype) -> list[Array]:
    """Copy the results of a batch: the reference, for a few words, and where memory is short.

    Args:
        vectors: Shape `(n, dim)` or `(n_layers, n, dim)`, on any device.
        sizes: Words of each sentence, n together.
        dtype: Type of the arrays.
    """
    here = vectors.detach().cpu().to(dtype).numpy()
    if len(sizes) == 1:
        return [here]
    ends = np.cumsum(sizes)
    return [here[..., end - size : end, :].copy() for size, end in zip(sizes, ends, strict=True)]


def copy_by_torch(
    layers: Tensor, runs: Sequence[list[int]], arrays: Sequence[Array], stream: torch.cuda.Stream
) -> None:
    """Copy vectors so that the layers of each sentence lie together: without a compiler.

    Args:
        layers: Shape `(n_layers, n, dim)`, on a GPU.
        runs: Words of each sentence, those that share an array together.
        arrays: Receive the vectors, `(n_layers * words of the run, dim)`.
        stream: Where to copy.
    """
    start = 0
    for run, array in zip(runs, arrays, strict=True):
        words = sum(run)
        # One run at a time: to pinned memory in the layout of the GPU, then reordered to the array.
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
    """Return the rows of `(n_layers * n, dim)` in the order of sentences, each with all layers.

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
    """Return the addresses of the vectors of each sentence of an array, int64 `(sentences,)`."""
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

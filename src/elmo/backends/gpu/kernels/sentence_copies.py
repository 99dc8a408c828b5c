"""Vectors of a batch on a GPU -> arrays of the host, sentence by sentence, by a loop in C++.

The loop (`src/sentence_copies.cpp`) runs on several threads without the interpreter's lock, so that
Python goes on meanwhile. `elmo.backends.gpu.host_copies` has the reference and fallback.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends.cpu.compiler import CannotBuildError, loaded_library

Array = npt.NDArray[Any]

_PINNED_BYTES = 4 << 20
"""Bytes of each thread's pinned buffer: with less it waits for many small copies, with more they
are evicted from the cache. Wider words have more."""

_OUT_OF_MEMORY = 2
"""Error number of CUDA's driver."""

_SOURCE = Path(__file__).parents[1] / "src" / "sentence_copies.cpp"

logger = logging.getLogger(__name__)


class Driver(ctypes.Structure):
    """Addresses of functions of CUDA's driver; `Driver` of `sentence_copies.cpp`."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("use_context", "copy", "wait")]


@cache
def _library() -> ctypes.CDLL | None:
    """Build the loop; return None if that fails."""
    try:
        return loaded_library(_SOURCE, ["-pthread"], ctypes.CDLL)
    except CannotBuildError as reason:
        logger.info("vectors come to the host by PyTorch: %s", reason)
        return None


@cache
def _cuda() -> ctypes.CDLL | None:
    """Load CUDA's driver; return None where it has not the name that it has on Linux."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as reason:
        logger.info("vectors come to the host by PyTorch: %s", reason)
        return None


class SentenceCopies:
    """Threads that copy vectors from a GPU, with their buffers; for one call at a time.

    Args:
        driver: Functions of CUDA's driver.
        context: Its context of the GPU.
        streams: A stream for each thread.
        pinned: Memory that the GPU can write to, uint8; a part for each thread.
    """

    def __init__(
        self, driver: Driver, context: ctypes.c_void_p, streams: Sequence[int], pinned: Tensor
    ) -> None:
        self._driver = driver
        self._context = context
        self._streams = np.array(streams, dtype=np.uint64)
        self._pinned = pinned

    def copy(self, vectors: Tensor, sizes: Array, targets: Array) -> None:
        """Copy vectors so that the layers of each sentence lie together.

        Args:
            vectors: Shape `(n_layers, n, dim)`, without gaps, on the GPU.
            sizes: Words of each sentence, n together, int64 `(sentences,)`.
            targets: Addresses of the memory of each sentence, `(n_layers, words, dim)`, int64
                `(sentences,)`.
        """
        n_layers, n, dim = vectors.shape
        first_words = np.concatenate([[0], np.cumsum(sizes)])
        if not (vectors.is_contiguous() and first_words[-1] == n and np.all(sizes >= 0)):
            raise ValueError(f"{tuple(vectors.shape)} in sentences of {sizes} words")
        row_bytes = dim * vectors.itemsize
        threads = len(self._streams)
        capacity = self._pinned.numel() // threads // (n_layers * row_bytes)
        assert capacity, "words are larger than the buffer: see `sentence_copies`"
        library = _library()
        assert library is not None, "no library: see `sentence_copies`"
        error = library.elmo_copy_sentences(
            ctypes.byref(self._driver),
            self._context,
            ctypes.c_void_p(self._streams.ctypes.data),
            ctypes.c_void_p(self._pinned.data_ptr()),
            *map(ctypes.c_int64, (capacity, threads)),
            ctypes.c_uint64(vectors.data_ptr()),
            *(ctypes.c_void_p(array.ctypes.data) for array in (first_words, targets)),
            *map(ctypes.c_int64, (len(sizes), n_layers, row_bytes)),
        )
        if error:
            known = "out of memory" if error == _OUT_OF_MEMORY else f"the driver says {error}"
            raise RuntimeError(f"CUDA error: {known}, while vectors were copied to the host")


def sentence_copies(streams: Sequence[torch.cuda.Stream], word_bytes: int) -> SentenceCopies | None:
    """Prepare the loop for the current GPU; return None where it cannot run.

    Args:
        streams: One for each thread.
        word_bytes: Size of the vectors of a word, all layers together.
    """
    cuda = _cuda()
    if cuda is None or _library() is None:
        return None
    size = len(streams) * max(_PINNED_BYTES, word_bytes)
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    context = ctypes.c_void_p()
    if cuda.cuCtxGetCurrent(ctypes.byref(context)) or not context:
        return None
    functions = (cuda.cuCtxSetCurrent, cuda.cuMemcpyDtoHAsync_v2, cuda.cuStreamSynchronize)
    driver = Driver(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
    return SentenceCopies(driver, context, [stream.cuda_stream for stream in streams], pinned)

"""Vectors of a batch, layer by layer -> the same sentence by sentence, by a loop in C++.

The loop (`host/sentence_copies.cpp`) uses several threads and no step of Python, which goes on
meanwhile. The plain reference is in `elmo.delivery`, which takes it where nothing can be built.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.kernels.compiler import CannotBuildError, loaded_library

Array = npt.NDArray[Any]

_SOURCE = Path(__file__).parent / "host" / "sentence_copies.cpp"

logger = logging.getLogger(__name__)


@cache
def _library() -> ctypes.CDLL | None:
    """Give the loop, or None if it cannot be built."""
    try:
        return loaded_library(_SOURCE, ["-pthread"], ctypes.CDLL)
    except CannotBuildError as reason:
        logger.info("vectors are sorted by PyTorch: %s", reason)
        return None


def copy_by_sentence(vectors: Array, sizes: Array, out: Array, threads: int) -> bool:
    """Copy vectors so that the layers of each sentence lie together.

    Args:
        vectors: Shape `(n_layers, n, dim)`, without gaps.
        sizes: Words of each sentence, n together, int64 `(sentences,)`.
        out: Receives all layers of the first sentence, then those of the second, ...; without gaps,
            `(n_layers * n, dim)`.
        threads: How many may be used, that of the caller included.

    Returns:
        Whether it was done: not where the loop cannot be built.
    """
    n_layers, n, dim = vectors.shape
    first_words = np.concatenate([[0], np.cumsum(sizes)])
    fits = out.shape == (n_layers * n, dim) and out.dtype == vectors.dtype
    whole = vectors.flags.c_contiguous and out.flags.c_contiguous
    if not (fits and whole and first_words[-1] == n and np.all(sizes >= 0)):
        raise ValueError(f"{vectors.shape} in sentences of {sizes} words, to {out.shape}")
    library = _library()
    if library is None:
        return False
    library.elmo_copy_by_sentence(
        *(ctypes.c_void_p(array.ctypes.data) for array in (vectors, out, first_words)),
        *map(ctypes.c_int64, (len(sizes), n_layers, dim * vectors.itemsize, threads)),
    )
    return True

"""Words of Python lists -> numbers, by loops in C++ (`src/word_numbers.cpp`).

The plain references are in `elmo.backends.gpu.word_table`, used where nothing can be built.
"""

from __future__ import annotations

import ctypes
import logging
import sysconfig
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.backends.cpu.compiler import CannotBuildError, loaded_library

Numbers = npt.NDArray[np.int64]

_SOURCE = Path(__file__).parents[1] / "src" / "word_numbers.cpp"

logger = logging.getLogger(__name__)


@cache
def _library() -> ctypes.PyDLL | None:
    """Build the loops; return None if that fails, such as without Python's headers."""
    flags = [f"-I{sysconfig.get_path('include')}"]
    try:
        library = loaded_library(_SOURCE, flags, ctypes.PyDLL)
    except CannotBuildError as reason:
        logger.info("words are looked up in Python: %s", reason)
        return None
    library.elmo_find_words.restype = ctypes.c_int64
    library.elmo_renumber.restype = ctypes.c_int64
    return library


def find_words(
    sentences: list[list[str]], numbers: dict[str, int], first_new: int
) -> Numbers | None:
    """Return the number of every word, one sentence after another.

    Args:
        sentences: Lists of words.
        numbers: Numbers of words. New words are added, in the order in which they come.
        first_new: The number of the first new word; the others follow.

    Returns:
        Shape `(n,)`; None without the loops, or if there is anything but plain strings in plain
        lists. Then words may have been added nevertheless.
    """
    library = _library()
    if library is None:
        return None
    found = np.empty(sum(map(len, sentences)), dtype=np.int64)
    n_new = library.elmo_find_words(
        ctypes.py_object(sentences),
        ctypes.py_object(numbers),
        ctypes.c_int64(first_new),
        ctypes.c_void_p(found.ctypes.data),
        ctypes.c_int64(len(found)),
    )
    return None if n_new < 0 else found


def renumber_runs(
    numbers: Numbers, starts: Numbers, sizes: Numbers, limit: int
) -> tuple[Numbers, Numbers] | None:
    """Renumber the numbers in runs of an array, without gaps.

    Args:
        numbers: Each from 0 to `limit - 1`, `(n,)`.
        starts: Where runs begin, `(runs,)`.
        sizes: How long they are, `(runs,)`.
        limit: Bound of the numbers.

    Returns:
        The distinct numbers of all runs, sorted; and, one run after another, the index of each of
        their numbers among these. None without the loops, or if something is out of bounds.
    """
    library = _library()
    if library is None:
        return None
    arrays = [np.ascontiguousarray(array, dtype=np.int64) for array in (numbers, starts, sizes)]
    places = np.empty(int(sizes.sum()), dtype=np.int64)
    distinct = np.empty(min(len(places), limit), dtype=np.int64)
    marks = np.empty(limit, dtype=np.int32)
    count = library.elmo_renumber(
        *(ctypes.c_void_p(array.ctypes.data) for array in arrays),
        ctypes.c_int64(len(numbers)),
        ctypes.c_int64(len(starts)),
        ctypes.c_int64(limit),
        *(ctypes.c_void_p(array.ctypes.data) for array in (marks, distinct, places)),
    )
    return None if count < 0 else (distinct[:count], places)

"""What the C++ kernel works with: threads that PyTorch leaves to it, memory laid out for it."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from elmo.backends.cpu.compiler import present_kernel

_HUGE = 2 << 20
"""Bytes from which memory is in pages of its own, large ones where the system has them."""
_LARGE_PAGE = 2 << 20
"""Bytes of a large page; it begins at a multiple of its size."""
_ROOM = 128 << 20
"""Bytes for which `reused_rows` asks at once: what is not used is never there."""
SMALL_ROOM = 4 << 20
"""The same for a sentence or two; so much is kept between calls."""
_GAP = 64
"""Bytes between rows: one line of the cache."""


# --- threads --------------------------------------------------------------------------------------


class _Threads:
    """How many threads the kernel may use, while PyTorch is kept to one; see `own_threads`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._borrowers = 0
        self._number = 1

    def borrow(self) -> None:
        with self._lock:
            if not self._borrowers:  # else PyTorch would say 1
                self._number = torch.get_num_threads()
            self._borrowers += 1
            torch.set_num_threads(1)

    def give_back(self) -> None:
        with self._lock:  # or another thread could read what is not given back yet
            self._borrowers -= 1
            torch.set_num_threads(self._number)

    @property
    def number(self) -> int:
        return self._number if self._borrowers else torch.get_num_threads()


class _Depth(threading.local):
    """How often each thread has entered `own_threads`."""

    depth = 0


_threads = _Threads()
_entered = _Depth()


def thread_count() -> int:
    """Give how many threads the kernel may use."""
    return _threads.number


@contextmanager
def own_threads() -> Iterator[None]:
    """Keep PyTorch to the calling thread, and leave its other threads' cores to the kernel.

    After each operation PyTorch's threads wait for the next one for some milliseconds without
    sleeping. A kernel that starts meanwhile would have to share their cores: a single sentence took
    half as long again. Inside itself it does nothing more.
    """
    outside = _entered.depth
    try:
        _entered.depth = outside + 1
        with nullcontext() if outside else _borrowed():
            yield
    finally:
        _entered.depth = outside


@contextmanager
def _borrowed() -> Iterator[None]:
    _threads.borrow()
    try:
        present_kernel().elmo_keep_team(ctypes.c_int64(_threads.number))
        yield
    finally:
        present_kernel().elmo_dismiss_team()
        _threads.give_back()
        if _room.bytes is not None and len(_room.bytes) > SMALL_ROOM:
            _room.bytes = None


# --- memory ---------------------------------------------------------------------------------------


class _Room(threading.local):
    """Memory of each thread for results that are read before the next ones are computed."""

    bytes: Tensor | None = None


_room = _Room()


def empty_rows(rows: int, width: int) -> Tensor:
    """Give room for `(rows, width)` float32, with a gap between rows.

    At distances of a power of two, rows would share a few lines of the cache and drive each other
    out of it.
    """
    return torch.empty(rows, width + _GAP // 4)[:, :width]


def reused_rows(rows: int, width: int) -> Tensor:
    """Give the same as `empty_rows`, in memory that the thread's next call gives again.

    Fresh memory costs more than many a product: the system has to find and clear each of its pages.
    If it is much, it goes back at the end of `own_threads`.
    """
    pitch = width + _GAP // 4
    n_bytes = rows * pitch * 4
    if _room.bytes is None or len(_room.bytes) < n_bytes:
        _room.bytes = None  # two at a time are not needed
        room = SMALL_ROOM if n_bytes <= SMALL_ROOM else max(n_bytes, _ROOM)
        _room.bytes = roomy(room, torch.uint8)
    return _room.bytes[:n_bytes].view(torch.float32).view(rows, pitch)[:, :width]


def roomy(n_values: int, dtype: torch.dtype) -> Tensor:
    """Give uninitialised memory; if it is much, in large pages, which are found more quickly."""
    n_bytes = n_values * dtype.itemsize
    if n_bytes < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(n_values, dtype=dtype)
    # Private: the system has no large pages for memory that others could share.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, n_bytes + _LARGE_PAGE, flags=private)
    pages.madvise(mmap.MADV_HUGEPAGE)
    first = -ctypes.addressof(ctypes.c_char.from_buffer(pages)) % _LARGE_PAGE
    return torch.frombuffer(pages, dtype=dtype, count=n_values, offset=first)

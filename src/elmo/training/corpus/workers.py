"""Worker processes: bounded memory, results in order, and an end with their parent."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol, TypeVar

from elmo.errors import OutputError
from elmo.runtime.interrupts import interrupts_later

Job = TypeVar("Job")
Result = TypeVar("Result")

_MOST_WORKERS = 6
"""Each needs about 220 MB; more only if --workers asks for them."""
_JOBS_AHEAD = 2


class Mapper(Protocol):
    """Applies a function to jobs and yields the results in the order of the jobs."""

    def __call__(
        self, function: Callable[[Job], Result], jobs: Iterable[Job], /
    ) -> Iterator[Result]:
        """Apply a function to jobs."""


def default_workers() -> int:
    """Return the number of usable cores, six at most; 1 for a script that may not start any.

    A spawned process imports the main script of its parent again: without the guard
    `if __name__ == "__main__"` it would run all of it once more.
    """
    if not _main_is_guarded():
        return 1
    has_affinity = hasattr(os, "sched_getaffinity")  # counts taskset and containers; Linux only
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


def _main_is_guarded() -> bool:
    """Return whether the main module can be imported by another process; no file needs no guard."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None:
        return True
    try:
        return "__name__" in Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


@contextmanager
def workers(count: int) -> Iterator[Mapper]:
    """Start processes and stop them at the end; one worker is this process itself.

    Only a few jobs are taken from their iterator ahead of the results, so that memory stays
    bounded. After an error or an interruption, jobs that have started are completed.
    """
    if count == 1:
        yield map
        return
    # Spawned: a forked process would inherit the state of threads that PyTorch may have started.
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
    )

    # An interrupt inside `submit` or `result` would leave locks held that threads of the pool need,
    # and `shutdown` would wait for ever.
    def in_parallel(function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        pending: deque[Future[Result]] = deque()

        def next_result() -> Result:
            with interrupts_later():
                return pending.popleft().result()

        for job in jobs:
            with interrupts_later():
                pending.append(pool.submit(function, job))
            if len(pending) >= count * _JOBS_AHEAD:
                yield next_result()
        while pending:
            yield next_result()

    try:
        yield in_parallel
    except BrokenProcessPool:
        raise OutputError(
            "a worker process was ended from outside, perhaps for lack of memory; run the same "
            "with --resume, and fewer --workers if it happens again"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and end with it."""
    # Words and numbers form no reference cycles; collecting them takes a tenth of the time.
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # nobody reads results any more; files are atomic

"""Work for several processes: bounded, in order, and gone when the one that asked for it is."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Protocol, TypeVar

from elmo.errors import OutputError
from elmo.runtime.interrupts import interrupts_later

Job = TypeVar("Job")
Result = TypeVar("Result")

_MOST_WORKERS = 6
"""Each needs about 220 MB; more only where somebody asks for them."""
_JOBS_AHEAD = 2


class Mapper(Protocol):
    """Applies a function to jobs and yields the results in the order of the jobs."""

    def __call__(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """Apply a function to jobs."""
        ...


def default_workers() -> int:
    """Give the number of usable cores, within reason."""
    if hasattr(os, "sched_getaffinity"):  # knows of taskset and containers; Linux only
        return min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    return min(os.cpu_count() or 1, _MOST_WORKERS)


@contextmanager
def workers(count: int) -> Iterator[Mapper]:
    """Start processes and stop them at the end; one worker is this process itself.

    Jobs are taken from their iterator only a little ahead of the results, so that memory stays
    bounded. After an error or an interruption, jobs that were begun are completed.
    """
    if count == 1:
        yield _one_by_one
        return
    # Fresh processes: a copy of this one would share threads that PyTorch may have started.
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
    )

    # Interrupted inside of the pool, `submit` and `result` would leave locks held that its threads
    # need, and the end of the pool would be waited for in vain.
    def in_parallel(function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()

        def next_result() -> Result:
            with interrupts_later():
                return waiting.popleft().result()

        for job in jobs:
            with interrupts_later():
                waiting.append(pool.submit(function, job))
            if len(waiting) >= count * _JOBS_AHEAD:
                yield next_result()
        while waiting:
            yield next_result()

    try:
        yield in_parallel
    except BrokenProcessPool:
        raise OutputError(
            "a worker process was ended from outside, perhaps for want of memory; run the same "
            "with --resume, and fewer --workers if it happens again"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _one_by_one(function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    return map(function, jobs)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, and do not outlive it."""
    # Words and numbers make no cycles; looking for some takes a tenth of the time.
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # nobody is left to read results; files are complete or not there

"""Context managers that defer Ctrl-C and SIGTERM to safe points.

Python raises `KeyboardInterrupt` between any two instructions of the main thread, also inside the
locks, queues and pools of its standard library: a lock is then never released, and the command
hangs instead of ending.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block; a second one is raised at once."""
    if signal.getsignal(signal.SIGINT) is None:  # the handler of another program stays in place
        yield
        return
    seen: list[int] = []
    try:
        with _collecting(seen, signal.SIGINT):
            yield
    finally:
        if seen:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM in a list, for a loop to stop at its next safe point.

    A second one is raised at once as `KeyboardInterrupt`.
    """
    seen: list[int] = []
    with _collecting(seen, signal.SIGINT, signal.SIGTERM):
        yield seen


@contextmanager
def _collecting(seen: list[int], *numbers: int) -> Iterator[None]:
    """Append the first of some signals to a list; raise `KeyboardInterrupt` at the second one."""

    def note(number: int, _: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield
        return
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

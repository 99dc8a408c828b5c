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
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is None:
        yield  # only the main thread is interrupted; handlers of other programs stay in place
        return
    seen: list[int] = []

    def note(number: int, _: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM in a list, for a loop to stop at its next safe point.

    A second one is raised at once as `KeyboardInterrupt`.
    """
    seen: list[int] = []

    def note(number: int, _: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, note) for number in numbers]
    except ValueError:  # not the main thread, which alone receives signals
        yield seen
        return
    try:
        yield seen
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

"""Ctrl-C and polite kills, noticed when it does no harm.

Python raises `KeyboardInterrupt` between any two steps of the main thread, also those inside of
locks, queues and pools of its own library, which are then left as they are: a lock that is held for
ever, and a command that hangs instead of ending.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Keep Ctrl-C until the end of what must not be left halfway; a second one is not kept."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is None:
        yield  # it is raised in the main thread only, and not where a program around us handles it
        return
    seen: list[int] = []

    def note(number: int, _: Any) -> None:
        if seen:  # the user is in a hurry
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
    """Collect Ctrl-C and polite kills, so that the step in progress is finished and saved."""
    seen: list[int] = []

    def note(number: int, _: Any) -> None:
        if seen:  # a second one: the user is in a hurry
            raise KeyboardInterrupt
        seen.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, note) for number in numbers]
    except ValueError:  # not the main thread: whoever runs us there handles signals
        yield seen
        return
    try:
        yield seen
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

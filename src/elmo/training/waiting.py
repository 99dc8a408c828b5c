"""What happens beside the loop: the next batch is prepared, signals are noticed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def prepared_ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """Prepare the next item in another thread while one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as pool:

        def give() -> Iterator[T]:
            coming = pool.submit(next, items)
            while True:
                item = coming.result()
                coming = pool.submit(next, items)
                yield item

        yield give()


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

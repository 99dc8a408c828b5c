"""What happens beside the loop: the next batch is prepared, signals are noticed."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def prepared_ahead(
    prepare: Callable[[T], U], items: Iterator[T], workers: int
) -> Iterator[Iterator[U]]:
    """Prepare the next items in other threads while one is worked on; their order stays.

    Args:
        prepare: What is done to each item.
        items: The items, without end.
        workers: Threads.
    """
    with ThreadPoolExecutor(max_workers=workers) as pool:

        def give() -> Iterator[U]:
            coming = deque(pool.submit(prepare, next(items)) for _ in range(workers + 1))
            while True:
                item = coming.popleft().result()
                coming.append(pool.submit(prepare, next(items)))
                yield item

        try:
            yield give()
        finally:
            pool.shutdown(cancel_futures=True)


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

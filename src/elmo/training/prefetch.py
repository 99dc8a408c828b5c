"""What happens beside the loop: the next batches are prepared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

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

"""Timing on a machine whose speed wavers: everything in turn, round after round.

Whatever slows the machine for a while slows all contenders of a round alike. So two contenders are
compared within each round, and the median of these ratios is what counts; the ratio of two medians,
taken minutes apart, would not be as steady.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Rounds = list[float]
"""Seconds of one contender, a number for each round."""


def nothing() -> None:
    """Prepare for nothing."""


@dataclass(frozen=True)
class Contender:
    """Something to be timed."""

    name: str
    run: Callable[[], object]
    """What is timed; its result is dropped after the clock has stopped."""
    prepare: Callable[[], object] = nothing
    """What is done before each run, off the clock."""


@dataclass(frozen=True)
class Spread:
    """A number measured several times."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarize values, at least one."""
        return cls(statistics.median(values), min(values), max(values))


def interleave(contenders: Sequence[Contender], rounds: int) -> dict[str, Rounds]:
    """Time all contenders one after another, so many times over.

    Returns:
        Seconds by name.
    """
    seconds: dict[str, Rounds] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            seconds[contender.name].append(_time(contender))
    return seconds


def ratios(slower: Rounds, faster: Rounds) -> Spread:
    """Compare two contenders round by round: how many times as long the first one takes."""
    return Spread.of([a / b for a, b in zip(slower, faster, strict=True)])


def rates(amount: float, seconds: Rounds) -> Spread:
    """Give the amount per second of each round."""
    return Spread.of([amount / s for s in seconds])


def _time(contender: Contender) -> float:
    contender.prepare()
    gc.collect()
    start = time.perf_counter()
    result = contender.run()
    seconds = time.perf_counter() - start
    del result  # kept until here: freeing memory is not what is measured
    return seconds

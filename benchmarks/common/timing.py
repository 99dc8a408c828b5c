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

from tqdm import tqdm

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
    words: int = 1
    """Words that a run embeds."""


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


def interleave(
    contenders: Sequence[Contender], rounds: int, label: str = "", show_progress: bool = False
) -> dict[str, Rounds]:
    """Time all contenders one after another, so many times over.

    Args:
        contenders: What is timed, in the order of their turns.
        rounds: How many turns each has.
        label: What the line of progress says.
        show_progress: Whether there is such a line, if a terminal is there to show it.

    Returns:
        Seconds by name.
    """
    seconds: dict[str, Rounds] = {contender.name: [] for contender in contenders}
    turns = [contender for _ in range(rounds) for contender in contenders]
    hidden = None if show_progress else True  # None: hidden unless on a terminal
    with tqdm(turns, desc=label, disable=hidden, leave=False, unit="run") as bar:
        for contender in bar:
            bar.set_postfix_str(contender.name)
            seconds[contender.name].append(_time(contender))
    return seconds


def ratios(ours: Rounds, theirs: Rounds) -> Spread:
    """Compare two contenders round by round: how many times as much the first one has."""
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])


def rates(amount: float, seconds: Rounds) -> Rounds:
    """Return the amount per second of each round."""
    return [amount / s for s in seconds]


def _time(contender: Contender) -> float:
    contender.prepare()
    gc.collect()
    start = time.perf_counter()
    result = contender.run()
    seconds = time.perf_counter() - start
    del result  # kept until here: freeing memory is not what is measured
    return seconds

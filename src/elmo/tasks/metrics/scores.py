"""Precision, recall and F1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Self

Tags = Sequence[str]
Finds = Callable[[Tags], Sequence[tuple[str, Hashable]]]
"""Finds what tags say: the kind of each thing, and what makes it this one."""


def ratio(part: float, whole: float) -> float:
    """Divide; 0 where there is nothing to divide by."""
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class Score:
    """How many of the predictions are right, and how much of the truth was found."""

    precision: float
    recall: float

    @classmethod
    def of_counts(cls, correct: int, predicted: int, gold: int) -> Self:
        """Make a score of numbers of things; nothing predicted or nothing to find gives 0."""
        return cls(ratio(correct, predicted), ratio(correct, gold))

    @property
    def f1(self) -> float:
        """Harmonic mean of the two."""
        return ratio(2 * self.precision * self.recall, self.precision + self.recall)


class Tally:
    """Counts things that tags say, by kind: right ones, predicted ones, those that were meant.

    Args:
        gold: The tags of every sentence.
        predicted: The same, predicted.
        finds: Finds the things of a sentence.
    """

    def __init__(self, gold: Sequence[Tags], predicted: Sequence[Tags], finds: Finds) -> None:
        self._correct: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        self._meant: Counter[str] = Counter()
        for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
            if len(gold_tags) != len(predicted_tags):
                raise ValueError(f"{len(predicted_tags)} tags predicted for {len(gold_tags)} words")
            true, found = finds(gold_tags), finds(predicted_tags)
            self._correct.update(kind for kind, _ in set(true) & set(found))
            self._given.update(kind for kind, _ in found)
            self._meant.update(kind for kind, _ in true)

    def score(self) -> Score:
        """Give the score of all things together."""
        return Score.of_counts(self._correct.total(), self._given.total(), self._meant.total())

    def scores(self) -> dict[str, Score]:
        """Give the score of each kind, sorted."""
        return {
            kind: Score.of_counts(self._correct[kind], self._given[kind], self._meant[kind])
            for kind in sorted(self._given | self._meant)
        }

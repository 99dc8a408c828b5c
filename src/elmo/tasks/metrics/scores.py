"""Precision, recall and F1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


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

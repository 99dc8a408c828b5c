"""One label for each example: accuracy, and F1 as the mean over labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elmo.tasks.metrics.scores import Score, ratio


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Give the share of labels that are right."""
    return ratio(sum(a == b for a, b in zip(gold, predicted, strict=True)), len(gold))


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Score]:
    """Give the score of each label that was meant or predicted, sorted by label."""
    correct = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    meant, given = Counter(gold), Counter(predicted)
    return {
        label: Score.of_counts(correct[label], given[label], meant[label])
        for label in sorted(meant | given)
    }


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Give the mean of the F1 of all labels that were meant or predicted; rare ones count alike."""
    scores = label_scores(gold, predicted)
    return ratio(sum(score.f1 for score in scores.values()), len(scores))

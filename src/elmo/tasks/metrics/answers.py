"""Answers as SQuAD v1.1 scores them: exact match, and F1 of words, after normalization."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmo.tasks.metrics.scores import Score, ratio

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(answer: str) -> str:
    """Lower-case a text; remove ASCII punctuation, then articles, then superfluous white space."""
    bare = answer.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def answer_f1(predicted: str, gold: str) -> float:
    """Return the F1 of the words of two answers; 0 if they share none, even if both are empty."""
    found, true = normalized(predicted).split(), normalized(gold).split()
    common = (Counter(found) & Counter(true)).total()
    return Score.of_counts(common, len(found), len(true)).f1


def answer_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Score answers, each against the closest of the correct answers.

    Args:
        gold: For every question the correct answers.
        predicted: For every question one answer.

    Returns:
        `exact_match` and `f1`, means over all questions, from 0 to 1.
    """
    exact = f1 = 0.0
    for answers, answer in zip(gold, predicted, strict=True):
        exact += max((normalized(answer) == normalized(one) for one in answers), default=False)
        f1 += max((answer_f1(answer, one) for one in answers), default=0.0)
    return {"exact_match": ratio(exact, len(gold)), "f1": ratio(f1, len(gold))}

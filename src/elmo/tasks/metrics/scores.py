"""Accuracy; precision, recall and F1 of labels, spans and semantic roles; answers of SQuAD."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Self

from elmo.tasks.tag_schemes import spans_of

Tags = Sequence[str]
Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A role and its pieces: first word, and the one behind the last."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERB = "V"
_CONTINUED = "C-"


def ratio(part: float, whole: float) -> float:
    """Divide; return 0 for a denominator of 0."""
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class Score:
    """Precision and recall."""

    precision: float
    recall: float

    @classmethod
    def of_counts(cls, correct: int, predicted: int, gold: int) -> Self:
        """Compute a score from counts; nothing predicted or nothing to find scores 0."""
        return cls(ratio(correct, predicted), ratio(correct, gold))

    @property
    def f1(self) -> float:
        """Harmonic mean of the two."""
        return ratio(2 * self.precision * self.recall, self.precision + self.recall)

    def as_dict(self) -> dict[str, float]:
        """Return F1, precision and recall by name."""
        return {"f1": self.f1, "precision": self.precision, "recall": self.recall}


# --- one label per example ------------------------------------------------------------------------


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the share of correct labels."""
    return ratio(sum(a == b for a, b in zip(gold, predicted, strict=True)), len(gold))


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the mean F1 of all labels that are in the data or predicted, each counting alike."""
    correct = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    true, found = Counter(gold), Counter(predicted)
    labels = sorted(true | found)
    scores = [Score.of_counts(correct[label], found[label], true[label]) for label in labels]
    return ratio(sum(score.f1 for score in scores), len(scores))


# --- spans of words -------------------------------------------------------------------------------


def span_score(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Score:
    """Score typed spans as the CoNLL scorer and seqeval do.

    A predicted span is correct if its first word, its last word and its type are. Spans of all
    sentences are counted together (micro average). Tags may follow any scheme: `I-X` after `O`
    begins a span.

    Args:
        gold: The tags of every sentence.
        predicted: The same, predicted.
    """
    return _micro_average(gold, predicted, spans_of)


def role_score(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Score:
    """Score arguments of all predicates together, as the scorer of CoNLL-2005 (srl-eval) does.

    Args:
        gold: For every predicate the tags of its sentence.
        predicted: The same, predicted.
    """
    return _micro_average(gold, predicted, arguments_of)


def arguments_of(tags: Tags) -> list[Argument]:
    """Return the arguments of one predicate, without the predicate (`V`, `C-V`) itself.

    The pieces of a discontinuous argument (`A1 ... C-A1`) are one argument, correct if all of them
    are; a piece `C-A1` without an `A1` before it is an `A1`. Roles of referents (`R-A1`) are roles
    of their own.
    """
    pieces: list[tuple[str, list[tuple[int, int]]]] = []
    for start, stop, role in spans_of(tags):
        heading = role.removeprefix(_CONTINUED)
        begun = [piece for piece in pieces if piece[0] == heading]
        if heading != role and begun:
            begun[-1][1].append((start, stop))
        else:
            pieces.append((heading, [(start, stop)]))
    return [(role, tuple(places)) for role, places in pieces if role != _VERB]


def _micro_average(
    gold: Sequence[Tags], predicted: Sequence[Tags], parse: Callable[[Tags], Sequence[Hashable]]
) -> Score:
    """Score what `parse` finds in the tags of every sentence."""
    correct = n_found = n_true = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        if len(gold_tags) != len(predicted_tags):
            raise ValueError(f"{len(predicted_tags)} tags predicted for {len(gold_tags)} words")
        true, found = parse(gold_tags), parse(predicted_tags)
        correct += len(set(true) & set(found))
        n_found += len(found)
        n_true += len(true)
    return Score.of_counts(correct, n_found, n_true)


# --- answers --------------------------------------------------------------------------------------


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

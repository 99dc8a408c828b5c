"""Spans of words with a type, as the CoNLL scorer and seqeval count them.

A predicted span is right if its first word, its last word and its type are. Spans of all sentences
are counted together (micro average). Tags may follow any scheme: `I-X` after `O` begins a span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from elmo.tasks.metrics.scores import Score
from elmo.tasks.tag_schemes import spans_of

Tags = Sequence[str]


def entity_score(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Score:
    """Give precision, recall and F1 of all spans.

    Args:
        gold: The tags of every sentence.
        predicted: The same, predicted.
    """
    correct, given, meant = _counts(gold, predicted)
    return Score.of_counts(correct.total(), given.total(), meant.total())


def entity_scores(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, Score]:
    """Do as `entity_score` for each type of span, sorted by type."""
    correct, given, meant = _counts(gold, predicted)
    return {
        kind: Score.of_counts(correct[kind], given[kind], meant[kind])
        for kind in sorted(given | meant)
    }


def _counts(
    gold: Sequence[Tags], predicted: Sequence[Tags]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count spans by type: right ones, predicted ones, those that were meant."""
    correct: Counter[str] = Counter()
    given: Counter[str] = Counter()
    meant: Counter[str] = Counter()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        if len(gold_tags) != len(predicted_tags):
            raise ValueError(f"{len(predicted_tags)} tags predicted for {len(gold_tags)} words")
        gold_spans, predicted_spans = spans_of(gold_tags), spans_of(predicted_tags)
        correct.update(span.type for span in set(gold_spans) & set(predicted_spans))
        given.update(span.type for span in predicted_spans)
        meant.update(span.type for span in gold_spans)
    return correct, given, meant

"""Spans of words with a type, as the CoNLL scorer and seqeval count them.

A predicted span is right if its first word, its last word and its type are. Spans of all sentences
are counted together (micro average). Tags may follow any scheme: `I-X` after `O` begins a span.
"""

from __future__ import annotations

from collections.abc import Sequence

from elmo.tasks.heads.tag_schemes import LabelledSpan, spans_of
from elmo.tasks.metrics.scores import Score, Tags, Tally


def entity_score(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Score:
    """Give precision, recall and F1 of all spans.

    Args:
        gold: The tags of every sentence.
        predicted: The same, predicted.
    """
    return Tally(gold, predicted, _entities_of).score()


def entity_scores(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, Score]:
    """Do as `entity_score` for each type of span, sorted by type."""
    return Tally(gold, predicted, _entities_of).scores()


def _entities_of(tags: Tags) -> list[tuple[str, LabelledSpan]]:
    return [(span.type, span) for span in spans_of(tags)]

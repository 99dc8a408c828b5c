"""Coreference: MUC, B3, CEAFe and their average, as the CoNLL scorer (version 8) defines them.

Counts are summed over documents before the division. Mentions are what the clusters hold: those on
one side only count as errors of B3 and CEAFe without further correction.

Singletons, clusters of one mention, count as the clusters are given: B3 and CEAFe reward and punish
them, MUC ignores them. Where a corpus annotates none (OntoNotes), predict none; where it does
(LitBank), both figures are of interest, and `without_singletons` removes them from both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np

from elmo.errors import MissingExtraError
from elmo.tasks.metrics.scores import Score, ratio

Clusters = Sequence[Collection[Hashable]]
"""Sets of mentions; a mention is in one of them at most."""


def without_singletons(clusters: Clusters) -> list[Collection[Hashable]]:
    """Return the clusters of two mentions and more."""
    return [cluster for cluster in clusters if len(cluster) > 1]


def coreference_scores(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> dict[str, Score]:
    """Score the clusters of documents.

    Args:
        gold: The clusters of each document.
        predicted: The same, predicted.

    Returns:
        Scores `muc`, `b3` and `ceafe`, and `mentions`, that of mention detection.
    """
    pairs = list(zip(gold, predicted, strict=True))
    measures = {"muc": _muc, "b3": _b3, "ceafe": _ceafe, "mentions": _mentions}
    scores = {}
    for name, measure in measures.items():
        recalled = np.sum([measure(true, found) for true, found in pairs] or [(0, 0)], axis=0)
        precise = np.sum([measure(found, true) for true, found in pairs] or [(0, 0)], axis=0)
        scores[name] = Score(ratio(*precise.tolist()), ratio(*recalled.tolist()))
    return scores


def assignment_solver() -> Any:
    """Return SciPy's solver of the assignment problem, which aligns clusters."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise MissingExtraError("scores of coreference", "tasks") from None
    return linear_sum_assignment


def average_f1(scores: dict[str, Score]) -> float:
    """Return the mean F1 of MUC, B3 and CEAFe, the figure by which systems are compared."""
    return sum(scores[name].f1 for name in ("muc", "b3", "ceafe")) / 3


def _cluster_of(clusters: Clusters) -> dict[Hashable, int]:
    return {mention: number for number, cluster in enumerate(clusters) for mention in cluster}


def _muc(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Count the links of the key that the response has, and all links."""
    where = _cluster_of(response)
    found = total = 0
    for cluster in key:
        parts = {where.get(mention, ("alone", mention)) for mention in cluster}
        found += len(cluster) - len(parts)
        total += len(cluster) - 1
    return found, total


def _b3(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Sum over mentions of the key the share of its cluster found with it; and count mentions."""
    where = _cluster_of(response)
    found = 0.0
    for cluster in key:
        together = Counter(where[mention] for mention in cluster if mention in where)
        found += sum(count * count for count in together.values()) / len(cluster)
    return found, sum(len(cluster) for cluster in key)


def _ceafe(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Sum the similarity of clusters under the best alignment; and count clusters of the key."""
    if not key or not response:
        return 0.0, len(key)
    where = _cluster_of(response)
    similarity = np.zeros((len(key), len(response)))
    for number, cluster in enumerate(key):
        for mention in cluster:
            if mention in where:
                similarity[number, where[mention]] += 1
    sizes = np.add.outer([len(c) for c in key], [len(c) for c in response])
    similarity = 2 * similarity / sizes
    pairs = zip(*assignment_solver()(similarity, maximize=True), strict=True)
    return sum(float(similarity[pair]) for pair in pairs), len(key)


def _mentions(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Count the mentions of the key that the response has, and all of them."""
    where = _cluster_of(response)
    return (
        sum(mention in where for cluster in key for mention in cluster),
        sum(len(cluster) for cluster in key),
    )

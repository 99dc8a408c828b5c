"""Coreference: MUC, B3, CEAFe and their average, as the CoNLL scorer (version 8) defines them.

Counts of all documents are added up before they are divided. Mentions are what the clusters hold:
those that only one side has count as errors of B3 and CEAFe without further correction.

Singletons, clusters of one mention, count as the clusters are given: B3 and CEAFe reward and punish
them, MUC does not see them. Where a corpus annotates none (OntoNotes), predict none; where it does
(LitBank), both figures are worth knowing, and `without_singletons` takes them off both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence

import numpy as np

from elmo.tasks.metrics.assignment import best_assignment
from elmo.tasks.metrics.scores import Score, ratio

Clusters = Sequence[Collection[Hashable]]
"""Groups of mentions; a mention is in one group at most."""


def without_singletons(clusters: Clusters) -> list[Collection[Hashable]]:
    """Give the clusters of two mentions and more."""
    return [cluster for cluster in clusters if len(cluster) > 1]


def coreference_scores(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> dict[str, Score]:
    """Measure the clusters of documents.

    Args:
        gold: The clusters of each document.
        predicted: The same, predicted.

    Returns:
        Scores `muc`, `b3` and `ceafe`, and `mentions`, that of finding mentions at all.
    """
    pairs = list(zip(gold, predicted, strict=True))
    measures = {"muc": _muc, "b3": _b3, "ceafe": _ceafe, "mentions": _mentions}
    scores = {}
    for name, measure in measures.items():
        recalled = np.sum([measure(true, found) for true, found in pairs] or [(0, 0)], axis=0)
        precise = np.sum([measure(found, true) for true, found in pairs] or [(0, 0)], axis=0)
        scores[name] = Score(ratio(*precise.tolist()), ratio(*recalled.tolist()))
    return scores


def average_f1(scores: dict[str, Score]) -> float:
    """Give the mean of the F1 of MUC, B3 and CEAFe, the figure by which systems are compared."""
    return sum(scores[name].f1 for name in ("muc", "b3", "ceafe")) / 3


def _cluster_of(clusters: Clusters) -> dict[Hashable, int]:
    return {mention: number for number, cluster in enumerate(clusters) for mention in cluster}


def _muc(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Count links of the key that the response has, and all links."""
    where = _cluster_of(response)
    found = total = 0
    for cluster in key:
        parts = {where.get(mention, ("alone", mention)) for mention in cluster}
        found += len(cluster) - len(parts)
        total += len(cluster) - 1
    return found, total


def _b3(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Add up, for each mention of the key, the share of its cluster found with it; and count."""
    where = _cluster_of(response)
    found = 0.0
    for cluster in key:
        together = Counter(where[mention] for mention in cluster if mention in where)
        found += sum(count * count for count in together.values()) / len(cluster)
    return found, sum(len(cluster) for cluster in key)


def _ceafe(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Add up the likeness of clusters paired in the best way; and count clusters of the key."""
    if not key or not response:
        return 0.0, len(key)
    where = _cluster_of(response)
    alike = np.zeros((len(key), len(response)))
    for number, cluster in enumerate(key):
        for mention in cluster:
            if mention in where:
                alike[number, where[mention]] += 1
    sizes = np.add.outer([len(c) for c in key], [len(c) for c in response])
    alike = 2 * alike / sizes
    return sum(float(alike[pair]) for pair in best_assignment(alike)), len(key)


def _mentions(key: Clusters, response: Clusters) -> tuple[float, float]:
    """Count mentions of the key that the response has, and all of them."""
    where = _cluster_of(response)
    return (
        sum(mention in where for cluster in key for mention in cluster),
        sum(len(cluster) for cluster in key),
    )

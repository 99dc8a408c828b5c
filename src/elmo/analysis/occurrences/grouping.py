"""Clusters and projections of vectors by their directions, of scikit-learn.

Every vector is scaled to length 1 first, so that the distances of k-means and PCA depend on cosines
alone: |a - b|^2 = 2 - 2 cos(a, b).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from elmo.analysis.geometry import Floats, Integers, Vectors, group_sums, unit_rows
from elmo.analysis.settings import Projection
from elmo.errors import MissingExtraError

_STARTS = 8
_FEW = 4
"""Vectors for each cluster at least, when the number of clusters is chosen."""
_PERPLEXITY = 30.0


@dataclass(frozen=True)
class Clusters:
    """Vectors in clusters, the largest first."""

    labels: Integers
    """The cluster of each vector, int64 `(n,)`."""
    centers: Floats
    """Mean directions, `(k, dim)`."""
    silhouette: float | None
    """From -1 to 1: how much nearer vectors are to their own cluster than to the next; None where
    there is one cluster."""


def require_sklearn() -> Any:
    """Return scikit-learn; an error names the extra that installs it."""
    try:
        import sklearn.cluster
        import sklearn.decomposition
        import sklearn.manifold
        import sklearn.metrics
    except ImportError:
        raise MissingExtraError("elmo analyze senses", "analysis") from None
    return sklearn


def cluster(vectors: Vectors, number: int | None, most: int, seed: int) -> Clusters:
    """Cluster vectors by direction.

    Args:
        vectors: Shape `(n, dim)`.
        number: How many clusters; if None, from 2 on the number with the best silhouette.
        most: Clusters at most, if their number is chosen here.
        seed: Of the random starts.
    """
    rows = unit_rows(vectors)
    distinct = len(np.unique(rows, axis=0))
    if number is not None:
        return _clustered(rows, min(number, distinct), seed)
    numbers = range(2, min(most, len(rows) // _FEW, distinct) + 1)
    tried = [_clustered(rows, k, seed) for k in numbers]
    if not tried:
        return _clustered(rows, 1, seed)
    return max(tried, key=lambda found: -1.0 if found.silhouette is None else found.silhouette)


def _clustered(rows: Floats, number: int, seed: int) -> Clusters:
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    sklearn = require_sklearn()
    means = sklearn.cluster.KMeans(number, n_init=_STARTS, random_state=seed)
    # Several threads would add in any order, and the last digits could decide.
    with threadpool_limits(1):
        labels = means.fit_predict(rows)
    names, first, counts = np.unique(labels, return_index=True, return_counts=True)
    ranks = np.argsort(np.lexsort((first, -counts)))  # the largest first
    labels = ranks[np.searchsorted(names, labels)]
    several = 1 < len(names) < len(rows)
    score = sklearn.metrics.silhouette_score(rows, labels, metric="cosine") if several else None
    centers = unit_rows(group_sums(rows, labels)[1])
    return Clusters(labels, centers, None if score is None else float(score))


def project(vectors: Vectors, kind: Projection, seed: int) -> Floats:
    """Project vectors to a plane by their directions.

    Args:
        vectors: Shape `(n, dim)`, n at least 2.
        kind: How.
        seed: Of t-SNE; PCA needs none.

    Returns:
        Shape `(n, 2)`.
    """
    rows = unit_rows(vectors)
    sklearn = require_sklearn()
    points = np.zeros((len(rows), 2))
    if kind == "pca" or len(rows) < 4:
        width = min(2, *rows.shape)
        points[:, :width] = sklearn.decomposition.PCA(width, svd_solver="full").fit_transform(rows)
        return points
    # Exact: the approximation of Barnes and Hut adds in the order in which its threads finish.
    layout = sklearn.manifold.TSNE(
        perplexity=min(_PERPLEXITY, (len(rows) - 1) / 3),
        metric="cosine",
        init="random",
        method="exact",
        random_state=seed,
    )
    points[:] = layout.fit_transform(rows)
    return points

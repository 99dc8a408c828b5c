"""Vectors in a plane: the two directions of most variance, or neighbours kept together."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from elmo.analysis.contextuality.geometry import Floats, Vectors, unit_rows
from elmo.analysis.settings import Projection
from elmo.errors import MissingExtraError

_PERPLEXITY = 30.0


def chosen_projections(asked: Sequence[Projection]) -> tuple[Projection, ...]:
    """Give the projections that were asked for, or all that can be had."""
    has_sklearn = find_spec("sklearn") is not None
    if "tsne" in asked and not has_sklearn:
        raise MissingExtraError("--projection tsne", "analysis")
    return tuple(asked) or (("pca", "tsne") if has_sklearn else ("pca",))


def project(vectors: Vectors, kind: Projection, seed: int) -> Floats:
    """Lay vectors out in a plane by their directions.

    Args:
        vectors: Shape `(n, dim)`, n at least 2.
        kind: How.
        seed: Of t-SNE; PCA needs none.

    Returns:
        Shape `(n, 2)`.
    """
    rows = unit_rows(vectors)
    if kind == "pca" or len(rows) < 4:
        return principal_components(rows)
    from sklearn.manifold import TSNE

    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
    # Exact: the approximation of Barnes and Hut adds in whatever order its threads are done.
    layout = TSNE(
        perplexity=perplexity, metric="cosine", init="random", method="exact", random_state=seed
    )
    points: Floats = layout.fit_transform(rows).astype(np.float64)
    return points


def principal_components(vectors: Floats) -> Floats:
    """Give the coordinates `(n, 2)` of `(n, dim)` along the two directions of most variance.

    The sign of a direction is chance in most algorithms: here its largest coordinate is positive.
    """
    centred = vectors - vectors.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    width = min(2, len(values))
    points[:, :width] = left[:, :width] * values[:width]
    largest = np.abs(points).argmax(axis=0)
    points *= np.where(points[largest, [0, 1]] < 0, -1.0, 1.0)
    return points

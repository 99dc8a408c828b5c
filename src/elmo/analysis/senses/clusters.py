"""Groups of directions: k-means on the sphere, and how many groups there are by the silhouette."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elmo.analysis.contextuality.geometry import Floats, Integers, Vectors, unit_rows

_STARTS = 8
_STEPS = 100
_FEW = 4
"""Vectors for each group at least, when the number of groups is chosen."""


@dataclass(frozen=True)
class Clusters:
    """Vectors in groups, the largest group first."""

    labels: Integers
    """The group of each vector, int64 `(n,)`."""
    centres: Floats
    """Mean directions, `(k, dim)`."""
    silhouette: float | None
    """From -1 to 1: how much nearer vectors are to their own group than to the next; None where
    there is one group."""


def cluster(vectors: Vectors, number: int | None, most: int, seed: int) -> Clusters:
    """Group vectors by direction.

    Args:
        vectors: Shape `(n, dim)`.
        number: How many groups; if None, from 2 on the number with the best silhouette.
        most: Groups at most, if that is chosen here.
        seed: Of the random starts.
    """
    rows = unit_rows(vectors)
    if number is not None:
        return _grouped(rows, min(number, len(rows)), seed)
    tried = [_grouped(rows, k, seed) for k in range(2, min(most, len(rows) // _FEW) + 1)]
    if not tried:
        return _grouped(rows, 1, seed)
    return max(tried, key=lambda found: found.silhouette if found.silhouette is not None else -1.0)


def silhouette(rows: Floats, labels: Integers) -> float | None:
    """Give the mean silhouette by cosine distance; None where there is one group.

    Args:
        rows: Vectors of length 1, `(n, dim)`.
        labels: The group of each, int64 `(n,)` from 0 on, none empty.
    """
    sizes = np.bincount(labels)
    if len(sizes) < 2:
        return None
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, labels, rows)
    # The mean distance to the rows of a group is 1 - the product with their mean.
    distances = 1 - rows @ sums.T / sizes
    places = np.arange(len(rows))
    own_size = sizes[labels]
    # A row is not among its own neighbours: its distance to itself, 0, must not count.
    own = distances[places, labels] * own_size / np.maximum(own_size - 1, 1)
    distances[places, labels] = np.inf
    other = distances.min(axis=1)
    larger = np.maximum(own, other)
    single = (own_size == 1) | (larger <= 0)
    values = np.where(single, 0.0, (other - own) / np.where(single, 1.0, larger))
    return float(np.clip(values.mean(), -1.0, 1.0))


def _grouped(rows: Floats, number: int, seed: int) -> Clusters:
    rng = np.random.default_rng([seed, number])
    best, best_fit = np.zeros(len(rows), np.int64), -np.inf
    for _ in range(_STARTS if number > 1 else 1):
        labels, fit = _k_means(rows, number, rng)
        if fit > best_fit:
            best, best_fit = labels, fit
    labels = _largest_first(best)
    sums = np.zeros((int(labels.max(initial=0)) + 1, rows.shape[1]))
    np.add.at(sums, labels, rows)
    return Clusters(labels, unit_rows(sums), silhouette(rows, labels))


def _k_means(rows: Floats, number: int, rng: np.random.Generator) -> tuple[Integers, float]:
    """Give the groups of one start, and the sum of the cosines to their centres."""
    centres = _spread_start(rows, number, rng)
    labels = np.full(len(rows), -1, np.int64)
    for _ in range(_STEPS):
        products = rows @ centres.T
        nearest = products.argmax(axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, rows)
        empty = ~sums.any(axis=1)
        sums[empty] = centres[empty]
        centres = unit_rows(sums)
    return labels, float((rows * centres[labels]).sum())


def _spread_start(rows: Floats, number: int, rng: np.random.Generator) -> Floats:
    """Choose rows far from each other, as k-means++ does, `(number, dim)`."""
    chosen = [int(rng.integers(len(rows)))]
    nearest = rows @ rows[chosen[0]]
    for _ in range(number - 1):
        weights = np.maximum(1 - nearest, 0.0)
        total = weights.sum()
        shares = weights / total if total > 0 else np.full(len(rows), 1 / len(rows))
        chosen.append(int(rng.choice(len(rows), p=shares)))
        nearest = np.maximum(nearest, rows @ rows[chosen[-1]])
    return rows[chosen]


def _largest_first(labels: Integers) -> Integers:
    """Number groups by their size, leaving none out."""
    names, first, counts = np.unique(labels, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    ranks = np.empty(len(names), np.int64)
    ranks[order] = np.arange(len(names))
    places: Integers = ranks[np.searchsorted(names, labels)]
    return places

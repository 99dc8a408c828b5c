"""Measures of sets of vectors: how similar, how explained by one direction, how isotropic.

Definitions are those of Ethayarajh, "How Contextual are Contextualized Word Representations?"
(EMNLP 2019), and for the partition function of Mu and Viswanath, "All-but-the-Top" (ICLR 2018). All
take float arrays, compute in float64, and return None where a measure is not defined, never NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_ROUNDING = 1e-10
"""Variance below this fraction of the squared lengths is rounding, not variance."""


def unit_rows(vectors: Vectors) -> Floats:
    """Scale the rows of `(n, dim)` to length 1; a row of zeros stays one."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = rows / np.where(lengths > 0, lengths, 1.0)
    return scaled


def group_sums(values: Vectors, groups: Integers, axis: int = 0) -> tuple[Integers, Any]:
    """Sum values along an axis by their group.

    Args:
        values: Any shape, n along the axis.
        groups: The group of each, int64 `(n,)`, in any order.
        axis: Which axis.

    Returns:
        The groups, ascending, int64 `(k,)`, and their sums: the shape of `values` with k along the
        axis.
    """
    order = np.argsort(groups, kind="stable")
    present, starts = np.unique(groups[order], return_index=True)
    return present, np.add.reduceat(np.take(values, order, axis), starts, axis=axis)


def mean_cosine(vectors: Vectors, contexts: Integers) -> float | None:
    """Return the mean cosine of all pairs of vectors from different contexts.

    By |sum of all|^2 = sum over all pairs, so it takes no longer than one sum.

    Args:
        vectors: Shape `(n, dim)`.
        contexts: Which context each is from, int64 `(n,)`.
    """
    _, sums = group_sums(unit_rows(vectors), contexts)
    sizes = np.unique(contexts, return_counts=True)[1].astype(np.float64)
    pairs = sizes.sum() ** 2 - (sizes**2).sum()
    if pairs <= 0:
        return None
    total = (sums.sum(axis=0) ** 2).sum() - (sums**2).sum()
    return float(np.clip(total / pairs, -1.0, 1.0))


def self_similarity(vectors: Vectors) -> float | None:
    """Return the mean cosine of all pairs of a word's vectors `(n, dim)`, one for each context."""
    return mean_cosine(vectors, np.arange(len(vectors)))


def intra_sentence_similarities(vectors: Vectors, sentences: Integers) -> Floats:
    """Return for each sentence the mean cosine of its words to the mean of their vectors.

    Args:
        vectors: Of all words, shape `(n, dim)`.
        sentences: The sentence of each word, int64 `(n,)`, from 0 on without gaps.

    Returns:
        Shape `(n_sentences,)`.
    """
    # A sum has the direction of the mean.
    _, sums = group_sums(np.asarray(vectors, dtype=np.float64), sentences)
    cosines = (unit_rows(vectors) * unit_rows(sums)[sentences]).sum(axis=1)
    similarities: Floats = np.bincount(sentences, cosines) / np.bincount(sentences)
    return similarities


def explained_variance(vectors: Vectors, centered: bool = False) -> float | None:
    """Return the share of the first direction: sigma_1^2 / sum of sigma_i^2.

    Args:
        vectors: A word's occurrence matrix `(n, dim)`, sigma being its singular values.
        centered: Whether to subtract the mean first: then it is what the first principal component
            explains. The paper's formula does not.

    Returns:
        From 1 / n to 1; None without vectors, or if nothing remains without the mean.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    size = (rows**2).sum()
    if centered and len(rows):
        rows = rows - rows.mean(axis=0)
    values = _squared_singular_values(rows)
    total = values.sum() if len(values) else 0.0
    if total <= _ROUNDING * size:
        return None
    return float(np.clip(values.max() / total, 0.0, 1.0))


def partition_ratio(vectors: Vectors) -> float | None:
    """Return I(W) = min F(c) / max F(c), with F(c) = sum over w of exp(c . w).

    c are the eigenvectors of W^T W, each with both signs, since an algorithm may return either. 1
    is isotropic, 0 is not at all.

    Args:
        vectors: W, shape `(n, dim)`.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if not len(rows):
        return None
    _, directions = np.linalg.eigh(rows.T @ rows)
    products = rows @ directions
    logs = np.concatenate([_log_sums(products), _log_sums(-products)])
    return float(np.exp(logs.min() - logs.max()))


def effective_dimension(vectors: Vectors) -> float | None:
    """Return (sum of lambda)^2 / sum of lambda^2, lambda being the variances of the directions.

    All dimensions that vary if all vary equally; close to 1 if one has nearly all variance; 0 if
    there is none.

    Args:
        vectors: Shape `(n, dim)`.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if not len(rows):
        return None
    size = (rows**2).sum()
    values = _squared_singular_values(rows - rows.mean(axis=0))
    total = values.sum()
    return 0.0 if total <= _ROUNDING * size else float(total**2 / (values**2).sum())


def _squared_singular_values(rows: Floats) -> Floats:
    """Return the squared singular values of `(n, dim)`, at least min(n, dim) of them."""
    gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
    values: Floats = np.maximum(np.linalg.eigvalsh(gram), 0.0) if len(gram) else np.zeros(0)
    return values


def _log_sums(products: Floats) -> Floats:
    """Return log sum exp over the rows of `(n, dim)`, shape `(dim,)`."""
    highest = products.max(axis=0)
    logs: Floats = highest + np.log(np.exp(products - highest).sum(axis=0))
    return logs

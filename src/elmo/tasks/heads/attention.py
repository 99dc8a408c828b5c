"""Attention between padded sequences, masked at padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Return the softmax over unmasked positions; zeros elsewhere, and where all are masked.

    Args:
        scores: Any shape.
        mask: True at positions that count; the shape of `scores`, or one that broadcasts to it.
        dim: The axis whose values sum to 1.
    """
    scores = scores.float()
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=dim) * mask


def attend(scores: Tensor, mask: Tensor, vectors: Tensor) -> Tensor:
    """Return for each query the weighted sum of the vectors it attends to.

    Args:
        scores: Similarity of queries and vectors, `(batch, queries, time)`.
        mask: True where a vector may be attended to, `(batch, time)`, or `(batch, queries, time)`.
        vectors: Shape `(batch, time, dim)`.

    Returns:
        `(batch, queries, dim)`.
    """
    mask = mask.unsqueeze(1) if mask.dim() == 2 else mask
    weights = masked_softmax(scores, mask).to(vectors.dtype)
    return weights @ vectors


class TrilinearScores(nn.Module):
    """Trilinear similarity of two vectors (Seo et al. 2017): u a + v b + w (a * b).

    No vector of a pair is ever materialized: a pair costs one number.

    Args:
        dim: Width of the vectors.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1, bias=False)
        self.second = nn.Linear(dim, 1, bias=False)
        # Initially the dot product: the same word in question and text is found before anything is
        # learned.
        self.product = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Compare `(batch, n, dim)` with `(batch, m, dim)`: `(batch, n, m)`."""
        single: Tensor = self.first(first) + self.second(second).transpose(1, 2)
        return single + (first * self.product) @ second.transpose(1, 2)

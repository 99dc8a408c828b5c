"""Attention between padded sequences; what is no word is neither attended to nor attends."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    """Give the softmax over places that count; zeros elsewhere, and where no place counts.

    Args:
        scores: Any shape.
        mask: True where a place counts; the shape of `scores`, or one that broadcasts to it.
        dim: The axis whose values sum up to 1.
    """
    scores = scores.float()
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=dim) * mask


def attend(scores: Tensor, mask: Tensor, vectors: Tensor) -> Tensor:
    """Give for each query the vectors it attends to, weighted.

    Args:
        scores: Likeness of queries and vectors, `(batch, queries, time)`.
        mask: True where a vector may be attended to, `(batch, time)`, or `(batch, queries, time)`.
        vectors: Shape `(batch, time, dim)`.

    Returns:
        `(batch, queries, dim)`.
    """
    mask = mask.unsqueeze(1) if mask.dim() == 2 else mask
    weights = masked_softmax(scores, mask).to(vectors.dtype)
    return weights @ vectors


class TrilinearScores(nn.Module):
    """Likeness of two vectors by three learned weightings (Seo et al. 2017): u a + v b + w (a * b).

    No vector of a pair is ever laid out: pairs cost one number each.

    Args:
        dim: Width of the vectors.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(dim, 1, bias=False)
        self.second = nn.Linear(dim, 1, bias=False)
        # At first the likeness of words as they are: the same word in question and text is found
        # before anything is learned.
        self.product = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Compare `(batch, n, dim)` with `(batch, m, dim)`: `(batch, n, m)`."""
        single: Tensor = self.first(first) + self.second(second).transpose(1, 2)
        return single + (first * self.product) @ second.transpose(1, 2)

"""Which examples form a batch: of similar length, in an order determined by the seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_POOL = 32
"""Batches of examples that are sorted by length together."""


def shuffled_batches(
    sizes: Sequence[int], batch: int, generator: np.random.Generator
) -> list[list[int]]:
    """Split examples into batches of similar length, in random order.

    Args:
        sizes: Words of each example.
        batch: Examples in a batch.
        generator: Determines the order.

    Returns:
        Numbers of examples; each is in one batch.
    """
    order = generator.permutation(len(sizes))
    batches: list[list[int]] = []
    for first in range(0, len(order), _POOL * batch):
        pool = order[first : first + _POOL * batch]
        pool = pool[np.argsort([sizes[k] for k in pool], kind="stable")]
        batches += [pool[k : k + batch].tolist() for k in range(0, len(pool), batch)]
    return [batches[k] for k in generator.permutation(len(batches))]


def sorted_batches(sizes: Sequence[int], batch: int) -> list[list[int]]:
    """Split examples into batches, longest first, so that memory runs out at once or never."""
    order = np.argsort([-size for size in sizes], kind="stable").tolist()
    return [order[first : first + batch] for first in range(0, len(order), batch)]


def chosen_share(count: int, share: float, seed: int) -> list[int]:
    """Sample a share of `count` examples; smaller shares are subsets of larger ones."""
    order = np.random.default_rng(seed).permutation(count)
    return sorted(order[: max(1, round(share * count))].tolist())

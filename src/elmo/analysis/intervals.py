"""Confidence intervals of 95 %: bootstrap and jackknife, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from elmo.analysis.geometry import Floats, Integers

_LEVEL = 0.95
_TWO_SIDED = 1.959964
"""Standard errors within which 95 of 100 normal values lie."""
_GROUPS = 20
_CHUNK = 1 << 22
"""Values that are resampled at once, to bound memory."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; None where it is not defined."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """Return the interval, as tables show it."""
        return "-" if self.low is None or self.high is None else f"{self.low:.3f}..{self.high:.3f}"


def bootstrap(statistic: Callable[..., Any], *data: Floats, resamples: int, seed: int) -> Floats:
    """Return the values `(resamples,)` of a statistic of pairs drawn with replacement.

    Args:
        statistic: Takes as many arrays as `data` and `axis`; NaN where it is not defined.
        data: Arrays `(n,)`, whose values at one place are drawn together.
        resamples: How often.
        seed: Of the draws.
    """
    n = len(data[0])
    if n < 2:
        return np.zeros(0)
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // n)
    parts = []
    for start in range(0, resamples, rows):
        drawn = rng.integers(0, n, (min(rows, resamples - start), n))
        parts.append(statistic(*(values[drawn] for values in data), axis=-1))
    draws: Floats = np.concatenate(parts)
    return draws[~np.isnan(draws)]


def bootstrapped_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Return the means `(resamples,)` of samples with replacement of values `(n,)`."""
    return bootstrap(np.mean, values, resamples=resamples, seed=seed)


def mean_estimate(values: Floats, resamples: int, seed: int) -> Estimate:
    """Estimate the mean of values `(n,)`, with the percentile interval of the bootstrap."""
    draws = bootstrapped_means(values, resamples, seed)
    return estimate(float(values.mean()) if len(values) else None, draws)


def estimate(value: float | None, draws: Floats) -> Estimate:
    """Combine a figure with the percentiles of its resampled values `(resamples,)`."""
    if value is None or not len(draws):
        return Estimate(value)
    outside = (1 - _LEVEL) / 2
    low, high = np.quantile(draws, [outside, 1 - outside])
    return Estimate(value, float(low), float(high))


def jackknife_error(statistic: Callable[[Integers], float | None], groups: Integers) -> float:
    """Return the standard error of a statistic by the delete-a-group jackknife, with 20 groups.

    For statistics that cannot be bootstrapped: a vector drawn twice is a pair with cosine 1, and a
    dimension less.

    Args:
        statistic: Computes the figure from some rows of the data.
        groups: What must stay together, such as a sentence, int64 `(n,)`.

    Returns:
        0 where there is too little data.
    """
    names, numbers = np.unique(groups, return_inverse=True)
    n_groups = min(_GROUPS, len(names))
    folds = numbers % max(1, n_groups)
    parts = [statistic(np.flatnonzero(folds != fold)) for fold in range(n_groups)]
    known = np.array([part for part in parts if part is not None])
    if len(known) < 2:
        return 0.0
    return float(np.sqrt((len(known) - 1) * known.var()))


def normal_estimate(value: float | None, error: float, lowest: float = -np.inf) -> Estimate:
    """Return the normal interval of a figure with a standard error, cut at its lowest value."""
    if value is None:
        return Estimate(None)
    return Estimate(value, max(lowest, value - _TWO_SIDED * error), value + _TWO_SIDED * error)


def difference_estimate(
    value: float | None, draws: Floats, baseline: float | None, error: float, seed: int
) -> Estimate:
    """Estimate a figure minus its baseline.

    Args:
        value: The figure.
        draws: Its resampled values, `(resamples,)`.
        baseline: What is subtracted.
        error: The standard error of the baseline, which widens the interval.
        seed: Of the baseline's normal values.
    """
    if value is None or baseline is None:
        return Estimate(None)
    noise = np.random.default_rng([seed, 1]).standard_normal(len(draws))
    return estimate(value - baseline, draws - (baseline + error * noise))

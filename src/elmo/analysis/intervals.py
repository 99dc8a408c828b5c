"""How sure a figure is: intervals by resampling, always the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmo.analysis.contextuality.geometry import Integers

Floats = npt.NDArray[np.float64]

_LEVEL = 0.95
_TWO_SIDED = 1.959964
"""Standard errors that 95 of 100 normal values are within."""
_GROUPS = 20
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; None where there is nothing to say."""

    value: float | None
    low: float | None = None
    high: float | None = None


def mean_estimate(values: Floats, resamples: int, seed: int) -> Estimate:
    """Estimate a mean of values `(n,)`, with a percentile interval of the bootstrap."""
    draws = resampled_means(values, resamples, seed)
    return estimate(float(values.mean()) if len(values) else None, draws)


def resampled_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Give the means `(resamples,)` of samples with replacement of values `(n,)`."""
    n = len(values)
    if n < 2:
        return np.zeros(0)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, _CHUNK // n)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        means[start:stop] = values[rng.integers(0, n, (stop - start, n))].mean(axis=1)
    return means


def estimate(value: float | None, draws: Floats) -> Estimate:
    """Put a figure and the percentiles of its resampled values `(resamples,)` together."""
    if value is None or not len(draws):
        return Estimate(value)
    outside = (1 - _LEVEL) / 2
    low, high = np.quantile(draws, [outside, 1 - outside])
    return Estimate(value, float(low), float(high))


def jackknife_error(statistic: Callable[[Integers], float | None], groups: Integers) -> float:
    """Give the standard error of a statistic by leaving out a twentieth of its data in turn.

    For statistics that cannot be bootstrapped: a vector drawn twice is a pair with cosine 1, and a
    dimension less.

    Args:
        statistic: Gives the figure for some rows of the data.
        groups: What must stay together, such as a sentence, int64 `(n,)`.

    Returns:
        0 where there is too little data to tell.
    """
    names, numbers = np.unique(groups, return_inverse=True)
    n_groups = min(_GROUPS, len(names))
    folds = numbers % max(1, n_groups)
    parts = [statistic(np.flatnonzero(folds != fold)) for fold in range(n_groups)]
    known = np.array([part for part in parts if part is not None])
    if len(known) < 2:
        return 0.0
    return float(np.sqrt((len(known) - 1) * known.var()))


def normal_estimate(value: float | None, error: float, least: float = -np.inf) -> Estimate:
    """Put a figure and its standard error together; `least` is what it cannot be below."""
    if value is None:
        return Estimate(None)
    return Estimate(value, max(least, value - _TWO_SIDED * error), value + _TWO_SIDED * error)


def difference_estimate(
    value: float | None, draws: Floats, baseline: float | None, error: float, seed: int
) -> Estimate:
    """Estimate what is left of a figure without its baseline.

    Args:
        value: The figure.
        draws: Its resampled values, `(resamples,)`.
        baseline: What is taken away.
        error: The standard error of that, which counts, too.
        seed: Of the baseline's normal values.
    """
    if value is None or baseline is None:
        return Estimate(None)
    noise = np.random.default_rng([seed, 1]).standard_normal(len(draws))
    return estimate(value - baseline, draws - (baseline + error * noise))

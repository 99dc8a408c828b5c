"""Intervals agree with theory, and are the same for the same seed."""

import numpy as np
import pytest

from elmo.analysis.geometry import mean_cosine
from elmo.analysis.intervals import (
    bootstrapped_means,
    difference_estimate,
    jackknife_error,
    mean_estimate,
    normal_estimate,
)


def test_the_bootstrap_agrees_with_theory_and_with_itself():
    values = np.random.default_rng(3).normal(2.0, 1.0, 400)
    found = mean_estimate(values, 2000, seed=5)
    error = values.std() / 20
    assert found.value == values.mean()
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.3 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.3 * error)
    assert found == mean_estimate(values, 2000, seed=5)
    assert found != mean_estimate(values, 2000, seed=6)


def test_the_jackknife_agrees_with_theory_for_a_mean():
    values = np.random.default_rng(4).normal(0.0, 1.0, 2000)
    error = jackknife_error(lambda some: float(values[some].mean()), np.arange(2000))
    assert error == pytest.approx(1 / 2000**0.5, rel=0.5)


def test_the_jackknife_agrees_with_repeated_samples_for_a_mean_cosine():
    rng = np.random.default_rng(0)
    contexts = np.arange(200)
    found, errors = [], []
    for _ in range(40):
        vectors = rng.standard_normal((200, 10)) + rng.gamma(1, 1, (200, 1)) * np.eye(10)[0]
        found.append(mean_cosine(vectors, contexts))
        errors.append(
            jackknife_error(lambda some, v=vectors: mean_cosine(v[some], contexts[some]), contexts)
        )
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.4)


def test_a_difference_is_less_sure_than_its_parts():
    values = np.random.default_rng(5).normal(0.5, 0.1, 300)
    draws = bootstrapped_means(values, 1000, 0)
    sure = difference_estimate(0.5, draws, 0.2, 0.0, 0)
    unsure = difference_estimate(0.5, draws, 0.2, 0.05, 0)
    assert sure.value == unsure.value == pytest.approx(0.3)
    assert unsure.high - unsure.low > 3 * (sure.high - sure.low)


def test_too_little_data_has_no_interval():
    assert mean_estimate(np.zeros(0), 10, 0).value is None
    single = mean_estimate(np.array([0.5]), 10, 0)
    assert (single.value, single.low, single.high) == (0.5, None, None)
    assert normal_estimate(None, 0.0).value is None
    assert normal_estimate(0.1, 1.0, lowest=0.0).low == 0.0
    assert difference_estimate(0.5, np.zeros(0), None, 0.0, 0).value is None
    assert jackknife_error(lambda some: None, np.arange(5)) == 0.0

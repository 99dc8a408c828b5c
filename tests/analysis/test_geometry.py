"""Measures of vectors: against direct computations, and on constructed extremes."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elmo.analysis.contextuality.geometry import (
    effective_dimension,
    explained_variance,
    intra_sentence_similarities,
    mean_cosine,
    partition_ratio,
    self_similarity,
    sums_by_group,
    unit_rows,
)
from elmo.analysis.intervals import (
    difference_estimate,
    jackknife_error,
    mean_estimate,
    normal_estimate,
    resampled_means,
)

FINITE = st.floats(-4, 4, width=32)


def matrices(min_rows=1):
    shapes = st.tuples(st.integers(min_rows, 9), st.integers(1, 6))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=FINITE))


def cosine(a, b):
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / size if size else 0.0


@given(matrices(min_rows=2), st.data())
def test_mean_cosine_is_that_of_all_pairs_from_different_contexts(vectors, data):
    size = len(vectors)
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    contexts = np.array(drawn)
    rows = vectors.astype(np.float64)
    pairs = [(a, b) for a, b in combinations(range(size), 2) if contexts[a] != contexts[b]]
    found = mean_cosine(vectors, contexts)
    if not pairs:
        assert found is None
    else:
        expected = np.mean([cosine(rows[a], rows[b]) for a, b in pairs])
        assert found == pytest.approx(expected, abs=1e-6)


@given(matrices(min_rows=2))
def test_self_similarity_is_the_mean_cosine_of_all_pairs(vectors):
    rows = vectors.astype(np.float64)
    expected = np.mean([cosine(a, b) for a, b in combinations(rows, 2)])
    assert self_similarity(vectors) == pytest.approx(expected, abs=1e-6)


@given(matrices())
def test_intra_sentence_similarity_is_the_mean_cosine_to_the_mean(vectors):
    sentences = np.arange(len(vectors)) % 2
    n_sentences = len(set(sentences.tolist()))
    found = intra_sentence_similarities(vectors, sentences, n_sentences)
    for number, value in enumerate(found):
        own = vectors[sentences == number].astype(np.float64)
        expected = np.mean([cosine(own.mean(axis=0), row) for row in own])
        if np.linalg.norm(own.sum(axis=0)) > 1e-3:  # else the mean points nowhere
            assert value == pytest.approx(expected, abs=1e-6)


@given(matrices(), st.booleans())
def test_explained_variance_is_the_share_of_the_first_singular_value(vectors, centred):
    rows = vectors.astype(np.float64)
    if centred:
        rows = rows - rows.mean(axis=0)
    values = np.linalg.svd(rows, compute_uv=False) ** 2
    found = explained_variance(vectors, centred)
    if values.sum() <= 1e-10 * (vectors.astype(np.float64) ** 2).sum() or not values.sum():
        assert found is None
    else:
        assert found == pytest.approx(values[0] / values.sum(), abs=1e-6)


def test_partition_ratio_is_that_of_the_sums_of_exponentials():
    vectors = np.random.default_rng(0).standard_normal((50, 4)) + 0.3
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    sums = [np.exp(vectors @ c).sum() for d in directions.T for c in (d, -d)]
    assert partition_ratio(vectors) == pytest.approx(min(sums) / max(sums))


def test_long_vectors_do_not_overflow_the_partition_function():
    vectors = 1e4 * np.random.default_rng(0).standard_normal((50, 4))
    assert 0.0 <= partition_ratio(vectors) <= 1.0


def test_effective_dimension_is_the_participation_ratio_of_the_covariance():
    vectors = np.random.default_rng(0).standard_normal((60, 5)) * [5, 3, 1, 1, 0.2] + 7
    values = np.linalg.eigvalsh(np.cov(vectors.T))
    assert effective_dimension(vectors) == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_sums_by_group_leave_empty_groups_at_zero():
    values = np.array([[1.0], [2.0], [4.0]])
    assert sums_by_group(values, np.array([2, 0, 2]), 4).tolist() == [[2], [0], [5], [0]]
    assert sums_by_group(np.zeros((0, 2)), np.array([], int), 2).tolist() == [[0, 0], [0, 0]]


# --- extremes -------------------------------------------------------------------------------------


def test_identical_vectors_are_wholly_alike_and_have_no_dimension():
    same = np.tile(np.array([[3.0, -4.0, 1.0]], np.float32), (20, 1))
    assert self_similarity(same) == pytest.approx(1.0)
    assert explained_variance(same) == pytest.approx(1.0)
    assert explained_variance(same, centred=True) is None
    assert effective_dimension(same) == 0.0
    assert intra_sentence_similarities(same, np.zeros(20, int), 1) == pytest.approx(1.0)


def test_an_isotropic_gaussian_has_no_direction():
    vectors = np.random.default_rng(1).standard_normal((5000, 20))
    assert abs(self_similarity(vectors)) < 0.01
    assert explained_variance(vectors) == pytest.approx(1 / 20, abs=0.01)
    assert effective_dimension(vectors) == pytest.approx(20, rel=0.02)
    assert partition_ratio(vectors * 0.3) > 0.9


def test_one_dominant_direction_explains_everything():
    rng = np.random.default_rng(2)
    vectors = 0.01 * rng.standard_normal((500, 20))
    vectors[:, 3] += rng.standard_normal(500) + 5
    assert self_similarity(vectors) > 0.99
    assert explained_variance(vectors) > 0.99
    assert explained_variance(vectors, centred=True) > 0.99
    assert effective_dimension(vectors) == pytest.approx(1, abs=0.05)
    assert partition_ratio(vectors) < 0.01


def test_opposite_vectors_cancel():
    assert self_similarity(np.array([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(-1.0)


@pytest.mark.parametrize("vectors", [np.zeros((0, 3)), np.zeros((1, 3)), np.zeros((4, 3))])
def test_nothing_gives_no_nan(vectors):
    found = [
        self_similarity(vectors),
        explained_variance(vectors),
        explained_variance(vectors, centred=True),
        partition_ratio(vectors),
        effective_dimension(vectors),
    ]
    assert all(value is None or np.isfinite(value) for value in found)
    assert np.isfinite(unit_rows(vectors)).all()


# --- intervals ------------------------------------------------------------------------------------


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
    draws = resampled_means(values, 1000, 0)
    sure = difference_estimate(0.5, draws, 0.2, 0.0, 0)
    unsure = difference_estimate(0.5, draws, 0.2, 0.05, 0)
    assert sure.value == unsure.value == pytest.approx(0.3)
    assert unsure.high - unsure.low > 3 * (sure.high - sure.low)


def test_too_little_data_has_no_interval():
    assert mean_estimate(np.zeros(0), 10, 0).value is None
    single = mean_estimate(np.array([0.5]), 10, 0)
    assert (single.value, single.low, single.high) == (0.5, None, None)
    assert normal_estimate(None, 0.0).value is None
    assert normal_estimate(0.1, 1.0, least=0.0).low == 0.0
    assert difference_estimate(0.5, np.zeros(0), None, 0.0, 0).value is None
    assert jackknife_error(lambda some: None, np.arange(5)) == 0.0

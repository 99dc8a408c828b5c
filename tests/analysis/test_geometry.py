"""Measures of vectors: against direct computations, and on constructed extremes."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elmo.analysis.geometry import (
    effective_dimension,
    explained_variance,
    group_sums,
    intra_sentence_similarities,
    mean_cosine,
    partition_ratio,
    self_similarity,
    unit_rows,
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
    found = intra_sentence_similarities(vectors, sentences)
    for number, value in enumerate(found):
        own = vectors[sentences == number].astype(np.float64)
        expected = np.mean([cosine(own.mean(axis=0), row) for row in own])
        if np.linalg.norm(own.sum(axis=0)) > 1e-3:  # else the mean points nowhere
            assert value == pytest.approx(expected, abs=1e-6)


@given(matrices(), st.booleans())
def test_explained_variance_is_the_share_of_the_first_singular_value(vectors, centered):
    rows = vectors.astype(np.float64)
    if centered:
        rows = rows - rows.mean(axis=0)
    values = np.linalg.svd(rows, compute_uv=False) ** 2
    found = explained_variance(vectors, centered)
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


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_groups_are_summed_along_any_axis(axis):
    values = np.random.default_rng(0).integers(0, 9, (4, 4)).astype(float)
    groups = np.array([7, 2, 7, 2])
    present, sums = group_sums(values, groups, axis)
    assert present.tolist() == [2, 7]
    columns = np.moveaxis(values, axis, 0)
    expected = np.stack([columns[[1, 3]].sum(axis=0), columns[[0, 2]].sum(axis=0)])
    np.testing.assert_array_equal(np.moveaxis(sums, axis, 0), expected)
    assert [len(part) for part in group_sums(np.zeros((0, 2)), np.array([], int))] == [0, 0]


# --- extremes -------------------------------------------------------------------------------------


def test_identical_vectors_are_wholly_alike_and_have_no_dimension():
    same = np.tile(np.array([[3.0, -4.0, 1.0]], np.float32), (20, 1))
    assert self_similarity(same) == pytest.approx(1.0)
    assert explained_variance(same) == pytest.approx(1.0)
    assert explained_variance(same, centered=True) is None
    assert effective_dimension(same) == 0.0
    assert intra_sentence_similarities(same, np.zeros(20, int)) == pytest.approx(1.0)


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
    assert explained_variance(vectors, centered=True) > 0.99
    assert effective_dimension(vectors) == pytest.approx(1, abs=0.05)
    assert partition_ratio(vectors) < 0.01


def test_opposite_vectors_cancel():
    assert self_similarity(np.array([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(-1.0)


@pytest.mark.parametrize("vectors", [np.zeros((0, 3)), np.zeros((1, 3)), np.zeros((4, 3))])
def test_nothing_gives_no_nan(vectors):
    found = [
        self_similarity(vectors),
        explained_variance(vectors),
        explained_variance(vectors, centered=True),
        partition_ratio(vectors),
        effective_dimension(vectors),
    ]
    assert all(value is None or np.isfinite(value) for value in found)
    assert np.isfinite(unit_rows(vectors)).all()

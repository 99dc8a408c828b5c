"""Clusters and projections of vectors by their directions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.analysis.occurrences.grouping import cluster, project

pytest.importorskip("sklearn")


def three_directions(seed=0, size=12, noise=0.05):
    rng = np.random.default_rng(seed)
    centers = np.eye(3, 8)
    labels = np.repeat([0, 1, 2], [size, size - 2, size - 4])
    return centers[labels] + noise * rng.standard_normal((len(labels), 8)), labels


@given(st.integers(0, 30))
def test_clear_clusters_are_found_and_counted(seed):
    vectors, labels = three_directions(seed)
    found = cluster(vectors, None, 6, seed)
    assert found.labels.tolist() == labels.tolist()  # the largest cluster is the first
    assert found.silhouette > 0.8


def test_the_number_of_clusters_can_be_chosen():
    vectors, _ = three_directions()
    assert cluster(vectors, 5, 6, 0).labels.max() == 4
    alone = cluster(vectors, 1, 6, 0)
    assert alone.silhouette is None
    assert not alone.labels.any()


def test_identical_vectors_make_one_cluster_and_no_nan():
    found = cluster(np.ones((20, 4)), 3, 6, 0)
    assert not found.labels.any()
    assert np.isfinite(found.centers).all()
    zeros = cluster(np.zeros((20, 4)), None, 6, 0)
    assert np.isfinite(zeros.centers).all()


def test_principal_components_keep_the_distances_of_a_plane():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 1.5, 30)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    flat = circle @ np.linalg.qr(rng.standard_normal((6, 6)))[0][:2]
    points = project(3 * flat, "pca", 0)  # lengths do not matter

    def distances(rows):
        return np.linalg.norm(rows[:, None] - rows[None], axis=2)

    np.testing.assert_allclose(distances(points), distances(flat), atol=1e-9)
    assert points[:, 0].var() > points[:, 1].var()


@pytest.mark.parametrize("n", [2, 3, 4, 30])
def test_projections_of_any_number_are_finite_and_repeatable(n):
    vectors = np.random.default_rng(0).standard_normal((n, 5))
    for kind in ("pca", "tsne"):
        points = project(vectors, kind, seed=3)
        assert points.shape == (n, 2)
        assert np.isfinite(points).all()
        np.testing.assert_array_equal(points, project(vectors, kind, seed=3))


def test_t_sne_keeps_clear_clusters_apart():
    pytest.importorskip("sklearn")
    vectors, labels = three_directions()
    points = project(vectors, "tsne", 0)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(axis=1)] == labels).mean() > 0.95

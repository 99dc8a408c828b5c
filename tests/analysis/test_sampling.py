"""Samples of streams: uniform, bounded, and the same whatever the order of the stream."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmo.analysis.sampling import KeySample, joint_keys, text_keys

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=60)


def filled(size, batches):
    """Offer batches of (group, key); the row of a pair is the pair."""
    sample = KeySample(size, (2,))
    for batch in batches:
        pairs = np.array(batch, np.uint64).reshape(-1, 2)
        sample.offer(
            pairs[:, 0],
            pairs[:, 1],
            lambda chosen, pairs=pairs: pairs[chosen].astype(np.float32),
            lambda chosen, pairs=pairs: tuple(pairs[chosen].tolist()),
        )
    return sample


@given(PAIRS, st.integers(1, 5), st.integers(1, 10))
def test_a_sample_holds_the_smallest_keys_of_each_group(pairs, size, step):
    sample = filled(size, [pairs[k : k + step] for k in range(0, len(pairs), step)])
    expected = [
        (group, key)
        for group in range(5)
        for key in sorted({k for g, k in pairs if g == group})[:size]
    ]
    assert list(zip(sample.groups.tolist(), sample.keys.tolist(), strict=True)) == expected
    assert sample.rows.tolist() == [[float(g), float(k)] for g, k in expected]
    assert sample.notes == expected


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_a_stream_does_not_matter(pairs, random):
    shuffled = list(pairs)
    random.shuffle(shuffled)
    one, other = filled(3, [pairs]), filled(3, [shuffled[:7], shuffled[7:]])
    assert one.notes == other.notes


@given(PAIRS)
def test_what_is_dropped_gives_its_place_to_others(pairs):
    sample = filled(4, [pairs])
    sample.keep(sample.groups < np.uint64(2))
    assert all(group < 2 for group, _ in sample.notes)
    more = filled(4, [[pair for pair in pairs if pair[0] < 2]])
    assert sample.notes == more.notes
    assert sample.rows.tolist() == more.rows.tolist()


def test_memory_is_bounded_by_the_sample():
    rng = np.random.default_rng(0)
    sample = KeySample(10, (4,))
    for _ in range(200):
        keys = rng.integers(0, 2**63, 1000, dtype=np.uint64)
        sample.offer(np.zeros(1000, np.uint64), keys, lambda c: np.zeros((len(c), 4), np.float32))
    assert len(sample) == 10
    assert len(sample._table) < 3000


def test_keys_draw_uniformly():
    """Of 20 texts, each is among the 5 with the smallest keys about as often as any other."""
    texts = [f"text {k}" for k in range(20)]
    counts = np.zeros(20)
    for seed in range(400):
        counts[np.argsort(text_keys(texts, seed))[:5]] += 1
    assert counts.min() > 60  # 100 expected, standard deviation 8.7
    assert counts.max() < 140


def test_keys_of_pairs_depend_on_both_and_on_the_seed():
    first, second = text_keys(["a", "b", "a"], 0), text_keys(["x", "x", "y"], 0)
    assert len(set(joint_keys(first, second).tolist())) == 3
    assert text_keys(["a"], 0) != text_keys(["a"], 1)
    assert len(text_keys([], 0)) == 0
    assert text_keys(["\ud800"], 0).dtype == np.uint64  # a lone surrogate is a text, too

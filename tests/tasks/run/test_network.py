"""Which examples form a batch."""

import numpy as np

from elmo.tasks.run.network import chosen_share, shuffled_batches, sorted_batches


def test_batches_hold_every_example_once_and_follow_the_seed():
    sizes = [k % 17 for k in range(1000)]
    batches = shuffled_batches(sizes, 16, np.random.default_rng(3))
    assert sorted(k for batch in batches for k in batch) == list(range(1000))
    assert batches == shuffled_batches(sizes, 16, np.random.default_rng(3))
    assert batches != shuffled_batches(sizes, 16, np.random.default_rng(4))
    spread = [max(sizes[k] for k in b) - min(sizes[k] for k in b) for b in batches]
    assert sum(spread) / len(spread) < 2
    assert sorted_batches([1, 5, 3], 2) == [[1, 2], [0]]


def test_smaller_shares_are_parts_of_larger_ones():
    small, large = (set(chosen_share(200, share, 7)) for share in (0.01, 0.1))
    assert len(small) == 2
    assert small < large

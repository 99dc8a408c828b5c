"""Results: one a sentence, whole, in memory that nobody else's result keeps for long."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.delivery import (
    EmbeddedBatch,
    array_parts,
    by_sentence,
    deliver_arrays,
    deliver_tensors,
    own_parts,
    shared_parts,
)

sizes_of_a_batch = st.lists(st.integers(0, 5), min_size=1, max_size=6)
leads = st.sampled_from([(), (1,), (3,)])


def make_batch(sizes, lead=()):
    vectors = torch.arange(float(np.prod(lead, dtype=int) * sum(sizes) * 2))
    return EmbeddedBatch(list(range(len(sizes))), sizes, vectors.reshape(*lead, sum(sizes), 2))


@given(sizes=sizes_of_a_batch, lead=leads, most_bytes=st.integers(1, 100))
def test_shared_parts_are_the_same_vectors(sizes, lead, most_bytes):
    batch = make_batch(sizes, lead)
    for part, own in zip(shared_parts(batch, most_bytes), own_parts(batch), strict=True):
        assert torch.equal(part, own)
        whole = part.untyped_storage().nbytes()
        assert whole <= max(most_bytes, len(sizes) and max(sizes) * batch.row_bytes)
        assert own.untyped_storage().nbytes() == own.nbytes


@given(sizes=sizes_of_a_batch, lead=leads)
def test_the_layers_of_a_sentence_lie_together(sizes, lead):
    batch = make_batch(sizes, lead)
    flat = by_sentence(batch.vectors, sizes).numpy()
    for part, own in zip(
        array_parts(flat, sizes, batch.vectors.shape), own_parts(batch), strict=True
    ):
        assert part.flags.c_contiguous
        assert np.array_equal(part, own.numpy())


@pytest.mark.parametrize("deliver", [deliver_tensors, deliver_arrays])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_batch_is_delivered_once_in_its_order(deliver, dtype):
    batches = [make_batch([2, 1]), make_batch([3]), make_batch([0])]
    delivered = list(deliver(iter(batches), dtype))
    assert [batch.sizes for batch, _ in delivered] == [[2, 1], [3], [0]]
    for batch, (_, parts) in zip(batches, delivered, strict=True):
        for part, own in zip(parts, own_parts(batch), strict=True):
            assert str(part.dtype).removeprefix("torch.") == dtype
            assert np.array_equal(np.asarray(part, dtype=np.float32), own.numpy())

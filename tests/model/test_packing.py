"""In which order the recurrent layers read the words of a batch."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.model.bilm import inverse, pack

lengths_of_a_batch = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def naive_order(lengths, backwards):
    """List (sentence, place) in the order of reading, longest sentence first at each step."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [
        (number, lengths[number] - 1 - step if backwards else step)
        for step in range(max(lengths))
        for number in order
        if step < lengths[number]
    ]


@given(lengths=lengths_of_a_batch)
def test_packing_reads_in_the_order_of_a_plain_loop(lengths):
    packing = pack(lengths)
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    for places, backwards in ((packing.forward, False), (packing.backward, True)):
        expected = [starts[number] + place for number, place in naive_order(lengths, backwards)]
        assert places.tolist() == expected


@given(lengths=lengths_of_a_batch)
def test_packing_sorts_by_length_and_keeps_the_order_of_equals(lengths):
    order = pack(lengths).order.tolist()
    assert order == sorted(range(len(lengths)), key=lambda number: -lengths[number])


@given(lengths=lengths_of_a_batch)
def test_batch_sizes_count_the_sentences_that_go_on(lengths):
    sizes = pack(lengths).batch_sizes
    assert sizes == [sum(length > step for length in lengths) for step in range(max(lengths))]


def test_nothing_packs_into_nothing():
    packing = pack([])
    assert packing.batch_sizes == []
    assert packing.forward.shape == packing.backward.shape == packing.order.shape == (0,)


@given(permutation=st.permutations(range(8)))
def test_a_permutation_and_its_inverse_undo_each_other(permutation):
    given_order = torch.tensor(permutation)
    assert torch.equal(given_order[inverse(given_order)], torch.arange(8))
    assert torch.equal(inverse(given_order)[given_order], torch.arange(8))

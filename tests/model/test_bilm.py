"""The plain biLM: random weights, masks, boundaries."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import BiLM, ElmoConfig, State, batch_to_ids, random_bilm
from elmo.errors import (
    ConfigError,
    InputError,
)
from elmo.model.bilm import CarriedState, Checkpoint, inverse, pack, zero_state
from elmo.text.vocabulary import Vocabulary
from elmo.weights.tensors import tensor_table
from strategies import (
    configs,
    seeded_bilm,
    with_changed_weight,
)
from weight_files import assert_same_tensors


def test_random_models_are_reproducible_and_leave_the_global_generator_alone():
    config = ElmoConfig.preset("tiny")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = random_bilm(config), random_bilm(config), random_bilm(config, seed=1)
    assert torch.equal(torch.rand(3), expected)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert not torch.equal(first.words.embedding.weight, other.words.embedding.weight)
    assert not first.words.embedding.weight[0].any()
    assert not first.training


SENTENCES = [["The", "cat", "sat", "."], ["No"], []]


@torch.no_grad()
def test_padding_does_not_change_vectors(tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    wider = torch.cat([ids, torch.zeros(3, 5, 50, dtype=torch.int64)], dim=1)
    narrow, wide = tiny_bilm(ids), tiny_bilm(wider)
    assert torch.equal(wide.layers[:, :, :4], narrow.layers)
    assert not wide.layers[:, :, 4:].any()
    assert torch.equal(wide.mask[:, :4], narrow.mask)
    assert not wide.mask[:, 4:].any()


@torch.no_grad()
def test_the_mask_tells_words_and_padding_is_zero_in_every_layer(tiny_bilm):
    output = tiny_bilm(batch_to_ids(SENTENCES))
    assert output.mask.sum(dim=1).tolist() == [4, 1, 0]
    assert not output.layers[:, ~output.mask].any()
    assert output.layers[:, output.mask].any(dim=-1).all()


@torch.no_grad()
def test_boundaries_can_be_kept(tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    with_boundaries = tiny_bilm(ids, keep_boundaries=True)
    assert with_boundaries.mask.sum(dim=1).tolist() == [6, 3, 2]
    without = tiny_bilm(ids)
    for row, sentence in enumerate(SENTENCES):
        n = len(sentence)
        assert torch.equal(with_boundaries.layers[:, row, 1 : n + 1], without.layers[:, row, :n])
    # Their context-free vectors are those of the marks.
    marks = tiny_bilm.encode_words(tiny_bilm.boundaries)
    found = with_boundaries.layers[0, 1, [0, 2], :16]
    torch.testing.assert_close(found, marks, rtol=0, atol=1e-6)


def test_a_hole_between_words_is_refused(tiny_bilm):
    ids = batch_to_ids([["a", "b", "c"]])
    ids[0, 1] = 0
    with pytest.raises(InputError, match="padding on the right"):
        tiny_bilm(ids)


@torch.no_grad()
def test_layer_zero_is_the_word_vector_twice(tiny_bilm):
    layers = tiny_bilm(batch_to_ids(SENTENCES)).layers[0]
    assert torch.equal(layers[..., :16], layers[..., 16:])


@torch.no_grad()
def test_fewer_layers_are_the_first_of_all(tiny_bilm):
    vectors = tiny_bilm.encode_words(batch_to_ids([["a", "b", "c"]])[0])
    tokens = torch.tensor([0, 1, 2, 1, 0])
    full, state = tiny_bilm.contextualize(vectors, tokens, [3, 2])
    first, shallow = tiny_bilm.contextualize(vectors, tokens, [3, 2], depth=1)
    assert len(first) == 1
    assert torch.equal(first[0], full[0])
    assert torch.equal(shallow.hidden[0], state.hidden[0])
    assert not shallow.hidden[1].any()


def test_a_model_that_reads_words_without_vocabulary_takes_the_first_two_as_boundaries():
    bilm = BiLM(ElmoConfig.preset("tiny", n_words=7))
    assert bilm.boundaries.tolist() == [1, 2]


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


def test_states_are_taken_repeated_and_split_by_row(tiny_config):
    shape = (tiny_config.n_layers, 2, 3)
    state = State(torch.randn(*shape, 16), torch.randn(*shape, 64))
    assert state.rows == 3
    assert torch.equal(state.take(torch.tensor([2, 0])).hidden, state.hidden[:, :, [2, 0]])
    repeated = state.take(slice(1, 2)).repeat(4)
    assert repeated.rows == 4
    assert torch.equal(repeated.memory[:, :, 3], state.memory[:, :, 1])
    layer = state.layer(1, 0)
    assert torch.equal(layer.hidden, state.hidden[1, 0])
    assert torch.equal(layer.memory, state.memory[1, 0])


def test_carried_state_grows_by_zero_rows_and_keeps_rows_beyond_a_smaller_batch(tiny_config):
    carried = CarriedState(tiny_config)
    cpu = torch.device("cpu")
    assert not carried.first_rows(2, cpu).hidden.any()
    ones = zero_state(tiny_config, 2, torch.empty(0))
    ones.hidden.fill_(1.0)
    carried.keep(ones)
    grown = carried.first_rows(3, cpu)
    assert grown.hidden[0, 0, :, 0].tolist() == [1.0, 1.0, 0.0]
    twos = zero_state(tiny_config, 1, torch.empty(0))
    twos.hidden.fill_(2.0)
    carried.first_rows(1, cpu)
    carried.keep(twos)
    assert carried.first_rows(3, cpu).hidden[0, 0, :, 0].tolist() == [2.0, 1.0, 0.0]


def test_carried_state_does_not_write_into_what_it_was_given(tiny_config):
    carried = CarriedState(tiny_config)
    given_state = zero_state(tiny_config, 1, torch.empty(0))
    carried.state = given_state
    carried.first_rows(1, torch.device("cpu"))
    new = zero_state(tiny_config, 1, torch.empty(0))
    new.memory.fill_(7.0)
    carried.keep(new)
    assert not given_state.memory.any()


EVERY_KIND = {
    "cells": ("lstm", "gru"),
    "reads": ("characters", "words"),
    "spells": ("bytes", "code points"),
}


@pytest.fixture
def checkpoint(tiny_bilm):
    return tiny_bilm.to_checkpoint()


@settings(max_examples=15)
@given(config=configs(**EVERY_KIND), data=st.data())
def test_the_fingerprint_changes_with_every_weight(config, data):
    checkpoint = seeded_bilm(config).to_checkpoint()
    name = data.draw(st.sampled_from(sorted(checkpoint.tensors)))
    changed = with_changed_weight(checkpoint, name, 123.0)
    assert changed.fingerprint() != checkpoint.fingerprint()


def test_the_fingerprint_changes_with_what_decides_the_vectors_and_nothing_else(checkpoint):
    expected = checkpoint.fingerprint()
    for change in ({"cell_clip": 2.0}, {"skip_connections": False}, {"activation": "tanh"}):
        other = replace(checkpoint, config=checkpoint.config.replace(**change))
        assert other.fingerprint() != expected
    mixed = checkpoint.config.replace(mix_weights=(1.0, 2.0, 3.0))
    assert replace(checkpoint, config=mixed).fingerprint() == expected
    warm = (torch.zeros(2, 2, 16), torch.zeros(2, 2, 64))
    assert replace(checkpoint, warm_state=warm).fingerprint() == expected


def test_a_checkpoint_builds_the_model_it_came_from(checkpoint, tiny_bilm):
    built = BiLM.from_checkpoint(checkpoint)
    assert_same_tensors(built.state_dict(), tiny_bilm.state_dict())
    assert torch.equal(built.boundaries, tiny_bilm.boundaries)
    assert not built.training
    assert isinstance(built.to_checkpoint(), Checkpoint)


def test_a_vocabulary_is_part_of_the_fingerprint_of_a_word_model(word_bilm):
    checkpoint = word_bilm.to_checkpoint()
    words = checkpoint.vocabulary.words
    other = replace(checkpoint, vocabulary=Vocabulary([*words[:3], *reversed(words[3:])]))
    assert other.fingerprint() != checkpoint.fingerprint()


def test_a_vocabulary_must_fit_the_model(word_bilm):
    with pytest.raises(ConfigError, match="the vocabulary has 1 words"):
        BiLM(word_bilm.config, Vocabulary(["<S>"]))


def test_the_fingerprint_of_a_model_of_bytes_is_what_it_always_was():
    # From before there were alphabets: files of vectors carry it.
    config = ElmoConfig.preset("tiny", dim=4, projection_dim=2, filters=((1, 2),), n_highway=0)
    zeros = {
        name: torch.zeros(shape) for row in tensor_table(config) for name, shape in row.ours.items()
    }
    found = Checkpoint(config=config, tensors=zeros).fingerprint()
    assert found == "eec5326531d01ad83c2a86233bc47f570712137daa7756f8cdd120e9a624a003"

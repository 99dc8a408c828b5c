"""The plain biLM: random weights, masks, boundaries."""

import pytest
import torch

from elmo import BiLM, ElmoConfig, batch_to_ids, random_bilm
from elmo.errors import InputError


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

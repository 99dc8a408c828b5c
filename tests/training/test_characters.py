"""The quick way from characters to word vectors in training, against the plain convolution."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.config import ElmoConfig
from elmo.model.layers import CharacterEncoder
from elmo.text.characters import CharacterMapper
from elmo.training import characters
from elmo.training.characters import encode_characters
from strategies import ALPHABET

words = st.lists(st.text(max_size=60), min_size=1, max_size=30)


def make_encoder(**changes):
    torch.manual_seed(0)
    config = ElmoConfig.preset("tiny", **changes)
    encoder = CharacterEncoder(config).double()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return config, encoder


def compare(encoder, ids, padding):
    weights = torch.randn(len(ids), encoder.projection.out_features, dtype=torch.float64)
    gradients = []
    outputs = []
    for encode in (encoder, lambda ids: encode_characters(encoder, ids, padding)):
        outputs.append(encode(ids))
        loss = (outputs[-1] * weights).sum()
        gradients.append(torch.autograd.grad(loss, list(encoder.parameters())))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-11)
    for (name, _), plain, quick in zip(encoder.named_parameters(), *gradients, strict=True):
        if name == "embedding.weight":
            plain, quick = plain[1:], quick[1:]  # row 0 masks and never learns
        torch.testing.assert_close(quick, plain, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_characters": 6},
        {"filters": ((1, 3),)},
        {"filters": ((7, 5), (2, 1)), "max_characters": 7},
        {"activation": "tanh", "n_highway": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize("slice_values", [1, 300, 1 << 22])
@given(spelled=words)
def test_vectors_and_gradients_equal_the_plain_encoder(changes, slice_values, spelled):
    config, encoder = make_encoder(**changes)
    ids = CharacterMapper(config.max_characters).rows(["<S>", "</S>", *spelled])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(characters, "_SLICE_VALUES", slice_values)
        compare(encoder, ids, int(ids[0, -1]))


@given(spelled=words)
def test_an_alphabet_is_read_in_the_same_way(spelled):
    changes = {"max_characters": 10, "n_characters": ALPHABET.n_characters}
    config, encoder = make_encoder(**changes)
    ids = CharacterMapper(config.max_characters, alphabet=ALPHABET).rows(["<S>", "</S>", *spelled])
    compare(encoder, ids, int(ids[0, -1]))


def test_no_words_have_no_vectors():
    _, encoder = make_encoder()
    ids = CharacterMapper().rows([])
    assert encode_characters(encoder, ids, 261).shape == (0, encoder.projection.out_features)

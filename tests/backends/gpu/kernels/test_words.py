"""The kernels from characters to word vectors, interpreted, against the plain encoder."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.backends.gpu.kernels import character_windows
from elmo.backends.gpu.kernels.highway import mix_highway
from elmo.config import ElmoConfig
from elmo.model.layers import CharacterEncoder
from elmo.text.characters import CharacterMapper
from elmo.training.characters import encode_characters
from strategies import ALPHABET

words = st.lists(st.text(max_size=12), min_size=1, max_size=4)


def make_encoder(**changes):
    torch.manual_seed(0)
    config = ElmoConfig.preset("tiny", **changes)
    encoder = CharacterEncoder(config)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return config, encoder


def compare(encoder, ids, padding, atol=1e-4):
    weights = torch.randn(len(ids), encoder.projection.out_features, device=ids.device)
    outputs, gradients = [], []
    for encode in (encoder, lambda ids: encode_characters(encoder, ids, padding, fused=True)):
        outputs.append(encode(ids))
        loss = (outputs[-1] * weights).sum()
        gradients.append(torch.autograd.grad(loss, list(encoder.parameters())))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=atol)
    for (name, _), plain, fused in zip(encoder.named_parameters(), *gradients, strict=True):
        torch.testing.assert_close(
            fused, plain, rtol=1e-3, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


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
@settings(max_examples=4)
@given(others=words)
def test_vectors_and_gradients_equal_the_plain_encoder(changes, others):
    config, encoder = make_encoder(**changes)
    ids = CharacterMapper(config.max_characters).rows(["<S>", *others])
    compare(encoder, ids, int(ids[0, -1]))


def test_words_of_every_length_up_to_beyond_the_row():
    config, encoder = make_encoder(max_characters=9, filters=((1, 2), (4, 3)))
    ids = CharacterMapper(config.max_characters).rows(["x" * n + "y" for n in range(10)])
    compare(encoder, ids, 261)


def test_more_filters_than_a_tile_has(monkeypatch):
    monkeypatch.setattr(character_windows, "_EXACT_FILTERS", 16)
    _, encoder = make_encoder()
    compare(encoder, CharacterMapper().rows(["a", "word", "of", "six", "more", "letters"]), 261)


@pytest.mark.parametrize("parts", [1, 3])
def test_words_are_cut_into_parts(monkeypatch, parts):
    monkeypatch.setattr(character_windows, "_PARTS", parts)
    _, encoder = make_encoder()
    compare(encoder, CharacterMapper().rows([f"word{k}" for k in range(17)]), 261)


def test_an_alphabet_is_read_in_the_same_way():
    config, encoder = make_encoder(max_characters=10, n_characters=ALPHABET.n_characters)
    mapper = CharacterMapper(config.max_characters, alphabet=ALPHABET)
    ids = mapper.rows(["<S>", "the", "cats", "河", "unknown!"])
    compare(encoder, ids.int(), int(ids[0, -1]))


def test_no_words_have_no_vectors():
    _, encoder = make_encoder()
    vectors = encode_characters(encoder, CharacterMapper().rows([]), 261, fused=True)
    assert vectors.shape == (0, encoder.projection.out_features)
    vectors.sum().backward()
    assert not encoder.embedding.weight.grad.any()


def test_the_masked_character_never_learns():
    _, encoder = make_encoder()
    ids = torch.zeros(2, 50, dtype=torch.int64)
    encode_characters(encoder, ids, 261, fused=True).sum().backward()
    assert not encoder.embedding.weight.grad[0].any()


def test_half_precision_stays_close():
    # Not bfloat16: the interpreter multiplies its bits. It is tried on the GPU.
    torch.manual_seed(0)
    characters, filters = torch.randn(3, 20, 4), torch.randn(5, 3, 4)
    widths = torch.full((5,), 3, dtype=torch.int32)
    n_windows = torch.tensor([18, 5, 17], dtype=torch.int32)
    given = characters, filters, torch.randn(5), widths, n_windows
    exact, half = (character_windows.window_maxima(*given, t) for t in (torch.float32, torch.half))
    assert half.dtype == torch.half
    torch.testing.assert_close(half.float(), exact, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 1030), (0, 4)])
def test_a_highway_is_mixed_as_by_plain_code(shape):
    torch.manual_seed(1)
    inputs = torch.randn(shape, requires_grad=True)
    products = torch.randn(shape[0], 2 * shape[1], requires_grad=True)
    weights = torch.randn(shape)
    transformed, gate = products.chunk(2, dim=1)
    gate = torch.sigmoid(gate)
    plain = gate * torch.relu(transformed) + (1 - gate) * inputs
    fused = mix_highway(inputs, products)
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-6)
    for one, other in zip(
        torch.autograd.grad((fused * weights).sum(), (inputs, products)),
        torch.autograd.grad((plain * weights).sum(), (inputs, products)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)

"""The LSTM of task heads: kernels (interpreted), padded and packed batches agree both ways."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.backends.gpu.kernels.gpu import is_interpreted
from elmo.backends.gpu.kernels.small_lstm import MOST_CELLS, read_sides
from elmo.tasks.heads.base import Layout
from elmo.tasks.heads.encoders import Lstm

interpreted = pytest.mark.skipif(not is_interpreted(), reason="Triton is not installed")
ROUNDED = {"rtol": 0.0, "atol": 4e-3}
"""Recurrent products of the kernel are of float16 values."""


def read(lstm, way, vectors, layout):
    """States where there are words, and all gradients of a weighted sum of them."""
    vectors = vectors.clone().requires_grad_()
    states = getattr(lstm, way)(vectors, layout) * layout.mask.unsqueeze(-1)
    weights = torch.linspace(-1, 1, states.numel()).view_as(states)
    lstm.zero_grad()
    (states * weights).sum().backward()
    return states.detach(), vectors.grad, *(p.grad for p in lstm.parameters())


def compare(way, reference, sizes, input_dim=5, hidden=6, **tolerance):
    torch.manual_seed(0)
    lstm = Lstm(input_dim, hidden)
    layout = Layout.of(sizes)
    vectors = torch.randn(*layout.mask.shape, input_dim)
    found, expected = (read(lstm, which, vectors, layout) for which in (way, reference))
    names = ["states", "input", *dict(lstm.named_parameters())]
    for name, one, other in zip(names, found, expected, strict=True):
        scale = max(1.0, other.abs().max().item())  # gradients of weights are sums over all words
        torch.testing.assert_close(
            one / scale, other / scale, msg=lambda t, name=name: f"{name}: {t}", **tolerance
        )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_padded_sentences_are_read_as_packed_ones(sizes, hidden):
    compare("_padded", "_packed", sizes, hidden=hidden, rtol=1e-4, atol=1e-5)


@interpreted
@pytest.mark.parametrize(
    ("sizes", "hidden"), [([3], 6), ([1], 1), ([4, 1, 7], 16), ([2] * 17, 20), ([5, 3], MOST_CELLS)]
)
def test_the_kernel_reads_as_packed_sentences_are_read(sizes, hidden):
    compare("_fused", "_packed", sizes, hidden=hidden, **ROUNDED)


@interpreted
def test_tiny_gradients_are_not_lost_in_half_precision():
    torch.manual_seed(0)
    lstm = Lstm(4, 8)
    layout = Layout.of([6, 4])
    vectors = torch.randn(2, 6, 4)

    def gradient(way):
        given_ = vectors.clone().requires_grad_()
        (1e-12 * getattr(lstm, way)(given_, layout)).sum().backward()
        return given_.grad * 1e12

    torch.testing.assert_close(gradient("_fused"), gradient("_padded"), **ROUNDED)


@interpreted
def test_no_sentence_and_no_word_give_nothing():
    for time, rows in ((0, 3), (2, 0)):
        vectors = torch.randn(2, time, rows, 5, requires_grad=True)
        weights = torch.randn(2, 16, 5), torch.randn(2, 16), torch.randn(2, 16, 4)
        states = read_sides(vectors, *weights)
        assert states.shape == (2, time, rows, 4)
        states.sum().backward()
        assert vectors.grad.shape == vectors.shape

"""Products with constant weights: right, reversible, and blind to their neighbors."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo.backends.cpu.products
from elmo.backends.cpu.products import (
    OneDNNLinear,
    PlainLinear,
    fit_halves,
    frozen_linear,
    onednn_works,
)
from strategies import rows_are_exact

needs_onednn = pytest.mark.skipif(
    not onednn_works(torch.float32), reason="this PyTorch has no oneDNN for this CPU"
)

needs_exact_rows = pytest.mark.skipif(
    not rows_are_exact(), reason="oneDNN itself rounds differently for few rows on this CPU"
)


def random_product(out, inputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, inputs, generator=generator)
    bias = torch.randn(out, generator=generator)
    rows = torch.randn(100, inputs, generator=generator)
    return weight, bias, rows


def kinds():
    return [PlainLinear, pytest.param(OneDNNLinear, marks=needs_onednn)]


@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=25)
@given(
    out=st.integers(1, 40), inputs=st.integers(1, 40), rows=st.integers(1, 9), bias=st.booleans()
)
def test_a_product_is_what_float64_says(kind, out, inputs, rows, bias):
    weight, b, x = random_product(out, inputs)
    expected = x[:rows].double() @ weight.double().T
    found = kind(weight, b if bias else None)(x[:rows])
    torch.testing.assert_close(found.double(), expected + bias * b, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", kinds())
@given(out=st.integers(1, 70), inputs=st.integers(1, 70))
def test_the_weight_comes_back_bit_for_bit(kind, out, inputs):
    weight, bias, _ = random_product(out, inputs)
    assert torch.equal(kind(weight, bias).weight(), weight)


@needs_exact_rows
@pytest.mark.parametrize(("out", "inputs"), [(64, 16), (16, 64), (256, 128), (512, 512)])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 17, 64, 100])
def test_a_row_does_not_depend_on_the_number_of_rows(out, inputs, rows):
    weight, bias, x = random_product(out, inputs)
    packed = OneDNNLinear(weight, bias)
    assert torch.equal(packed(x[:rows]), packed(x)[:rows])


@needs_exact_rows
@pytest.mark.parametrize("place", [0, 1, 13, 99])
def test_a_row_does_not_depend_on_its_place(place):
    weight, bias, x = random_product(256, 128)
    packed = OneDNNLinear(weight, bias)
    assert torch.equal(packed(x)[place], packed(x[place : place + 1])[0])


@pytest.mark.parametrize("kind", kinds())
def test_no_rows_give_no_rows(kind):
    weight, bias, _ = random_product(32, 16)
    assert kind(weight, bias)(torch.empty(0, 16)).shape == (0, 32)


@needs_onednn
def test_weights_are_laid_out_for_onednn_where_that_works():
    weight, bias, x = random_product(32, 16)
    product = frozen_linear(weight, bias)
    assert isinstance(product, OneDNNLinear)
    torch.testing.assert_close(product(x), F.linear(x, weight, bias), rtol=0, atol=1e-5)


def test_weights_stay_plain_where_onednn_does_not_work(monkeypatch):
    monkeypatch.setattr(elmo.backends.cpu.products, "onednn_works", lambda dtype: False)
    weight, bias, x = random_product(32, 16)
    product = frozen_linear(weight, bias)
    assert isinstance(product, PlainLinear)
    assert torch.equal(product(x), F.linear(x, weight, bias))


def test_a_pytorch_without_the_private_operators_is_noticed(monkeypatch):
    def gone(self, weight, bias=None):
        raise AttributeError("no such operator")

    monkeypatch.setattr(OneDNNLinear, "__init__", gone)
    assert not onednn_works.__wrapped__(torch.float32)


def test_a_onednn_with_wrong_products_is_noticed(monkeypatch):
    monkeypatch.setattr(OneDNNLinear, "__call__", lambda self, x: torch.zeros(len(x), self._out))
    assert not onednn_works.__wrapped__(torch.float32)


@needs_onednn
def test_changing_the_weight_afterwards_changes_nothing():
    weight, bias, x = random_product(32, 16)
    packed = OneDNNLinear(weight, bias)
    before = packed(x)
    weight.zero_()
    assert torch.equal(packed(x), before)


def test_halves_hold_what_was_rounded_to_them_and_nothing_finer():
    weight = torch.tensor([[1.0, -0.5], [2.0**-24, 65504.0]])
    assert fit_halves([weight, weight.T])
    for value in (1 + 2.0**-12, 2.0**-25, 65520.0, float("nan")):
        assert not fit_halves([weight, torch.tensor([[value]])])

"""The written-out backward pass of the LSTM against autograd and finite differences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.config import ElmoConfig
from elmo.layers import GRULayer, LayerState, LSTMLayer
from elmo.training import recurrence
from elmo.training.recurrence import run_layer


def make_layer(kind=LSTMLayer, **changes):
    torch.manual_seed(0)
    settings = {"dim": 5, "projection_dim": 3, "cell_clip": 0.4, "proj_clip": 0.2, **changes}
    layer = kind(ElmoConfig.preset("tiny", **settings)).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    return layer


def make_inputs(layer, time=4, rows=3):
    out = layer.input_weight.shape[1]
    dim = layer.bias.shape[0] // layer.n_gates
    inputs = torch.randn(time, rows, out, dtype=torch.float64, requires_grad=True)
    state = LayerState(
        torch.randn(rows, out, dtype=torch.float64).clamp(-0.2, 0.2),
        torch.randn(rows, dim, dtype=torch.float64).clamp(-0.4, 0.4),
    )
    keep = (torch.rand(time, rows, 1) > 0.3).double()
    return inputs, state, keep


def gradients(layer, inputs, outputs, weights):
    loss = (outputs * weights).sum()
    return torch.autograd.grad(loss, [inputs, *layer.parameters()])


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell_clip": None},
        {"proj_clip": None},
        {"projection_dim": 5},
        {"dim": 1, "projection_dim": 1},
    ],
)
@given(time=st.integers(1, 5), rows=st.integers(1, 4), seed=st.integers(0, 1000))
def test_the_lstm_equals_its_plain_loop(changes, restarts, time, rows, seed):
    layer = make_layer(**changes)
    torch.manual_seed(seed)
    inputs, state, keep = make_inputs(layer, time, rows)
    keep = keep if restarts else None
    products = torch.nn.functional.linear(inputs, layer.input_weight, layer.gate_bias())
    plain, end = recurrence._run_plainly(layer, products, state, keep)
    fast, fast_end = run_layer(layer, inputs, state, keep)
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast_end.memory, end.memory, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast_end.hidden, end.hidden, rtol=0, atol=1e-12)
    weights = torch.randn_like(plain)
    for one, other in zip(
        gradients(layer, inputs, fast, weights),
        gradients(layer, inputs, plain, weights),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_gradients_are_those_of_finite_differences():
    layer = make_layer(cell_clip=2.0, proj_clip=2.0)
    inputs, state, keep = make_inputs(layer)

    def outputs(inputs, *_):
        return run_layer(layer, inputs, state, keep)[0]

    assert torch.autograd.gradcheck(outputs, (inputs, *layer.parameters()))


def test_a_gru_takes_the_plain_loop():
    layer = make_layer(GRULayer)
    inputs, state, keep = make_inputs(layer)
    outputs, end = run_layer(layer, inputs, state, keep)
    assert torch.equal(outputs[-1], end.hidden)
    assert all(g.abs().sum() > 0 for g in gradients(layer, inputs, outputs, 1.0))


def test_what_is_zeroed_is_forgotten():
    layer = make_layer()
    inputs, state, _ = make_inputs(layer)
    keep = torch.ones(4, 3, 1, dtype=torch.float64)
    keep[2] = 0
    outputs, _ = run_layer(layer, inputs, state, keep)
    zero = LayerState(torch.zeros_like(state.hidden), torch.zeros_like(state.memory))
    torch.testing.assert_close(outputs[2:], run_layer(layer, inputs[2:], zero, None)[0])

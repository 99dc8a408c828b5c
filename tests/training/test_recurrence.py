"""The written-out backward pass of the LSTM against autograd and finite differences."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.config import ElmoConfig
from elmo.model.cells import GRU, LSTM, LayerState
from elmo.training import recurrence
from elmo.training.recurrence import run_layer


def make_layers(kind=LSTM, **changes):
    """Two directions of one layer."""
    torch.manual_seed(0)
    settings = {"dim": 5, "projection_dim": 3, "cell_clip": 0.4, "proj_clip": 0.2, **changes}
    config = ElmoConfig.preset("tiny", **settings)
    layers = torch.nn.ModuleList(kind(config) for _ in range(2)).double()
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    return layers


def make_inputs(layers, time=4, rows=3):
    out = layers[0].input_weight.shape[1]
    dim = layers[0].bias.shape[0] // len(layers[0].gates)
    inputs = torch.randn(2, time, rows, out, dtype=torch.float64, requires_grad=True)
    state = LayerState(
        torch.randn(2, rows, out, dtype=torch.float64).clamp(-0.2, 0.2),
        torch.randn(2, rows, dim, dtype=torch.float64).clamp(-0.4, 0.4),
    )
    keep = (torch.rand(time, rows, 1) > 0.3).double()
    return inputs, state, keep


def gradients(layers, inputs, outputs, weights):
    loss = (outputs * weights).sum()
    return torch.autograd.grad(loss, [inputs, *layers.parameters()])


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
    layers = make_layers(**changes)
    torch.manual_seed(seed)
    inputs, state, keep = make_inputs(layers, time, rows)
    keep = keep if restarts else None
    plain, end = recurrence._run_plainly(layers, inputs, state, keep)
    fast, fast_end = run_layer(layers, inputs, state, keep)
    torch.testing.assert_close(fast, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast_end.memory, end.memory, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast_end.hidden, end.hidden, rtol=0, atol=1e-12)
    weights = torch.randn_like(plain)
    for one, other in zip(
        gradients(layers, inputs, fast, weights),
        gradients(layers, inputs, plain, weights),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_gradients_are_those_of_finite_differences():
    layers = make_layers(cell_clip=2.0, proj_clip=2.0)
    inputs, state, keep = make_inputs(layers)

    def outputs(inputs, *_):
        return run_layer(layers, inputs, state, keep)[0]

    assert torch.autograd.gradcheck(outputs, (inputs, *layers.parameters()))


def test_a_gru_takes_the_plain_loop():
    layers = make_layers(GRU)
    inputs, state, keep = make_inputs(layers)
    outputs, end = run_layer(layers, inputs, state, keep)
    assert torch.equal(outputs[:, -1], end.hidden)
    assert all(g.abs().sum() > 0 for g in gradients(layers, inputs, outputs, 1.0))


def test_what_is_zeroed_is_forgotten():
    layers = make_layers()
    inputs, state, _ = make_inputs(layers)
    keep = torch.ones(4, 3, 1, dtype=torch.float64)
    keep[2] = 0
    outputs, _ = run_layer(layers, inputs, state, keep)
    zero = LayerState(torch.zeros_like(state.hidden), torch.zeros_like(state.memory))
    torch.testing.assert_close(outputs[:, 2:], run_layer(layers, inputs[:, 2:], zero, None)[0])

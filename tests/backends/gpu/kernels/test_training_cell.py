"""The kernels of the LSTM, interpreted, against the plain code: values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.config import ElmoConfig
from elmo.model.cells import LSTM, LayerState
from elmo.training.recurrence import run_layer


def make_layers(device="cpu", **changes):
    """Two directions of one layer."""
    torch.manual_seed(0)
    sizes = {"dim": 5, "projection_dim": 3, "cell_clip": 0.4, "proj_clip": 0.2, **changes}
    config = ElmoConfig.preset("tiny", **sizes)
    layers = torch.nn.ModuleList(LSTM(config) for _ in range(2))
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter, std=1.0)
    return layers.to(device)


def make_inputs(layers, time, rows, restarts=True):
    weight = layers[0].input_weight
    dim = layers[0].bias.shape[0] // 4
    inputs = torch.randn(2, time, rows, weight.shape[1]).to(weight.device).requires_grad_()
    state = LayerState(
        torch.randn(2, rows, weight.shape[1]).clamp(-0.2, 0.2).to(weight.device),
        torch.randn(2, rows, dim).clamp(-0.4, 0.4).to(weight.device),
    )
    keep = (torch.rand(time, rows, 1) > 0.3).float().to(weight.device)
    return inputs, state, keep if restarts else None


def run(layers, inputs, state, keep, weights, fused):
    """Outputs, memory at the end, and all gradients."""
    outputs, end = run_layer(layers, inputs, state, keep, fused)
    loss = (outputs.float() * weights).sum()
    gradients = torch.autograd.grad(loss, [inputs, *layers.parameters()])
    return outputs, end.hidden, end.memory, *gradients


def compare(layers, inputs, state, keep, rtol=0.0, atol=2e-5):
    weights = torch.randn_like(inputs)
    plain = run(layers, inputs, state, keep, weights, False)
    fused = run(layers, inputs, state, keep, weights, True)
    names = ["outputs", "hidden", "memory", "inputs", *dict(layers.named_parameters())]
    for name, one, other in zip(names, fused, plain, strict=True):
        torch.testing.assert_close(
            one, other, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell_clip": None},
        {"proj_clip": None},
        {"projection_dim": 5},
        {"dim": 1, "projection_dim": 1},
        {"dim": 33, "projection_dim": 17},
    ],
    ids=str,
)
@settings(max_examples=4)
@given(time=st.integers(1, 3), rows=st.integers(1, 3), seed=st.integers(0, 1000))
def test_the_kernels_equal_the_plain_lstm(changes, restarts, time, rows, seed):
    layers = make_layers(**changes)
    torch.manual_seed(seed)
    compare(layers, *make_inputs(layers, time, rows, restarts))


def test_no_rows_are_no_trouble():
    layers = make_layers()
    inputs, state, keep = make_inputs(layers, 2, 0)
    outputs, end = run_layer(layers, inputs, state, keep, fused=True)
    assert outputs.shape == (2, 2, 0, 3)
    assert end.memory.shape == (2, 0, 5)
    outputs.sum().backward()
    assert not any(p.grad.any() for p in layers.parameters())


def test_more_cells_than_a_program_has(monkeypatch):
    monkeypatch.setattr("elmo.backends.gpu.kernels.training_cell._MOST_CELLS", 4)
    layers = make_layers(dim=9, projection_dim=6)
    compare(layers, *make_inputs(layers, 2, 2))


def test_bfloat16_products_keep_memory_in_float32():
    layers = make_layers(dim=8, projection_dim=4, cell_clip=3.0, proj_clip=3.0)
    inputs, state, keep = make_inputs(layers, 3, 2)
    plain, plain_end = run_layer(layers, inputs, state, keep)
    with torch.autocast("cpu", torch.bfloat16):
        fused, end = run_layer(layers, inputs, state, keep, fused=True)
    assert fused.dtype == torch.bfloat16
    assert end.memory.dtype == torch.float32
    torch.testing.assert_close(fused.float(), plain, rtol=0, atol=0.05)
    torch.testing.assert_close(end.memory, plain_end.memory, rtol=0, atol=0.05)


def test_going_back_twice_is_refused():
    layers = make_layers()
    outputs, _ = run_layer(layers, *make_inputs(layers, 2, 2), fused=True)
    outputs.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()

"""The LSTM of tasks' heads on a GPU: one launch reads as cuDNN and as a CPU do."""

import pytest
import torch

from elmo.backends.gpu.kernels.small_lstm import MOST_CELLS, can_read
from elmo.runtime.devices import find_device
from elmo.tasks.heads.base import Layout, send
from elmo.tasks.heads.encoders import Lstm

pytestmark = pytest.mark.gpu
ROUNDED = {"rtol": 0.0, "atol": 4e-3}


def read(lstm, way, vectors, layout):
    """States where there are words, and all gradients of a weighted sum of them."""
    vectors = vectors.clone().requires_grad_()
    states = getattr(lstm, way)(vectors, layout) * layout.mask.unsqueeze(-1)
    weights = torch.linspace(-1, 1, states.numel(), device=states.device).view_as(states)
    lstm.zero_grad()
    (states * weights).sum().backward()
    gradients = (vectors.grad, *(p.grad for p in lstm.parameters()))
    return [tensor.detach().cpu() for tensor in (states, *gradients)]


@pytest.mark.parametrize(
    ("n", "longest", "hidden"), [(1, 1, 1), (3, 7, 16), (17, 40, 100), (64, 150, MOST_CELLS)]
)
def test_one_launch_reads_as_cudnn_and_a_cpu_do(n, longest, hidden):
    device = find_device("cuda")
    assert can_read(hidden, device)
    torch.manual_seed(0)
    lstm = Lstm(50, hidden)
    layout = Layout.of([1 + (7 * k + longest - 1) % longest for k in range(n)])
    vectors = torch.randn(*layout.mask.shape, 50)
    expected = read(lstm, "_padded", vectors, layout)
    lstm.to(device)
    for way in ("_fused", "_packed"):
        found = read(lstm, way, vectors.to(device), send(layout, device))
        for one, other in zip(found, expected, strict=True):
            scale = max(1.0, other.abs().max().item())
            torch.testing.assert_close(one / scale, other / scale, **ROUNDED)
    again = [read(lstm, "_fused", vectors.to(device), send(layout, device)) for _ in range(2)]
    for one, other in zip(*again, strict=True):
        assert torch.equal(one, other)


def test_a_large_lstm_is_left_to_cudnn():
    assert not can_read(MOST_CELLS + 1, find_device("cuda"))

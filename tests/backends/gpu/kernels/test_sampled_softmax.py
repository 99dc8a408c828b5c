"""The kernels of the sampled softmax, interpreted, against the plain loss."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.backends.gpu.kernels import sampled_softmax
from elmo.backends.gpu.kernels.sampled_softmax import sampled_losses
from elmo.lm.softmax_losses import draw_candidates, sampled_loss


def make(n, dim, n_words, n_samples, seed=0, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, dim, generator=generator)
    weight = torch.randn(n_words, dim, generator=generator)
    bias = torch.randn(n_words, generator=generator)
    targets = torch.randint(n_words, (n,), generator=generator)
    candidates, log_q = draw_candidates(n_words, n_samples, seed)
    parts = [t.to(device).requires_grad_() for t in (hidden, weight, bias)]
    return *parts, targets.to(device), candidates.to(device), log_q.float().to(device)


def compare(hidden, weight, bias, targets, candidates, log_q, rtol=1e-4, atol=1e-5):
    plain = sampled_loss(hidden, targets, weight, bias, candidates, log_q)
    fused = sampled_losses(hidden, targets, weight, bias, candidates, log_q, hidden.dtype)
    assert fused.shape == targets.shape
    torch.testing.assert_close(fused.mean(), plain, rtol=rtol, atol=atol)
    learns = (hidden, weight, bias)
    for one, other in zip(
        torch.autograd.grad(fused.mean(), learns), torch.autograd.grad(plain, learns), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


@settings(max_examples=12)
@given(
    n=st.integers(1, 40),
    dim=st.sampled_from([1, 3, 16, 33]),
    n_words=st.integers(1, 60),
    n_samples=st.integers(1, 50),
    seed=st.integers(0, 99),
)
def test_losses_and_gradients_equal_the_plain_ones(n, dim, n_words, n_samples, seed):
    compare(*make(n, dim, n_words, n_samples, seed))


def test_vectors_wider_than_a_tile_and_rows_beyond_one():
    compare(*make(131, 150, 300, 280))


def test_gradients_of_logits_are_computed_in_chunks(monkeypatch):
    monkeypatch.setattr(sampled_softmax, "_GRADIENT_BYTES", 1)
    monkeypatch.setattr(sampled_softmax, "_ROWS", 16)
    compare(*make(37, 5, 40, 30))


def test_padding_of_the_candidates_never_counts():
    hidden, weight, bias, targets, candidates, log_q = make(9, 4, 30, 12)
    padded = torch.cat([candidates, candidates.new_zeros(7)])
    infinite = torch.cat([log_q, log_q.new_full((7,), torch.inf)])
    results = []
    for words, logs in ((candidates, log_q), (padded, infinite)):
        losses = sampled_losses(hidden, targets, weight, bias, words, logs, torch.float32)
        gradients = torch.autograd.grad(losses.sum(), (hidden, weight, bias))
        results.append((losses, *gradients))
    for one, other in zip(*results, strict=True):
        assert torch.isfinite(other).all()
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_row_weighs_as_much_as_its_gradient():
    hidden, weight, bias, targets, candidates, log_q = make(6, 4, 30, 12)
    losses = sampled_losses(hidden, targets, weight, bias, candidates, log_q, torch.float32)
    (losses[:2].mean() * 3).backward()
    assert hidden.grad[:2].any()
    assert not hidden.grad[2:].any()


def test_no_rows_have_no_loss():
    hidden, weight, bias, targets, candidates, log_q = make(0, 4, 30, 12)
    losses = sampled_losses(hidden, targets, weight, bias, candidates, log_q, torch.float32)
    assert losses.shape == (0,)
    losses.sum().backward()
    assert not weight.grad.any()


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_products_of_half_precision_stay_close(scale):
    # Not bfloat16: the interpreter multiplies its bits. It is tried on the GPU.
    hidden, weight, bias, targets, candidates, log_q = make(20, 32, 60, 50)
    weight = (weight.detach() * scale / 32).requires_grad_()
    plain = sampled_loss(hidden, targets, weight, bias, candidates, log_q)
    fused = sampled_losses(hidden, targets, weight, bias, candidates, log_q, torch.float16).mean()
    torch.testing.assert_close(fused, plain, rtol=0.02, atol=0.02)
    learns = (hidden, weight, bias)
    for one, other in zip(
        torch.autograd.grad(fused, learns), torch.autograd.grad(plain, learns), strict=True
    ):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0, atol=0.04 * float(other.abs().max()))

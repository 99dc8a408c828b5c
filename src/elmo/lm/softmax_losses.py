"""The losses of the output layer as pure functions, each of which a kernel may replace.

Memory is bounded whatever the size of the vocabulary: the exact loss computes the logits of a few
rows at a time, the sampled one those of a few words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.backends.gpu.kernels import sampled_softmax as kernels

_CHUNK_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}
"""Size of the logits in memory at once. On a CPU, glibc keeps and reuses blocks of this size."""
_LEAST_ROWS = 64
"""Rows of a chunk at least; with fewer, reading the weights from memory would dominate."""
_NEVER = -1e30
"""Logit of a candidate that may not be chosen. Finite, because infinities have NaN gradients."""


def full_loss(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the mean cross-entropy, without ever holding the logits of all rows.

    The backward pass computes the logits of each chunk of rows again.

    Args:
        hidden: Shape `(n, dim)`.
        targets: Int64 `(n,)`.
        weight: Shape `(n_words, dim)`.
        bias: Shape `(n_words,)`.
    """
    dtype = _product_type(hidden, weight)
    loss: Tensor = _FullLoss.apply(hidden, targets, weight, bias, dtype)  # type: ignore[no-untyped-call]
    return loss


class _FullLoss(torch.autograd.Function):
    """Cross-entropy by chunks of rows; products in `dtype`, everything else in float32 or wider."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype
    ) -> Tensor:
        used = weight.to(dtype)
        norms = bias.new_empty(len(hidden), dtype=wide(weight.dtype))
        losses = torch.empty_like(norms)
        for part in row_chunks(len(hidden), len(weight), hidden.device):
            logits = _logits(hidden[part], used, bias)
            norms[part] = torch.logsumexp(logits, dim=1)
            losses[part] = norms[part] - pick(logits, targets[part])
        ctx.save_for_backward(hidden, targets, weight, bias, norms)
        ctx.dtype = dtype
        return losses.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, targets, weight, bias, norms = ctx.saved_tensors
        needs_hidden, _, needs_weight, _, _ = ctx.needs_input_grad
        used = weight.to(ctx.dtype)
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        grad_bias = torch.zeros_like(bias)
        for part in row_chunks(len(hidden), len(weight), hidden.device):
            # d loss / d logits = (probabilities - the target's 1) / n
            slope = _logits(hidden[part], used, bias).sub_(norms[part, None]).exp_()
            slope.scatter_add_(1, targets[part, None], slope.new_full((len(slope), 1), -1.0))
            slope.mul_(grads[0] / len(hidden))
            grad_bias += slope.sum(dim=0)
            slope = slope.to(ctx.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = (slope @ used).to(hidden.dtype)
            if grad_weight is not None:
                grad_weight += slope.T @ hidden[part].to(ctx.dtype)
        return grad_hidden, None, grad_weight, grad_bias, None


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return logits `(n, n_words)`: the product in the type of `weight`, the sum in float32."""
    product = F.linear(hidden.to(weight.dtype), weight)
    return product.to(wide(bias.dtype)).add_(bias)


def draw_candidates(n_words: int, n_samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw words of a frequency-sorted vocabulary, log-uniformly (by Zipf's law).

    `n_samples` words are drawn with replacement, word i with p = log(1 + 1/(i + 1)) / log(n + 1),
    and the distinct ones kept. A word is then among them with the probability

        q = 1 - (1 - p)^n_samples = -expm1(n_samples * log1p(-p)),

    not n_samples * p, which counts how often it was drawn and is far above 1 for frequent words.

    Args:
        n_words: Size of the vocabulary.
        n_samples: How many are drawn.
        seed: Any whole number; the same words on every machine.

    Returns:
        The k candidates in rising order, int64 `(k,)`, and log q of each, float64 `(k,)`.
    """
    generator = torch.Generator().manual_seed(seed & (2**63 - 1))
    uniform = torch.rand(n_samples, generator=generator, dtype=torch.float64)
    total = math.log(n_words + 1)
    drawn = (uniform * total).exp().long().sub(1).clamp(0, n_words - 1)
    candidates = torch.unique(drawn)
    p = torch.log1p(1 / (candidates.double() + 1)) / total
    return candidates, torch.log(-torch.expm1(n_samples * torch.log1p(-p)))


def sampled_loss(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    candidates: Tensor,
    log_q: Tensor,
) -> Tensor:
    """Return the mean cross-entropy of each target against itself and the candidates.

    With s = W h + b, the target's loss is -s_t + log Z', where

        Z' = exp(s_t) + sum over candidates v other than t of exp(s_v - log q_v).

    The target is always there, so its own q is 1; every other word is there with probability q and
    counts 1/q: the expectation of Z' is the full partition function, and that of its gradient is
    the full one's. The gradient of the loss, a ratio of the two, is therefore that of the full
    softmax up to a term of the order 1/len(candidates). (TensorFlow also subtracts log q from the
    target. That has the same optimum in the limit, but another expected gradient.)

    Products run in the type of autocast, all else in float32 or wider.

    Args:
        hidden: Shape `(n, dim)`.
        targets: Int64 `(n,)`.
        weight: Shape `(n_words, dim)`.
        bias: Shape `(n_words,)`.
        candidates: Distinct words, int64 `(k,)`.
        log_q: Logarithm of the probability that each is among the candidates, `(k,)`.

    Returns:
        A scalar.
    """
    exact = wide(weight.dtype)
    sizes = [len(targets), len(candidates)]
    # Gathered together, so that the backward pass fills one gradient of the weight's size.
    places = torch.cat([targets, candidates])
    own_rows, other_rows = torch.split(F.embedding(places, weight), sizes)
    own_bias, other_bias = torch.split(bias[places].to(exact), sizes)
    own = (hidden.to(exact) * own_rows.to(exact)).sum(dim=1) + own_bias
    product = F.linear(hidden.to(other_rows.dtype), other_rows)
    others = product.to(exact) + (other_bias - log_q)
    others = others.masked_fill(candidates == targets[:, None], _NEVER)
    losses: Tensor = torch.logaddexp(own, torch.logsumexp(others, dim=1)) - own
    return losses.mean()


def sampled_losses(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    candidates: Tensor,
    log_q: Tensor,
    fused: bool = False,
) -> Tensor:
    """Return `sampled_loss` of several directions, each against the same candidates.

    Args:
        hidden: Shape `(sides, n, dim)`.
        targets: Int64 `(sides, n)`.
        weight: See `sampled_loss`, as `bias`, `candidates` and `log_q`.
        bias: Shape `(n_words,)`.
        candidates: Shape `(k,)`.
        log_q: Shape `(k,)`; infinite for candidates that never count.
        fused: Whether kernels may be used; see `kernels.gpu.triton_ready`.

    Returns:
        Shape `(sides,)`.
    """
    if not fused:
        pairs = zip(hidden, targets, strict=True)
        return torch.stack(
            [sampled_loss(rows, words, weight, bias, candidates, log_q) for rows, words in pairs]
        )
    losses = kernels.sampled_losses(
        hidden.flatten(0, 1),
        targets.flatten(),
        weight,
        bias,
        candidates,
        log_q,
        _product_type(hidden, weight),
    )
    return losses.view(targets.shape).mean(dim=1)


def _product_type(values: Tensor, weight: Tensor) -> torch.dtype:
    """Return the type in which products run: that of autocast, else that of the weight."""
    kind = values.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def row_chunks(n_rows: int, n_words: int, device: torch.device) -> Iterator[slice]:
    """Cut rows of `n_words` logits into chunks of bounded size."""
    budget = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES["cuda"])
    size = max(_LEAST_ROWS, budget // (4 * n_words))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def pick(table: Tensor, columns: Tensor) -> Tensor:
    """Return one value of each row: `table (n, m)`, `columns (n,)` -> `(n,)`."""
    return table.gather(1, columns[:, None]).squeeze(1)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type for sums and logarithms: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32

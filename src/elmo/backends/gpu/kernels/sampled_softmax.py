"""The loss of a sampled softmax for every row, without its logits in memory.

In the forward pass each program loops over all candidates with a few rows, keeping the highest
logit and the sum of exponentials so far (an online softmax). In the backward pass the logits of a
chunk of rows are computed again and turned into their gradients, in the type of products, from
which cuBLAS computes those of hidden states and weights. Logits, sums and gradients before rounding
are float32.

`elmo.lm.softmax_losses.sampled_loss` is the plain reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl

_ROWS, _CANDIDATES, _WARPS = 128, 128, 8
"""Of one tile of logits: each thread holds 64 of them."""
_NARROW, _NARROW_CANDIDATES, _NARROW_WARPS = 128, 64, 4
"""Vectors up to this width stay in a program of the forward pass, whose tile is then smaller."""
_EXACT_CANDIDATES = 32
"""The same in float32, which tensor cores do not multiply."""
_DEPTH = 64
"""Values of a vector that are multiplied at a time, at most, where it is wider."""
_OWN_ROWS = 16
"""Rows of one program of the gradients through a row's own target."""
_GRADIENT_BYTES = 1 << 30
"""Size of the gradients of logits in memory at once."""


def sampled_losses(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    candidates: Tensor,
    log_q: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return the loss of each target against itself and the candidates.

    Args:
        hidden: Shape `(n, dim)`.
        targets: Whole numbers `(n,)`.
        weight: Shape `(n_words, dim)`.
        bias: Shape `(n_words,)`.
        candidates: Distinct words, `(k,)`; those whose `log_q` is infinite never count.
        log_q: Logarithm of the probability that each is among the candidates, `(k,)`.
        dtype: Type of the products.

    Returns:
        Float32 `(n,)`.
    """
    losses: Tensor = _SampledLosses.apply(
        hidden, targets.contiguous(), weight.contiguous(), bias, candidates, log_q, dtype
    )
    return losses


class _SampledLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor,
        candidates: Tensor,
        log_q: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        n, dim = hidden.shape
        used = hidden.to(dtype).contiguous()
        rows = weight.index_select(0, candidates).to(dtype)
        shift = (bias.index_select(0, candidates) - log_q).float()
        losses = torch.empty(n, dtype=torch.float32, device=hidden.device)
        norms = torch.empty_like(losses)
        if n:
            narrow = dim <= _NARROW
            _find_losses[(blocks(n, _ROWS),)](
                used,
                rows,
                shift,
                candidates,
                targets,
                weight,
                bias,
                losses,
                norms,
                n,
                len(candidates),
                dim,
                ROWS=_ROWS,
                CANDIDATES=_n_candidates(dtype, _NARROW_CANDIDATES if narrow else _CANDIDATES),
                DEPTH=_depth(dim, _NARROW if narrow else _DEPTH),
                IS_NARROW=narrow,
                num_warps=_NARROW_WARPS if narrow else _WARPS,
                num_stages=3,
            )
        ctx.save_for_backward(used, targets, weight, candidates, rows, shift, losses, norms)
        ctx.kind = hidden.dtype
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        used, targets, weight, candidates, rows, shift, losses, norms = ctx.saved_tensors
        grad_losses = gradients[0].float().contiguous()
        grad_hidden = torch.zeros_like(used)
        grad_rows = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        grad_shift = torch.zeros_like(shift)
        # Rows of a chunk: a multiple of a program's rows whose gradients fit the limit.
        size = _GRADIENT_BYTES // (max(1, len(rows)) * used.element_size() * _ROWS)
        size = max(1, size) * _ROWS
        for start in range(0, len(used), size):
            part = slice(start, start + size)
            grad_logits, sums = _logit_gradients(
                used[part], rows, shift, candidates, targets[part], norms[part], grad_losses[part]
            )
            torch.mm(grad_logits, rows, out=grad_hidden[part])
            grad_rows += grad_logits.mT @ used[part]
            grad_shift += sums
        # Words that were neither candidates nor targets keep a gradient of zero.
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros(len(weight), dtype=torch.float32, device=weight.device)
        grad_weight.index_add_(0, candidates, grad_rows.to(weight.dtype))
        grad_bias.index_add_(0, candidates, grad_shift)
        _add_own(used, targets, weight, losses, grad_losses, grad_hidden, grad_weight, grad_bias)
        return grad_hidden.to(ctx.kind), None, grad_weight, grad_bias, None, None, None


def _logit_gradients(
    hidden: Tensor,
    rows: Tensor,
    shift: Tensor,
    candidates: Tensor,
    targets: Tensor,
    norms: Tensor,
    grad_losses: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return d loss / d logits of some rows `(m, k)`, and their sums over the rows, `(k,)`.

    Args:
        hidden: Shape `(m, dim)`, in the type of products, as `rows`.
        rows: Weights of the candidates, `(k, dim)`.
        shift: What is added to their products, float32 `(k,)`.
        candidates: Their numbers, `(k,)`.
        targets: Shape `(m,)`.
        norms: Logarithm of each row's sum of exponentials, float32 `(m,)`.
        grad_losses: Gradient of each row's loss, float32 `(m,)`.
    """
    n, dim = hidden.shape
    n_blocks = blocks(n, _ROWS)
    grad_logits = hidden.new_empty(n, len(rows))
    sums = shift.new_zeros(n_blocks, len(rows))
    if n and len(rows):
        n_candidates = _n_candidates(rows.dtype, _CANDIDATES)
        _find_logit_gradients[(blocks(len(rows), n_candidates), n_blocks)](
            hidden,
            rows,
            shift,
            candidates,
            targets,
            norms,
            grad_losses,
            grad_logits,
            sums,
            n,
            len(rows),
            dim,
            ROWS=_ROWS,
            CANDIDATES=n_candidates,
            DEPTH=_depth(dim, _DEPTH),
            num_warps=_WARPS,
            num_stages=3,
        )
    return grad_logits, sums.sum(dim=0)


def _add_own(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    losses: Tensor,
    grad_losses: Tensor,
    grad_hidden: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
) -> None:
    """Add the gradients through each row's own target to those through the candidates.

    Args:
        hidden: Shape `(n, dim)`.
        targets: Shape `(n,)`.
        weight: Shape `(n_words, dim)`.
        losses: Shape `(n,)`.
        grad_losses: Gradient of each loss, `(n,)`.
        grad_hidden: Added to, `(n, dim)`.
        grad_weight: Added to, `(n_words, dim)`.
        grad_bias: Added to, `(n_words,)`.
    """
    n, dim = hidden.shape
    if not n:
        return
    depth = _depth(dim, _NARROW)
    _find_own[(blocks(n, _OWN_ROWS), blocks(dim, depth))](
        hidden,
        targets,
        weight,
        losses,
        grad_losses,
        grad_hidden,
        grad_weight,
        grad_bias,
        n,
        dim,
        ROWS=_OWN_ROWS,
        DEPTH=depth,
    )


def _n_candidates(dtype: torch.dtype, most: int) -> int:
    """Return the number of candidates of one tile."""
    return most if dtype.itemsize == 2 else _EXACT_CANDIDATES


def _depth(dim: int, most: int) -> int:
    """Return how many values are multiplied at a time; tensor cores want a power of 2."""
    return max(16, min(most, next_power_of_2(dim)))


# --- kernels --------------------------------------------------------------------------------------


@jit
def _tile(ptr, row, inside, first, dim, DEPTH: tl.constexpr):
    """Load some columns of rows of a matrix `(.., dim)`; zero outside."""
    column = first + tl.arange(0, DEPTH)
    return tl.load(
        ptr + row[:, None].to(tl.int64) * dim + column[None, :],
        mask=inside[:, None] & (column[None, :] < dim),
        other=0.0,
    )


@jit
def _logits(
    hidden_ptr,
    row,
    inside,
    rows_ptr,
    place,
    there,
    dim,
    ROWS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Multiply some rows with some candidates, `(ROWS, CANDIDATES)`."""
    logits = tl.zeros((ROWS, CANDIDATES), tl.float32)
    for first in range(0, dim, DEPTH):
        x = _tile(hidden_ptr, row, inside, first, dim, DEPTH)
        w = _tile(rows_ptr, place, there, first, dim, DEPTH)
        logits = tl.dot(x, tl.trans(w), logits, input_precision="ieee")
    return logits


@jit
def _find_losses(
    hidden_ptr,
    rows_ptr,
    shift_ptr,
    candidates_ptr,
    targets_ptr,
    weight_ptr,
    bias_ptr,
    losses_ptr,
    norms_ptr,
    n,
    k,
    dim,
    ROWS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    DEPTH: tl.constexpr,
    IS_NARROW: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < n
    target = tl.load(targets_ptr + row, mask=inside, other=0)
    own = tl.load(bias_ptr + target, mask=inside, other=0.0).to(tl.float32)
    for first in range(0, dim, DEPTH):
        x = _tile(hidden_ptr, row, inside, first, dim, DEPTH).to(tl.float32)
        w = _tile(weight_ptr, target, inside, first, dim, DEPTH).to(tl.float32)
        own += tl.sum(x * w, axis=1)
    # The own logit is the first term of the sum, so that the highest logit is never infinite.
    top = own
    total = tl.full((ROWS,), 1.0, tl.float32)
    if IS_NARROW:
        x = _tile(hidden_ptr, row, inside, 0, dim, DEPTH)
    for start in range(0, k, CANDIDATES):
        place = start + tl.arange(0, CANDIDATES)
        there = place < k
        if IS_NARROW:
            w = _tile(rows_ptr, place, there, 0, dim, DEPTH)
            logits = tl.dot(x, tl.trans(w), input_precision="ieee")
        else:
            logits = _logits(
                hidden_ptr, row, inside, rows_ptr, place, there, dim, ROWS, CANDIDATES, DEPTH
            )
        # A candidate that is the row's own target is not counted twice; beyond k there are none.
        candidate = tl.load(candidates_ptr + place, mask=there, other=-1)
        logits += tl.load(shift_ptr + place, mask=there, other=float("-inf"))[None, :]
        logits = tl.where(candidate[None, :] == target[:, None], float("-inf"), logits)
        # Terms so far are rescaled to the new maximum: exp never overflows.
        higher = tl.maximum(top, tl.max(logits, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(logits - higher[:, None]), axis=1)
        top = higher
    norm = top + tl.log(total)
    tl.store(norms_ptr + row, norm, mask=inside)
    tl.store(losses_ptr + row, norm - own, mask=inside)


@jit
def _find_logit_gradients(
    hidden_ptr,
    rows_ptr,
    shift_ptr,
    candidates_ptr,
    targets_ptr,
    norms_ptr,
    grad_losses_ptr,
    grad_logits_ptr,
    sums_ptr,
    n,
    k,
    dim,
    ROWS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    DEPTH: tl.constexpr,
):
    # A program: one tile of logits, (ROWS, CANDIDATES). Sums over its rows go to a row of `sums`.
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    place = tl.program_id(0) * CANDIDATES + tl.arange(0, CANDIDATES)
    inside, there = row < n, place < k
    logits = _logits(hidden_ptr, row, inside, rows_ptr, place, there, dim, ROWS, CANDIDATES, DEPTH)
    target = tl.load(targets_ptr + row, mask=inside, other=0)
    candidate = tl.load(candidates_ptr + place, mask=there, other=-1)
    logits += tl.load(shift_ptr + place, mask=there, other=float("-inf"))[None, :]
    logits = tl.where(candidate[None, :] == target[:, None], float("-inf"), logits)
    norm = tl.load(norms_ptr + row, mask=inside, other=0.0)
    grad_losses = tl.load(grad_losses_ptr + row, mask=inside, other=0.0)
    grad_logits = tl.exp(logits - norm[:, None]) * grad_losses[:, None]
    grad_logits = tl.where(inside[:, None], grad_logits, 0.0)
    tl.store(sums_ptr + tl.program_id(1) * k + place, tl.sum(grad_logits, axis=0), mask=there)
    tl.store(
        grad_logits_ptr + row[:, None].to(tl.int64) * k + place[None, :],
        grad_logits.to(grad_logits_ptr.dtype.element_ty),
        mask=inside[:, None] & there[None, :],
    )


@jit
def _find_own(
    hidden_ptr,
    targets_ptr,
    weight_ptr,
    losses_ptr,
    grad_losses_ptr,
    grad_hidden_ptr,
    grad_weight_ptr,
    grad_bias_ptr,
    n,
    dim,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < n
    target = tl.load(targets_ptr + row, mask=inside, other=0).to(tl.int64)
    grad_losses = tl.load(grad_losses_ptr + row, mask=inside, other=0.0)
    # The loss is the norm minus the own logit: exp(-loss) is the probability of the target, and the
    # gradient of its logit is that minus 1.
    grad_own = grad_losses * (tl.exp(-tl.load(losses_ptr + row, mask=inside, other=0.0)) - 1)
    first = tl.program_id(1) * DEPTH
    x = _tile(hidden_ptr, row, inside, first, dim, DEPTH).to(tl.float32)
    w = _tile(weight_ptr, target, inside, first, dim, DEPTH).to(tl.float32)
    grad_x = _tile(grad_hidden_ptr, row, inside, first, dim, DEPTH).to(tl.float32)
    column = first + tl.arange(0, DEPTH)
    used = inside[:, None] & (column[None, :] < dim)
    tl.store(
        grad_hidden_ptr + row[:, None].to(tl.int64) * dim + column[None, :],
        (grad_x + grad_own[:, None] * w).to(grad_hidden_ptr.dtype.element_ty),
        mask=used,
    )
    # Several rows may have the same target.
    tl.atomic_add(
        grad_weight_ptr + target[:, None] * dim + column[None, :],
        (grad_own[:, None] * x).to(grad_weight_ptr.dtype.element_ty),
        mask=used,
        sem="relaxed",
    )
    if first == 0:
        tl.atomic_add(grad_bias_ptr + target, grad_own, mask=inside, sem="relaxed")

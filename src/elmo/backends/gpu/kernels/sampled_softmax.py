"""The loss of a sampled softmax for every row, without its logits in memory.

On the way there each program walks over all candidates with a few rows, keeping the highest logit
and the sum of exponentials so far. On the way back the logits of a chunk of rows are computed again
and become slopes, in the type of products, from which cuBLAS makes both gradients. Logits, sums and
slopes before rounding are float32.

`elmo.lm.softmax_losses.sampled_loss` is the plain code and says what is computed.
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
"""Vectors up to so narrow stay in a program on the way there, whose tile is then smaller."""
_EXACT_CANDIDATES = 32
"""The same in float32, which tensor cores do not multiply."""
_DEPTH = 64
"""Values of a vector that are multiplied at a time, at most, where it is wider."""
_OWN_ROWS = 16
"""Rows of one program that looks at their own targets only."""
_SLOPE_BYTES = 1 << 30
"""Size of the slopes in memory at once."""


def sampled_losses(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    candidates: Tensor,
    log_q: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Give the loss of each target against itself and the candidates.

    Args:
        hidden: Shape `(n, dim)`.
        targets: Whole numbers `(n,)`.
        weight: Shape `(n_words, dim)`.
        bias: Shape `(n_words,)`.
        candidates: Distinct words, `(k,)`. More may follow whose `log_q` is infinite: they never
            count.
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
        given = gradients[0].float().contiguous()
        of_hidden = torch.zeros_like(used)
        of_rows = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        of_shift = torch.zeros_like(shift)
        size = _SLOPE_BYTES // (max(1, len(rows)) * used.element_size() * _ROWS)
        size = max(1, size) * _ROWS
        for start in range(0, len(used), size):
            part = slice(start, start + size)
            slopes, sums = _slopes(
                used[part], rows, shift, candidates, targets[part], norms[part], given[part]
            )
            torch.mm(slopes, rows, out=of_hidden[part])
            of_rows += slopes.mT @ used[part]
            of_shift += sums
        of_weight = torch.zeros_like(weight)
        of_bias = torch.zeros(len(weight), dtype=torch.float32, device=weight.device)
        of_weight.index_add_(0, candidates, of_rows.to(weight.dtype))
        of_bias.index_add_(0, candidates, of_shift)
        _add_own(used, targets, weight, losses, given, of_hidden, of_weight, of_bias)
        return of_hidden.to(ctx.kind), None, of_weight, of_bias, None, None, None


def _slopes(
    hidden: Tensor,
    rows: Tensor,
    shift: Tensor,
    candidates: Tensor,
    targets: Tensor,
    norms: Tensor,
    given: Tensor,
) -> tuple[Tensor, Tensor]:
    """Give d loss / d logits of some rows `(m, k)`, and their sums over the rows, `(k,)`.

    Args:
        hidden: Shape `(m, dim)`, in the type of products, as `rows`.
        rows: Weights of the candidates, `(k, dim)`.
        shift: What is added to their products, float32 `(k,)`.
        candidates: Their numbers, `(k,)`.
        targets: Shape `(m,)`.
        norms: Logarithm of each row's sum of exponentials, float32 `(m,)`.
        given: Gradient of each row's loss, float32 `(m,)`.
    """
    n, dim = hidden.shape
    n_blocks = blocks(n, _ROWS)
    slopes = hidden.new_empty(n, len(rows))
    sums = shift.new_zeros(n_blocks, len(rows))
    if n and len(rows):
        n_candidates = _n_candidates(rows.dtype, _CANDIDATES)
        _find_slopes[(blocks(len(rows), n_candidates), n_blocks)](
            hidden,
            rows,
            shift,
            candidates,
            targets,
            norms,
            given,
            slopes,
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
    return slopes, sums.sum(dim=0)


def _add_own(
    hidden: Tensor,
    targets: Tensor,
    weight: Tensor,
    losses: Tensor,
    given: Tensor,
    of_hidden: Tensor,
    of_weight: Tensor,
    of_bias: Tensor,
) -> None:
    """Add the gradients through each row's own target to those through the candidates.

    Args:
        hidden: Shape `(n, dim)`.
        targets: Shape `(n,)`.
        weight: Shape `(n_words, dim)`.
        losses: Shape `(n,)`.
        given: Gradient of each loss, `(n,)`.
        of_hidden: Added to, `(n, dim)`.
        of_weight: Added to, `(n_words, dim)`.
        of_bias: Added to, `(n_words,)`.
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
        given,
        of_hidden,
        of_weight,
        of_bias,
        n,
        dim,
        ROWS=_OWN_ROWS,
        DEPTH=depth,
    )


def _n_candidates(dtype: torch.dtype, most: int) -> int:
    """Give the candidates of one tile."""
    return most if dtype.itemsize == 2 else _EXACT_CANDIDATES


def _depth(dim: int, most: int) -> int:
    """Give how many values are multiplied at a time: what tensor cores take, padded with zeros."""
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
    # The own logit is the first of the sum, so that the highest one is never infinite.
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
        candidate = tl.load(candidates_ptr + place, mask=there, other=-1)
        logits += tl.load(shift_ptr + place, mask=there, other=float("-inf"))[None, :]
        logits = tl.where(candidate[None, :] == target[:, None], float("-inf"), logits)
        higher = tl.maximum(top, tl.max(logits, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(logits - higher[:, None]), axis=1)
        top = higher
    norm = top + tl.log(total)
    tl.store(norms_ptr + row, norm, mask=inside)
    tl.store(losses_ptr + row, norm - own, mask=inside)


@jit
def _find_slopes(
    hidden_ptr,
    rows_ptr,
    shift_ptr,
    candidates_ptr,
    targets_ptr,
    norms_ptr,
    given_ptr,
    slopes_ptr,
    sums_ptr,
    n,
    k,
    dim,
    ROWS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    place = tl.program_id(0) * CANDIDATES + tl.arange(0, CANDIDATES)
    inside, there = row < n, place < k
    logits = _logits(hidden_ptr, row, inside, rows_ptr, place, there, dim, ROWS, CANDIDATES, DEPTH)
    target = tl.load(targets_ptr + row, mask=inside, other=0)
    candidate = tl.load(candidates_ptr + place, mask=there, other=-1)
    logits += tl.load(shift_ptr + place, mask=there, other=float("-inf"))[None, :]
    logits = tl.where(candidate[None, :] == target[:, None], float("-inf"), logits)
    norm = tl.load(norms_ptr + row, mask=inside, other=0.0)
    given = tl.load(given_ptr + row, mask=inside, other=0.0)
    slopes = tl.exp(logits - norm[:, None]) * given[:, None]
    slopes = tl.where(inside[:, None], slopes, 0.0)
    tl.store(sums_ptr + tl.program_id(1) * k + place, tl.sum(slopes, axis=0), mask=there)
    tl.store(
        slopes_ptr + row[:, None].to(tl.int64) * k + place[None, :],
        slopes.to(slopes_ptr.dtype.element_ty),
        mask=inside[:, None] & there[None, :],
    )


@jit
def _find_own(
    hidden_ptr,
    targets_ptr,
    weight_ptr,
    losses_ptr,
    given_ptr,
    of_hidden_ptr,
    of_weight_ptr,
    of_bias_ptr,
    n,
    dim,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < n
    target = tl.load(targets_ptr + row, mask=inside, other=0).to(tl.int64)
    given = tl.load(given_ptr + row, mask=inside, other=0.0)
    # The loss is the norm less the own logit: exp(-loss) is the own probability.
    slope = given * (tl.exp(-tl.load(losses_ptr + row, mask=inside, other=0.0)) - 1)
    first = tl.program_id(1) * DEPTH
    x = _tile(hidden_ptr, row, inside, first, dim, DEPTH).to(tl.float32)
    w = _tile(weight_ptr, target, inside, first, dim, DEPTH).to(tl.float32)
    of_x = _tile(of_hidden_ptr, row, inside, first, dim, DEPTH).to(tl.float32)
    column = first + tl.arange(0, DEPTH)
    used = inside[:, None] & (column[None, :] < dim)
    tl.store(
        of_hidden_ptr + row[:, None].to(tl.int64) * dim + column[None, :],
        (of_x + slope[:, None] * w).to(of_hidden_ptr.dtype.element_ty),
        mask=used,
    )
    tl.atomic_add(
        of_weight_ptr + target[:, None] * dim + column[None, :],
        (slope[:, None] * x).to(of_weight_ptr.dtype.element_ty),
        mask=used,
        sem="relaxed",
    )
    if first == 0:
        tl.atomic_add(of_bias_ptr + target, slope, mask=inside, sem="relaxed")

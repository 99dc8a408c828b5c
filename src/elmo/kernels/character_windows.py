"""The highest response of each filter to the windows of a word, there and back.

A filter's response to a window is the sum, over the offsets in it, of what it makes of the
character there. All of that is in a table with a row for each (character, offset), of a few
megabytes, which stays in the GPU's cache; windows only add rows. Going back, the gradient of a
maximum is added to the rows of the window that won. Several programs add to one row, in an order
that differs from run to run: sums differ in their last bits.

`elmo.layers.CharacterEncoder` is the plain code. Where several windows give the same maximum, the
first one gets the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.kernels.gpu import blocks, jit, next_power_of_2, tl

_MOST_FILTERS = 512
"""Filters of one program: each thread of its two warps reads 16 bytes of bfloat16 at a time."""
_FILTERS_BACK = 128
"""The same on the way back: one for each thread of four warps, so that neighbours whose window is
the same add to neighbouring places."""


def window_maxima(
    table: Tensor,
    bias: Tensor,
    widths: Tensor,
    ids: Tensor,
    n_windows: Tensor,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Give the highest response of each filter to the windows of words.

    Args:
        table: Responses to single characters at each offset, `(n_characters, widest, n_filters)`,
            zero at offsets beyond a filter's width.
        bias: Added to the maxima, `(n_filters,)`.
        widths: Width of each filter, int32 `(n_filters,)`.
        ids: Character ids, int32 or int64 `(n, max_characters)`.
        n_windows: How many first windows of each word to look at, int32 `(n,)`.
        dtype: Type in which the table is read and maxima are given; that of the table by default.

    Returns:
        Shape `(n, n_filters)`.
    """
    maxima: Tensor = _WindowMaxima.apply(
        table, bias, widths, ids.contiguous(), n_windows, dtype or table.dtype
    )
    return maxima


class _WindowMaxima(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        table: Tensor,
        bias: Tensor,
        widths: Tensor,
        ids: Tensor,
        n_windows: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        n, longest = ids.shape
        _, widest, n_filters = table.shape
        maxima = torch.empty(n, n_filters, dtype=dtype, device=ids.device)
        place = torch.uint8 if longest <= 256 else torch.int32
        chosen = torch.empty(n, n_filters, dtype=place, device=ids.device)
        if n:
            block = min(_MOST_FILTERS, next_power_of_2(n_filters))
            _find_maxima[(n, blocks(n_filters, block))](
                table.to(dtype).contiguous(),
                bias,
                widths,
                ids,
                n_windows,
                maxima,
                chosen,
                longest,
                n_filters,
                WIDEST=widest,
                BLOCK=block,
                num_warps=2,
            )
        ctx.save_for_backward(widths, ids, chosen)
        ctx.shape = table.shape
        return maxima

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        widths, ids, chosen = ctx.saved_tensors
        n, longest = ids.shape
        _, widest, n_filters = ctx.shape
        given = gradients[0].contiguous()
        of_table = torch.zeros(ctx.shape, dtype=torch.float32, device=ids.device)
        if n:
            block = min(_FILTERS_BACK, next_power_of_2(n_filters))
            _add_to_table[(n, blocks(n_filters, block))](
                given,
                widths,
                ids,
                chosen,
                of_table,
                longest,
                n_filters,
                WIDEST=widest,
                BLOCK=block,
                num_warps=max(1, block // 32),
            )
        of_bias = given.sum(dim=0, dtype=torch.float32)
        return of_table, of_bias, None, None, None, None


# --- kernels: a program for each word and each block of filters -----------------------------------


@jit
def _find_maxima(
    table_ptr,
    bias_ptr,
    widths_ptr,
    ids_ptr,
    n_windows_ptr,
    maxima_ptr,
    chosen_ptr,
    longest,
    n_filters,
    WIDEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    filters = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = filters < n_filters
    widths = tl.load(widths_ptr + filters, mask=inside, other=0)
    n_windows = tl.load(n_windows_ptr + word)
    ids_ptr += word * longest
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    chosen = tl.zeros((BLOCK,), tl.int32)
    window = 0
    while window < n_windows:  # the interpreter's `range` wants a number, not a loaded value
        response = tl.zeros((BLOCK,), tl.float32)
        for offset in tl.static_range(WIDEST):
            in_row = window + offset < longest
            character = tl.load(ids_ptr + window + offset, mask=in_row, other=0)
            row = (character * WIDEST + offset) * n_filters
            response += tl.load(table_ptr + row + filters, mask=inside & in_row, other=0.0).to(
                tl.float32
            )
        # A wide filter does not look beyond the row's end.
        wins = (response > best) & (window + widths <= longest)
        best = tl.where(wins, response, best)
        chosen = tl.where(wins, window, chosen)
        window += 1
    best += tl.load(bias_ptr + filters, mask=inside, other=0.0)
    place = word * n_filters + filters
    tl.store(maxima_ptr + place, best.to(maxima_ptr.dtype.element_ty), mask=inside)
    tl.store(chosen_ptr + place, chosen.to(chosen_ptr.dtype.element_ty), mask=inside)


@jit
def _add_to_table(
    given_ptr,
    widths_ptr,
    ids_ptr,
    chosen_ptr,
    of_table_ptr,
    longest,
    n_filters,
    WIDEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    filters = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = filters < n_filters
    place = word * n_filters + filters
    gradient = tl.load(given_ptr + place, mask=inside, other=0.0).to(tl.float32)
    chosen = tl.load(chosen_ptr + place, mask=inside, other=0).to(tl.int32)
    widths = tl.load(widths_ptr + filters, mask=inside, other=0)
    # Behind relu half of the gradients are zero.
    inside = inside & (gradient != 0.0)
    ids_ptr += word * longest
    for offset in tl.static_range(WIDEST):
        used = inside & (offset < widths)
        character = tl.load(ids_ptr + chosen + offset, mask=used, other=0)
        row = (character * WIDEST + offset) * n_filters
        tl.atomic_add(of_table_ptr + row + filters, gradient, mask=used, sem="relaxed")

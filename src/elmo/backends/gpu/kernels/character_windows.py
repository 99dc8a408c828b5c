"""Character filters and their maximum over windows on tensor cores, forward and backward pass.

The vectors of a word's characters lie one behind the other, so that a window of seven characters is
a row of numbers in memory, and the responses of many filters to many windows are one product. It is
never stored: a program keeps the highest response of some filters to some words, and which window
it was. In the backward pass the gradient of all windows but the highest is zero; gradients are
scattered to windows on the fly, and two more products yield those of filters and characters.

`elmo.model.layers.CharacterEncoder` is the plain reference. Where several windows have the same
maximum, the first one gets the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl

_WORDS, _WINDOWS = 4, 16
"""Words of one tile, and windows of each: 64 rows, what four warps multiply at a time."""
_FILTERS, _EXACT_FILTERS = 128, 32
"""Filters of one tile; fewer in float32, which tensor cores do not multiply."""
_PARTS = 32
"""Parts of the words whose gradients of the filters are summed apart and added at the end."""


def window_maxima(
    characters: Tensor,
    filters: Tensor,
    bias: Tensor,
    widths: Tensor,
    n_windows: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return the highest response of each filter to the windows of words.

    Args:
        characters: Vectors of the characters, `(n, max_characters, char_dim)`.
        filters: Weights, `(n_filters, widest, char_dim)`, zero beyond a filter's width.
        bias: Added to the maxima, `(n_filters,)`.
        widths: Width of each filter, int32 `(n_filters,)`.
        n_windows: How many first windows of each word to look at, int32 `(n,)`.
        dtype: Type of the products and of the maxima; sums are float32.

    Returns:
        Shape `(n, n_filters)`.
    """
    maxima: Tensor = _WindowMaxima.apply(
        characters.contiguous(), filters.contiguous(), bias, widths, n_windows, dtype
    )
    return maxima


class _WindowMaxima(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        characters: Tensor,
        filters: Tensor,
        bias: Tensor,
        widths: Tensor,
        n_windows: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        n, longest, char_dim = characters.shape
        n_filters, widest, _ = filters.shape
        used = filters.to(dtype)
        maxima = torch.empty(n, n_filters, dtype=dtype, device=characters.device)
        place = torch.uint8 if longest <= 256 else torch.int32
        chosen = torch.empty(n, n_filters, dtype=place, device=characters.device)
        if n:
            tiles = _tiles(widest * char_dim, dtype)
            _find_maxima[(blocks(n, _WORDS), blocks(n_filters, tiles["FILTERS"]))](
                characters,
                used,
                bias,
                widths,
                n_windows,
                maxima,
                chosen,
                n,
                longest,
                n_filters,
                CHAR_DIM=char_dim,
                DEPTH=widest * char_dim,
                **tiles,
            )
        ctx.save_for_backward(characters, used, n_windows, chosen)
        return maxima

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        characters, used, n_windows, chosen = ctx.saved_tensors
        n, longest, char_dim = characters.shape
        n_filters, widest, _ = used.shape
        grad_maxima = gradients[0].contiguous()
        grad_characters = torch.zeros_like(characters)
        n_groups = blocks(n, _WORDS)
        parts = characters.new_zeros(_PARTS, n_filters, widest, char_dim)
        tiles = _tiles(widest * char_dim, used.dtype)
        sizes = {"CHAR_DIM": char_dim, "DEPTH": widest * char_dim, **tiles}
        if n:
            _find_filter_gradients[(blocks(n_filters, tiles["FILTERS"]), _PARTS)](
                grad_maxima,
                chosen,
                characters,
                n_windows,
                parts,
                n,
                longest,
                n_filters,
                n_groups,
                blocks(n_groups, _PARTS),
                **sizes,
            )
            _find_character_gradients[(n_groups,)](
                grad_maxima,
                chosen,
                used,
                n_windows,
                grad_characters,
                n,
                longest,
                n_filters,
                **sizes,
            )
        grad_bias = grad_maxima.sum(dim=0, dtype=torch.float32)
        return grad_characters, parts.sum(dim=0), grad_bias, None, None, None


def _tiles(depth: int, dtype: torch.dtype) -> dict[str, int]:
    """Return the constants of a tile; a window's values are padded to what tensor cores take."""
    return {
        "DEPTH_TILE": max(16, next_power_of_2(depth)),
        "WORDS": _WORDS,
        "WINDOWS": _WINDOWS,
        "FILTERS": _FILTERS if dtype.itemsize == 2 else _EXACT_FILTERS,
        "num_warps": 4,
        "num_stages": 2,
    }


# --- kernels --------------------------------------------------------------------------------------


@jit
def _places(
    group,
    first,
    n,
    longest,
    CHAR_DIM: tl.constexpr,
    DEPTH: tl.constexpr,
    DEPTH_TILE: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOWS: tl.constexpr,
):
    """Compute the offsets of a tile's windows, `(WORDS * WINDOWS, DEPTH_TILE)`, and their mask.

    Windows overlap: the next one begins a character later.
    """
    row = tl.arange(0, WORDS * WINDOWS)
    word = (group * WORDS + row // WINDOWS).to(tl.int64)
    window = first + row % WINDOWS
    number = tl.arange(0, DEPTH_TILE)
    in_word = window[:, None] * CHAR_DIM + number[None, :]
    inside = (word < n)[:, None] & (number < DEPTH)[None, :] & (in_word < longest * CHAR_DIM)
    return word[:, None] * longest * CHAR_DIM + in_word, inside


@jit
def _filter_tile(filters_ptr, filters, n_filters, DEPTH: tl.constexpr, DEPTH_TILE: tl.constexpr):
    """Load the weights of some filters, `(FILTERS, DEPTH_TILE)`."""
    number = tl.arange(0, DEPTH_TILE)
    return tl.load(
        filters_ptr + filters[:, None] * DEPTH + number[None, :],
        mask=(filters < n_filters)[:, None] & (number < DEPTH)[None, :],
        other=0.0,
    )


@jit
def _scattered(
    grad_maxima_ptr,
    chosen_ptr,
    group,
    filters,
    first,
    n,
    n_filters,
    WORDS: tl.constexpr,
    WINDOWS: tl.constexpr,
    FILTERS: tl.constexpr,
):
    """Scatter gradients to the windows that had the maximum, `(WORDS * WINDOWS, FILTERS)`."""
    word = (group * WORDS + tl.arange(0, WORDS)).to(tl.int64)
    place = word[:, None] * n_filters + filters[None, :]
    inside = (word < n)[:, None] & (filters < n_filters)[None, :]
    grad_maxima = tl.load(grad_maxima_ptr + place, mask=inside, other=0.0)
    chosen = tl.load(chosen_ptr + place, mask=inside, other=0).to(tl.int32)
    window = first + tl.arange(0, WINDOWS)
    scattered = tl.where(chosen[:, None, :] == window[None, :, None], grad_maxima[:, None, :], 0.0)
    return tl.reshape(scattered, (WORDS * WINDOWS, FILTERS)).to(grad_maxima_ptr.dtype.element_ty)


@jit
def _find_maxima(
    characters_ptr,
    filters_ptr,
    bias_ptr,
    widths_ptr,
    n_windows_ptr,
    maxima_ptr,
    chosen_ptr,
    n,
    longest,
    n_filters,
    CHAR_DIM: tl.constexpr,
    DEPTH: tl.constexpr,
    DEPTH_TILE: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOWS: tl.constexpr,
    FILTERS: tl.constexpr,
):
    # A program: some filters, whose weights are loaded once, over all windows of a few words.
    group = tl.program_id(0)
    filters = tl.program_id(1) * FILTERS + tl.arange(0, FILTERS)
    word = group * WORDS + tl.arange(0, WORDS)
    counts = tl.load(n_windows_ptr + word, mask=word < n, other=0)
    widths = tl.load(widths_ptr + filters, mask=filters < n_filters, other=0)
    weights = _filter_tile(filters_ptr, filters, n_filters, DEPTH, DEPTH_TILE)
    best = tl.full((WORDS, FILTERS), float("-inf"), tl.float32)
    chosen = tl.zeros((WORDS, FILTERS), tl.int32)
    for first in range(0, tl.max(counts, axis=0), WINDOWS):
        places, inside = _places(
            group, first, n, longest, CHAR_DIM, DEPTH, DEPTH_TILE, WORDS, WINDOWS
        )
        x = tl.load(characters_ptr + places, mask=inside, other=0.0).to(weights.dtype)
        # (WORDS * WINDOWS, DEPTH_TILE) x (DEPTH_TILE, FILTERS)
        responses = tl.dot(x, tl.trans(weights), input_precision="ieee")
        responses = tl.reshape(responses, (WORDS, WINDOWS, FILTERS))
        window = first + tl.arange(0, WINDOWS)
        # A wide filter does not look beyond the row's end.
        counts_here = window[None, :, None] < counts[:, None, None]
        fits = counts_here & (window[None, :, None] + widths[None, None, :] <= longest)
        responses = tl.where(fits, responses, float("-inf"))
        highest, at = tl.max(responses, axis=1, return_indices=True)
        # Strictly greater: the first of several equal windows wins, as in the plain code.
        wins = highest > best
        best = tl.where(wins, highest, best)
        chosen = tl.where(wins, first + at, chosen)
    # The bias is the same for all windows, so that it need not be compared.
    best += tl.load(bias_ptr + filters, mask=filters < n_filters, other=0.0)[None, :]
    place = word.to(tl.int64)[:, None] * n_filters + filters[None, :]
    there = (word < n)[:, None] & (filters < n_filters)[None, :]
    tl.store(maxima_ptr + place, best.to(maxima_ptr.dtype.element_ty), mask=there)
    tl.store(chosen_ptr + place, chosen.to(chosen_ptr.dtype.element_ty), mask=there)


@jit
def _find_filter_gradients(
    grad_maxima_ptr,
    chosen_ptr,
    characters_ptr,
    n_windows_ptr,
    parts_ptr,
    n,
    longest,
    n_filters,
    n_groups,
    groups_per_part,
    CHAR_DIM: tl.constexpr,
    DEPTH: tl.constexpr,
    DEPTH_TILE: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOWS: tl.constexpr,
    FILTERS: tl.constexpr,
):
    filters = tl.program_id(0) * FILTERS + tl.arange(0, FILTERS)
    # A program: some filters, and a part of all words, whose sum is a row of `parts`: adding to one
    # sum from many programs would be slower and in another order each time.
    start = tl.program_id(1) * groups_per_part
    total = tl.zeros((DEPTH_TILE, FILTERS), tl.float32)
    for group in range(start, tl.minimum(start + groups_per_part, n_groups)):
        word = group * WORDS + tl.arange(0, WORDS)
        most = tl.max(tl.load(n_windows_ptr + word, mask=word < n, other=0), axis=0)
        for first in range(0, most, WINDOWS):
            places, inside = _places(
                group, first, n, longest, CHAR_DIM, DEPTH, DEPTH_TILE, WORDS, WINDOWS
            )
            scattered = _scattered(
                grad_maxima_ptr,
                chosen_ptr,
                group,
                filters,
                first,
                n,
                n_filters,
                WORDS,
                WINDOWS,
                FILTERS,
            )
            x = tl.load(characters_ptr + places, mask=inside, other=0.0).to(scattered.dtype)
            # (DEPTH_TILE, WORDS * WINDOWS) x (WORDS * WINDOWS, FILTERS)
            total = tl.dot(tl.trans(x), scattered, total, input_precision="ieee")
    number = tl.arange(0, DEPTH_TILE)
    place = (tl.program_id(1) * n_filters + filters)[None, :] * DEPTH + number[:, None]
    there = (number < DEPTH)[:, None] & (filters < n_filters)[None, :]
    tl.store(parts_ptr + place, total, mask=there)


@jit
def _find_character_gradients(
    grad_maxima_ptr,
    chosen_ptr,
    filters_ptr,
    n_windows_ptr,
    grad_characters_ptr,
    n,
    longest,
    n_filters,
    CHAR_DIM: tl.constexpr,
    DEPTH: tl.constexpr,
    DEPTH_TILE: tl.constexpr,
    WORDS: tl.constexpr,
    WINDOWS: tl.constexpr,
    FILTERS: tl.constexpr,
):
    # A program: all filters and windows of a few words, one tile of windows after another.
    group = tl.program_id(0)
    word = group * WORDS + tl.arange(0, WORDS)
    most = tl.max(tl.load(n_windows_ptr + word, mask=word < n, other=0), axis=0)
    for first in range(0, most, WINDOWS):
        total = tl.zeros((WORDS * WINDOWS, DEPTH_TILE), tl.float32)
        for block in range(0, n_filters, FILTERS):
            filters = block + tl.arange(0, FILTERS)
            scattered = _scattered(
                grad_maxima_ptr,
                chosen_ptr,
                group,
                filters,
                first,
                n,
                n_filters,
                WORDS,
                WINDOWS,
                FILTERS,
            )
            weights = _filter_tile(filters_ptr, filters, n_filters, DEPTH, DEPTH_TILE)
            total = tl.dot(scattered, weights, total, input_precision="ieee")
        places, inside = _places(
            group, first, n, longest, CHAR_DIM, DEPTH, DEPTH_TILE, WORDS, WINDOWS
        )
        # Windows of the same word overlap, also those of one tile: hence atomic.
        tl.atomic_add(grad_characters_ptr + places, total, mask=inside, sem="relaxed")

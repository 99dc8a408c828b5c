"""The highest response of each character filter to a word, by a table, for inference.

With the table of `elmo.backends.base.response_table`, a row for each (offset, character), a window
costs as many row additions as it is wide, and no response but the highest is ever stored.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl

_MOST_FILTERS = 256
"""Filters of one program."""
_SLICE_VALUES = 1 << 24
"""Responses that the plain code keeps at a time."""


def highest_responses(
    ids: Tensor, windows: Tensor, table: Tensor, widths: Tensor, widest: int, compiled: bool
) -> Tensor:
    """Return the highest response of each filter, without bias.

    Args:
        ids: Character ids, int64 `(n, max_characters)`.
        windows: How many windows of each word are looked at, int32 `(n,)`, each at least 1. Filters
            that would reach beyond a word's row in a window skip it.
        table: Responses to single characters, float32 `(widest * n_characters, n_filters)`: row
            `offset * n_characters + character`, zero at offsets beyond a filter's width.
        widths: Width of each filter, int32 `(n_filters,)`.
        widest: Width of the widest filter.
        compiled: Whether to run the Triton kernel.

    Returns:
        Float32 of shape `(n, n_filters)`.
    """
    n_filters = table.shape[1]
    if not len(ids):
        return table.new_empty(0, n_filters)
    if not compiled:
        return _plain_responses(ids, windows, table, widths, widest)
    highest = table.new_empty(len(ids), n_filters)
    block = min(_MOST_FILTERS, next_power_of_2(n_filters))
    _highest_kernel[(len(ids), blocks(n_filters, block))](
        ids,
        windows,
        table,
        widths,
        highest,
        ids.shape[1],
        table.shape[0] // widest,
        n_filters,
        WIDEST=widest,
        BLOCK=block,
    )
    return highest


def _plain_responses(
    ids: Tensor, windows: Tensor, table: Tensor, widths: Tensor, widest: int
) -> Tensor:
    """Compute `highest_responses` in PyTorch, some words at a time: the reference."""
    n_filters, n_characters = table.shape[1], table.shape[0] // widest
    offsets = torch.arange(widest, device=ids.device) * n_characters
    starts = torch.arange(ids.shape[1], device=ids.device)[:, None]
    impossible = starts + widths > ids.shape[1]  # (max_characters, n_filters)
    parts = []
    for words in torch.split(
        torch.arange(len(ids), device=ids.device), max(1, _SLICE_VALUES // impossible.numel())
    ):
        # Any character may stand behind the row's end: filters that reach there are masked.
        padded = F.pad(ids[words], (0, widest - 1))
        rows = padded.unfold(1, widest, 1) + offsets
        responses = F.embedding_bag(rows.reshape(-1, widest), table, mode="sum")
        responses = responses.view(len(words), -1, n_filters)
        unseen = starts >= windows[words][:, None, None]
        parts.append(responses.masked_fill_(impossible | unseen, -torch.inf).amax(dim=1))
    return torch.cat(parts)


@jit
def _highest_kernel(
    ids,
    windows,
    table,
    widths,
    highest,
    max_characters,
    n_characters,
    n_filters,
    WIDEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # A program: some filters, all windows of one word.
    word = tl.program_id(0).to(tl.int64)
    filters = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = filters < n_filters
    width = tl.load(widths + filters, mask=inside, other=1)
    characters = ids + word * max_characters
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    # From the last window to the first: the interpreter has no `range` of a loaded number.
    start = tl.load(windows + word)
    while start > 0:
        start -= 1
        response = tl.zeros((BLOCK,), tl.float32)
        for offset in tl.static_range(WIDEST):
            place = start + offset
            character = tl.load(characters + place, mask=place < max_characters, other=0)
            row = (offset * n_characters + character) * n_filters
            response += tl.load(table + row + filters, mask=inside, other=0.0)
        # Filters of this width that would reach beyond the row skip the window.
        possible = start + width <= max_characters
        best = tl.maximum(best, tl.where(possible, response, float("-inf")))
    tl.store(highest + word * n_filters + filters, best, mask=inside)

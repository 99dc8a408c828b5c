"""Characters -> word vectors in training: the convolution without its waste.

The same trick as in `packed_words`: a filter's response to a window is a sum over its characters,
so each distinct character of a batch is multiplied with the filters once, and windows only add rows
of that table. Going back, the gradient of a maximum belongs to one window for each filter, whose
characters' rows it is added to; the plain convolution multiplies all the zeros of the others, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.model.layers import CharacterEncoder
from elmo.training.fused_characters import encode_fused

_SLICE_VALUES = 1 << 22
"""Responses of one slice of words: 16 MB."""


def encode_spelling(
    encoder: CharacterEncoder, ids: Tensor, padding: int, fused: bool = False
) -> Tensor:
    """Give the vectors of words; equal to `encoder(ids)`, and so are the gradients.

    Args:
        encoder: The encoder.
        ids: Character ids, int64 of shape `(n, max_characters)`.
        padding: The id behind a word's end.
        fused: Whether kernels may be used; see `kernels.gpu.triton_ready`.

    Returns:
        Shape `(n, projection_dim)`.
    """
    if fused:
        return encode_fused(encoder, ids, padding)
    if ids.device.type != "cpu" or not len(ids):
        plain: Tensor = encoder(ids)
        return plain
    distinct, places = torch.unique(ids, return_inverse=True)
    characters = F.embedding(distinct, encoder.embedding.weight, padding_idx=0)
    slices = list(_slices(encoder, ids, padding))
    order = torch.cat([rows for rows, _ in slices])
    maxima = []
    for convolution in encoder.convolutions:
        assert isinstance(convolution, nn.Conv1d)
        assert convolution.bias is not None
        # (n_distinct, width, number): what each filter makes of each character at each offset
        table = torch.einsum("cd,fdo->cof", characters, convolution.weight)
        parts = [_maxima(table, places[rows, :length]) for rows, length in slices]
        maxima.append(torch.cat(parts) + convolution.bias)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return encoder.finish(torch.cat(maxima, dim=1)[back])


def _slices(encoder: CharacterEncoder, ids: Tensor, padding: int) -> Iterator[tuple[Tensor, int]]:
    """Group words of similar length.

    Yields:
        Rows of a group, and how many of their characters tell all there is to know: one window
        wholly inside the padding stands for all of them.
    """
    convolutions = [c for c in encoder.convolutions if isinstance(c, nn.Conv1d)]
    widest = max(c.kernel_size[0] for c in convolutions)
    most_filters = max(c.out_channels for c in convolutions)
    longest = ids.shape[1]
    lengths = torch.where(ids != padding, torch.arange(1, longest + 1), 0).amax(dim=1)
    order = torch.argsort(lengths, stable=True)
    needed = (lengths[order] + widest).clamp(max=longest).tolist()
    start = 0
    for end in range(1, len(needed) + 1):
        is_last = end == len(needed)
        if is_last or (end + 1 - start) * needed[end] * most_filters > _SLICE_VALUES:
            yield order[start:end], needed[end - 1]
            start = end


def _maxima(table: Tensor, places: Tensor) -> Tensor:
    maxima: Tensor = _WindowMaxima.apply(table, places)  # type: ignore[no-untyped-call]
    return maxima


class _WindowMaxima(torch.autograd.Function):
    """Each filter's highest response to the windows of words."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        """Look at all windows.

        Args:
            ctx: Keeps what the way back needs.
            table: Responses to single characters, `(n_distinct, width, number)`.
            places: Which character stands where, `(n, length)`.

        Returns:
            Shape `(n, number)`.
        """
        _, width, number = table.shape
        offsets = torch.arange(width)
        windows = places.unfold(1, width, 1) * width + offsets  # (n, positions, width)
        rows = table.reshape(-1, number)
        responses = F.embedding_bag(windows.reshape(-1, width), rows, mode="sum")
        values, chosen = responses.view(*windows.shape[:2], number).max(dim=1)
        ctx.save_for_backward(windows, chosen)
        ctx.shape = table.shape
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Add each gradient to the rows of the characters in the window that won."""
        windows, chosen = ctx.saved_tensors
        _, width, number = ctx.shape
        of_table = gradients[0].new_zeros(ctx.shape).view(-1, number)
        for offset in range(width):
            rows = windows[:, :, offset].gather(1, chosen)  # (n, number)
            of_table.scatter_add_(0, rows, gradients[0])
        return of_table.view(ctx.shape), None

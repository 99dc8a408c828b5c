"""Characters -> word vectors in training; `layers.CharacterEncoder` is the plain code.

On a CPU, as in `backends.cpu.characters`: a filter's response to a window is a sum over its
characters, so each distinct character of a batch is multiplied with the filters once, and windows
only add rows of that table. In the backward pass the gradient of a maximum belongs to one window
for each filter, to whose characters' rows it is added; the plain convolution multiplies the zeros
of all other windows, too. On a GPU, kernels are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.base import count_windows
from elmo.backends.gpu.kernels.character_windows import window_maxima
from elmo.backends.gpu.kernels.highway import mix_highway
from elmo.model.layers import CharacterEncoder, Highway

_SLICE_VALUES = 1 << 22
"""Responses of one slice of words: 16 MB."""


def encode_characters(
    encoder: CharacterEncoder, ids: Tensor, padding: int, fused: bool = False
) -> Tensor:
    """Return the vectors of words, equal to `encoder(ids)`, with equal gradients.

    Args:
        encoder: The encoder.
        ids: Character ids, int64 of shape `(n, max_characters)`.
        padding: The id behind a word's end.
        fused: Whether GPU kernels may be used; see `kernels.gpu.triton_ready`.

    Returns:
        Shape `(n, projection_dim)`.
    """
    if fused:
        return _encode_fused(encoder, ids, padding)
    if ids.device.type != "cpu" or not len(ids):
        plain: Tensor = encoder(ids)
        return plain
    distinct, places = torch.unique(ids, return_inverse=True)
    characters = F.embedding(distinct, encoder.embedding.weight, padding_idx=0)
    slices = list(_slices(encoder, ids, padding))
    order = torch.cat([rows for rows, _ in slices])
    maxima = []
    for convolution in _convolutions(encoder):
        assert convolution.bias is not None
        # (n_distinct, width, number): response of each filter to each character at each offset
        table = torch.einsum("cd,fdo->cof", characters, convolution.weight)
        parts: list[Tensor] = [
            _WindowMaxima.apply(table, places[rows, :length])  # type: ignore[no-untyped-call]
            for rows, length in slices
        ]
        maxima.append(torch.cat(parts) + convolution.bias)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return encoder.finish(torch.cat(maxima, dim=1)[back])


def _slices(encoder: CharacterEncoder, ids: Tensor, padding: int) -> Iterator[tuple[Tensor, int]]:
    """Group words of similar length.

    Yields:
        Rows of a group, and how many of their characters to read: one window wholly inside the
        padding stands for all such windows.
    """
    widest = _widest(encoder)
    most_filters = max(c.out_channels for c in _convolutions(encoder))
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


class _WindowMaxima(torch.autograd.Function):
    """Each filter's maximal response over the windows of a word."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        """Compute the responses to all windows.

        Args:
            ctx: Keeps what the backward pass needs.
            table: Responses to single characters, `(n_distinct, width, number)`.
            places: Rows of the table of all characters, `(n, length)`.

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
        """Add each gradient to the rows of the characters in the window of the maximum."""
        windows, chosen = ctx.saved_tensors
        _, width, number = ctx.shape
        of_table = gradients[0].new_zeros(ctx.shape).view(-1, number)
        for offset in range(width):
            rows = windows[:, :, offset].gather(1, chosen)  # (n, number)
            of_table.scatter_add_(0, rows, gradients[0])
        return of_table.view(ctx.shape), None


# --- on a GPU -----------------------------------------------------------------------------------


def _encode_fused(encoder: CharacterEncoder, ids: Tensor, padding: int) -> Tensor:
    """Return the vectors of words, with kernels; see `encode_characters`.

    Products run in the type that autocast asks for, sums are float32.
    """
    kind = ids.device.type
    enabled = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if enabled else encoder.embedding.weight.dtype
    convolutions = _convolutions(encoder)
    with torch.autocast(kind, enabled=False):
        characters = F.embedding(ids, encoder.embedding.weight, padding_idx=0)
        filters = _filters(encoder)
        bias = torch.cat([c.bias for c in convolutions if c.bias is not None])
    widths = [c.kernel_size[0] for c in convolutions for _ in range(c.out_channels)]
    maxima = window_maxima(
        characters,
        filters,
        bias,
        _constant(tuple(widths), ids.device),
        count_windows(ids, padding, _widest(encoder)),
        dtype,
    )
    vectors = encoder.activation(maxima)
    for highway in encoder.highways:
        assert isinstance(highway, Highway)
        weight = torch.cat([highway.transform.weight, highway.gate.weight])
        bias = torch.cat([highway.transform.bias, highway.gate.bias])
        vectors = mix_highway(vectors, F.linear(vectors, weight, bias))
    projected: Tensor = encoder.projection(vectors)
    return projected


def _filters(encoder: CharacterEncoder) -> Tensor:
    """Return the filters of all widths, `(n_filters, widest, char_dim)`, padded with zeros."""
    widest = _widest(encoder)
    weights = [F.pad(c.weight, (0, widest - c.kernel_size[0])) for c in _convolutions(encoder)]
    return torch.cat(weights).transpose(1, 2)


_constants: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def _constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """Return numbers as int32 on a device, copied once: a copy inside a CUDA graph fails."""
    key = (values, device)
    if key not in _constants:
        _constants[key] = torch.tensor(values, dtype=torch.int32, device=device)
    return _constants[key]


def _convolutions(encoder: CharacterEncoder) -> list[nn.Conv1d]:
    return [c for c in encoder.convolutions if isinstance(c, nn.Conv1d)]


def _widest(encoder: CharacterEncoder) -> int:
    return max(c.kernel_size[0] for c in _convolutions(encoder))

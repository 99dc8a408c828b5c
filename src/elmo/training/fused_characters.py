"""Characters -> word vectors in training on a GPU; `layers.CharacterEncoder` is the plain code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.gpu.characters import telling_windows
from elmo.backends.gpu.kernels.character_windows import window_maxima
from elmo.backends.gpu.kernels.highway import mix_highway
from elmo.model.layers import CharacterEncoder, Highway


def encode_fused(encoder: CharacterEncoder, ids: Tensor, padding: int) -> Tensor:
    """Give the vectors of words, with kernels; see `spelling.encode_spelling`.

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
        telling_windows(ids, padding, _widest(encoder)),
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
    """Give filters of all widths, `(n_filters, widest, char_dim)`, zero beyond their width."""
    widest = _widest(encoder)
    weights = [F.pad(c.weight, (0, widest - c.kernel_size[0])) for c in _convolutions(encoder)]
    return torch.cat(weights).transpose(1, 2)


_constants: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}


def _constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """Give numbers as int32 on a device; sent once, for sending inside a CUDA graph fails."""
    key = (values, device)
    if key not in _constants:
        _constants[key] = torch.tensor(values, dtype=torch.int32, device=device)
    return _constants[key]


def _convolutions(encoder: CharacterEncoder) -> list[nn.Conv1d]:
    return [c for c in encoder.convolutions if isinstance(c, nn.Conv1d)]


def _widest(encoder: CharacterEncoder) -> int:
    return max(c.kernel_size[0] for c in _convolutions(encoder))

"""The encoder of characters for inference on a GPU.

Filters work by a table of their responses to single characters (`kernels/word_filters.py`), which
is exact. Highways and projection are those of the plain encoder, always in float32: they run once
for each distinct word, and all layers would suffer from what is lost in them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.backends.base import convolutions_of, count_windows, response_table
from elmo.backends.gpu.kernels.inference_graphs import GraphCache
from elmo.backends.gpu.kernels.word_filters import highest_responses
from elmo.config import ElmoConfig
from elmo.model.layers import CharacterEncoder
from elmo.text.characters import padding_character

_MOST_TABLE_BYTES = 512 << 20
"""For a larger alphabet there is no table: the plain convolution is the fallback."""
_MOST_WORDS = 16384
"""Words encoded at a time: their highways take some hundred megabytes."""
_GRAPH_WORDS = 128
"""Up to so many words are encoded by a recorded graph, one for each number of words."""
_LEAST_GRAPH_WORDS = 8
"""Fewer words are padded to this number, others to a power of two."""


class FusedCharacterEncoder:
    """Characters -> word vectors, for inference on a GPU.

    Args:
        encoder: The plain encoder, on its device. It is used, not copied.
        config: Sizes.
        compiled: Whether to run Triton kernels.
    """

    def __init__(self, encoder: CharacterEncoder, config: ElmoConfig, compiled: bool) -> None:
        self._encoder = encoder
        self._padding = padding_character(config)
        self._compiled = compiled
        self._widest = max(width for width, _ in config.filters)
        numbers = torch.tensor([number for _, number in config.filters])
        widths = torch.tensor([width for width, _ in config.filters], dtype=torch.int32)
        device = encoder.embedding.weight.device
        self._widths = widths.repeat_interleave(numbers).to(device)
        biases = [convolution.bias for convolution in convolutions_of(encoder)]
        self._bias = torch.cat([bias for bias in biases if bias is not None]).detach()
        self._table: Tensor | None = None
        if 4 * self._widest * config.n_characters * config.n_filters <= _MOST_TABLE_BYTES:
            self._table = response_table(encoder, self._widest)
        has_graphs = device.type == "cuda" and self._table is not None
        self._graphs = GraphCache() if has_graphs else None

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode words, ids `(n, max_characters)`; returns `(n, projection_dim)`."""
        if self._graphs is not None and 0 < len(ids) <= _GRAPH_WORDS:
            # Padded words are computed for nothing, but few graphs are recorded.
            rows = max(_LEAST_GRAPH_WORDS, 1 << (len(ids) - 1).bit_length())
            filled = F.pad(ids, (0, 0, 0, rows - len(ids)), value=self._padding)
            (vectors,) = self._graphs.run(rows, self._encode_for_graph, (filled,))
            return vectors[: len(ids)]
        parts = [self._encode(part) for part in torch.split(ids, _MOST_WORDS)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _encode(self, ids: Tensor) -> Tensor:
        """Encode words at once, `(n, max_characters)`; returns `(n, projection_dim)`."""
        if self._table is None:
            vectors: Tensor = self._encoder(ids)
            return vectors
        windows = count_windows(ids, self._padding, self._widest)
        highest = highest_responses(
            ids, windows, self._table, self._widths, self._widest, self._compiled
        )
        return self._encoder.finish(highest.add_(self._bias))

    def _encode_for_graph(self, ids: Tensor) -> tuple[Tensor]:
        """Return the result of `_encode` in the form that `GraphCache.run` wants."""
        return (self._encode(ids),)

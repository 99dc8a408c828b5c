"""The encoders of words for inference on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.base import count_windows, filter_weights, response_table
from elmo.backends.cpu.native import NativeHighway, highest_responses
from elmo.backends.cpu.products import FrozenLinear, LinearFactory, frozen_linear
from elmo.config import ElmoConfig
from elmo.model.bilm import Tensors
from elmo.model.layers import CharacterEncoder, Highway, WordEncoder
from elmo.text.characters import padding_character

_SLICE_BYTES = 16 << 20
"""Size of a buffer for responses to windows. glibc keeps freed blocks below 32 MB."""
_TABLE_BYTES = 64 << 20
"""Up to this size, filter responses to all characters of a model are kept in one table."""


class CPUWordEncoder:
    """The vectors of a model that reads words.

    Args:
        encoder: The plain encoder.
        consume: Take over the plain encoder's table instead of copying it.
    """

    def __init__(self, encoder: WordEncoder, consume: bool) -> None:
        table = encoder.embedding.weight.detach()
        self._table = table if consume else table.clone()
        if consume:
            encoder.to("meta")

    def __call__(self, ids: Tensor) -> Tensor:
        """Look up the vectors `(n, projection_dim)` of word ids `(n,)`."""
        return self._table.index_select(0, ids)

    def tensors(self) -> Tensors:
        """Return the weights by the names of the plain encoder."""
        return {"embedding.weight": self._table}


class CPUCharacterEncoder:
    """Characters -> word vectors.

    Filters are computed with a table of their responses to single characters (`response_table`), a
    sixteenth of the arithmetic of a convolution. For a large alphabet the whole table would be
    larger than the rest of the model: its rows are then computed for the characters of a few words
    at a time.

    Args:
        encoder: The plain encoder.
        config: Sizes.
        factory: Prepares products.
        consume: Free the plain encoder's weights one by one.
    """

    def __init__(
        self, encoder: CharacterEncoder, config: ElmoConfig, factory: LinearFactory, consume: bool
    ) -> None:
        self._config = config
        self._dtype = factory.dtype
        self._is_native = factory.format is not None
        self._activation = {"relu": torch.relu_, "tanh": torch.tanh_}[config.activation]
        self._small = {  # kept for `tensors`; a megabyte
            name: tensor.detach().clone()
            for name, tensor in encoder.state_dict().items()
            if name.startswith(("embedding", "convolutions"))
        }
        n_widths = len(config.filters)
        self._bias = torch.cat([self._small[f"convolutions.{i}.bias"] for i in range(n_widths)])
        widths = [width for width, number in config.filters for _ in range(number)]
        self._widths = torch.tensor(widths, dtype=torch.int32)
        self._widest = max(widths)
        windows = torch.arange(config.max_characters)[:, None]
        # Where a filter would reach beyond a word's row, `(max_characters, n_filters)`.
        self._impossible = windows + self._widths > config.max_characters
        self._table: Tensor | None = None
        """Responses to all characters; None for a large alphabet."""
        row_bytes = 4 * config.n_filters
        if self._widest * config.n_characters * row_bytes <= _TABLE_BYTES:
            self._table = response_table(encoder, self._widest)
            # Rows lie offset after offset, in each one character after another.
            self._offsets = torch.arange(self._widest) * config.n_characters
            n_bytes = min(_SLICE_BYTES, _TABLE_BYTES)
        else:
            # One character after another, in each offset after offset: `(widest * n_filters,
            # char_dim)` times the characters at hand.
            weight = filter_weights(encoder, self._widest).permute(2, 0, 1).flatten(0, 1)
            self._respond = frozen_linear(weight)
            self._offsets = torch.arange(self._widest)
            # Words have no more characters than windows, and each of them `widest` rows.
            n_bytes = min(_SLICE_BYTES, _TABLE_BYTES // self._widest)
        self._max_windows = max(1, n_bytes // row_bytes)
        self._padding = padding_character(config)
        self._projection: FrozenLinear | None = None
        if isinstance(encoder.projection, nn.Linear):
            self._projection_bias = encoder.projection.bias.detach().clone()
            weight = encoder.projection.weight
            self._projection = factory.linear(weight, self._projection_bias, of_words=True)
        self._highways: list[TorchHighway | NativeHighway] = []
        for plain in encoder.highways:
            assert isinstance(plain, Highway)
            format = factory.word_format
            native = None if format is None else NativeHighway(plain, format)
            self._highways.append(native or TorchHighway(plain, factory))
            if consume:
                plain.to("meta")
        if consume:
            encoder.to("meta")

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode words, ids `(n, max_characters)`; returns `(n, projection_dim)`."""
        vectors = torch.empty(len(ids), self._config.projection_dim)
        for group, windows in self._groups(ids):
            part = self._filter(ids[group], windows)
            for highway in self._highways:
                part = highway(part)
            if self._projection is not None:
                part = self._projection(part.to(self._dtype)).float()
            vectors[group] = part
        return vectors

    def tensors(self) -> Tensors:
        """Return the weights by the names of the plain encoder."""
        tensors = dict(self._small)
        for k, highway in enumerate(self._highways):
            tensors |= {f"highways.{k}.{name}": t for name, t in highway.tensors().items()}
        if self._projection is not None:
            tensors["projection.weight"] = self._projection.weight()
            tensors["projection.bias"] = self._projection_bias
        return tensors

    def _groups(self, ids: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Group words of similar length, so that few windows are computed in vain.

        Yields:
            Which words are in a group, and how many windows each of them needs.
        """
        n_windows = count_windows(ids, self._padding, self._widest)
        order = torch.argsort(n_windows, stable=True)
        counts = n_windows[order].tolist()
        start = 0
        for end in range(1, len(counts) + 1):
            # The group ends where one more word would exceed the buffer.
            if end == len(counts) or (end + 1 - start) * counts[end] > self._max_windows:
                yield order[start:end], counts[end - 1]
                start = end

    def _filter(self, ids: Tensor, windows: int) -> Tensor:
        """Return the maximum response of each filter, after the activation, `(n, n_filters)`.

        Args:
            ids: Words of one group, `(n, max_characters)`.
            windows: How many first windows are looked at.
        """
        # Behind the row's end lies character 0, whose table rows are zero.
        characters = F.pad(ids, (0, self._widest - 1))[:, : windows + self._widest - 1]
        if self._table is not None:
            table, rows = self._table, characters
        else:
            distinct, places = torch.unique(characters, return_inverse=True)
            embedding = self._small["embedding.weight"].index_select(0, distinct)
            table = self._respond(embedding).view(-1, self._config.n_filters)
            rows = places * self._widest
        if self._is_native:
            longest = self._config.max_characters
            highest = highest_responses(table, rows, self._offsets, self._widths, longest, windows)
        else:
            highest = self._plain_responses(table, rows, windows)
        return self._activation(highest.add_(self._bias))

    def _plain_responses(self, table: Tensor, rows: Tensor, windows: int) -> Tensor:
        """Compute `highest_responses` in PyTorch: the reference."""
        by_window = rows.unfold(1, self._widest, 1).reshape(-1, self._widest) + self._offsets
        responses = F.embedding_bag(by_window, table, mode="sum").view(len(rows), windows, -1)
        if windows == self._config.max_characters:
            responses.masked_fill_(self._impossible, -torch.inf)
        return responses.amax(dim=1)


class TorchHighway:
    """`Highway` for inference without the kernel: its two products in one.

    Args:
        highway: The plain one.
        factory: Prepares the product.
    """

    def __init__(self, highway: Highway, factory: LinearFactory) -> None:
        self._dtype = factory.dtype
        self._bias = torch.cat([highway.transform.bias, -highway.gate.bias]).detach()
        weight = torch.cat([highway.transform.weight, -highway.gate.weight])
        self._linear = factory.linear(weight, self._bias, of_words=True)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Transform `(n, dim)`; returns the same shape."""
        transform, gate = self._linear(vectors.to(self._dtype)).float().chunk(2, dim=1)
        return torch.lerp(vectors, transform.relu_(), falling_logistic_(gate))

    def tensors(self) -> Tensors:
        """Return the weights by the names of the plain highway."""
        weight, gate_weight = self._linear.weight().chunk(2)
        bias, gate_bias = self._bias.chunk(2)
        return {
            "transform.weight": weight,
            "transform.bias": bias,
            "gate.weight": -gate_weight,
            "gate.bias": -gate_bias,
        }


def falling_logistic_(values: Tensor) -> Tensor:
    """Replace x by 1 / (1 + exp(x)) = sigmoid(-x), in place."""
    return values.exp_().add_(1).reciprocal_()

"""The encoders of words packed for inference, and what all packed parts share.

See `packed.py` for what makes them fast.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.cpu.native import FilterKernel, Matrix, highway, highway_places
from elmo.backends.cpu.products import FrozenLinear, Packer, frozen_linear
from elmo.config import ElmoConfig
from elmo.model.checkpoint import Tensors
from elmo.model.layers import CharacterEncoder, Highway, WordEncoder
from elmo.text.characters import padding_character

_SLICE_BYTES = 16 << 20
"""Size of a buffer for window sums. glibc keeps freed blocks below 32 MB."""
_TABLE_BYTES = 64 << 20
"""Up to this size, filter responses to all characters of a model are kept in one table."""


class PackedWordEncoder:
    """The vectors of a model that reads words.

    Args:
        encoder: The plain encoder.
        consume: Take the plain encoder's table instead of copying it.
    """

    def __init__(self, encoder: WordEncoder, consume: bool) -> None:
        table = encoder.embedding.weight.detach()
        self._table = table if consume else table.clone()
        release(encoder, consume)

    def __call__(self, ids: Tensor) -> Tensor:
        """Give the vectors `(n, projection_dim)` of word ids `(n,)`."""
        return self._table.index_select(0, ids)

    def tensors(self) -> Tensors:
        """Give the weights back under the plain encoder's names."""
        return {"embedding.weight": self._table}


class PackedCharacterEncoder:
    """Characters -> word vectors, for inference.

    A filter's response to a window is the sum, over the offsets in the window, of what it makes of
    the character there. All of these are in a table with a row for each (offset, character), so
    that a window costs as many row additions as it is wide. The table of a large alphabet would be
    larger than the rest of the model: its rows are then computed for the characters of a few words
    at a time.

    Args:
        encoder: The plain encoder.
        config: Sizes.
        packer: How to prepare products.
        consume: Free the plain encoder's weights on the way.
    """

    def __init__(
        self, encoder: CharacterEncoder, config: ElmoConfig, packer: Packer, consume: bool
    ) -> None:
        self._config = config
        self._dtype = packer.dtype
        self._activation = {"relu": torch.relu_, "tanh": torch.tanh_}[config.activation]
        self._small = {  # kept to be given back; a megabyte
            name: tensor.detach().clone()
            for name, tensor in encoder.state_dict().items()
            if name.startswith(("embedding", "convolutions"))
        }
        self._widest = max(width for width, _ in config.filters)
        biases = [self._small[f"convolutions.{i}.bias"] for i in range(len(config.filters))]
        self._bias = torch.cat(biases)
        self._padding = padding_character(config)
        row_bytes = 4 * config.n_filters
        self._table: _WholeTable | _PassingTable
        if self._widest * config.n_characters * row_bytes <= _TABLE_BYTES:
            self._table = _WholeTable(encoder, self._widest)
        else:
            self._table = _PassingTable(encoder, self._widest)
        self._max_windows = max(1, min(_SLICE_BYTES, self._table.max_bytes) // row_bytes)
        widths = _filter_widths(config)
        windows = torch.arange(config.max_characters)[:, None]
        # Where a filter would reach beyond a word's row, `(max_characters, n_filters)`.
        self._impossible = windows + widths > config.max_characters
        self._kernel: FilterKernel | None = None
        if packer.format is not None:
            self._kernel = FilterKernel(widths, self._table.offsets, config.max_characters)
        self._highways: list[PackedHighway | NativeHighway] = []
        for plain in encoder.highways:
            assert isinstance(plain, Highway)
            kind = PackedHighway if packer.format is None else NativeHighway
            self._highways.append(kind(plain, packer))
            release(plain, consume)
        self._projection: FrozenLinear | None = None
        if isinstance(encoder.projection, nn.Linear):
            self._projection_bias = encoder.projection.bias.detach().clone()
            self._projection = packer.linear(encoder.projection.weight, self._projection_bias)
        release(encoder, consume)

    def __call__(self, ids: Tensor) -> Tensor:
        """Give the vectors `(n, projection_dim)` of words spelt as `(n, max_characters)`."""
        vectors = torch.empty(len(ids), self._config.projection_dim)
        places = torch.arange(1, ids.shape[1] + 1)
        characters = torch.where(ids != self._padding, places, 0).amax(dim=1)
        for group, windows in self._groups(characters):
            vectors[group] = self._project(self._filter(ids[group], windows))
        return vectors

    def tensors(self) -> Tensors:
        """Give the weights back under the plain encoder's names."""
        tensors = dict(self._small)
        for k, packed in enumerate(self._highways):
            tensors |= {f"highways.{k}.{name}": t for name, t in packed.tensors().items()}
        if self._projection is not None:
            tensors["projection.weight"] = self._projection.weight()
            tensors["projection.bias"] = self._projection_bias
        return tensors

    def _groups(self, characters: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Group words of similar length, so that few windows are computed in vain.

        Args:
            characters: Length of each word with its marks, `(n,)`.

        Yields:
            Words of a group, and how many windows each of them needs.
        """
        order = torch.argsort(characters, stable=True)
        lengths = characters[order].tolist()
        start = 0
        for end in range(1, len(lengths) + 1):
            last = end == len(lengths)
            if last or (end + 1 - start) * self._n_windows(lengths[end]) > self._max_windows:
                yield order[start:end], self._n_windows(lengths[end - 1])
                start = end

    def _n_windows(self, characters: int) -> int:
        """Say how many windows tell all there is to know about a word of this many characters.

        One window wholly inside the padding stands for all of them. A word that leaves no room for
        one needs every window of the shortest filter.
        """
        if characters + self._widest <= self._config.max_characters:
            return characters + 1
        return self._config.max_characters

    def _filter(self, ids: Tensor, windows: int) -> Tensor:
        """Give the maximum response of each filter.

        Args:
            ids: Words of one group, `(n, max_characters)`.
            windows: First positions to look at.

        Returns:
            Shape `(n, n_filters)`, after the activation.
        """
        # Behind the row's end lies the masked character, whose table rows are zero.
        characters = F.pad(ids, (0, self._widest - 1))[:, : windows + self._widest - 1]
        table, places = self._table.lookup(characters)
        if self._kernel is not None:
            highest = self._kernel(table, places, windows)
        else:
            highest = self._highest(table, places, windows)
        return self._activation(highest.add_(self._bias))

    def _highest(self, table: Tensor, places: Tensor, windows: int) -> Tensor:
        """Give the same as `FilterKernel`: the plain way."""
        rows = places.unfold(1, self._widest, 1).reshape(-1, self._widest) + self._table.offsets
        responses = F.embedding_bag(rows, table, mode="sum").view(len(places), windows, -1)
        if windows == self._config.max_characters:
            responses.masked_fill_(self._impossible, -torch.inf)
        return responses.amax(dim=1)

    def _project(self, vectors: Tensor) -> Tensor:
        """Run highways and projection on `(n, n_filters)`; returns `(n, projection_dim)`."""
        for packed in self._highways:
            vectors = packed(vectors)
        if self._projection is None:
            return vectors
        return self._projection(vectors.to(self._dtype)).float()


class PackedHighway:
    """`Highway` for inference: its two products in one.

    Args:
        highway: The plain one.
        packer: How to prepare the product.
    """

    def __init__(self, highway: Highway, packer: Packer) -> None:
        self._dtype = packer.dtype
        self._bias = torch.cat([highway.transform.bias, -highway.gate.bias]).detach()
        weight = torch.cat([highway.transform.weight, -highway.gate.weight])
        self._linear = packer.linear(weight, self._bias)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Give `(n, dim)` for `(n, dim)`."""
        transform, gate = self._linear(vectors.to(self._dtype)).float().chunk(2, dim=1)
        return torch.lerp(vectors, transform.relu_(), falling_logistic_(gate))

    def tensors(self) -> Tensors:
        """Give the weights back under the plain highway's names."""
        transform, gate = self._linear.weight().chunk(2)
        transform_bias, gate_bias = self._bias.chunk(2)
        return _highway_tensors(transform, transform_bias, -gate, -gate_bias)


class NativeHighway:
    """The same by the native kernel, which has both products of an output in one place.

    Args:
        highway: The plain one.
        packer: How to prepare the product; with the kernel.
    """

    def __init__(self, highway: Highway, packer: Packer) -> None:
        assert packer.format is not None
        bias = torch.cat([highway.transform.bias, highway.gate.bias]).detach()
        weight = torch.cat([highway.transform.weight, highway.gate.weight]).detach()
        self._places = highway_places(len(bias) // 2)
        self._bias = F.pad(bias, (0, 1))[self._places]
        self._matrix = Matrix(F.pad(weight, (0, 0, 0, 1))[self._places], packer.format)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Give `(n, dim)` for `(n, dim)`."""
        return highway(self._matrix, vectors, self._bias)

    def tensors(self) -> Tensors:
        """Give the weights back under the plain highway's names."""
        (transform, gate), (transform_bias, gate_bias) = (
            self._restored(rows).chunk(2) for rows in (self._matrix.weight(), self._bias)
        )
        return _highway_tensors(transform, transform_bias, gate, gate_bias)

    def _restored(self, rows: Tensor) -> Tensor:
        """Put rows `(2 * outputs, ...)` back into their order, `(2 * dim, ...)`."""
        restored = rows.new_empty(int(self._places.max()) + 1, *rows.shape[1:])
        restored[self._places] = rows
        return restored[: 2 * self._matrix.inputs]


def _highway_tensors(
    transform: Tensor, transform_bias: Tensor, gate: Tensor, gate_bias: Tensor
) -> Tensors:
    return {
        "transform.weight": transform,
        "transform.bias": transform_bias,
        "gate.weight": gate,
        "gate.bias": gate_bias,
    }


class _WholeTable:
    """Each filter's response to each character of a model at each offset of a window.

    Args:
        encoder: The plain encoder.
        widest: Width of the widest filter.
    """

    max_bytes = _TABLE_BYTES

    def __init__(self, encoder: CharacterEncoder, widest: int) -> None:
        characters = encoder.embedding.weight.detach().double()
        weight = _filter_weights(encoder, widest).double()
        responses = torch.einsum("cd,ofd->ocf", characters, weight)
        self._table = responses.float().reshape(-1, weight.shape[1]).contiguous()
        self.offsets = torch.arange(widest) * len(characters)
        """What is added to a character's row at each offset of a window, `(widest,)`."""

    def lookup(self, characters: Tensor) -> tuple[Tensor, Tensor]:
        """Give a table, and the rows of characters in it at offset 0.

        Args:
            characters: Ids of any shape.

        Returns:
            The table `(rows, n_filters)`, zero at offsets beyond a filter's width; and rows, of the
            shape of `characters`.
        """
        return self._table, characters


class _PassingTable:
    """The same for a large alphabet: a table of the characters at hand, made at each call.

    Args:
        encoder: The plain encoder.
        widest: Width of the widest filter.
    """

    def __init__(self, encoder: CharacterEncoder, widest: int) -> None:
        self._characters = encoder.embedding.weight.detach().clone()
        weight = _filter_weights(encoder, widest)
        self._n_filters = weight.shape[1]
        self._product = frozen_linear(weight.flatten(0, 1))
        self.offsets = torch.arange(widest)
        """What is added to a character's row at each offset of a window, `(widest,)`."""
        # Words bring no more characters than windows, and each of them has a row for each offset.
        self.max_bytes = _TABLE_BYTES // widest

    def lookup(self, characters: Tensor) -> tuple[Tensor, Tensor]:
        """Give a table, and the rows of characters in it at offset 0; see `_WholeTable`."""
        distinct, places = torch.unique(characters, return_inverse=True)
        responses = self._product(self._characters.index_select(0, distinct))
        return responses.view(-1, self._n_filters), places * len(self.offsets)


def _filter_weights(encoder: CharacterEncoder, widest: int) -> Tensor:
    """Give the filters of all widths, `(widest, n_filters, char_dim)`, zero beyond their width."""
    weights = []
    for convolution in encoder.convolutions:
        assert isinstance(convolution, nn.Conv1d)
        weight = convolution.weight.detach()  # (number, char_dim, width)
        weights.append(F.pad(weight, (0, widest - weight.shape[2])).permute(2, 0, 1))
    return torch.cat(weights, dim=1)


def _filter_widths(config: ElmoConfig) -> Tensor:
    """Give the width of each filter, int32 `(n_filters,)`."""
    widths = [width for width, number in config.filters for _ in range(number)]
    return torch.tensor(widths, dtype=torch.int32)


def pack_words(
    encoder: nn.Module, config: ElmoConfig, packer: Packer, consume: bool
) -> PackedCharacterEncoder | PackedWordEncoder:
    """Pack the encoder of a model's words; the arguments are those of the two classes."""
    if isinstance(encoder, CharacterEncoder):
        return PackedCharacterEncoder(encoder, config, packer, consume)
    assert isinstance(encoder, WordEncoder)
    return PackedWordEncoder(encoder, consume)


def falling_logistic_(values: Tensor) -> Tensor:
    """Put 1 / (1 + exp(x)) = sigmoid(-x) in the place of x."""
    return values.exp_().add_(1).reciprocal_()


def release(module: nn.Module, consume: bool) -> None:
    """Free a module's weights."""
    if consume:
        module.to("meta")

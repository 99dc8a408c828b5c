"""The biLM packed for inference: the same numbers as `BiLM`, several times faster on a CPU.

What is different from the plain layers, and why it is fast:

* weights are laid out for oneDNN once (`linear.py`);
* the convolution over characters is a sum of rows of a table, one row for each character at each
  offset of a window, instead of a product: a sixteenth of the arithmetic;
* words are cropped behind their last character, where all further windows are alike;
* the input product of the first layer runs once for each distinct word;
* input products run in slices of a few megabytes, which the allocator reuses: fresh large buffers
  cost a third of the product in page faults;
* cells are updated in place, and sigmoid and tanh are made of exp: PyTorch's tanh is slow, and its
  sigmoid rounds differently at the end of a thread's share than inside it.

In float32 no result depends on what else is in the batch, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.bilm import BiLM, BiLMBase
from elmo.characters import N_CHARACTERS, PADDING_CHARACTER
from elmo.checkpoint import Checkpoint, Tensors
from elmo.config import ElmoConfig
from elmo.errors import ConfigError, WeightsError
from elmo.layers import (
    CharacterEncoder,
    GRULayer,
    Highway,
    LayerState,
    LSTMLayer,
    RecurrentLayer,
    WordEncoder,
)
from elmo.linear import FrozenLinear, frozen_linear, packing_works
from elmo.settings import Precision

_SLICE_BYTES = 16 << 20
"""Size of a buffer for input products or window sums. glibc keeps freed blocks below 32 MB."""
_TABLE_BYTES = 96 << 20
"""Up to this size, the first layer's input products of all distinct words are kept together."""


def runs_natively(precision: Precision) -> bool:
    """Tell whether this CPU computes in a precision, rather than only rounding weights to it."""
    if precision not in get_args(Precision):
        raise ConfigError(
            f"precision is {precision!r}, expected one of {', '.join(get_args(Precision))}"
        )
    return precision == "fp32" or packing_works(torch.bfloat16)


class _Bricks:
    """How weights are prepared at one precision.

    A CPU without bfloat16 arithmetic computes in float32 with weights rounded to bfloat16: no
    faster than fp32, but close to what the same setting gives elsewhere.
    """

    def __init__(self, precision: Precision) -> None:
        self.native = runs_natively(precision)
        self.rounded = precision == "bf16"
        self.dtype = torch.bfloat16 if self.rounded and self.native else torch.float32

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> FrozenLinear:
        """Prepare a product."""
        weight = weight.detach()
        if self.rounded:
            weight = weight.bfloat16()
        return frozen_linear(
            weight.to(self.dtype), None if bias is None else bias.detach().to(self.dtype)
        )


class PackedBiLM(BiLMBase):
    """A biLM frozen for inference on a CPU.

    Args:
        bilm: The model; it shares no memory with this one.
        precision: `fp32`, or `bf16` for products in bfloat16 with float32 cells.
        consume: Free the model's weights one by one while they are packed, so that the two are
            never in memory together. The model cannot be used afterwards.
    """

    def __init__(self, bilm: BiLM, precision: Precision = "fp32", consume: bool = False) -> None:
        bricks = _Bricks(precision)
        self.config = bilm.config
        self.vocabulary = bilm.vocabulary
        self.precision: Precision = precision
        self.boundaries = bilm.boundaries.cpu()
        bilm = bilm.cpu()
        with torch.no_grad():
            self.words = _pack_words(bilm, bricks, consume)
            self.forward_layers = [_pack_layer(x, bricks, consume) for x in bilm.forward_layers]
            self.backward_layers = [_pack_layer(x, bricks, consume) for x in bilm.backward_layers]

    def encode_words(self, ids: Tensor) -> Tensor:
        """Give the context-free vectors of words; see `BiLMBase.encode_words`."""
        return self.words(ids)

    def layers_of(self, direction: int) -> Sequence[PackedLayer]:
        """Give the recurrent layers of one direction."""
        return (self.forward_layers, self.backward_layers)[direction]

    def to_checkpoint(self) -> Checkpoint:
        """Give the weights back as they were, in the form that can be saved."""
        if self.precision != "fp32":
            raise WeightsError(
                f"the weights were rounded to {self.precision} when they were loaded and cannot be "
                "saved; load the model with precision='fp32' to save or move it"
            )
        tensors = _named("words", self.words.tensors())
        for name, layers in (
            ("forward_layers", self.forward_layers),
            ("backward_layers", self.backward_layers),
        ):
            for number, layer in enumerate(layers):
                tensors |= _named(f"{name}.{number}", layer.tensors())
        return Checkpoint(config=self.config, tensors=tensors, vocabulary=self.vocabulary)


class PackedWordEncoder:
    """The vectors of a model that reads words.

    Args:
        encoder: The plain encoder.
        consume: Take the plain encoder's table instead of copying it.
    """

    def __init__(self, encoder: WordEncoder, consume: bool) -> None:
        table = encoder.embedding.weight.detach()
        self._table = table if consume else table.clone()
        _release(encoder, consume)

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
    that a window costs as many row additions as it is wide.

    Args:
        encoder: The plain encoder.
        config: Sizes.
        bricks: How to prepare products.
        consume: Free the plain encoder's weights on the way.
    """

    def __init__(
        self, encoder: CharacterEncoder, config: ElmoConfig, bricks: _Bricks, consume: bool
    ) -> None:
        self._config = config
        self._dtype = bricks.dtype
        self._activation = {"relu": torch.relu_, "tanh": torch.tanh_}[config.activation]
        self._small = {  # kept to be given back; a megabyte
            name: tensor.detach().clone()
            for name, tensor in encoder.state_dict().items()
            if name.startswith(("embedding", "convolutions"))
        }
        self._widest = max(width for width, _ in config.filters)
        biases = [self._small[f"convolutions.{i}.bias"] for i in range(len(config.filters))]
        self._bias = torch.cat(biases)
        self._offsets = torch.arange(self._widest) * N_CHARACTERS
        self._table = _window_table(encoder, self._widest)
        self._impossible = _impossible_windows(config)
        self._highways: list[FrozenLinear] = []
        self._highway_bias: list[Tensor] = []
        for highway in encoder.highways:
            assert isinstance(highway, Highway)
            weight = torch.cat([highway.transform.weight, -highway.gate.weight])
            bias = torch.cat([highway.transform.bias, -highway.gate.bias]).detach()
            self._highways.append(bricks.linear(weight, bias))
            self._highway_bias.append(bias)
            _release(highway, consume)
        self._projection: FrozenLinear | None = None
        if isinstance(encoder.projection, nn.Linear):
            self._projection_bias = encoder.projection.bias.detach().clone()
            self._projection = bricks.linear(encoder.projection.weight, self._projection_bias)
        _release(encoder, consume)

    def __call__(self, ids: Tensor) -> Tensor:
        """Give the vectors `(n, projection_dim)` of words spelt as `(n, max_characters)`."""
        vectors = torch.empty(len(ids), self._config.projection_dim)
        places = torch.arange(1, ids.shape[1] + 1)
        characters = torch.where(ids != PADDING_CHARACTER, places, 0).amax(dim=1)
        for group, windows in self._groups(characters):
            vectors[group] = self._project(self._filter(ids[group], windows))
        return vectors

    def tensors(self) -> Tensors:
        """Give the weights back under the plain encoder's names."""
        tensors = dict(self._small)
        for k, (linear, bias) in enumerate(zip(self._highways, self._highway_bias, strict=True)):
            for name, sign, weights, biases in zip(
                ("transform", "gate"), (1, -1), linear.weight().chunk(2), bias.chunk(2), strict=True
            ):
                tensors[f"highways.{k}.{name}.weight"] = sign * weights
                tensors[f"highways.{k}.{name}.bias"] = sign * biases
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
        limit = max(1, _SLICE_BYTES // (4 * self._config.n_filters))
        order = torch.argsort(characters, stable=True)
        lengths = characters[order].tolist()
        start = 0
        for end in range(1, len(lengths) + 1):
            last = end == len(lengths)
            if last or (end + 1 - start) * self._n_windows(lengths[end]) > limit:
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
        rows = characters.unfold(1, self._widest, 1).reshape(-1, self._widest) + self._offsets
        responses = F.embedding_bag(rows, self._table, mode="sum").view(len(ids), windows, -1)
        if windows == self._config.max_characters:
            responses.masked_fill_(self._impossible, -torch.inf)
        return self._activation(responses.amax(dim=1).add_(self._bias))

    def _project(self, vectors: Tensor) -> Tensor:
        """Run highways and projection on `(n, n_filters)`; returns `(n, projection_dim)`."""
        for highway in self._highways:
            transform, gate = highway(vectors.to(self._dtype)).float().chunk(2, dim=1)
            vectors = torch.lerp(vectors, transform.relu_(), _falling_logistic_(gate))
        if self._projection is None:
            return vectors
        return self._projection(vectors.to(self._dtype)).float()


def _window_table(encoder: CharacterEncoder, widest: int) -> Tensor:
    """Tabulate each filter's response to each character at each offset of a window.

    Returns:
        Shape `(widest * N_CHARACTERS, n_filters)`, zero at offsets beyond a filter's width.
    """
    characters = encoder.embedding.weight.detach().double()
    tables = []
    for convolution in encoder.convolutions:
        assert isinstance(convolution, nn.Conv1d)
        weight = convolution.weight.detach().double()  # (number, char_dim, width)
        table = torch.einsum("cd,fdo->ocf", characters, weight)
        tables.append(F.pad(table, (0, 0, 0, 0, 0, widest - table.shape[0])))
    return torch.cat(tables, dim=2).float().reshape(widest * N_CHARACTERS, -1).contiguous()


def _impossible_windows(config: ElmoConfig) -> Tensor:
    """True where a filter would reach beyond a word's row, `(max_characters, n_filters)`."""
    widths = torch.cat([torch.full((number,), width) for width, number in config.filters])
    return torch.arange(config.max_characters)[:, None] + widths > config.max_characters


class PackedLayer:
    """One direction of one recurrent layer, for inference.

    Args:
        layer: The plain layer.
        bricks: How to prepare products.
        consume: Free the plain layer's weights on the way.
    """

    gate_order: tuple[int, ...]
    """Blocks of the plain weights in the order in which this cell wants them."""
    gate_scales: tuple[float, ...]
    """Factors of the blocks in that order: powers of two, so that nothing is rounded.

    -1 turns a sigmoid and -2 a tanh into `_falling_logistic_`.
    """
    output_scale: float = 1.0
    """Factor of the projection."""

    def __init__(self, layer: RecurrentLayer, bricks: _Bricks, consume: bool) -> None:
        self._dtype = bricks.dtype
        self._cell_clip, self._proj_clip = layer.cell_clip, layer.proj_clip
        self._small = {
            name: tensor.detach().clone()
            for name, tensor in layer.named_parameters()
            if name.endswith("bias")
        }
        self._input = bricks.linear(
            self._reorder(layer.input_weight), self._reorder(layer.gate_bias())
        )
        self._recurrent = bricks.linear(self._reorder(layer.recurrent_weight))
        self._projection: FrozenLinear | None = None
        if layer.projection_weight is not None:
            self._projection = bricks.linear(self.output_scale * layer.projection_weight)
        self._gates_dim = layer.input_weight.shape[0]
        _release(layer, consume)

    def tensors(self) -> Tensors:
        """Give the weights back under the plain layer's names."""
        tensors = dict(self._small)
        tensors["input_weight"] = self._restore(self._input.weight())
        tensors["recurrent_weight"] = self._restore(self._recurrent.weight())
        if self._projection is not None:
            tensors["projection_weight"] = self._projection.weight() / self.output_scale
        return tensors

    def __call__(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int], state: LayerState
    ) -> tuple[Tensor, LayerState]:
        """Run over a packed batch; see `RecurrentLayer.forward`."""
        hidden = state.hidden.to(self._dtype, copy=True)
        memory = state.memory.to(torch.float32, copy=True)
        outputs = torch.empty(sum(batch_sizes), hidden.shape[1])
        start = 0
        for products, sizes in self._input_products(inputs, index, batch_sizes):
            for step in torch.split(products, sizes):
                rows = step.shape[0]
                # Rows beyond are sentences that have ended: their state stays as it is.
                new = self._step(step, hidden[:rows], memory[:rows])
                hidden[:rows] = new
                outputs[start : start + rows] = new
                start += rows
        return outputs, LayerState(hidden, memory)

    def _input_products(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int]
    ) -> Iterator[tuple[Tensor, list[int]]]:
        """Multiply the inputs, a slice of time steps at a time.

        Yields:
            Products `(rows of the slice, gates * dim)`, and the rows of each time step in it.
        """
        row_bytes = 4 * self._gates_dim
        table = None
        if (
            index is not None
            and len(inputs) < len(index)
            and len(inputs) * row_bytes <= _TABLE_BYTES
        ):
            table = self._input(inputs.to(self._dtype))
        start = 0
        for sizes in _slices(batch_sizes, _SLICE_BYTES // row_bytes):
            end = start + sum(sizes)
            if table is not None and index is not None:
                yield table.index_select(0, index[start:end]), sizes
            else:
                rows = inputs[start:end] if index is None else inputs[index[start:end]]
                yield self._input(rows.to(self._dtype)), sizes
            start = end

    def _step(self, inputs: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        """Take one time step, updating `memory` in place; returns the new hidden state."""
        raise NotImplementedError

    def _project(self, cells: Tensor) -> Tensor:
        cells = cells.to(self._dtype)
        if self._projection is None:
            return cells * self.output_scale
        projected = self._projection(cells)
        return (
            projected
            if self._proj_clip is None
            else projected.clamp_(-self._proj_clip, self._proj_clip)
        )

    def _clip_(self, memory: Tensor) -> None:
        if self._cell_clip is not None:
            memory.clamp_(-self._cell_clip, self._cell_clip)

    def _reorder(self, rows: Tensor) -> Tensor:
        """Order and scale blocks of plain weights for this cell."""
        blocks = rows.chunk(len(self.gate_order))
        places = zip(self.gate_order, self.gate_scales, strict=True)
        return torch.cat([scale * blocks[place] for place, scale in places])

    def _restore(self, rows: Tensor) -> Tensor:
        """Undo `_reorder`, bit for bit."""
        blocks = rows.chunk(len(self.gate_order))
        places = [self.gate_order.index(n) for n in range(len(self.gate_order))]
        return torch.cat([blocks[place] / self.gate_scales[place] for place in places])


class PackedLSTM(PackedLayer):
    """`LSTMLayer` for inference.

    tanh(x) = 2 (s - 1/2) with s = 1 / (1 + exp(-2 x)): the factor 2 of the candidate is in the sum
    below, that of the output in the projection.
    """

    gate_order = (0, 1, 2, 3)  # i, f, g, o
    gate_scales = (-1, -1, -2, -1)
    output_scale = 2

    def _step(self, inputs: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        gates = _falling_logistic_(self._recurrent(hidden).add_(inputs).float())
        i, f, g, o = gates.chunk(4, dim=1)
        memory.mul_(f).addcmul_(i, g.sub_(0.5), value=2)
        self._clip_(memory)
        return self._project(_falling_logistic_(memory * -2).sub_(0.5).mul_(o))


class PackedGRU(PackedLayer):
    """`GRULayer` for inference; for tanh see `PackedLSTM`."""

    gate_order = (0, 1, 2)  # r, z, n
    gate_scales = (-1, -1, -2)

    def _step(self, inputs: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        dim = memory.shape[1]
        recurrent = self._recurrent(hidden).float()
        inputs = inputs.float()
        gates = _falling_logistic_(inputs[:, : 2 * dim] + recurrent[:, : 2 * dim])
        r, z = gates.chunk(2, dim=1)
        candidate = recurrent[:, 2 * dim :].sub_(2 * self._small["candidate_bias"]).mul_(r)
        candidate = _falling_logistic_(candidate.add_(inputs[:, 2 * dim :])).mul_(2).sub_(1)
        memory.copy_(torch.lerp(candidate, memory, z))
        self._clip_(memory)
        return self._project(memory)


def _falling_logistic_(values: Tensor) -> Tensor:
    """Put 1 / (1 + exp(x)) = sigmoid(-x) in the place of x."""
    return values.exp_().add_(1).reciprocal_()


def _pack_words(
    bilm: BiLM, bricks: _Bricks, consume: bool
) -> PackedCharacterEncoder | PackedWordEncoder:
    if isinstance(bilm.words, CharacterEncoder):
        return PackedCharacterEncoder(bilm.words, bilm.config, bricks, consume)
    assert isinstance(bilm.words, WordEncoder)
    return PackedWordEncoder(bilm.words, consume)


def _pack_layer(layer: nn.Module, bricks: _Bricks, consume: bool) -> PackedLayer:
    if isinstance(layer, LSTMLayer):
        return PackedLSTM(layer, bricks, consume)
    assert isinstance(layer, GRULayer)
    return PackedGRU(layer, bricks, consume)


def _slices(batch_sizes: Sequence[int], max_rows: int) -> Iterator[list[int]]:
    """Cut time steps into runs of at most `max_rows` rows, but at least one step."""
    run: list[int] = []
    rows = 0
    for size in batch_sizes:
        if run and rows + size > max_rows:
            yield run
            run, rows = [], 0
        run.append(size)
        rows += size
    if run:
        yield run


def _release(module: nn.Module, consume: bool) -> None:
    """Free a module's weights."""
    if consume:
        module.to("meta")


def _named(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}

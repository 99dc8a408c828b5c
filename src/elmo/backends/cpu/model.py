"""The biLM for inference on a CPU: the numbers of `BiLM`, several times faster.

What is different from the plain layers, and why it is fast:

* weights are laid out once for a kernel of our own or for oneDNN (`products.py`), and with the
  former all time steps of a layer are one call (`NativeLSTM`);
* the convolution over characters is a sum of rows of a table (`characters.py`);
* words are cropped behind their last character, where all further windows are alike;
* the input product of the first layer runs once for each distinct word;
* input products run in slices of a few megabytes, which the allocator reuses: fresh large buffers
  cost a third of the product in page faults; or, with many rows, in the layer, one unit of cells
  after another, and are never in memory at all;
* cells are updated in place, and sigmoid and tanh are made of exp: PyTorch's tanh is slow, and its
  sigmoid rounds differently at the end of a thread's share than inside it.

In float32 no result depends on what else is in the batch, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from elmo.backends.base import Backend
from elmo.backends.cpu.characters import CPUCharacterEncoder, CPUWordEncoder, falling_logistic_
from elmo.backends.cpu.native import (
    FLOAT_INPUTS,
    LSTMKernel,
    NativeLinear,
    ReadingKernel,
    empty_rows,
    interleaved,
    kernel_threads,
    present_kernel,
)
from elmo.backends.cpu.products import FrozenLinear, LinearFactory, fit_halves
from elmo.model.bilm import BiLM, State, Tensors, step_runs, zero_state
from elmo.model.cells import Cell, LayerState
from elmo.model.layers import CharacterEncoder, WordEncoder
from elmo.settings import Precision
from elmo.text.characters import checked_ids

_SLICE_BYTES = 16 << 20
"""Size of a buffer for input products. glibc keeps freed blocks below 32 MB."""
_WIDE_ROWS, _WIDE_ROWS_OF_LARGE = 32, 48
"""With so many rows in a time step, the kernel multiplies inputs as it goes: that reads the weight
again for each step, but no products have to be written and read."""
_LARGE_LAYER = 48 << 20
"""Bytes of weights from which a layer is large: they come from memory for each step."""
_TABLE_BYTES = 96 << 20
"""Up to this size, the first layer's input products of all distinct words are kept together."""


class CPUBackend(Backend):
    """A biLM frozen for inference on a CPU.

    Args:
        bilm: The model; it shares no memory with this one.
        precision: In which numbers weights are kept and multiplied; cells are always float32.
        consume: Free the model's weights one by one while they are laid out, so that the two are
            never in memory together. The model cannot be used afterwards.
    """

    cells = ("lstm", "gru")

    def __init__(self, bilm: BiLM, precision: Precision = "fp32", consume: bool = False) -> None:
        super().__init__(bilm, precision, torch.device("cpu"))
        weights = (parameter.detach() for parameter in bilm.parameters() if parameter.dim() == 2)
        factory = LinearFactory(
            precision, halves_suffice=precision == "fp32" and fit_halves(weights)
        )
        self._is_native = factory.format is not None
        bilm = bilm.cpu()
        self.words: CPUCharacterEncoder | CPUWordEncoder
        with torch.no_grad():
            if isinstance(bilm.words, WordEncoder):
                self.words = CPUWordEncoder(bilm.words, consume)
            else:
                assert isinstance(bilm.words, CharacterEncoder)
                self.words = CPUCharacterEncoder(bilm.words, bilm.config, factory, consume)
            self.forward_layers, self.backward_layers = (
                [_build_layer(self.config.cell, layer, factory, consume) for layer in layers]
                for layers in (bilm.forward_layers, bilm.backward_layers)
            )
        self._at_once: ReadingKernel | None = None
        """Reads a few sentences in one call, if all layers are native."""
        forward, backward = (
            [layer.kernel for layer in layers if isinstance(layer, NativeLSTM)]
            for layers in (self.forward_layers, self.backward_layers)
        )
        if len(forward) == len(backward) == self.config.n_layers:
            self._at_once = ReadingKernel(forward, backward, self.config.skip_connections)

    def computing(self) -> AbstractContextManager[None]:
        """Lend PyTorch's threads to the kernel; see `kernel_threads`."""
        return kernel_threads() if self._is_native else nullcontext()

    def encode_words(self, ids: Tensor) -> Tensor:
        """Encode words without their context; see `BiLMBase.encode_words`."""
        with self.computing():
            return self.words(checked_ids(ids))

    def contextualize(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        state: State | None = None,
        depth: int | None = None,
    ) -> tuple[list[Tensor], State]:
        """Read a batch of sentences in both directions; see `BiLMBase.contextualize`."""
        with self.computing():
            n_rows = max(len(vectors), len(tokens)) if lengths else 0
            if self._at_once is None or not 0 < n_rows <= self._at_once.max_rows:
                return super().contextualize(vectors, tokens, lengths, state, depth)
            depth = self.config.n_layers if depth is None else depth
            start = zero_state(self.config, len(lengths), vectors) if state is None else state
            final = State(*(part.to(torch.float32, copy=True).contiguous() for part in start))
            for part in final:
                part[depth:] = 0
            hidden, memory = (part[:depth] for part in final)
            return list(self._at_once(vectors, tokens, lengths, hidden, memory)), final

    def layers_of(self, direction: int) -> Sequence[CPULayer]:
        """Return the recurrent layers of one direction."""
        return (self.forward_layers, self.backward_layers)[direction]

    def tensors(self) -> Tensors:
        """Return the weights; see `Backend.tensors`."""
        parts = {"words": self.words.tensors()}
        for side in ("forward_layers", "backward_layers"):
            for number, layer in enumerate(getattr(self, side)):
                parts[f"{side}.{number}"] = layer.tensors()
        return {
            f"{part}.{name}": t for part, tensors in parts.items() for name, t in tensors.items()
        }


class CPULayer:
    """One direction of one recurrent layer, for inference.

    Args:
        layer: The plain layer.
        factory: Prepares products.
        consume: Free the plain layer's weights.
    """

    gate_scales: tuple[float, ...]
    """Factors of the gates' blocks of rows: powers of two, so that nothing is rounded.

    -1 turns a sigmoid and -2 a tanh into `falling_logistic_`.
    """
    output_scale: float = 1.0
    """Factor of the projection."""

    def __init__(self, layer: Cell, factory: LinearFactory, consume: bool) -> None:
        self._dtype = factory.dtype
        self._cell_clip, self._proj_clip = layer.cell_clip, layer.proj_clip
        self._biases = {
            name: tensor.detach().clone()
            for name, tensor in layer.named_parameters()
            if name.endswith("bias")
        }
        input_weight = self._reorder(layer.input_weight)
        bias = self._reorder(layer.gate_bias())
        self._input = factory.linear(input_weight, bias)
        self._recurrent = factory.linear(self._reorder(layer.recurrent_weight))
        self._projection: FrozenLinear | None = None
        if layer.projection_weight is not None:
            self._projection = factory.linear(self.output_scale * layer.projection_weight)
        self._gates_dim = len(bias)
        if consume:
            layer.to("meta")

    def tensors(self) -> Tensors:
        """Return the weights by the names of the plain layer."""
        tensors = dict(self._biases)
        tensors["input_weight"] = self._restore(self._input.weight())
        tensors["recurrent_weight"] = self._restore(self._recurrent.weight())
        if self._projection is not None:
            tensors["projection_weight"] = self._projection.weight() / self.output_scale
        return tensors

    def __call__(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int], state: LayerState
    ) -> tuple[Tensor, LayerState]:
        """Run over a packed batch; see `run_packed`."""
        hidden = state.hidden.to(self._dtype, copy=True)
        memory = state.memory.to(torch.float32, copy=True)
        outputs = torch.empty(sum(batch_sizes), hidden.shape[1])
        start = 0
        for products, places, sizes in self._input_rows(inputs, index, batch_sizes):
            given = products if places is None else products.index_select(0, places)
            for step in torch.split(given, sizes):
                rows = step.shape[0]
                # Rows beyond are sentences that have ended: their state stays as it is.
                new = self._step(step, hidden[:rows], memory[:rows])
                hidden[:rows] = new
                outputs[start : start + rows] = new
                start += rows
        return outputs, LayerState(hidden, memory)

    def _input_rows(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int]
    ) -> Iterator[tuple[Tensor, Tensor | None, list[int]]]:
        """Multiply the inputs, a slice of time steps at a time, or all distinct ones together.

        Yields:
            Products `(m, gates * dim)`; which of them belongs to each row of the slice, `(rows,)`,
            or None if they are in order; and the rows of each time step in the slice.
        """
        table = self._input_product(inputs) if self._keeps_all_products(inputs, index) else None
        start = 0
        for sizes in step_runs(batch_sizes, _SLICE_BYTES // (4 * self._gates_dim)):
            end = start + sum(sizes)
            if table is not None and index is not None:
                yield table, index[start:end], sizes
            else:
                rows = inputs[start:end] if index is None else inputs[index[start:end]]
                yield self._input_product(rows), None, sizes
            start = end

    def _keeps_all_products(self, inputs: Tensor, index: Tensor | None) -> bool:
        """Return whether all inputs are multiplied first, each once for many places."""
        n_bytes = len(inputs) * 4 * self._gates_dim
        return index is not None and len(inputs) < len(index) and n_bytes <= _TABLE_BYTES

    def _input_product(self, rows: Tensor) -> Tensor:
        """Multiply rows `(m, input)` of inputs: `(m, gates * dim)`, used before the next ones."""
        return self._input(rows.to(self._dtype))

    def _step(self, inputs: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        """Take one time step, updating `memory` in place; returns the new hidden state."""
        raise NotImplementedError

    def _project(self, cells: Tensor) -> Tensor:
        """Project and clip cells `(rows, dim)`; returns the new hidden state `(rows, width)`."""
        cells = cells.to(self._dtype)
        if self._projection is None:
            return cells * self.output_scale
        projected = self._projection(cells)
        if self._proj_clip is not None:
            projected.clamp_(-self._proj_clip, self._proj_clip)
        return projected

    def _clip_(self, memory: Tensor) -> None:
        if self._cell_clip is not None:
            memory.clamp_(-self._cell_clip, self._cell_clip)

    def _reorder(self, rows: Tensor) -> Tensor:
        """Scale, or order, the rows of plain weights for this cell."""
        blocks = rows.chunk(len(self.gate_scales))
        return torch.cat([s * block for s, block in zip(self.gate_scales, blocks, strict=True)])

    def _restore(self, rows: Tensor) -> Tensor:
        """Undo `_reorder`, bit for bit."""
        blocks = rows.chunk(len(self.gate_scales))
        return torch.cat([block / s for s, block in zip(self.gate_scales, blocks, strict=True)])


class TorchLSTM(CPULayer):
    """`LSTM` for inference in PyTorch, step by step.

    tanh(x) = 2 (s - 1/2) with s = 1 / (1 + exp(-2 x)): the factor 2 of the candidate is in the sum
    below, that of the output in the projection.
    """

    gate_scales = (-1, -1, -2, -1)  # i, f, g, o
    output_scale = 2

    def _step(self, inputs: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        gates = falling_logistic_(self._recurrent(hidden).add_(inputs).float())
        i, f, g, o = gates.chunk(4, dim=1)
        memory.mul_(f).addcmul_(i, g.sub_(0.5), value=2)
        self._clip_(memory)
        return self._project(falling_logistic_(memory * -2).sub_(0.5).mul_(o))


class NativeLSTM(CPULayer):
    """`LSTM` for inference by the kernel, all time steps in one call.

    Args:
        layer: The plain layer; without a projection, only for formats that do not round cells.
        factory: Prepares products.
        consume: Free the plain layer's weights.
    """

    def __init__(self, layer: Cell, factory: LinearFactory, consume: bool) -> None:
        self._dim = layer.recurrent_weight.shape[0] // 4
        self._places = interleaved(self._dim, 4, present_kernel().elmo_unit_cells())
        super().__init__(layer, factory, consume)
        input, recurrent, projection = self._input, self._recurrent, self._projection
        assert isinstance(input, NativeLinear)
        assert isinstance(recurrent, NativeLinear)
        assert isinstance(projection, NativeLinear | None)
        products = (input, recurrent, projection)
        n_bytes = sum(product.n_bytes for product in products if product is not None)
        self._is_large = n_bytes >= _LARGE_LAYER
        self.kernel = LSTMKernel(input, recurrent, projection, self._cell_clip, self._proj_clip)

    def __call__(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int], state: LayerState
    ) -> tuple[Tensor, LayerState]:
        """Run over a packed batch; see `run_packed`."""
        hidden = state.hidden.to(torch.float32, copy=True).contiguous()
        memory = empty_rows(len(hidden), self.kernel.cells)
        memory[:, : self._dim] = state.memory
        memory[:, self._dim :] = 0
        outputs = torch.empty(sum(batch_sizes), hidden.shape[1])
        start = 0
        for part, places, multiplied, sizes in self._parts(inputs.contiguous(), index, batch_sizes):
            end = start + sum(sizes)
            self.kernel(part, places, multiplied, sizes, hidden, memory, outputs[start:end])
            start = end
        return outputs, LayerState(hidden, memory[:, : self._dim])

    def _parts(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int]
    ) -> Iterator[tuple[Tensor, Tensor | None, bool, Sequence[int]]]:
        """Yield what `LSTMKernel` reads of some time steps, multiplied or not as is fastest."""
        start, n_wide = 0, 0
        if not self._keeps_all_products(inputs, index):
            wide = _WIDE_ROWS_OF_LARGE if self._is_large else _WIDE_ROWS
            n_wide = sum(size >= wide for size in batch_sizes)  # sizes never grow: the first ones
        if n_wide:
            start = sum(batch_sizes[:n_wide])
            places = None if index is None else index[:start]
            yield inputs, places, False, batch_sizes[:n_wide]
        if index is None:
            inputs = inputs[start:]
        else:
            index = index[start:]
        for products, rows, sizes in self._input_rows(inputs, index, batch_sizes[n_wide:]):
            yield products, rows, True, sizes

    def _input_product(self, rows: Tensor) -> Tensor:
        assert isinstance(self._input, NativeLinear)
        return self._input.multiply_briefly(rows)

    def _reorder(self, rows: Tensor) -> Tensor:
        padded = torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])  # for what fills a unit
        return padded[self._places]

    def _restore(self, rows: Tensor) -> Tensor:
        restored = rows.new_empty(4 * self._dim + 1, *rows.shape[1:])
        restored[self._places] = rows
        return restored[:-1]


class TorchGRU(CPULayer):
    """`GRU` for inference in PyTorch, step by step; for tanh see `TorchLSTM`."""

    gate_scales = (-1, -1, -2)  # r, z, n

    def _step(self, inputs: Tensor, hidden: Tensor, memory: Tensor) -> Tensor:
        dim = memory.shape[1]
        recurrent = self._recurrent(hidden).float()
        inputs = inputs.float()
        gates = falling_logistic_(inputs[:, : 2 * dim] + recurrent[:, : 2 * dim])
        r, z = gates.chunk(2, dim=1)
        candidate = recurrent[:, 2 * dim :].sub_(2 * self._biases["candidate_bias"]).mul_(r)
        candidate = falling_logistic_(candidate.add_(inputs[:, 2 * dim :])).mul_(2).sub_(1)
        memory.copy_(torch.lerp(candidate, memory, z))
        self._clip_(memory)
        return self._project(memory)


def _build_layer(cell: str, layer: nn.Module, factory: LinearFactory, consume: bool) -> CPULayer:
    """Prepare a layer in the fastest way that there is for it."""
    assert isinstance(layer, Cell)
    if cell == "gru":
        return TorchGRU(layer, factory, consume)
    native = factory.format is not None and (
        layer.projection_weight is not None or factory.format in FLOAT_INPUTS
    )
    return (NativeLSTM if native else TorchLSTM)(layer, factory, consume)

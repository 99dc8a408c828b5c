"""Both directions of one layer for inference on a GPU: input products, buffers, loop over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo.backends.gpu.kernels.inference_cell import Target, lstm_cell, store_step
from elmo.backends.gpu.kernels.inference_row import cell_of_one_row, project_one_row
from elmo.config import ElmoConfig
from elmo.model.bilm import State, Tensors, step_runs
from elmo.model.cells import Cell

_SLICE_BYTES = 1 << 30
"""Size of the buffer for input products of upper layers."""
_TABLE_BYTES = 4 << 30
"""Up to this size, the first layer's input products of all distinct words are kept together."""


class FusedLayer:
    """Both directions of one layer.

    Args:
        sides: The plain layers, forward and backward; they are emptied.
        config: Sizes and clips.
        dtype: Type of the products.
        device: Where to compute.
        compiled: Whether to run Triton kernels.
    """

    def __init__(
        self,
        sides: tuple[Cell, Cell],
        config: ElmoConfig,
        dtype: torch.dtype,
        device: torch.device,
        compiled: bool,
    ) -> None:
        def stack(weights: list[Tensor]) -> Tensor:
            return torch.stack(weights).detach().to(device, dtype)

        self._config = config
        self._compiled = compiled
        self._bias = [side.bias.detach().cpu().clone() for side in sides]
        self._input = stack([side.input_weight for side in sides])
        self._input_bias = stack([side.gate_bias() for side in sides])
        # `bmm` multiplies with weights on the right: transposed views, memory stays as it was.
        self._recurrent = stack([side.recurrent_weight for side in sides]).transpose(1, 2)
        """Shape `(2, projection_dim, 4 * dim)`."""
        self._projection: Tensor | None = None
        """Shape `(2, dim, projection_dim)`."""
        weights = [s.projection_weight for s in sides if s.projection_weight is not None]
        if weights:
            self._projection = stack([*weights]).transpose(1, 2)
        for side in sides:
            side.to("meta")

    def tensors(self, direction: int) -> Tensors:
        """Return the weights of one direction by the names of the plain layer."""
        tensors = {
            "bias": self._bias[direction],
            "input_weight": self._input[direction],
            "recurrent_weight": self._recurrent[direction].T,
        }
        if self._projection is not None:
            tensors["projection_weight"] = self._projection[direction].T
        return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}

    def products_of_words(
        self, vectors: Tensor, words: Tensor, batch_sizes: Sequence[int], buffers: Buffers
    ) -> Iterator[Products]:
        """Multiply word vectors: each distinct one once, unless the products exceed their limit.

        Args:
            vectors: Vectors of the distinct words, `(m, projection_dim)`.
            words: Which of them is read at each place of the batch, int64 `(2, n)`.
            batch_sizes: Rows of each time step.
            buffers: Where products go that are not kept together.
        """
        m = len(vectors)
        if m <= words.shape[1] and m * buffers.product_bytes <= buffers.limits.table:
            table = vectors.new_empty(2, m, self._input.shape[1])
            for direction in range(2):
                self._multiply(direction, vectors, table[direction])
            yield Products(table, words, 0, batch_sizes)
            return
        yield from self._in_slices(lambda d, s: vectors[words[d, s]], batch_sizes, buffers)

    def products(
        self, inputs: Tensor, batch_sizes: Sequence[int], buffers: Buffers
    ) -> Iterator[Products]:
        """Multiply outputs of the layer below, `(2, n, projection_dim)` in the order of reading."""
        yield from self._in_slices(lambda d, s: inputs[d, s], batch_sizes, buffers)

    def read(
        self,
        products: Iterator[Products],
        places: Tensor,
        buffers: Buffers,
        below: Tensor | None,
        output: Tensor,
        above: Tensor | None,
        active: Tensor | None = None,
    ) -> None:
        """Run the layer over all time steps.

        Args:
            products: Its input products, some steps at a time.
            places: Which word stands at each place, reading forwards and backwards, int64 `(2, n)`.
            buffers: Holds the state of the layer, which becomes that of the end.
            below: Output of the layer below if it is added, `(n, 2 * projection_dim)`.
            output: Receives the output, `(n, 2 * projection_dim)`.
            above: Receives it in the order of reading, for the layer above,
                `(2, n, projection_dim)`.
            active: 1 for rows that have a word at a step, 0 for those whose sentence has ended,
                int32 `(steps, rows)`; None if ended rows are dropped.
        """
        # `place` is the batch's place of the step's first row, `number` the step.
        place, rows, number = 0, 0, 0
        target = Target(places, below, output, above)
        for part in products:
            for size in part.sizes:
                if size != rows:  # views are made only when sentences end: the host is the limit
                    rows, step = size, buffers.rows(size)
                # A single row is bound by reading weights, which its own kernels do faster.
                if size == 1 and self._compiled and self._projection is not None:
                    self._read_one(part, place, step, self._projection, target)
                else:
                    which = None if active is None else active[number]
                    self._read_rows(part, place, step, target, which)
                place += size
                number += 1

    def _read_rows(
        self, part: Products, place: int, step: _Step, target: Target, active: Tensor | None
    ) -> None:
        """Compute one time step of some rows, the first of which stands at `place`.

        Two products by cuBLAS and two kernels; `step` holds state and buffers, `(2, rows, width)`.
        """
        # (2, rows, width) x (2, width, 4 * dim): gates of both directions, into a buffer.
        torch.bmm(step.hidden, self._recurrent, out=step.recurrent)
        # Adds the input products of the step's words and updates memory and cells.
        lstm_cell(
            part.products,
            part.places,
            place - part.first,
            step.recurrent,
            step.memory,
            step.cells,
            self._config.cell_clip,
            self._compiled,
            active,
        )
        # Without a projection `projected` is `cells`, which is never clipped.
        clip = None
        if self._projection is not None:
            torch.bmm(step.cells, self._projection, out=step.projected)
            clip = self._config.proj_clip
        store_step(step.projected, target, place, step.hidden, clip, self._compiled, active)

    def _read_one(
        self, part: Products, place: int, step: _Step, projection: Tensor, target: Target
    ) -> None:
        """Compute one time step of a single row: two kernels, which multiply themselves."""
        cell_of_one_row(
            part.products,
            part.places,
            place - part.first,
            step.hidden,
            self._recurrent.transpose(1, 2),
            step.memory,
            step.cells,
            self._config.cell_clip,
            self._compiled,
        )
        project_one_row(
            step.cells,
            projection.transpose(1, 2),
            target,
            place,
            step.hidden,
            self._config.proj_clip,
            self._compiled,
        )

    def _in_slices(
        self,
        inputs_at: Callable[[int, slice], Tensor],
        batch_sizes: Sequence[int],
        buffers: Buffers,
    ) -> Iterator[Products]:
        """Multiply some time steps at a time, always into the same buffer."""
        place = 0
        for sizes in step_runs(batch_sizes, buffers.product_rows):
            end = place + sum(sizes)
            products = buffers.products[:, : end - place]
            for direction in range(2):
                self._multiply(
                    direction, inputs_at(direction, slice(place, end)), products[direction]
                )
            yield Products(products, None, place, sizes)
            place = end

    def _multiply(self, direction: int, inputs: Tensor, products: Tensor) -> None:
        """Write `inputs` `(n, projection_dim)` times the input weight to `products`."""
        bias, weight = self._input_bias[direction], self._input[direction]
        torch.addmm(bias, inputs, weight.T, out=products)


def product_bytes(config: ElmoConfig, dtype: torch.dtype) -> int:
    """Return the bytes of the input products of one place, both directions together."""
    return 2 * 4 * config.dim * dtype.itemsize


class ProductLimits(NamedTuple):
    """How many bytes input products may take; batches are limited by `Backend.limits`."""

    table: int
    """Those of all distinct words."""
    slice: int
    """Those of some time steps of an upper layer."""

    @classmethod
    def on(cls, device: torch.device) -> ProductLimits:
        """Return the limits for a device: a small part of a GPU's memory."""
        if device.type != "cuda":
            return cls(_TABLE_BYTES, _SLICE_BYTES)
        memory = torch.cuda.get_device_properties(device).total_memory
        return cls(min(_TABLE_BYTES, memory // 16), min(_SLICE_BYTES, memory // 32))


class Products(NamedTuple):
    """Input products of some time steps."""

    products: Tensor
    """Shape `(2, m, 4 * dim)`."""
    places: Tensor | None
    """Which of them stands at each place of the batch, int64 `(2, n)`; None: the next one."""
    first: int
    """The place of the first, where `places` is None."""
    sizes: Sequence[int]
    """Rows of each of the time steps."""


class _Step(NamedTuple):
    """Buffers of one time step; shapes are `(2, rows, width)`."""

    hidden: Tensor
    memory: Tensor
    recurrent: Tensor
    cells: Tensor
    projected: Tensor


class Buffers:
    """Memory of a pass over a batch, made once.

    Args:
        config: Sizes.
        batch_sizes: Rows of each time step.
        dtype: Type of the products.
        device: Where to compute.
        limits: How much memory input products may take.
    """

    def __init__(
        self,
        config: ElmoConfig,
        batch_sizes: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        limits: ProductLimits,
    ) -> None:
        self._config = config
        self._dtype = dtype
        self.limits = limits
        rows, n = batch_sizes[0], sum(batch_sizes)
        self.product_bytes = product_bytes(config, dtype)
        self.product_rows = min(n, max(rows, limits.slice // self.product_bytes))
        """Places whose input products are kept at a time."""
        self._device = device
        self._products: Tensor | None = None
        self.hidden = torch.empty(0)
        """Hidden state, `(2, rows, projection_dim)`."""
        self.memory = torch.empty(0)
        """Memory, float32 `(2, rows, dim)`."""
        self._recurrent = self._empty(2 * rows * 4 * config.dim)
        self._cells = self._empty(2 * rows * config.dim)
        self._projected = self._empty(2 * rows * config.projection_dim)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)

    @property
    def products(self) -> Tensor:
        """Buffer for the input products of some time steps, `(2, product_rows, 4 * dim)`."""
        if self._products is None:
            self._products = self._empty(2, self.product_rows, 4 * self._config.dim)
        return self._products

    def begin(self, start: State, layer: int, order: Tensor) -> None:
        """Set the state in which a layer starts."""
        self.hidden = start.hidden[layer].index_select(1, order).to(self._dtype)
        self.memory = start.memory[layer].index_select(1, order).float()

    def rows(self, rows: int) -> _Step:
        """Return the buffers of a step with so many rows."""
        dim, width = self._config.dim, self._config.projection_dim
        # A prefix of each buffer, so that a product's two directions lie without a gap. State is
        # sliced instead: rows that are dropped keep theirs.
        cells = self._cells[: 2 * rows * dim].view(2, rows, dim)
        projected = self._projected[: 2 * rows * width].view(2, rows, width)
        return _Step(
            hidden=self.hidden[:, :rows],
            memory=self.memory[:, :rows],
            recurrent=self._recurrent[: 2 * rows * 4 * dim].view(2, rows, 4 * dim),
            cells=cells,
            projected=projected if self._config.has_projection else cells,
        )

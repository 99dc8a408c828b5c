"""The elementwise parts of an LSTM step for inference, both directions at once.

cuBLAS multiplies; what lies between two products is one pass over memory here:

    gates  = input product of the word + product of the hidden state
    c      = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))
    cells  = sigmoid(o) * tanh(c)           then: projected = W_p cells, a product
    hidden = clip(projected)                and, with the residual, to its place in the output

Rows of a step are a prefix of those of the step before (`elmo.model.bilm.Packing`), or all rows
stay and those whose sentence has ended are masked. Both functions run as a Triton kernel or as
plain PyTorch, the reference; sums are in float32 in either case.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl

_MOST_COLUMNS = 1024
"""Columns of one program: 8 values for each thread of four warps."""


def lstm_cell(
    products: Tensor,
    index: Tensor | None,
    first: int,
    recurrent: Tensor,
    memory: Tensor,
    cells: Tensor,
    clip: float | None,
    compiled: bool,
    active: Tensor | None = None,
) -> None:
    """Compute one step: from products to memory and cells.

    Args:
        products: Input products with their bias, `(2, m, 4 * dim)` in the order i, f, g, o.
        index: Which of the m stands at each place of the batch, int64 `(2, n)`; None if they stand
            there already, one each.
        first: The place of the step's first row.
        recurrent: Products of the hidden state, `(2, rows, 4 * dim)`.
        memory: Memory before the step, float32 `(2, rows, dim)`; it becomes that after it.
        cells: Receives sigmoid(o) * tanh(c), `(2, rows, dim)`.
        clip: Bound of the memory.
        compiled: Whether to run the Triton kernel.
        active: 1 for rows that have a word at this step, 0 for those whose state stays as it is,
            int32 `(rows,)`; None if all have.
    """
    _, rows, dim = memory.shape
    if not compiled:
        inputs = _rows_of(products, index, first, rows)
        _plain_cell(inputs, recurrent, memory, cells, clip, active)
        return
    block = min(_MOST_COLUMNS, next_power_of_2(dim))
    _cell_kernel[(rows, blocks(dim, block), 2)](
        products,
        products if index is None else index,
        recurrent,
        memory,
        cells,
        recurrent if active is None else active,
        first,
        dim,
        products.stride(0),
        0 if index is None else index.stride(0),
        recurrent.stride(0),
        memory.stride(0),
        cells.stride(0),
        0.0 if clip is None else clip,
        INDEXED=index is not None,
        CLIPS=clip is not None,
        ENDS=active is not None,
        BLOCK=block,
    )


class Target(NamedTuple):
    """Where the outputs of a layer go."""

    places: Tensor
    """Which place of the output each place of the batch is, int64 `(2, n)`."""
    below: Tensor | None
    """The output of the layer below, which is added: float32 `(n, 2 * width)`; or None."""
    output: Tensor
    """Receives the output in the order of the words, float32 `(n, 2 * width)`."""
    reading: Tensor | None
    """Receives it in the order of reading, for the layer above, `(2, n, width)`; or None."""


def store_step(
    projected: Tensor,
    target: Target,
    first: int,
    hidden: Tensor,
    clip: float | None,
    compiled: bool,
    active: Tensor | None = None,
) -> None:
    """Clip projected cells, and write them wherever they are read next.

    Args:
        projected: Projected cells, `(2, rows, width)`.
        target: Where outputs go.
        first: The place of the step's first row.
        hidden: Receives the clipped values, for the next step, `(2, rows, width)`.
        clip: Bound of the projection.
        compiled: Whether to run the Triton kernel.
        active: See `lstm_cell`.
    """
    _, rows, width = hidden.shape
    places, below, output, reading = target
    if not compiled:
        chosen = slice(None) if active is None else active.nonzero()[:, 0]
        step = places[:, first : first + rows][:, chosen]
        _plain_store(projected[:, chosen], step, hidden, chosen, below, output, clip)
        if reading is not None:
            for direction, columns in enumerate(_columns(width)):
                rows_read = reading[direction, first : first + rows]
                rows_read[chosen] = output[step[direction], columns].to(reading.dtype)
        return
    block = min(_MOST_COLUMNS, next_power_of_2(width))
    _store_kernel[(rows, blocks(width, block), 2)](
        projected,
        places,
        hidden,
        output if below is None else below,
        output,
        hidden if reading is None else reading,
        projected if active is None else active,
        first,
        width,
        projected.stride(0),
        places.stride(0),
        hidden.stride(0),
        0 if reading is None else reading.stride(0),
        0.0 if clip is None else clip,
        ADDS=below is not None,
        READ_AGAIN=reading is not None,
        CLIPS=clip is not None,
        ENDS=active is not None,
        BLOCK=block,
    )


# --- plain PyTorch --------------------------------------------------------------------------------


def _rows_of(products: Tensor, index: Tensor | None, first: int, rows: int) -> Tensor:
    """Return the input products of one step, `(2, rows, 4 * dim)`."""
    if index is None:
        return products[:, first : first + rows]
    pairs = zip(products, index[:, first : first + rows], strict=True)
    return torch.stack([side.index_select(0, places) for side, places in pairs])


def _plain_cell(
    inputs: Tensor,
    recurrent: Tensor,
    memory: Tensor,
    cells: Tensor,
    clip: float | None,
    active: Tensor | None,
) -> None:
    """Compute `lstm_cell` from the input products of the step, `(2, rows, 4 * dim)`."""
    i, f, g, o = (inputs.float() + recurrent.float()).chunk(4, dim=2)
    new = (memory * f.sigmoid_()).addcmul_(i.sigmoid_(), g.tanh_())
    if clip is not None:
        new.clamp_(-clip, clip)
    memory.copy_(new if active is None else torch.where(active[:, None] != 0, new, memory))
    cells.copy_(memory.tanh().mul_(o.sigmoid_()))


def _plain_store(
    projected: Tensor,
    step: Tensor,
    hidden: Tensor,
    chosen: slice | Tensor,
    below: Tensor | None,
    output: Tensor,
    clip: float | None,
) -> None:
    """Write projected cells of some rows to `hidden` and to their places (`step`) in `output`."""
    values = projected.float()
    if clip is not None:
        values = values.clamp(-clip, clip)
    hidden[:, chosen] = values.to(hidden.dtype)
    for side, places, columns in zip(values, step, _columns(hidden.shape[2]), strict=True):
        output[places, columns] = side if below is None else side + below[places, columns]


def _columns(width: int) -> tuple[slice, slice]:
    """Return the columns of an output that belong to each direction."""
    return slice(0, width), slice(width, 2 * width)


# --- Triton ---------------------------------------------------------------------------------------


@jit
def update_cells(i, f, g, o, memory, cells, inside, clip, CLIPS: tl.constexpr) -> None:
    """Update the memory of some cells, and store sigmoid(o) tanh(c).

    `memory` and `cells` are addresses; i, f, g, o are float32 sums of products, all `(BLOCK,)`.
    """
    c = tl.sigmoid(f) * tl.load(memory, mask=inside) + tl.sigmoid(i) * (
        2 * tl.sigmoid(2 * g) - 1  # tanh, which Triton has for some devices only
    )
    if CLIPS:
        c = tl.minimum(tl.maximum(c, -clip), clip)
    tl.store(memory, c, mask=inside)
    value = tl.sigmoid(o) * (2 * tl.sigmoid(2 * c) - 1)
    tl.store(cells, value.to(cells.dtype.element_ty), mask=inside)


@jit
def store_values(
    value,
    hidden,
    below,
    output,
    reading,
    inside,
    clip,
    ADDS: tl.constexpr,
    READ_AGAIN: tl.constexpr,
    CLIPS: tl.constexpr,
) -> None:
    """Clip projected values `(BLOCK,)`, and store them at three addresses; see `store_step`."""
    if CLIPS:
        value = tl.minimum(tl.maximum(value, -clip), clip)
    # What recurs is the output before the residual; all others read it with the residual added.
    tl.store(hidden, value.to(hidden.dtype.element_ty), mask=inside)
    if ADDS:
        value += tl.load(below, mask=inside)
    tl.store(output, value, mask=inside)
    if READ_AGAIN:
        tl.store(reading, value.to(reading.dtype.element_ty), mask=inside)


@jit
def _cell_kernel(
    products,
    index,
    recurrent,
    memory,
    cells,
    active,
    first,
    dim,
    products_stride,
    index_stride,
    recurrent_stride,
    memory_stride,
    cells_stride,
    clip,
    INDEXED: tl.constexpr,
    CLIPS: tl.constexpr,
    ENDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Offsets are 64 bits wide: batches of a GPU have more than 2^31 values.
    row = tl.program_id(0).to(tl.int64)
    direction = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < dim
    if ENDS:
        inside = inside & (tl.load(active + row) != 0)
    # Products of distinct words are read by the number of the word at this place.
    place = first + row
    if INDEXED:
        place = tl.load(index + direction * index_stride + place)
    given = products + direction * products_stride + place * (4 * dim) + columns
    own = recurrent + direction * recurrent_stride + row * (4 * dim) + columns
    # Gates lie `dim` apart in a row of products.
    i = tl.load(given, mask=inside).to(tl.float32) + tl.load(own, mask=inside).to(tl.float32)
    given += dim
    own += dim
    f = tl.load(given, mask=inside).to(tl.float32) + tl.load(own, mask=inside).to(tl.float32)
    given += dim
    own += dim
    g = tl.load(given, mask=inside).to(tl.float32) + tl.load(own, mask=inside).to(tl.float32)
    given += dim
    own += dim
    o = tl.load(given, mask=inside).to(tl.float32) + tl.load(own, mask=inside).to(tl.float32)
    remembered = memory + direction * memory_stride + row * dim + columns
    target = cells + direction * cells_stride + row * dim + columns
    update_cells(i, f, g, o, remembered, target, inside, clip, CLIPS)


@jit
def _store_kernel(
    projected,
    places,
    hidden,
    below,
    output,
    reading,
    active,
    first,
    width,
    projected_stride,
    places_stride,
    hidden_stride,
    reading_stride,
    clip,
    ADDS: tl.constexpr,
    READ_AGAIN: tl.constexpr,
    CLIPS: tl.constexpr,
    ENDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    direction = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    if ENDS:
        inside = inside & (tl.load(active + row) != 0)
    source = projected + direction * projected_stride + row * width + columns
    value = tl.load(source, mask=inside).to(tl.float32)
    target = hidden + direction * hidden_stride + row * width + columns
    # To three places: the state of the next step, the output of this word in the order of the words
    # (its direction's half of the columns), and the input of the layer above in reading order.
    place = first + row
    final = tl.load(places + direction * places_stride + place) * (2 * width)
    final += direction * width + columns
    again = reading + direction * reading_stride + place * width + columns
    store_values(
        value, target, below + final, output + final, again, inside, clip, ADDS, READ_AGAIN, CLIPS
    )

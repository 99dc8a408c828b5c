"""An LSTM step of a single row for inference, both directions at once, products included.

The product of one row is bound by reading the weight, 34 MB for the gates of the original size.
cuBLAS, whose kernels are made for matrices, reads it at two fifths of the speed of an H200's
memory. Here each program reads some whole rows of the weight, which are contiguous, and computes
what follows the product: a step is two kernels instead of four.

Both functions run as a Triton kernel or as the plain product and the plain code of
`inference_cell.py`, the reference; sums are in float32.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl
from elmo.backends.gpu.kernels.inference_cell import (
    Target,
    lstm_cell,
    store_step,
    store_values,
    update_cells,
)

_CELLS, _CELL_WARPS = 2, 1
"""Cells of one program, with four rows of the weight for each, and its warps."""
_OUTPUTS, _OUTPUT_WARPS = 2, 4
"""Outputs of the projection of one program, and its warps."""
_MOST_CELL_INPUTS, _MOST_OUTPUT_INPUTS = 256, 2048
"""Inputs that a program multiplies at once; more of them one part after another."""


def cell_of_one_row(
    products: Tensor,
    index: Tensor | None,
    place: int,
    hidden: Tensor,
    weight: Tensor,
    memory: Tensor,
    cells: Tensor,
    clip: float | None,
    compiled: bool,
) -> None:
    """Compute one step of one row: from the hidden state to memory and cells.

    Args:
        products: Input products with their bias, `(2, m, 4 * dim)` in the order i, f, g, o.
        index: Which of the m stands at each place of the batch, int64 `(2, n)`; None if they stand
            there already, one each.
        place: The place of the row.
        hidden: Hidden state before the step, `(2, 1, width)`.
        weight: Hidden state -> gates, `(2, 4 * dim, width)`, contiguous.
        memory: Memory before the step, float32 `(2, 1, dim)`; it becomes that after it.
        cells: Receives sigmoid(o) * tanh(c), `(2, 1, dim)`.
        clip: Bound of the memory.
        compiled: Whether to run the Triton kernel.
    """
    if not compiled:
        recurrent = torch.bmm(hidden, weight.transpose(1, 2))
        lstm_cell(products, index, place, recurrent, memory, cells, clip, compiled)
        return
    dim, width = memory.shape[2], weight.shape[2]
    block = min(_CELLS, next_power_of_2(dim))
    _cell_kernel[(blocks(dim, block), 2)](
        products,
        products if index is None else index,
        hidden,
        weight,
        memory,
        cells,
        place,
        dim,
        width,
        products.stride(0),
        0 if index is None else index.stride(0),
        hidden.stride(0),
        memory.stride(0),
        cells.stride(0),
        0.0 if clip is None else clip,
        INDEXED=index is not None,
        CLIPS=clip is not None,
        BLOCK=block,
        PART=min(_MOST_CELL_INPUTS, next_power_of_2(width)),
        num_warps=_CELL_WARPS,
    )


def project_one_row(
    cells: Tensor,
    weight: Tensor,
    target: Target,
    place: int,
    hidden: Tensor,
    clip: float | None,
    compiled: bool,
) -> None:
    """Project the cells of one row, clip them, and write them wherever they are read next.

    Args:
        cells: Cells as `cell_of_one_row` wrote them, `(2, 1, dim)`.
        weight: Cells -> hidden state, `(2, width, dim)`, contiguous.
        target: Where outputs go.
        place: The place of the row.
        hidden: Receives the clipped values, for the next step, `(2, 1, width)`.
        clip: Bound of the projection.
        compiled: Whether to run the Triton kernel.
    """
    if not compiled:
        projected = torch.bmm(cells, weight.transpose(1, 2))
        store_step(projected, target, place, hidden, clip, compiled)
        return
    places, below, output, reading = target
    _, width, dim = weight.shape
    block = min(_OUTPUTS, next_power_of_2(width))
    _projection_kernel[(blocks(width, block), 2)](
        cells,
        weight,
        places,
        hidden,
        output if below is None else below,
        output,
        hidden if reading is None else reading,
        place,
        dim,
        width,
        cells.stride(0),
        places.stride(0),
        hidden.stride(0),
        0 if reading is None else reading.stride(0),
        0.0 if clip is None else clip,
        ADDS=below is not None,
        READ_AGAIN=reading is not None,
        CLIPS=clip is not None,
        BLOCK=block,
        PART=min(_MOST_OUTPUT_INPUTS, next_power_of_2(dim)),
        num_warps=_OUTPUT_WARPS,
    )


@jit
def _multiplied(inputs, weight, rows, inside, width, BLOCK: tl.constexpr, PART: tl.constexpr):
    """Multiply `width` inputs with some rows of a weight; returns float32 `(BLOCK,)`."""
    # Partial sums side by side, added up at the end: no thread waits for another in the loop.
    sums = tl.zeros((BLOCK, PART), tl.float32)
    for start in range(0, width, PART):
        k = start + tl.arange(0, PART)
        x = tl.load(inputs + k, mask=k < width, other=0.0).to(tl.float32)
        mask = inside[:, None] & (k < width)[None, :]
        w = tl.load(weight + rows[:, None] * width + k[None, :], mask=mask, other=0.0)
        sums += w.to(tl.float32) * x[None, :]
    return tl.sum(sums, axis=1)


@partial(jit, do_not_specialize=["place"])  # as it changes with every step
def _cell_kernel(
    products,
    index,
    hidden,
    weight,
    memory,
    cells,
    place,
    dim,
    width,
    products_stride,
    index_stride,
    hidden_stride,
    memory_stride,
    cells_stride,
    clip,
    INDEXED: tl.constexpr,
    CLIPS: tl.constexpr,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
):
    direction = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < dim
    inputs = hidden + direction * hidden_stride
    # Rows of the weight: gates one after another, `dim` rows each, and directions likewise. Every
    # program has all four gates of its cells, so that it can update them.
    rows = direction * (4 * dim) + columns
    i = _multiplied(inputs, weight, rows, inside, width, BLOCK, PART)
    f = _multiplied(inputs, weight, rows + dim, inside, width, BLOCK, PART)
    g = _multiplied(inputs, weight, rows + 2 * dim, inside, width, BLOCK, PART)
    o = _multiplied(inputs, weight, rows + 3 * dim, inside, width, BLOCK, PART)
    word = place.to(tl.int64)  # with a large batch, products have more than 2^31 values
    if INDEXED:
        word = tl.load(index + direction * index_stride + place)
    given = products + direction * products_stride + word * (4 * dim) + columns
    i += tl.load(given, mask=inside).to(tl.float32)
    f += tl.load(given + dim, mask=inside).to(tl.float32)
    g += tl.load(given + 2 * dim, mask=inside).to(tl.float32)
    o += tl.load(given + 3 * dim, mask=inside).to(tl.float32)
    remembered = memory + direction * memory_stride + columns
    target = cells + direction * cells_stride + columns
    update_cells(i, f, g, o, remembered, target, inside, clip, CLIPS)


@partial(jit, do_not_specialize=["place"])
def _projection_kernel(
    cells,
    weight,
    places,
    hidden,
    below,
    output,
    reading,
    place,
    dim,
    width,
    cells_stride,
    places_stride,
    hidden_stride,
    reading_stride,
    clip,
    ADDS: tl.constexpr,
    READ_AGAIN: tl.constexpr,
    CLIPS: tl.constexpr,
    BLOCK: tl.constexpr,
    PART: tl.constexpr,
):
    direction = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    inputs = cells + direction * cells_stride
    # A program has BLOCK outputs; where they are stored is explained in `inference_cell`.
    value = _multiplied(inputs, weight, direction * width + columns, inside, dim, BLOCK, PART)
    target = hidden + direction * hidden_stride + columns
    final = tl.load(places + direction * places_stride + place) * (2 * width)
    final += direction * width + columns
    again = reading + direction * reading_stride + place.to(tl.int64) * width + columns
    store_values(
        value, target, below + final, output + final, again, inside, clip, ADDS, READ_AGAIN, CLIPS
    )

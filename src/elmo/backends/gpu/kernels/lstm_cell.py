"""The pointwise parts of an LSTM step over streams, both directions at once, there and back.

Products are left to cuBLAS; what lies between them is done here in one pass over memory each:

    gates  = products + bias            products of the step's input and of the hidden state before
    c      = clip(sigmoid(f) * c_before + sigmoid(i) * tanh(g))
    cells  = sigmoid(o) * tanh(c)       then: raw = W_p cells, a product
    hidden = clip(raw), and 0 for rows that restart before the next word

Tensors are slices at one time step of tensors `(2, time, rows, width)`: the distance between the
directions is any, rows lie one behind the other unless it is said otherwise. Sums run in float32,
memory is float32 throughout. `training.recurrence` has the plain code for all of this.
"""

from __future__ import annotations

from torch import Tensor

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl

_MOST_CELLS = 1024
"""Cells of one program: each thread of its four warps moves 16 bytes of bfloat16 at a time."""


def cell_forward(
    gates: Tensor,
    bias: Tensor,
    keep: Tensor | None,
    before: Tensor,
    after: Tensor,
    cells: Tensor,
    clip: float | None,
) -> None:
    """Take one step: from products to memory and cells.

    Args:
        gates: Products, `(2, rows, 4 * dim)` in the order i, f, g, o; they become the gates after
            their activations.
        bias: Bias of the gates, float32 `(2, 4 * dim)`.
        keep: 0 for rows whose memory is forgotten before the step, else 1, `(rows,)`; None: 1.
        before: Memory before the step, float32 `(2, rows, dim)`.
        after: Receives the memory after it, float32 `(2, rows, dim)`.
        cells: Receives sigmoid(o) * tanh(c), `(2, rows, dim)`.
        clip: Bound of the memory.
    """
    sides, rows, dim = before.shape
    if not rows:
        return
    block = min(_MOST_CELLS, next_power_of_2(dim))
    _cell_forward[(sides * rows, blocks(dim, block))](
        gates,
        bias,
        before if keep is None else keep,
        before,
        after,
        cells,
        rows,
        dim,
        gates.stride(0),
        before.stride(0),
        after.stride(0),
        cells.stride(0),
        0.0 if clip is None else clip,
        CLIPS=clip is not None,
        KEEPS=keep is not None,
        BLOCK=block,
        num_warps=_n_warps(block),
    )


def cell_backward(
    gates: Tensor,
    keep: Tensor | None,
    before: Tensor,
    after: Tensor,
    of_cells: Tensor,
    of_memory: Tensor,
    clip: float | None,
) -> None:
    """Go back through one step: from gradients of cells and memory to those of the products.

    Args:
        gates: The gates after their activations, `(2, rows, 4 * dim)`; they become the gradients of
            the products.
        keep: See `cell_forward`.
        before: Memory before the step as it was given there, float32 `(2, rows, dim)`.
        after: Memory after it, float32 `(2, rows, dim)`.
        of_cells: Gradient of the cells, `(2, rows, dim)`.
        of_memory: Gradient of the memory after the step that comes from later steps, float32
            `(2, rows, dim)`; it becomes that of the memory before.
        clip: Bound of the memory.
    """
    sides, rows, dim = before.shape
    if not rows:
        return
    block = min(_MOST_CELLS, next_power_of_2(dim))
    _cell_backward[(sides * rows, blocks(dim, block))](
        gates,
        before if keep is None else keep,
        before,
        after,
        of_cells,
        of_memory,
        rows,
        dim,
        gates.stride(0),
        before.stride(0),
        after.stride(0),
        of_cells.stride(0),
        of_memory.stride(0),
        0.0 if clip is None else clip,
        CLIPS=clip is not None,
        KEEPS=keep is not None,
        BLOCK=block,
        num_warps=_n_warps(block),
    )


def hidden_forward(
    raw: Tensor, keep_next: Tensor | None, hidden: Tensor, start: Tensor | None, clip: float | None
) -> None:
    """Clip what was projected, and forget it for the next step where a row restarts.

    Args:
        raw: Projected cells, `(2, rows, width)`.
        keep_next: 0 for rows that restart before the next step, else 1, `(rows,)`; None: 1.
        hidden: Receives the output of this step, `(2, rows, width)`; it may be `raw`.
        start: Receives what the next step starts from, `(2, rows, width)`, its rows at any
            distance; None after the last step.
        clip: Bound of the output.
    """
    sides, rows, width = raw.shape
    if not rows:
        return
    block = min(_MOST_CELLS, next_power_of_2(width))
    _hidden_forward[(sides * rows, blocks(width, block))](
        raw,
        raw if keep_next is None else keep_next,
        hidden,
        raw if start is None else start,
        rows,
        width,
        raw.stride(0),
        hidden.stride(0),
        *((0, 0) if start is None else start.stride()[:2]),
        0.0 if clip is None else clip,
        STARTS=start is not None,
        CLIPS=clip is not None,
        KEEPS=keep_next is not None,
        BLOCK=block,
        num_warps=_n_warps(block),
    )


def hidden_backward(
    given: Tensor,
    carried: Tensor | None,
    keep_next: Tensor | None,
    hidden: Tensor,
    of_raw: Tensor,
    clip: float | None,
) -> None:
    """Go back through `hidden_forward`.

    Args:
        given: Gradient of the step's output from above, `(2, rows, width)`.
        carried: Gradient of what the next step started from, `(2, rows, width)`, its rows at any
            distance; None after the last step.
        keep_next: See `hidden_forward`.
        hidden: The step's output, `(2, rows, width)`.
        of_raw: Receives the gradient of the projected cells, `(2, rows, width)`.
        clip: Bound of the output.
    """
    sides, rows, width = given.shape
    if not rows:
        return
    block = min(_MOST_CELLS, next_power_of_2(width))
    _hidden_backward[(sides * rows, blocks(width, block))](
        given,
        given if carried is None else carried,
        given if keep_next is None else keep_next,
        hidden,
        of_raw,
        rows,
        width,
        given.stride(0),
        *((0, 0) if carried is None else carried.stride()[:2]),
        hidden.stride(0),
        of_raw.stride(0),
        0.0 if clip is None else clip,
        CARRIES=carried is not None,
        CLIPS=clip is not None,
        KEEPS=keep_next is not None,
        BLOCK=block,
        num_warps=_n_warps(block),
    )


def _n_warps(block: int) -> int:
    """Give the warps of a program: eight values for each thread."""
    return max(1, block // 256)


# --- kernels: a program for each row of a direction and each block of its cells -------------------


@jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@jit
def _cell_forward(
    gates_ptr,
    bias_ptr,
    keep_ptr,
    before_ptr,
    after_ptr,
    cells_ptr,
    rows,
    dim,
    gates_side,
    before_side,
    after_side,
    cells_side,
    clip,
    CLIPS: tl.constexpr,
    KEEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    side = (tl.program_id(0) // rows).to(tl.int64)
    row = (tl.program_id(0) % rows).to(tl.int64)
    cell = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < dim
    gates = gates_ptr + side * gates_side + row * 4 * dim + cell
    bias = bias_ptr + side * 4 * dim + cell
    place = row * dim + cell
    i = tl.load(gates, mask=inside).to(tl.float32) + tl.load(bias, mask=inside)
    f = tl.load(gates + dim, mask=inside).to(tl.float32) + tl.load(bias + dim, mask=inside)
    g = tl.load(gates + 2 * dim, mask=inside).to(tl.float32) + tl.load(bias + 2 * dim, mask=inside)
    o = tl.load(gates + 3 * dim, mask=inside).to(tl.float32) + tl.load(bias + 3 * dim, mask=inside)
    memory = tl.load(before_ptr + side * before_side + place, mask=inside)
    if KEEPS:
        memory *= tl.load(keep_ptr + row)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    memory = f * memory + i * g
    if CLIPS:
        memory = tl.minimum(tl.maximum(memory, -clip), clip)
    cells = o * _tanh(memory)
    tl.store(after_ptr + side * after_side + place, memory, mask=inside)
    cells_ptr += side * cells_side + place
    tl.store(cells_ptr, cells.to(cells_ptr.dtype.element_ty), mask=inside)
    kind = gates_ptr.dtype.element_ty
    tl.store(gates, i.to(kind), mask=inside)
    tl.store(gates + dim, f.to(kind), mask=inside)
    tl.store(gates + 2 * dim, g.to(kind), mask=inside)
    tl.store(gates + 3 * dim, o.to(kind), mask=inside)


@jit
def _cell_backward(
    gates_ptr,
    keep_ptr,
    before_ptr,
    after_ptr,
    of_cells_ptr,
    of_memory_ptr,
    rows,
    dim,
    gates_side,
    before_side,
    after_side,
    of_cells_side,
    of_memory_side,
    clip,
    CLIPS: tl.constexpr,
    KEEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    side = (tl.program_id(0) // rows).to(tl.int64)
    row = (tl.program_id(0) % rows).to(tl.int64)
    cell = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cell < dim
    gates = gates_ptr + side * gates_side + row * 4 * dim + cell
    place = row * dim + cell
    i = tl.load(gates, mask=inside).to(tl.float32)
    f = tl.load(gates + dim, mask=inside).to(tl.float32)
    g = tl.load(gates + 2 * dim, mask=inside).to(tl.float32)
    o = tl.load(gates + 3 * dim, mask=inside).to(tl.float32)
    before = tl.load(before_ptr + side * before_side + place, mask=inside)
    after = tl.load(after_ptr + side * after_side + place, mask=inside, other=0.0)
    of_cells = tl.load(of_cells_ptr + side * of_cells_side + place, mask=inside).to(tl.float32)
    of_memory_ptr += side * of_memory_side + place
    of_memory = tl.load(of_memory_ptr, mask=inside)
    squashed = _tanh(after)
    of_memory += of_cells * o * (1 - squashed * squashed)
    if CLIPS:
        # What was beyond the bound lies on it now.
        of_memory = tl.where(tl.abs(after) < clip, of_memory, 0.0)
    of_before = of_memory * f
    if KEEPS:
        keep = tl.load(keep_ptr + row)
        before *= keep
        of_before *= keep
    tl.store(of_memory_ptr, of_before, mask=inside)
    kind = gates_ptr.dtype.element_ty
    tl.store(gates, (of_memory * g * i * (1 - i)).to(kind), mask=inside)
    tl.store(gates + dim, (of_memory * before * f * (1 - f)).to(kind), mask=inside)
    tl.store(gates + 2 * dim, (of_memory * i * (1 - g * g)).to(kind), mask=inside)
    tl.store(gates + 3 * dim, (of_cells * squashed * o * (1 - o)).to(kind), mask=inside)


@jit
def _hidden_forward(
    raw_ptr,
    keep_ptr,
    hidden_ptr,
    start_ptr,
    rows,
    width,
    raw_side,
    hidden_side,
    start_side,
    start_row,
    clip,
    STARTS: tl.constexpr,
    CLIPS: tl.constexpr,
    KEEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    side = (tl.program_id(0) // rows).to(tl.int64)
    row = (tl.program_id(0) % rows).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    place = row * width + column
    hidden = tl.load(raw_ptr + side * raw_side + place, mask=inside).to(tl.float32)
    if CLIPS:
        hidden = tl.minimum(tl.maximum(hidden, -clip), clip)
    hidden_ptr += side * hidden_side + place
    tl.store(hidden_ptr, hidden.to(hidden_ptr.dtype.element_ty), mask=inside)
    if STARTS:
        if KEEPS:
            hidden *= tl.load(keep_ptr + row)
        start_ptr += side * start_side + row * start_row + column
        tl.store(start_ptr, hidden.to(start_ptr.dtype.element_ty), mask=inside)


@jit
def _hidden_backward(
    given_ptr,
    carried_ptr,
    keep_ptr,
    hidden_ptr,
    of_raw_ptr,
    rows,
    width,
    given_side,
    carried_side,
    carried_row,
    hidden_side,
    of_raw_side,
    clip,
    CARRIES: tl.constexpr,
    CLIPS: tl.constexpr,
    KEEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    side = (tl.program_id(0) // rows).to(tl.int64)
    row = (tl.program_id(0) % rows).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    place = row * width + column
    gradient = tl.load(given_ptr + side * given_side + place, mask=inside).to(tl.float32)
    if CARRIES:
        carried_ptr += side * carried_side + row * carried_row + column
        carried = tl.load(carried_ptr, mask=inside).to(tl.float32)
        if KEEPS:
            carried *= tl.load(keep_ptr + row)
        gradient += carried
    if CLIPS:
        hidden = tl.load(hidden_ptr + side * hidden_side + place, mask=inside, other=0.0)
        gradient = tl.where(tl.abs(hidden.to(tl.float32)) < clip, gradient, 0.0)
    of_raw_ptr += side * of_raw_side + place
    tl.store(of_raw_ptr, gradient.to(of_raw_ptr.dtype.element_ty), mask=inside)

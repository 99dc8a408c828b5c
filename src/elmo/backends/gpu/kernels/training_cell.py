"""The elementwise parts of an LSTM step over streams, both directions, forward and backward pass.

cuBLAS multiplies; what lies between two products is one pass over memory here:

    gates  = products + bias            products of the step's input and of the hidden state before
    c      = clip(sigmoid(f) * c_before + sigmoid(i) * tanh(g))
    cells  = sigmoid(o) * tanh(c)       then: raw = W_p cells, a product
    hidden = clip(raw), and 0 for rows that restart before the next word

Tensors are slices at one time step of tensors `(2, time, rows, width)`: the two directions may be
any distance apart; rows are contiguous where nothing else is stated. Sums run in float32, memory is
float32 throughout. `elmo.training.recurrence` is the plain reference.
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
    """Compute one step: from products to memory and cells.

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
    grad_cells: Tensor,
    grad_memory: Tensor,
    clip: float | None,
) -> None:
    """Compute the backward pass of one step: gradients of cells and memory -> of the products.

    Args:
        gates: The gates after their activations, `(2, rows, 4 * dim)`; they become the gradients of
            the products.
        keep: See `cell_forward`.
        before: Memory before the step as it was passed there, float32 `(2, rows, dim)`.
        after: Memory after it, float32 `(2, rows, dim)`.
        grad_cells: Gradient of the cells, `(2, rows, dim)`.
        grad_memory: Gradient of the memory after the step that comes from later steps, float32
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
        grad_cells,
        grad_memory,
        rows,
        dim,
        gates.stride(0),
        before.stride(0),
        after.stride(0),
        grad_cells.stride(0),
        grad_memory.stride(0),
        0.0 if clip is None else clip,
        CLIPS=clip is not None,
        KEEPS=keep is not None,
        BLOCK=block,
        num_warps=_n_warps(block),
    )


def hidden_forward(
    raw: Tensor, keep_next: Tensor | None, hidden: Tensor, start: Tensor | None, clip: float | None
) -> None:
    """Clip projected cells, and zero them for the next step where a row restarts.

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
    grad_hidden: Tensor,
    grad_start: Tensor | None,
    keep_next: Tensor | None,
    hidden: Tensor,
    grad_raw: Tensor,
    clip: float | None,
) -> None:
    """Compute the backward pass of `hidden_forward`.

    Args:
        grad_hidden: Gradient of the step's output from above, `(2, rows, width)`.
        grad_start: Gradient of what the next step started from, `(2, rows, width)`, its rows at any
            distance; None after the last step.
        keep_next: See `hidden_forward`.
        hidden: The step's output, `(2, rows, width)`.
        grad_raw: Receives the gradient of the projected cells, `(2, rows, width)`.
        clip: Bound of the output.
    """
    sides, rows, width = grad_hidden.shape
    if not rows:
        return
    block = min(_MOST_CELLS, next_power_of_2(width))
    _hidden_backward[(sides * rows, blocks(width, block))](
        grad_hidden,
        grad_hidden if grad_start is None else grad_start,
        grad_hidden if keep_next is None else keep_next,
        hidden,
        grad_raw,
        rows,
        width,
        grad_hidden.stride(0),
        *((0, 0) if grad_start is None else grad_start.stride()[:2]),
        hidden.stride(0),
        grad_raw.stride(0),
        0.0 if clip is None else clip,
        CARRIES=grad_start is not None,
        CLIPS=clip is not None,
        KEEPS=keep_next is not None,
        BLOCK=block,
        num_warps=_n_warps(block),
    )


def _n_warps(block: int) -> int:
    """Return the warps of a program: eight values for each thread."""
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
    # Every value below is a vector of BLOCK neighboring cells of one row of one direction.
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
    if KEEPS:  # rows that restart
        memory *= tl.load(keep_ptr + row)
    i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
    memory = f * memory + i * g
    if CLIPS:
        memory = tl.minimum(tl.maximum(memory, -clip), clip)
    cells = o * _tanh(memory)
    tl.store(after_ptr + side * after_side + place, memory, mask=inside)
    cells_ptr += side * cells_side + place
    tl.store(cells_ptr, cells.to(cells_ptr.dtype.element_ty), mask=inside)
    # In place of the products: the backward pass needs the gates, and nobody the products.
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
    grad_cells_ptr,
    grad_memory_ptr,
    rows,
    dim,
    gates_side,
    before_side,
    after_side,
    grad_cells_side,
    grad_memory_side,
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
    grad_cells = tl.load(grad_cells_ptr + side * grad_cells_side + place, mask=inside).to(
        tl.float32
    )
    grad_memory_ptr += side * grad_memory_side + place
    grad_memory = tl.load(grad_memory_ptr, mask=inside)
    tanh_memory = _tanh(after)
    # cells = o tanh(c): its gradient for c, on top of that from later steps.
    grad_memory += grad_cells * o * (1 - tanh_memory * tanh_memory)
    if CLIPS:
        # Clipped values lie on the bound; clamping has no gradient there.
        grad_memory = tl.where(tl.abs(after) < clip, grad_memory, 0.0)
    # c = f c_before + i g: back to the memory before, and to the products before activations.
    grad_before = grad_memory * f
    if KEEPS:
        keep = tl.load(keep_ptr + row)
        before *= keep
        grad_before *= keep
    tl.store(grad_memory_ptr, grad_before, mask=inside)
    # sigmoid' = s (1 - s), tanh' = 1 - t^2, of the gates that were stored.
    kind = gates_ptr.dtype.element_ty
    tl.store(gates, (grad_memory * g * i * (1 - i)).to(kind), mask=inside)
    tl.store(gates + dim, (grad_memory * before * f * (1 - f)).to(kind), mask=inside)
    tl.store(gates + 2 * dim, (grad_memory * i * (1 - g * g)).to(kind), mask=inside)
    tl.store(gates + 3 * dim, (grad_cells * tanh_memory * o * (1 - o)).to(kind), mask=inside)


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
    # The output is kept as it is; what the next step starts from is zeroed for rows that restart.
    if STARTS:
        if KEEPS:
            hidden *= tl.load(keep_ptr + row)
        start_ptr += side * start_side + row * start_row + column
        tl.store(start_ptr, hidden.to(start_ptr.dtype.element_ty), mask=inside)


@jit
def _hidden_backward(
    grad_hidden_ptr,
    grad_start_ptr,
    keep_ptr,
    hidden_ptr,
    grad_raw_ptr,
    rows,
    width,
    grad_hidden_side,
    grad_start_side,
    grad_start_row,
    hidden_side,
    grad_raw_side,
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
    gradient = tl.load(grad_hidden_ptr + side * grad_hidden_side + place, mask=inside).to(
        tl.float32
    )
    # The output was read from above and by the next step: their gradients add up.
    if CARRIES:
        grad_start_ptr += side * grad_start_side + row * grad_start_row + column
        grad_start = tl.load(grad_start_ptr, mask=inside).to(tl.float32)
        if KEEPS:
            grad_start *= tl.load(keep_ptr + row)
        gradient += grad_start
    if CLIPS:
        hidden = tl.load(hidden_ptr + side * hidden_side + place, mask=inside, other=0.0)
        gradient = tl.where(tl.abs(hidden.to(tl.float32)) < clip, gradient, 0.0)
    grad_raw_ptr += side * grad_raw_side + place
    tl.store(grad_raw_ptr, gradient.to(grad_raw_ptr.dtype.element_ty), mask=inside)

"""A small LSTM over all words of a batch, there and back, each in one launch.

Heads of tasks are so small that a GPU waits for the next launch at every word. Here a program reads
16 sentences from their first word to their last and keeps the recurrent weights of its direction in
shared memory; nothing but input products is loaded and nothing but results is stored at each word.

Recurrent products are of float16 values, which have the 10 bits of mantissa of TF32, PyTorch's own
choice for an LSTM on a GPU; a state is at most 1, and gradients are scaled row by row so that the
largest is 1. Sums, memory and everything else are float32. `torch.lstm` is the reference.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from elmo.backends.gpu.kernels.gpu import blocks, jit, next_power_of_2, tl, triton_ready

MOST_CELLS = 128
"""Of a direction: the weights of more do not fit into the memory of a program."""
_ROWS = 16
"""Sentences of a program: the least for which a GPU has products of matrices."""
_LEAST_CELLS = 16
_WARPS = 8
_OTHER_BYTES = 8 << 10
"""Shared memory of a program besides its weights."""
_BYTES_AHEAD = 56 << 10
"""And for what it loads ahead on its way back; without it, it waits at every word."""


def can_read(dim: int, device: torch.device) -> bool:
    """Tell whether an LSTM of `dim` cells can be read by the kernels on a device."""
    if dim > MOST_CELLS or not triton_ready(device):
        return False
    return _weight_bytes(dim) + _OTHER_BYTES <= _shared_bytes(device)


def read_sides(
    vectors: Tensor, weight_in: Tensor, bias: Tensor, weight_recurrent: Tensor
) -> Tensor:
    """Read sentences from the first word to the last, sides at the same time, from a zero state.

    Args:
        vectors: What is read, float32 `(sides, time, rows, input_dim)`; padding comes last.
        weight_in: Shape `(sides, 4 * dim, input_dim)`, gates in the order i, f, g, o.
        bias: Shape `(sides, 4 * dim)`.
        weight_recurrent: Shape `(sides, 4 * dim, dim)`, with `dim` at most `MOST_CELLS`.

    Returns:
        The states after each word, float32 `(sides, time, rows, dim)`.
    """
    read: Tensor = _Reading.apply(vectors, weight_in, bias, weight_recurrent)
    return read


class _Reading(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, weight_in: Tensor, bias: Tensor, weight_recurrent: Tensor
    ) -> Tensor:
        sides, time, rows, _ = vectors.shape
        dim = weight_recurrent.shape[2]
        flat = vectors.flatten(1, 2)
        products = torch.baddbmm(bias.unsqueeze(1), flat, weight_in.transpose(1, 2))
        gates = torch.empty_like(products)  # not in place: loads may run ahead of stores
        weight_recurrent = weight_recurrent.contiguous()
        hidden = vectors.new_empty(sides, time, rows, dim)
        memory = torch.empty_like(hidden)
        if hidden.numel():
            _forward[(blocks(rows, _ROWS), sides)](
                products,
                gates,
                weight_recurrent,
                hidden,
                memory,
                time,
                rows,
                dim,
                ROWS=_ROWS,
                CELLS=_n_cells(dim),
                num_warps=_WARPS,
            )
        ctx.save_for_backward(flat, weight_in, weight_recurrent, gates, hidden, memory)
        return hidden

    @staticmethod
    def backward(ctx: Any, *of_hidden: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        flat, weight_in, weight_recurrent, gates, hidden, memory = ctx.saved_tensors
        sides, time, rows, dim = hidden.shape
        of_gates = torch.empty_like(gates)
        if hidden.numel():
            _backward[(blocks(rows, _ROWS), sides)](
                of_hidden[0].contiguous(),
                gates,
                memory,
                weight_recurrent,
                of_gates,
                time,
                rows,
                dim,
                ROWS=_ROWS,
                CELLS=_n_cells(dim),
                num_warps=_WARPS,
                num_stages=_n_stages(dim, hidden.device),
            )
        before = hidden[:, :-1].flatten(1, 2)  # the first word is read from a state of zeros
        return (
            torch.bmm(of_gates, weight_in).view(sides, time, rows, flat.shape[2]),
            torch.bmm(of_gates.transpose(1, 2), flat),
            of_gates.sum(dim=1),
            torch.bmm(of_gates[:, rows:].transpose(1, 2), before),
        )


def _n_cells(dim: int) -> int:
    """Give the width of the matrices: products want a power of 2, not too small."""
    return max(_LEAST_CELLS, next_power_of_2(dim))


def _weight_bytes(dim: int) -> int:
    """Give the bytes of the recurrent weights of a direction, in float16."""
    return 2 * 4 * _n_cells(dim) ** 2


def _n_stages(dim: int, device: torch.device) -> int:
    """Tell whether the way back loads one word ahead: 2 if there is room for it, else 1."""
    if device.type != "cuda":
        return 1
    return 2 if _weight_bytes(dim) + _OTHER_BYTES + _BYTES_AHEAD <= _shared_bytes(device) else 1


@cache
def _shared_bytes(device: torch.device) -> int:
    """Give the shared memory that a program can have."""
    properties = torch.cuda.get_device_properties(device)
    # What programs have without asking for more is told by every PyTorch.
    most = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    return int(most)


# --- kernels: a program for each 16 sentences of a side -------------------------------------------


@jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


# Batches have all lengths and sizes: kernels are compiled once for all of them.
_jit_for_all_sizes = partial(jit, do_not_specialize=("time", "rows"))


@_jit_for_all_sizes
def _forward(
    products_ptr,
    gates_ptr,
    weight_ptr,
    hidden_ptr,
    memory_ptr,
    time,
    rows,
    dim,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
):
    """From input products to states, memories, and gates after their activations."""
    side = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cell = tl.arange(0, CELLS)[None, :]
    inside = (row < rows) & (cell < dim)
    # source is the cell whose state is read, cell the one whose gate is opened by it
    source = tl.arange(0, CELLS)[:, None]
    weight = weight_ptr + side * 4 * dim * dim + cell * dim + source
    known = (source < dim) & (cell < dim)
    gate = dim * dim
    to_i = tl.load(weight, mask=known, other=0.0).to(tl.float16)
    to_f = tl.load(weight + gate, mask=known, other=0.0).to(tl.float16)
    to_g = tl.load(weight + 2 * gate, mask=known, other=0.0).to(tl.float16)
    to_o = tl.load(weight + 3 * gate, mask=known, other=0.0).to(tl.float16)
    place = side * time * rows + row
    products = products_ptr + place * 4 * dim + cell
    gates = gates_ptr + place * 4 * dim + cell
    states = hidden_ptr + place * dim + cell
    memories = memory_ptr + place * dim + cell
    state = tl.zeros((ROWS, CELLS), dtype=tl.float16)
    memory = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    of_i = tl.load(products, mask=inside, other=0.0)
    of_f = tl.load(products + dim, mask=inside, other=0.0)
    of_g = tl.load(products + 2 * dim, mask=inside, other=0.0)
    of_o = tl.load(products + 3 * dim, mask=inside, other=0.0)
    for step in range(time):
        i, f, g, o = of_i, of_f, of_g, of_o
        # Those of the next word are on their way while this one is read.
        products += rows * 4 * dim
        coming = inside & (step < time - 1)
        of_i = tl.load(products, mask=coming, other=0.0)
        of_f = tl.load(products + dim, mask=coming, other=0.0)
        of_g = tl.load(products + 2 * dim, mask=coming, other=0.0)
        of_o = tl.load(products + 3 * dim, mask=coming, other=0.0)
        i = tl.sigmoid(tl.dot(state, to_i, i))
        f = tl.sigmoid(tl.dot(state, to_f, f))
        g = _tanh(tl.dot(state, to_g, g))
        o = tl.sigmoid(tl.dot(state, to_o, o))
        memory = f * memory + i * g
        hidden = o * _tanh(memory)
        tl.store(gates, i, mask=inside)
        tl.store(gates + dim, f, mask=inside)
        tl.store(gates + 2 * dim, g, mask=inside)
        tl.store(gates + 3 * dim, o, mask=inside)
        tl.store(memories, memory, mask=inside)
        tl.store(states, hidden, mask=inside)
        state = hidden.to(tl.float16)
        gates += rows * 4 * dim
        states += rows * dim
        memories += rows * dim


@_jit_for_all_sizes
def _backward(
    of_hidden_ptr,
    gates_ptr,
    memory_ptr,
    weight_ptr,
    of_gates_ptr,
    time,
    rows,
    dim,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
):
    """From gradients of all states to those of the input products."""
    side = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cell = tl.arange(0, CELLS)[None, :]
    inside = (row < rows) & (cell < dim)
    opened = tl.arange(0, CELLS)[:, None]
    weight = weight_ptr + side * 4 * dim * dim + opened * dim + cell
    known = (opened < dim) & (cell < dim)
    gate = dim * dim
    from_i = tl.load(weight, mask=known, other=0.0).to(tl.float16)
    from_f = tl.load(weight + gate, mask=known, other=0.0).to(tl.float16)
    from_g = tl.load(weight + 2 * gate, mask=known, other=0.0).to(tl.float16)
    from_o = tl.load(weight + 3 * gate, mask=known, other=0.0).to(tl.float16)
    place = (side * time + time - 1) * rows + row
    gates = gates_ptr + place * 4 * dim + cell
    of_gates = of_gates_ptr + place * 4 * dim + cell
    of_states = of_hidden_ptr + place * dim + cell
    memories = memory_ptr + place * dim + cell
    carried = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    of_memory = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    for step in range(time):
        i = tl.load(gates, mask=inside, other=0.0)
        f = tl.load(gates + dim, mask=inside, other=0.0)
        g = tl.load(gates + 2 * dim, mask=inside, other=0.0)
        o = tl.load(gates + 3 * dim, mask=inside, other=0.0)
        shown = _tanh(tl.load(memories, mask=inside, other=0.0))
        before = tl.load(memories - rows * dim, mask=inside & (step < time - 1), other=0.0)
        of_state = tl.load(of_states, mask=inside, other=0.0) + carried
        of_memory += of_state * o * (1 - shown * shown)
        of_i = of_memory * g * i * (1 - i)
        of_f = of_memory * before * f * (1 - f)
        of_g = of_memory * i * (1 - g * g)
        of_o = of_state * shown * o * (1 - o)
        of_memory *= f
        tl.store(of_gates, of_i, mask=inside)
        tl.store(of_gates + dim, of_f, mask=inside)
        tl.store(of_gates + 2 * dim, of_g, mask=inside)
        tl.store(of_gates + 3 * dim, of_o, mask=inside)
        first = tl.maximum(tl.abs(of_i), tl.abs(of_f))
        second = tl.maximum(tl.abs(of_g), tl.abs(of_o))
        largest = tl.max(tl.maximum(first, second), axis=1, keep_dims=True)
        scale = 1 / tl.maximum(largest, 1e-30)
        carried = tl.dot((of_i * scale).to(tl.float16), from_i)
        carried = tl.dot((of_f * scale).to(tl.float16), from_f, carried)
        carried = tl.dot((of_g * scale).to(tl.float16), from_g, carried)
        carried = tl.dot((of_o * scale).to(tl.float16), from_o, carried) * largest
        gates -= rows * 4 * dim
        of_gates -= rows * 4 * dim
        of_states -= rows * dim
        memories -= rows * dim

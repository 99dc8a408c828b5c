"""A small LSTM over all words of a batch: forward and backward pass are one launch each.

Heads of tasks are so small that a GPU waits for the next launch at every word. Here a program reads
16 sentences from their first word to their last and keeps the recurrent weights of its direction in
shared memory; at each word only input products are loaded, and only results are stored.

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
"""Cells of a direction; the weights of more do not fit into a program's shared memory."""
_ROWS = 16
"""Sentences of a program: the least for which a GPU has products of matrices."""
_LEAST_CELLS = 16
_WARPS = 8
_OTHER_BYTES = 8 << 10
"""Shared memory of a program besides its weights."""
_BYTES_AHEAD = 56 << 10
"""And for what the backward pass prefetches; without that it waits at every word."""


def can_read(dim: int, device: torch.device) -> bool:
    """Return whether the kernels can run an LSTM of `dim` cells on a device."""
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
    def backward(ctx: Any, *grad_hidden: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        flat, weight_in, weight_recurrent, gates, hidden, memory = ctx.saved_tensors
        sides, time, rows, dim = hidden.shape
        grad_gates = torch.empty_like(gates)
        if hidden.numel():
            _backward[(blocks(rows, _ROWS), sides)](
                grad_hidden[0].contiguous(),
                gates,
                memory,
                weight_recurrent,
                grad_gates,
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
            torch.bmm(grad_gates, weight_in).view(sides, time, rows, flat.shape[2]),
            torch.bmm(grad_gates.transpose(1, 2), flat),
            grad_gates.sum(dim=1),
            torch.bmm(grad_gates[:, rows:].transpose(1, 2), before),
        )


def _n_cells(dim: int) -> int:
    """Return the width of the matrices: products want a power of 2, not too small."""
    return max(_LEAST_CELLS, next_power_of_2(dim))


def _weight_bytes(dim: int) -> int:
    """Return the bytes of the recurrent weights of a direction, in float16."""
    return 2 * 4 * _n_cells(dim) ** 2


def _n_stages(dim: int, device: torch.device) -> int:
    """Return 2 if the backward pass can prefetch one word, in shared memory; else 1."""
    if device.type != "cuda":
        return 1
    return 2 if _weight_bytes(dim) + _OTHER_BYTES + _BYTES_AHEAD <= _shared_bytes(device) else 1


@cache
def _shared_bytes(device: torch.device) -> int:
    """Return the shared memory that a program can have."""
    properties = torch.cuda.get_device_properties(device)
    # Not every PyTorch reports the larger amount, which a program has to ask for.
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
    """Compute states, memories, and gates after their activations from input products."""
    side = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cell = tl.arange(0, CELLS)[None, :]
    inside = (row < rows) & (cell < dim)
    # Weights (source, cell): from the state of `source` to the gate of `cell`.
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
    next_i = tl.load(products, mask=inside, other=0.0)
    next_f = tl.load(products + dim, mask=inside, other=0.0)
    next_g = tl.load(products + 2 * dim, mask=inside, other=0.0)
    next_o = tl.load(products + 3 * dim, mask=inside, other=0.0)
    for step in range(time):
        i, f, g, o = next_i, next_f, next_g, next_o
        # Prefetch the products of the next word while this one is computed.
        products += rows * 4 * dim
        coming = inside & (step < time - 1)
        next_i = tl.load(products, mask=coming, other=0.0)
        next_f = tl.load(products + dim, mask=coming, other=0.0)
        next_g = tl.load(products + 2 * dim, mask=coming, other=0.0)
        next_o = tl.load(products + 3 * dim, mask=coming, other=0.0)
        # (ROWS, CELLS) x (CELLS, CELLS), added to the input products.
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
    grad_hidden_ptr,
    gates_ptr,
    memory_ptr,
    weight_ptr,
    grad_gates_ptr,
    time,
    rows,
    dim,
    ROWS: tl.constexpr,
    CELLS: tl.constexpr,
):
    """Compute the gradients of the input products from those of all states."""
    side = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cell = tl.arange(0, CELLS)[None, :]
    inside = (row < rows) & (cell < dim)
    # Weights (target, cell): from the gate of `target` back to the state of `cell`.
    target = tl.arange(0, CELLS)[:, None]
    weight = weight_ptr + side * 4 * dim * dim + target * dim + cell
    known = (target < dim) & (cell < dim)
    gate = dim * dim
    from_i = tl.load(weight, mask=known, other=0.0).to(tl.float16)
    from_f = tl.load(weight + gate, mask=known, other=0.0).to(tl.float16)
    from_g = tl.load(weight + 2 * gate, mask=known, other=0.0).to(tl.float16)
    from_o = tl.load(weight + 3 * gate, mask=known, other=0.0).to(tl.float16)
    # From the last word to the first.
    place = (side * time + time - 1) * rows + row
    gates = gates_ptr + place * 4 * dim + cell
    grad_gates = grad_gates_ptr + place * 4 * dim + cell
    grad_states = grad_hidden_ptr + place * dim + cell
    memories = memory_ptr + place * dim + cell
    carried = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    grad_memory = tl.zeros((ROWS, CELLS), dtype=tl.float32)
    for step in range(time):
        i = tl.load(gates, mask=inside, other=0.0)
        f = tl.load(gates + dim, mask=inside, other=0.0)
        g = tl.load(gates + 2 * dim, mask=inside, other=0.0)
        o = tl.load(gates + 3 * dim, mask=inside, other=0.0)
        # Gates, memory after and before the word; the first word's memory before is zero.
        tanh_memory = _tanh(tl.load(memories, mask=inside, other=0.0))
        before = tl.load(memories - rows * dim, mask=inside & (step < time - 1), other=0.0)
        grad_state = tl.load(grad_states, mask=inside, other=0.0) + carried
        grad_memory += grad_state * o * (1 - tanh_memory * tanh_memory)
        # Through the activations, whose derivatives follow from their values.
        grad_i = grad_memory * g * i * (1 - i)
        grad_f = grad_memory * before * f * (1 - f)
        grad_g = grad_memory * i * (1 - g * g)
        grad_o = grad_state * tanh_memory * o * (1 - o)
        grad_memory *= f
        tl.store(grad_gates, grad_i, mask=inside)
        tl.store(grad_gates + dim, grad_f, mask=inside)
        tl.store(grad_gates + 2 * dim, grad_g, mask=inside)
        tl.store(grad_gates + 3 * dim, grad_o, mask=inside)
        # Scaled row by row to at most 1, where float16 is finest; scaled back after the product.
        first = tl.maximum(tl.abs(grad_i), tl.abs(grad_f))
        second = tl.maximum(tl.abs(grad_g), tl.abs(grad_o))
        largest = tl.max(tl.maximum(first, second), axis=1, keep_dims=True)
        scale = 1 / tl.maximum(largest, 1e-30)
        carried = tl.dot((grad_i * scale).to(tl.float16), from_i)
        carried = tl.dot((grad_f * scale).to(tl.float16), from_f, carried)
        carried = tl.dot((grad_g * scale).to(tl.float16), from_g, carried)
        carried = tl.dot((grad_o * scale).to(tl.float16), from_o, carried) * largest
        gates -= rows * 4 * dim
        grad_gates -= rows * 4 * dim
        grad_states -= rows * dim
        memories -= rows * dim

"""One recurrent layer over streams, both directions at once, differentiable.

`run_layer` is what the language model calls. Any cell is run by its `step`, and autograd finds the
gradients. For an LSTM the backward pass is written out below it: both directions share one batched
product, and the gradients of the weights are one product for all time steps instead of one for
each. On a GPU an LSTM is run by `fused_lstm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.model.cells import LSTM, Cell, LayerState
from elmo.model.layers import run_steps
from elmo.training.fused_lstm import run_fused_lstm


def run_layer(
    sides: Sequence[Cell],
    inputs: Tensor,
    state: LayerState,
    keep: Tensor | None,
    fused: bool = False,
) -> tuple[Tensor, LayerState]:
    """Read streams with both directions of one layer.

    Args:
        sides: The layer of the forward and that of the backward direction.
        inputs: Vectors in the order of each direction, shape `(2, time, rows, projection_dim)`.
        state: The state before: `(2, rows, projection_dim)` and `(2, rows, memory_dim)`.
        keep: 0 where the state is zeroed before a word is read, else 1, shape `(time, rows, 1)`;
            None if it never is.
        fused: Whether GPU kernels may be used; see `kernels.gpu.triton_ready`.

    Returns:
        Outputs of shape `(2, time, rows, projection_dim)` and the state after the last word.
    """
    kind = type(sides[0])
    faster = _FASTER | _FUSED if fused else _FASTER
    return faster.get(kind, _run_plainly)(sides, inputs, state, keep)


def _run_plainly(
    sides: Sequence[Cell], inputs: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    """Run the cell step by step, one direction after the other; the reference."""
    outputs, ends = [], []
    for side, products, *before in zip(sides, _products(sides, inputs), *state, strict=True):
        read, end = run_steps(side, products, LayerState(*before), keep)
        outputs.append(torch.stack(read))
        ends.append(end)
    hidden, memory = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return torch.stack(outputs), LayerState(hidden, memory)


def _products(sides: Sequence[Cell], inputs: Tensor) -> Tensor:
    """Multiply the inputs of all time steps, `(2, time, rows, gates * dim)`."""
    return torch.stack(
        [
            F.linear(vectors, side.input_weight, side.gate_bias())
            for side, vectors in zip(sides, inputs, strict=True)
        ]
    )


def _run_lstm(
    sides: Sequence[Cell], inputs: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    projections: list[Tensor] = [
        side.projection_weight for side in sides if side.projection_weight is not None
    ]
    outputs, memory = _LSTM.apply(  # type: ignore[no-untyped-call]
        _products(sides, inputs),
        state.hidden,
        state.memory,
        torch.stack([side.recurrent_weight for side in sides]),
        torch.stack(projections) if projections else None,
        keep,
        sides[0].cell_clip,
        sides[0].proj_clip,
    )
    return outputs, LayerState(outputs[:, -1], memory)


_Run = Callable[[Sequence[Cell], Tensor, LayerState, Tensor | None], tuple[Tensor, LayerState]]
_FASTER: dict[type[Cell], _Run] = {LSTM: _run_lstm}
"""Cells whose backward pass is written out."""
_FUSED: dict[type[Cell], _Run] = {LSTM: run_fused_lstm}
"""Cells with kernels for a GPU."""


class _LSTM(torch.autograd.Function):
    """`LSTM.step` over all time steps of both directions, its backward pass written out.

    No gradient goes to the state at the start: back-propagation through time is truncated there.
    Inside, time comes before direction: `(time, 2, rows, ...)`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        products: Tensor,
        hidden: Tensor,
        memory: Tensor,
        recurrent: Tensor,
        projection: Tensor | None,
        keep: Tensor | None,
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> tuple[Tensor, Tensor]:
        """Run; shapes as in `run_layer`.

        Args:
            ctx: Keeps what the backward pass needs.
            products: Input products, `(2, time, rows, 4 * dim)`.
            hidden: `(2, rows, projection_dim)`.
            memory: `(2, rows, dim)`.
            recurrent: `(2, 4 * dim, projection_dim)`.
            projection: `(2, projection_dim, dim)`, if there is one.
            keep: `(time, rows, 1)`.
            cell_clip: Bound of the memory.
            proj_clip: Bound of the projected output.
        """
        sides, time, rows, width = products.shape
        recurrent, projection = _cast(products.dtype, recurrent, projection)
        gates = products.new_empty(time, sides, rows, width)  # i, f, g, o after activation
        cells = products.new_empty(time, sides, rows, width // 4)  # o * tanh(c)
        memories = memory.new_empty(time + 1, sides, rows, width // 4)
        tanhs = torch.empty_like(memories[1:])
        hiddens = products.new_empty(time + 1, *hidden.shape)
        memories[0], hiddens[0] = memory, hidden
        resets = _reset_steps(keep, time)
        for t in range(time):
            # A reset zeroes what the step starts from, not the outputs before it.
            hidden, memory = hiddens[t], memories[t]
            if keep is not None and resets[t]:
                hidden, memory = _kept(hidden, keep, t), _kept(memory, keep, t)
            torch.baddbmm(products[:, t], hidden, recurrent.mT, out=gates[t])
            _activate_(gates[t])
            i, f, g, o = gates[t].chunk(4, dim=-1)
            # addcmul rounds once less than `LSTM.step` does.
            torch.mul(f, memory, out=memories[t + 1]).addcmul_(i, g)
            if cell_clip is not None:
                memories[t + 1].clamp_(-cell_clip, cell_clip)
            torch.mul(o, torch.tanh(memories[t + 1], out=tanhs[t]), out=cells[t])
            if projection is None:
                hiddens[t + 1] = cells[t]
            else:
                torch.bmm(cells[t], projection.mT, out=hiddens[t + 1])
                if proj_clip is not None:
                    hiddens[t + 1].clamp_(-proj_clip, proj_clip)
        ctx.save_for_backward(gates, memories, tanhs, cells, hiddens, recurrent, projection, keep)
        ctx.cell_clip, ctx.proj_clip = cell_clip, proj_clip
        final = memories[-1].clone()
        ctx.mark_non_differentiable(final)
        return hiddens[1:].transpose(0, 1).contiguous(), final

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of products, recurrent and projection weights.

        All that does not depend on a later step is computed for all steps at once; the loop has
        only products with the gradients that come back through time.
        """
        gates, memories, tanhs, cells, hiddens, recurrent, projection, keep = ctx.saved_tensors
        time = len(gates)
        before = memories[:-1] if keep is None else memories[:-1] * keep.unsqueeze(1)
        grad_gates, tanh_slope = _slopes(gates, before, tanhs)
        grad_hidden = gradients[0].transpose(0, 1).contiguous()
        inside = None if projection is None else _inside(hiddens[1:], ctx.proj_clip)
        passed = _inside(memories[1:], ctx.cell_clip)
        carried = torch.zeros_like(hiddens[0])
        grad_memory = torch.zeros_like(memories[0])
        resets = _reset_steps(keep, time)
        for t in reversed(range(time)):
            grad_hidden[t] += carried
            if inside is not None:
                grad_hidden[t] *= inside[t]
            grad_cells = grad_hidden[t] if projection is None else grad_hidden[t] @ projection
            grad_memory.addcmul_(grad_cells, tanh_slope[t])
            if passed is not None:
                grad_memory *= passed[t]
            _times_(grad_gates[t], grad_memory, grad_cells)
            grad_memory *= gates[t].chunk(4, dim=-1)[1]  # the forget gate
            carried = grad_gates[t] @ recurrent
            if resets[t]:
                carried, grad_memory = _kept(carried, keep, t), _kept(grad_memory, keep, t)
        starts = hiddens[:-1] if keep is None else hiddens[:-1] * keep.unsqueeze(1)
        grad_recurrent = _rows_of_sides(grad_gates).mT @ _rows_of_sides(starts.to(grad_gates.dtype))
        grad_projection = None
        if projection is not None:
            grad_projection = _rows_of_sides(grad_hidden).mT @ _rows_of_sides(cells)
        grad_products = grad_gates.transpose(0, 1)
        return grad_products, None, None, grad_recurrent, grad_projection, None, None, None


def _slopes(gates: Tensor, before: Tensor, tanhs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives that gradients are multiplied with in the backward pass of the cell.

    Args:
        gates: Gates after their activations, `(time, 2, rows, 4 * dim)`.
        before: Memory before each step, `(time, 2, rows, dim)`.
        tanhs: tanh of the memory after it, `(time, 2, rows, dim)`.

    Returns:
        From the memory to i, f and g and from the cells to o, before their activations, `(time, 2,
        rows, 4 * dim)`; and from the cells to the memory, `(time, 2, rows, dim)`.
    """
    i, f, g, o = gates.chunk(4, dim=-1)
    slopes = torch.cat(
        [
            g * (i - i * i),
            (before * (f - f * f)).to(gates.dtype),
            i * (1 - g * g),
            (tanhs * (o - o * o)).to(gates.dtype),
        ],
        dim=-1,
    )
    return slopes, o * (1 - tanhs * tanhs)


def _times_(slopes: Tensor, grad_memory: Tensor, grad_cells: Tensor) -> None:
    """Turn the slopes of one step `(2, rows, 4 * dim)` into the gradients of its gates."""
    dim = grad_memory.shape[-1]
    three = slopes[..., : 3 * dim].view(*grad_memory.shape[:-1], 3, dim)
    three.mul_(grad_memory.unsqueeze(-2))
    slopes[..., 3 * dim :].mul_(grad_cells)


def _inside(values: Tensor, clip: float | None) -> Tensor | None:
    """Return where a clip lets gradients pass: what was beyond the bound lies on it now."""
    return None if clip is None else values.abs() < clip


def _reset_steps(keep: Tensor | None, time: int) -> list[bool]:
    """Return in which steps any row is reset; on a GPU, all: to look would stall it."""
    if keep is None:
        return [False] * time
    if keep.device.type != "cpu":
        return [True] * time
    resets: list[bool] = (keep == 0).flatten(1).any(dim=1).tolist()
    return resets


def _rows_of_sides(values: Tensor) -> Tensor:
    """Lay `(time, 2, rows, width)` out as `(2, time * rows, width)`."""
    return values.transpose(0, 1).flatten(1, 2)


def _kept(values: Tensor, keep: Tensor, time: int) -> Tensor:
    """Zero the rows that are reset."""
    return values * keep[time].to(values.dtype)


def _activate_(gates: Tensor) -> None:
    """Put sigmoid of i, f, o and tanh of g in their places, `(2, rows, 4 * dim)`."""
    dim = gates.shape[-1] // 4
    gates[..., : 2 * dim].sigmoid_()
    gates[..., 2 * dim : 3 * dim].tanh_()
    gates[..., 3 * dim :].sigmoid_()


def _cast(dtype: torch.dtype, *weights: Tensor | None) -> list[Any]:
    """Return weights in the type of the products: under autocast that is bfloat16."""
    return [None if weight is None else weight.to(dtype) for weight in weights]

"""One recurrent layer over streams, both directions at once, differentiable.

`run_layer` is what the language model calls, and the place of faster kernels. The plain loop is its
reference. LSTM layers take the path below it, which computes the same with fewer, larger products:
those of both directions run together, and the gradients of the weights are one product for all time
steps instead of one for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.layers import LayerState, LSTMLayer, RecurrentLayer


def run_layer(
    sides: Sequence[RecurrentLayer], inputs: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    """Read streams with both directions of one layer.

    Args:
        sides: The layer that reads forwards and the one that reads backwards.
        inputs: Vectors in the order of reading, shape `(2, time, rows, projection_dim)`.
        state: What the layers remember: `(2, rows, projection_dim)` and `(2, rows, dim)`.
        keep: 0 where the state is zeroed before a word is read, else 1, shape `(time, rows, 1)`;
            None if it never is.

    Returns:
        Outputs of shape `(2, time, rows, projection_dim)` and the state after the last word.
    """
    products = torch.stack(
        [
            F.linear(vectors, side.input_weight, side.gate_bias())
            for side, vectors in zip(sides, inputs, strict=True)
        ]
    )
    run = _run_lstm if isinstance(sides[0], LSTMLayer) else _run_plainly
    return run(sides, products, state, keep)


def _run_plainly(
    sides: Sequence[RecurrentLayer], products: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    """Take step after step, one direction after the other; the reference."""
    outputs, ends = [], []
    for number, side in enumerate(sides):
        now = LayerState(state.hidden[number], state.memory[number])
        read = []
        for time, step_inputs in enumerate(products[number]):
            if keep is not None:
                now = LayerState(now.hidden * keep[time], now.memory * keep[time])
            now = side.step(step_inputs, now)
            read.append(now.hidden)
        outputs.append(torch.stack(read))
        ends.append(now)
    hidden, memory = (torch.stack(parts) for parts in zip(*ends, strict=True))
    return torch.stack(outputs), LayerState(hidden, memory)


def _run_lstm(
    sides: Sequence[RecurrentLayer], products: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    projections: list[Tensor] = [
        side.projection_weight for side in sides if side.projection_weight is not None
    ]
    outputs, memory = _LSTM.apply(  # type: ignore[no-untyped-call]
        products,
        state.hidden,
        state.memory,
        torch.stack([side.recurrent_weight for side in sides]),
        torch.stack(projections) if projections else None,
        keep,
        sides[0].cell_clip,
        sides[0].proj_clip,
    )
    return outputs, LayerState(outputs[:, -1], memory)


class _LSTM(torch.autograd.Function):
    """`LSTMLayer.step` over all time steps of both directions, its backward pass written out.

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
            ctx: Keeps what the way back needs.
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
        hiddens = products.new_empty(time + 1, *hidden.shape)
        inside = None
        if projection is not None and proj_clip is not None:
            inside = torch.empty(hiddens[1:].shape, dtype=torch.bool, device=products.device)
        memories[0], hiddens[0] = memory, hidden
        for t in range(time):
            # Where a sentence restarts, what was before is forgotten, but stays in the outputs.
            hidden, memory = _kept(hiddens[t], keep, t), _kept(memories[t], keep, t)
            torch.baddbmm(products[:, t], hidden, recurrent.mT, out=gates[t])
            _activate_(gates[t])
            i, f, g, o = gates[t].chunk(4, dim=-1)
            torch.mul(f, memory, out=memories[t + 1]).addcmul_(i, g)
            if cell_clip is not None:
                memories[t + 1].clamp_(-cell_clip, cell_clip)
            torch.mul(o, memories[t + 1].tanh(), out=cells[t])
            if projection is None:
                hiddens[t + 1] = cells[t]
            else:
                torch.bmm(cells[t], projection.mT, out=hiddens[t + 1])
                if inside is not None and proj_clip is not None:
                    torch.le(hiddens[t + 1].abs(), proj_clip, out=inside[t])
                    hiddens[t + 1].clamp_(-proj_clip, proj_clip)
        ctx.save_for_backward(gates, memories, cells, hiddens, inside, recurrent, projection, keep)
        ctx.cell_clip = cell_clip
        final = memories[-1].clone()
        ctx.mark_non_differentiable(final)
        return hiddens[1:].transpose(0, 1).contiguous(), final

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Give the gradients of products, recurrent and projection weights."""
        gates, memories, cells, hiddens, inside, recurrent, projection, keep = ctx.saved_tensors
        outputs = gradients[0].transpose(0, 1)
        of_gates = torch.empty_like(gates)
        of_hidden = torch.empty_like(hiddens[1:])
        carried = torch.zeros_like(hiddens[0])
        of_memory = torch.zeros_like(memories[0])
        for t in reversed(range(len(gates))):
            torch.add(outputs[t], carried, out=of_hidden[t])
            if inside is not None:
                of_hidden[t] *= inside[t]
            of_cells = of_hidden[t] if projection is None else of_hidden[t] @ projection
            before = _kept(memories[t], keep, t)
            _cell_backward_(
                of_gates[t], of_memory, of_cells, gates[t], before, memories[t + 1], ctx
            )
            carried = _kept(of_gates[t] @ recurrent, keep, t)
            of_memory = _kept(of_memory, keep, t)
        starts = (
            hiddens[:-1] if keep is None else hiddens[:-1] * keep.unsqueeze(1).to(hiddens.dtype)
        )
        of_recurrent = _rows_of_sides(of_gates).mT @ _rows_of_sides(starts)
        of_projection = None
        if projection is not None:
            of_projection = _rows_of_sides(of_hidden).mT @ _rows_of_sides(cells)
        return of_gates.transpose(0, 1), None, None, of_recurrent, of_projection, None, None, None


def _rows_of_sides(values: Tensor) -> Tensor:
    """Lay `(time, 2, rows, width)` out as `(2, time * rows, width)`."""
    return values.transpose(0, 1).flatten(1, 2)


def _kept(values: Tensor, keep: Tensor | None, time: int) -> Tensor:
    """Zero the rows that restart."""
    return values if keep is None else values * keep[time].to(values.dtype)


def _activate_(gates: Tensor) -> None:
    """Put sigmoid of i, f, o and tanh of g in their places, `(2, rows, 4 * dim)`."""
    dim = gates.shape[-1] // 4
    gates[..., : 2 * dim].sigmoid_()
    gates[..., 2 * dim : 3 * dim].tanh_()
    gates[..., 3 * dim :].sigmoid_()


def _cell_backward_(
    of_gates: Tensor,
    of_memory: Tensor,
    of_cells: Tensor,
    gates: Tensor,
    before: Tensor,
    after: Tensor,
    ctx: Any,
) -> None:
    """Go one step back through the cell.

    Args:
        of_gates: Gets the gradient of the gates before their activations, `(2, rows, 4 * dim)`.
        of_memory: Gradient of the memory after the step, `(2, rows, dim)`; becomes that before it.
        of_cells: Gradient of o * tanh(c), `(2, rows, dim)`.
        gates: Gates after their activations, `(2, rows, 4 * dim)`.
        before: Memory before the step, `(2, rows, dim)`.
        after: Memory after it, clipped, `(2, rows, dim)`.
        ctx: Knows the clip.
    """
    i, f, g, o = gates.chunk(4, dim=-1)
    of_i, of_f, of_g, of_o = of_gates.chunk(4, dim=-1)
    tanh = after.tanh()
    torch.mul(of_cells * tanh, o - o * o, out=of_o)
    of_memory += of_cells * o * (1 - tanh * tanh)
    if ctx.cell_clip is not None:
        # Nothing passes a clip; what was beyond the bound lies on it now.
        of_memory *= after.abs() < ctx.cell_clip
    torch.mul(of_memory * g, i - i * i, out=of_i)
    torch.mul(of_memory * before, f - f * f, out=of_f)
    torch.mul(of_memory * i, 1 - g * g, out=of_g)
    of_memory *= f


def _cast(dtype: torch.dtype, *weights: Tensor | None) -> list[Any]:
    """Give weights in the type of the products: under autocast that is bfloat16."""
    return [None if weight is None else weight.to(dtype) for weight in weights]

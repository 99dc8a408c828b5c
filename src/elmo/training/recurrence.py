"""One recurrent layer over streams, differentiable: the place of the fast kernels.

`run_layer` is what the language model calls. The plain loop is its reference; `LSTMLayer`s take the
path below it, which computes the same with fewer, larger products: gradients of the weights are one
product for all time steps instead of one for each.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.layers import LayerState, LSTMLayer, RecurrentLayer


def run_layer(
    layer: RecurrentLayer, inputs: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    """Read streams with one direction of one layer.

    Args:
        layer: The layer.
        inputs: Vectors, shape `(time, rows, projection_dim)`.
        state: What the layer remembers, `rows` rows.
        keep: 0 where the state is zeroed before a word is read, else 1, shape `(time, rows, 1)`;
            None if it never is.

    Returns:
        Outputs of shape `(time, rows, projection_dim)` and the state after the last word.
    """
    products = F.linear(inputs, layer.input_weight, layer.gate_bias())
    if isinstance(layer, LSTMLayer):
        return _run_lstm(layer, products, state, keep)
    return _run_plainly(layer, products, state, keep)


def _run_plainly(
    layer: RecurrentLayer, products: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    """Take step after step; the reference."""
    outputs = []
    for time, step_inputs in enumerate(products):
        if keep is not None:
            state = LayerState(state.hidden * keep[time], state.memory * keep[time])
        state = layer.step(step_inputs, state)
        outputs.append(state.hidden)
    return torch.stack(outputs), state


def _run_lstm(
    layer: LSTMLayer, products: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    outputs, memory = _LSTM.apply(  # type: ignore[no-untyped-call]
        products,
        state.hidden,
        state.memory,
        layer.recurrent_weight,
        layer.projection_weight,
        keep,
        layer.cell_clip,
        layer.proj_clip,
    )
    return outputs, LayerState(outputs[-1], memory)


class _LSTM(torch.autograd.Function):
    """`LSTMLayer.step` over all time steps, with its backward pass written out.

    No gradient goes to the state at the start: back-propagation through time is truncated there.
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
        """Run; shapes as in `run_layer`, `products` is `(time, rows, 4 * dim)`."""
        time, rows, width = products.shape
        recurrent, projection = _cast(products.dtype, recurrent, projection)
        gates = torch.empty_like(products)  # i, f, g, o after their activations
        memories = memory.new_empty(time + 1, rows, width // 4)
        cells = products.new_empty(time, rows, width // 4)  # o * tanh(c)
        hiddens = products.new_empty(time + 1, rows, hidden.shape[1])
        inside = None
        if projection is not None and proj_clip is not None:
            inside = torch.empty(hiddens[1:].shape, dtype=torch.bool, device=products.device)
        memories[0], hiddens[0] = memory, hidden
        for t in range(time):
            # Where a sentence restarts, what was before is forgotten, but stays in the outputs.
            hidden, memory = _kept(hiddens[t], keep, t), _kept(memories[t], keep, t)
            torch.addmm(products[t], hidden, recurrent.t(), out=gates[t])
            _activate_(gates[t])
            i, f, g, o = gates[t].chunk(4, dim=1)
            torch.mul(f, memory, out=memories[t + 1]).addcmul_(i, g)
            if cell_clip is not None:
                memories[t + 1].clamp_(-cell_clip, cell_clip)
            torch.mul(o, memories[t + 1].tanh(), out=cells[t])
            if projection is None:
                hiddens[t + 1] = cells[t]
            else:
                torch.mm(cells[t], projection.t(), out=hiddens[t + 1])
                if inside is not None and proj_clip is not None:
                    torch.le(hiddens[t + 1].abs(), proj_clip, out=inside[t])
                    hiddens[t + 1].clamp_(-proj_clip, proj_clip)
        ctx.save_for_backward(gates, memories, cells, hiddens, inside, recurrent, projection, keep)
        ctx.cell_clip = cell_clip
        final = memories[-1].clone()
        ctx.mark_non_differentiable(final)
        return hiddens[1:].clone(), final

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Give the gradients of products, recurrent and projection weights."""
        gates, memories, cells, hiddens, inside, recurrent, projection, keep = ctx.saved_tensors
        outputs = gradients[0]
        time = outputs.shape[0]
        of_gates = torch.empty_like(gates)
        of_hidden = torch.empty_like(outputs)
        carried = torch.zeros_like(outputs[0])
        of_memory = torch.zeros_like(memories[0])
        for t in reversed(range(time)):
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
        starts = hiddens[:-1] if keep is None else hiddens[:-1] * keep.to(hiddens.dtype)
        of_recurrent = of_gates.flatten(0, 1).t() @ starts.flatten(0, 1)
        of_projection = None
        if projection is not None:
            of_projection = of_hidden.flatten(0, 1).t() @ cells.flatten(0, 1)
        return of_gates, None, None, of_recurrent, of_projection, None, None, None


def _kept(values: Tensor, keep: Tensor | None, time: int) -> Tensor:
    """Zero the rows that restart."""
    return values if keep is None else values * keep[time].to(values.dtype)


def _activate_(gates: Tensor) -> None:
    """Put sigmoid of i, f, o and tanh of g in their places, `(rows, 4 * dim)`."""
    dim = gates.shape[1] // 4
    gates[:, : 2 * dim].sigmoid_()
    gates[:, 2 * dim : 3 * dim].tanh_()
    gates[:, 3 * dim :].sigmoid_()


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
        of_gates: Gets the gradient of the gates before their activations, `(rows, 4 * dim)`.
        of_memory: Gradient of the memory after the step, `(rows, dim)`; becomes that before it.
        of_cells: Gradient of o * tanh(c), `(rows, dim)`.
        gates: Gates after their activations, `(rows, 4 * dim)`.
        before: Memory before the step, `(rows, dim)`.
        after: Memory after it, clipped, `(rows, dim)`.
        ctx: Knows the clip.
    """
    i, f, g, o = gates.chunk(4, dim=1)
    of_i, of_f, of_g, of_o = of_gates.chunk(4, dim=1)
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

"""The LSTM over streams on a GPU: cuBLAS products with one kernel between each two of them.

The same as the plain code in `recurrence`, laid out so that little is copied and nothing
transposed: every tensor is `(2, time, rows, width)`, of which a time step is a batch of two
matrices and the whole is two matrices of all steps' rows. A step's input and the hidden state
before it lie side by side and are multiplied together: in the forward pass each gate is then
written by one product, and in the backward pass all gates are read once for both. Products become
gates, and gates their gradients, in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import increment_version

from elmo.backends.gpu.kernels.training_cell import (
    cell_backward,
    cell_forward,
    hidden_backward,
    hidden_forward,
)
from elmo.model.cells import Cell, LayerState


def run_fused_lstm(
    sides: Sequence[Cell], inputs: Tensor, state: LayerState, keep: Tensor | None
) -> tuple[Tensor, LayerState]:
    """Read streams with both directions of one LSTM layer; see `recurrence.run_layer`.

    Products run in the type that autocast asks for, memory is float32.
    """
    kind = inputs.device.type
    enabled = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if enabled else sides[0].input_weight.dtype
    projections = [
        side.projection_weight.to(dtype) for side in sides if side.projection_weight is not None
    ]
    weights = [
        torch.cat([side.input_weight.to(dtype), side.recurrent_weight.to(dtype)], dim=1)
        for side in sides
    ]
    outputs, memory = _FusedLSTM.apply(  # type: ignore[no-untyped-call]
        inputs.to(dtype),
        state.hidden.to(dtype),
        state.memory,
        torch.stack(weights),
        torch.stack([side.gate_bias() for side in sides]),
        torch.stack(projections) if projections else None,
        None if keep is None else keep.squeeze(-1).float().contiguous(),
        sides[0].cell_clip,
        sides[0].proj_clip if projections else None,
    )
    return outputs, LayerState(outputs[:, -1], memory)


class _FusedLSTM(torch.autograd.Function):
    """All time steps of both directions; no gradient goes to the state at the start."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        hidden: Tensor,
        memory: Tensor,
        weight: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        keep: Tensor | None,
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> tuple[Tensor, Tensor]:
        """Run.

        Args:
            ctx: Keeps what the backward pass needs.
            inputs: `(2, time, rows, projection_dim)`, in the type of products, as all weights.
            hidden: `(2, rows, projection_dim)`.
            memory: Float32 `(2, rows, dim)`.
            weight: Input and recurrent weights side by side, `(2, 4 * dim, 2 * projection_dim)`.
            bias: Float32 `(2, 4 * dim)`.
            projection: `(2, projection_dim, dim)`, if there is one.
            keep: Float32 `(time, rows)`; see `recurrence.run_layer`.
            cell_clip: Bound of the memory.
            proj_clip: Bound of the projected output.
        """
        sides, time, rows, width = inputs.shape
        dim = memory.shape[-1]
        gates = inputs.new_empty(sides, time, rows, 4 * dim)
        cells = inputs.new_empty(sides, time, rows, dim)
        memories = memory.new_empty(sides, time + 1, rows, dim)
        outputs = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        joint = inputs.new_empty(sides, time, rows, 2 * width)  # inputs and hidden states before
        joint[..., :width] = inputs
        starts = joint[..., width:]
        memories[:, 0] = memory
        starts[:, 0] = hidden if keep is None else hidden * keep[0].to(hidden.dtype).unsqueeze(-1)
        for t in range(time):
            torch.bmm(joint[:, t], weight.mT, out=gates[:, t])
            cell_forward(
                gates[:, t],
                bias,
                _at(keep, t),
                memories[:, t],
                memories[:, t + 1],
                cells[:, t],
                cell_clip,
            )
            raw = cells[:, t]
            if projection is not None:
                raw = torch.bmm(cells[:, t], projection.mT, out=outputs[:, t])
            start = starts[:, t + 1] if t + 1 < time else None
            hidden_forward(raw, _at(keep, t + 1), outputs[:, t], start, proj_clip)
        ctx.save_for_backward(gates, memories, cells, outputs, joint, weight, projection, keep)
        ctx.cell_clip, ctx.proj_clip = cell_clip, proj_clip
        final = memories[:, -1].clone()
        ctx.mark_non_differentiable(final)
        return outputs, final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs and of all weights."""
        gates, memories, cells, outputs, joint, weight, projection, keep = ctx.saved_tensors
        given = gradients[0].contiguous()
        time, width = given.shape[1], given.shape[-1]
        of_raw = torch.empty_like(given)
        of_joint = torch.empty_like(joint)
        of_memory = torch.zeros_like(memories[:, 0], memory_format=torch.contiguous_format)
        for t in reversed(range(time)):
            carried = of_joint[:, t + 1, :, width:] if t + 1 < time else None
            hidden_backward(
                given[:, t], carried, _at(keep, t + 1), outputs[:, t], of_raw[:, t], ctx.proj_clip
            )
            of_cells = of_raw[:, t]
            if projection is not None:
                of_cells = torch.bmm(of_cells, projection)
            cell_backward(
                gates[:, t],
                _at(keep, t),
                memories[:, t],
                memories[:, t + 1],
                of_cells,
                of_memory,
                ctx.cell_clip,
            )
            torch.bmm(gates[:, t], weight, out=of_joint[:, t])
        increment_version(gates)  # gates are gradients now: a second backward pass must fail
        of_gates = _flat(gates)
        of_projection = None if projection is None else torch.bmm(_flat(of_raw).mT, _flat(cells))
        return (
            of_joint[..., :width],
            None,
            None,
            torch.bmm(of_gates.mT, _flat(joint)),
            of_gates.sum(dim=1, dtype=torch.float32),
            of_projection,
            None,
            None,
            None,
        )


def _flat(values: Tensor) -> Tensor:
    """View `(2, time, rows, width)` as `(2, time * rows, width)`."""
    return values.flatten(1, 2)


def _at(keep: Tensor | None, time: int) -> Tensor | None:
    """Return which rows are kept before a step, `(rows,)`; after the last step all are."""
    return None if keep is None or time == len(keep) else keep[time]

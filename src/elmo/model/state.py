"""What all layers of a biLM remember, and how it is carried from batch to batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.model.cells import LayerState, cell_class


class State(NamedTuple):
    """What all recurrent layers remember, for each row (sentence or stream) of a batch."""

    hidden: Tensor
    """Shape `(layers, 2, rows, projection_dim)`; directions forward, backward."""
    memory: Tensor
    """Shape `(layers, 2, rows, memory_dim)`; see `Cell.memory_dim`, `dim` for an LSTM."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.hidden.shape[2]

    def take(self, rows: Tensor | slice) -> State:
        """Return the state of some rows."""
        return State(self.hidden[:, :, rows], self.memory[:, :, rows])

    def repeat(self, rows: int) -> State:
        """Return a state whose rows all equal this one's only row."""
        return State(self.hidden.expand(-1, -1, rows, -1), self.memory.expand(-1, -1, rows, -1))

    def layer(self, layer: int, direction: int) -> LayerState:
        """Return one layer's part in one direction."""
        return LayerState(self.hidden[layer, direction], self.memory[layer, direction])


def zero_state(config: ElmoConfig, rows: int, like: Tensor) -> State:
    """Return the state before anything was read, float32 on the device of `like`."""
    shape = (config.n_layers, 2, rows)
    memory_dim = cell_class(config.cell).memory_dim(config)
    return State(
        like.new_zeros(*shape, config.projection_dim, dtype=torch.float32),
        like.new_zeros(*shape, memory_dim, dtype=torch.float32),
    )


class CarriedState:
    """State carried from batch to batch, row by row, exactly as AllenNLP's stateful biLM does.

    It grows by zero rows when a larger batch comes; rows beyond a smaller batch are kept for later.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        self._config = config
        self.state: State | None = None

    def first_rows(self, rows: int, device: torch.device) -> State:
        """Return what the first rows remember."""
        like = torch.empty(0, device=device)
        known = self.state or zero_state(self._config, 0, like)
        fresh = zero_state(self._config, max(0, rows - known.rows), like)
        self.state = State(*(torch.cat(pair, dim=2) for pair in zip(known, fresh, strict=True)))
        return self.state.take(slice(0, rows))

    def keep(self, final: State) -> None:
        """Store what the first rows remember after a batch."""
        assert self.state is not None
        for kept, new in zip(self.state, final, strict=True):
            kept[:, :, : final.rows] = new.detach()

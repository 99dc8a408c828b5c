"""Recurrent cells: what one direction of one layer computes in one time step.

A cell is one class here and one line in `CELLS`. The class says which gates there are, what they
are called in stored files, which parameters they have and, in `step`, what is computed; all else
(layers, training, files, flags, costs) reads it from there. Faster versions of a cell may exist in
`elmo.backends` and `elmo.training`; where there is none, `step` runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import ElmoConfig
from elmo.errors import ConfigError

FORGET_BIAS = 1.0
"""Added to the forget gate; TensorFlow's LSTMCell does so and keeps it out of the saved bias."""


class LayerState(NamedTuple):
    """What one direction of one layer remembers, row by row; zero before anything was read."""

    hidden: Tensor
    """Its last output before any residual, shape `(rows, projection_dim)`."""
    memory: Tensor
    """What else its cell keeps, shape `(rows, memory_dim)`: the cells of an LSTM."""

    def take(self, rows: slice) -> LayerState:
        """Return the state of some rows."""
        return LayerState(self.hidden[rows], self.memory[rows])

    @classmethod
    def join(cls, states: Sequence[LayerState]) -> LayerState:
        """Concatenate the rows of several states."""
        hidden, memory = zip(*states, strict=True)
        return cls(torch.cat(hidden), torch.cat(memory))


class Cell(nn.Module):
    """A recurrent cell with its weights, of one direction of one layer.

    Every cell multiplies its input with `input_weight` and adds `bias`, for all words at once and
    outside of `step`. Most multiply their last output with `recurrent_weight`, and all end in a
    projection where `dim` and `projection_dim` differ. Further parameters are made in `__init__`.

    Args:
        config: Sizes.
    """

    gates: ClassVar[tuple[str, ...]]
    """The blocks of `dim` rows in weights and bias, in the order of our files."""
    stored_gates: ClassVar[tuple[str, ...]] = ()
    """Their order in the published HDF5 layout, where it is another."""
    stored_names: ClassVar[tuple[str, ...]]
    """The cell's name in tensors of that layout: the standard one, then those of dialects."""
    stored_parameters: ClassVar[dict[str, str]] = {}
    """Names of further parameters in that layout, where they differ from ours."""
    has_recurrent_weight: ClassVar[bool] = True
    """Whether the gates see the last output."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        rows, width = len(self.gates) * config.dim, config.projection_dim
        self.cell_clip, self.proj_clip = config.cell_clip, config.proj_clip
        self.input_weight = nn.Parameter(torch.empty(rows, width))
        if self.has_recurrent_weight:
            self.recurrent_weight = nn.Parameter(torch.empty(rows, width))
        self.bias = nn.Parameter(torch.empty(rows))
        self.projection_weight = (
            nn.Parameter(torch.empty(width, config.dim)) if config.has_projection else None
        )

    @classmethod
    def memory_dim(cls, config: ElmoConfig) -> int:
        """Return the width of the memory; 0 for a cell that keeps nothing but its output."""
        return config.dim

    def reset_parameters(self) -> None:
        """Initialize the weights: uniform, scaled by fan-in and fan-out; all else zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        weights = [self.input_weight]
        if self.has_recurrent_weight:
            weights.append(self.recurrent_weight)
        # TensorFlow keeps both weights in one matrix and scales by its two sides.
        fan_in, fan_out = sum(weight.shape[1] for weight in weights), len(self.input_weight)
        bound = math.sqrt(6 / (fan_in + fan_out))
        for weight in weights:
            nn.init.uniform_(weight, -bound, bound)
        if self.projection_weight is not None:
            nn.init.xavier_uniform_(self.projection_weight)

    def gate_bias(self) -> Tensor:
        """Return the bias of the input product, shape `(gates * dim,)`."""
        return self.bias

    def step(self, inputs: Tensor, state: LayerState) -> LayerState:
        """Compute one time step.

        Args:
            inputs: The input product with its bias, shape `(rows, gates * dim)`.
            state: The state before the step.
        """
        raise NotImplementedError

    def recur(self, hidden: Tensor) -> Tensor:
        """Multiply the last output with the recurrent weight, `(rows, gates * dim)`."""
        return F.linear(hidden, self.recurrent_weight)

    def clip(self, memory: Tensor) -> Tensor:
        """Bound memory by `cell_clip`, as bilm-tf does at every step, also when embedding."""
        return _clip(memory, self.cell_clip)

    def project(self, outputs: Tensor) -> Tensor:
        """Project `(rows, dim)` to `(rows, projection_dim)` and bound the result by `proj_clip`.

        Without a projection there is no second clip either, as in TensorFlow's LSTMCell.
        """
        if self.projection_weight is None:
            return outputs
        return _clip(F.linear(outputs, self.projection_weight), self.proj_clip)


class LSTM(Cell):
    """The LSTM of the published biLMs (TensorFlow's LSTMCell with projection and clips).

        i, f, g, o = W_x x + W_h h + b          f gets another +1
        c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g), cell_clip)
        h = clip(W_p (sigmoid(o) * tanh(c)), proj_clip)

    The hidden state that recurs is the projected one (Sak et al. 2014), and has `projection_dim`
    values.
    """

    gates = ("i", "f", "g", "o")  # input, forget, candidate, output, as PyTorch orders them
    stored_gates = ("i", "g", "f", "o")
    stored_names = ("LSTMCell", "lstm_cell")

    def gate_bias(self) -> Tensor:
        """Return the bias with the constant of the forget gate added, shape `(4 * dim,)`."""
        i, f, g, o = self.bias.chunk(4)
        return torch.cat([i, f + FORGET_BIAS, g, o])

    def step(self, inputs: Tensor, state: LayerState) -> LayerState:
        """Compute one time step; see `Cell.step`."""
        i, f, g, o = (inputs + self.recur(state.hidden)).chunk(4, dim=1)
        memory = torch.sigmoid(f) * state.memory + torch.sigmoid(i) * torch.tanh(g)
        memory = self.clip(memory)
        return LayerState(self.project(torch.sigmoid(o) * torch.tanh(memory)), memory)


class GRU(Cell):
    """A GRU in the LSTM's place, with the same projection and clips; no published biLM uses it.

        r, z = sigmoid(W_x x + W_h h + b)
        n = tanh(W_x x + b + r * (W_h h + b_n))
        m = clip((1 - z) * n + z * m, cell_clip)
        h = clip(W_p m, proj_clip)

    Without a projection this is torch.nn.GRU.
    """

    gates = ("r", "z", "n")  # reset, update, candidate
    stored_names = ("GRUCell", "gru_cell")
    stored_parameters: ClassVar[dict[str, str]] = {"candidate_bias": "B_candidate"}

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.candidate_bias = nn.Parameter(torch.empty(config.dim))

    def step(self, inputs: Tensor, state: LayerState) -> LayerState:
        """Compute one time step; see `Cell.step`."""
        r_x, z_x, n_x = inputs.chunk(3, dim=1)
        r_h, z_h, n_h = self.recur(state.hidden).chunk(3, dim=1)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + r * (n_h + self.candidate_bias))
        memory = self.clip((1 - z) * n + z * state.memory)
        return LayerState(self.project(memory), memory)


CELLS: dict[str, type[Cell]] = {"lstm": LSTM, "gru": GRU}
"""Every recurrent cell, by the name in `config.json` and of `--cell`."""


def cell_class(name: str) -> type[Cell]:
    """Return the cell of this name, or raise a `ConfigError` that lists the known ones."""
    if name not in CELLS:
        raise ConfigError(f"cell is {name!r}, expected one of {', '.join(CELLS)}")
    return CELLS[name]


def _clip(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else values.clamp(-bound, bound)

"""The layers of the biLM: words to vectors, and a recurrent cell run over a whole batch.

    characters --table--> (n, char_dim, max_characters) --convolutions, max--> (n, n_filters)
               --activation, highways--> (n, n_filters) --projection--> (n, projection_dim)

Plain PyTorch: readable, differentiable, the reference for the faster versions in `elmo.backends`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import ElmoConfig
from elmo.model.cells import Cell, LayerState


class CharacterEncoder(nn.Module):
    """Characters of a word -> its vector: convolutions, maximum, highways, projection.

    The maximum runs over every position, padding characters included (they have a learned vector),
    and the activation follows the maximum. Both are as published.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.embedding = _embedding(config.n_characters, config.char_dim)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_dim, number, width) for width, number in config.filters
        )
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[config.activation]
        self.highways = nn.ModuleList(Highway(config.n_filters) for _ in range(config.n_highway))
        self.projection = (
            nn.Linear(config.n_filters, config.projection_dim)
            if config.has_word_projection
            else nn.Identity()
        )

    def reset_parameters(self) -> None:
        """Initialize the weights."""
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        with torch.no_grad():
            self.embedding.weight[0].zero_()
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            assert convolution.bias is not None
            fan_in = convolution.in_channels * convolution.kernel_size[0]
            nn.init.normal_(convolution.weight, std=1 / math.sqrt(fan_in))
            nn.init.zeros_(convolution.bias)
        for highway in self.highways:
            assert isinstance(highway, Highway)
            highway.reset_parameters()
        if isinstance(self.projection, nn.Linear):
            nn.init.normal_(self.projection.weight, std=1 / math.sqrt(self.projection.in_features))
            nn.init.zeros_(self.projection.bias)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode words.

        Args:
            ids: Character ids, int64 of shape `(n, max_characters)`.

        Returns:
            Context-free vectors, shape `(n, projection_dim)`.
        """
        characters = self.embedding(ids).transpose(1, 2)  # (n, char_dim, max_characters)
        # `max(...).values`, not `amax`: its gradient goes to one position, as published.
        maxima = [conv(characters).max(dim=-1).values for conv in self.convolutions]
        return self.finish(torch.cat(maxima, dim=-1))

    def finish(self, maxima: Tensor) -> Tensor:
        """Go on from the filters' highest responses `(n, n_filters)` to `(n, projection_dim)`."""
        vectors = self.activation(maxima)
        for highway in self.highways:
            vectors = highway(vectors)
        projected: Tensor = self.projection(vectors)
        return projected


class Highway(nn.Module):
    """x -> g * relu(W_t x + b_t) + (1 - g) * x with g = sigmoid(W_g x + b_g).

    The activation inside is relu whatever the character encoder's own activation is, and a new
    gate starts nearly closed (bias -2), both as in bilm-tf.

    Args:
        dim: Width of input and output.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def reset_parameters(self) -> None:
        """Initialize the weights."""
        for linear in (self.transform, self.gate):
            nn.init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Transform `inputs` of shape `(n, dim)`; returns the same shape."""
        gate = torch.sigmoid(self.gate(inputs))
        transformed = torch.relu(self.transform(inputs))
        return gate * transformed + (1 - gate) * inputs


class WordEncoder(nn.Module):
    """A vocabulary of word vectors, for models that read words instead of characters.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.embedding = _embedding(config.n_words + 1, config.projection_dim)

    def reset_parameters(self) -> None:
        """Initialize the weights."""
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(self.embedding.embedding_dim))
        with torch.no_grad():
            self.embedding.weight[0].zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Look up words: ids, int64 `(n,)`, to vectors `(n, projection_dim)`."""
        vectors: Tensor = self.embedding(ids)
        return vectors


def run_packed(
    cell: Cell,
    inputs: Tensor,
    index: Tensor | None,
    batch_sizes: Sequence[int],
    state: LayerState,
) -> tuple[Tensor, LayerState]:
    """Run a cell over a packed batch (`bilm.Packing`): one direction of one layer.

    Args:
        cell: The cell.
        inputs: Vectors, shape `(m, projection_dim)`.
        index: Which of `inputs` stands at each place of the batch, int64 `(n,)`; None if they
            stand there already, one each.
        batch_sizes: Rows at each time step, never growing; their sum is n.
        state: The state before the first step, `batch_sizes[0]` rows.

    Returns:
        Outputs of shape `(n, projection_dim)` and the state of each row after its last word.
    """
    products = F.linear(inputs, cell.input_weight, cell.gate_bias())
    if index is not None:  # equal words have equal products, which are computed once
        products = products.index_select(0, index)
    outputs, end = run_steps(cell, torch.split(products, list(batch_sizes)), state)
    return torch.cat(outputs), end


def run_steps(
    cell: Cell, steps: Iterable[Tensor], state: LayerState, keep: Tensor | None = None
) -> tuple[list[Tensor], LayerState]:
    """Run a cell step by step.

    Args:
        cell: The cell.
        steps: Input products of each time step, `(rows, gates * dim)`; rows may become fewer, and
            the last ones are those that end.
        state: The state before the first step.
        keep: 0 where the state is zeroed before a step, else 1, shape `(time, rows, 1)`; None if
            it never is.

    Returns:
        Outputs of each step, `(rows, projection_dim)`, and the state of each row after its last.
    """
    outputs: list[Tensor] = []
    ended: list[LayerState] = []
    for time, inputs in enumerate(steps):
        rows = len(inputs)
        if rows < len(state.hidden):
            ended.append(state.take(slice(rows, None)))
            state = state.take(slice(rows))
        if keep is not None:
            state = LayerState(state.hidden * keep[time], state.memory * keep[time])
        state = cell.step(inputs, state)
        outputs.append(state.hidden)
    return outputs, LayerState.join([state, *reversed(ended)])


def _embedding(rows: int, width: int) -> nn.Embedding:
    """Return a table of vectors, uninitialized; row 0 is for "no word here" and learns nothing."""
    return nn.Embedding(rows, width, padding_idx=0, _weight=torch.empty(rows, width))

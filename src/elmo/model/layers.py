"""The bricks of the biLM in plain PyTorch: readable, differentiable, the reference for all else.

Recurrent layers run over a *packed* batch, as `torch.nn.utils.rnn` calls it: sentences sorted by
length, longest first, laid out time step by time step, so that step t holds the t-th word of the
`batch_sizes[t]` sentences that still have one. No padding is ever computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import ElmoConfig
from elmo.errors import ConfigError

FORGET_BIAS = 1.0
"""Added to the forget gate; TensorFlow's LSTMCell does so and keeps it out of the saved bias."""


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
        """Draw fresh weights."""
        for linear in (self.transform, self.gate):
            nn.init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Run on `inputs` of shape `(n, dim)`; returns the same shape."""
        gate = torch.sigmoid(self.gate(inputs))
        transformed = torch.relu(self.transform(inputs))
        return gate * transformed + (1 - gate) * inputs


class CharacterEncoder(nn.Module):
    """Characters of a word -> its vector: convolutions, maximum, highways, projection.

    The maximum runs over every position, padding characters included (they have a learned vector),
    and the activation follows the maximum. Both are as published.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.embedding = _table(config.n_characters, config.char_dim)
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
        """Draw fresh weights."""
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        with torch.no_grad():
            self.embedding.weight[0].zero_()
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            fan_in = convolution.in_channels * convolution.kernel_size[0]
            nn.init.normal_(convolution.weight, std=1 / math.sqrt(fan_in))
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        for highway in self.highways:
            assert isinstance(highway, Highway)
            highway.reset_parameters()
        if isinstance(self.projection, nn.Linear):
            nn.init.normal_(self.projection.weight, std=1 / math.sqrt(self.projection.in_features))
            nn.init.zeros_(self.projection.bias)

    def forward(self, ids: Tensor) -> Tensor:
        """Give the vectors of words.

        Args:
            ids: Character ids, int64 of shape `(n, max_characters)`.

        Returns:
            Shape `(n, projection_dim)`.
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


class WordEncoder(nn.Module):
    """A vocabulary of word vectors, for models that read words instead of characters.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.embedding = _table(config.n_words + 1, config.projection_dim)

    def reset_parameters(self) -> None:
        """Draw fresh weights."""
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(self.embedding.embedding_dim))
        with torch.no_grad():
            self.embedding.weight[0].zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Give the vectors of words.

        Args:
            ids: Word ids, int64 of shape `(n,)`.

        Returns:
            Shape `(n, projection_dim)`.
        """
        vectors: Tensor = self.embedding(ids)
        return vectors


class LayerState(NamedTuple):
    """What one direction of one layer remembers, row by row."""

    hidden: Tensor
    """Its last output before any residual, shape `(rows, projection_dim)`."""
    memory: Tensor
    """Its cells, shape `(rows, dim)`."""


class RecurrentLayer(nn.Module):
    """One direction of one recurrent layer, with projection and clips; see the two cells below.

    Args:
        config: Sizes.
        n_gates: Blocks of `dim` rows in the weights.
    """

    def __init__(self, config: ElmoConfig, n_gates: int) -> None:
        super().__init__()
        width = config.projection_dim
        self.cell_clip, self.proj_clip = config.cell_clip, config.proj_clip
        self.input_weight = nn.Parameter(torch.empty(n_gates * config.dim, width))
        self.recurrent_weight = nn.Parameter(torch.empty(n_gates * config.dim, width))
        self.bias = nn.Parameter(torch.empty(n_gates * config.dim))
        self.projection_weight = (
            nn.Parameter(torch.empty(width, config.dim)) if config.has_projection else None
        )

    def reset_parameters(self) -> None:
        """Draw fresh weights: uniform, scaled by fan-in and fan-out, biases zero."""
        width = self.input_weight.shape[1]
        # TensorFlow keeps both weights in one matrix and scales by its two sides.
        bound = math.sqrt(6 / (2 * width + self.input_weight.shape[0]))
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        nn.init.zeros_(self.bias)
        if self.projection_weight is not None:
            nn.init.xavier_uniform_(self.projection_weight)

    def gate_bias(self) -> Tensor:
        """Give the bias of the input product, shape `(gates * dim,)`."""
        return self.bias

    def step(self, inputs: Tensor, state: LayerState) -> LayerState:
        """Take one time step.

        Args:
            inputs: The input product with its bias, shape `(rows, gates * dim)`.
            state: The state before the step.
        """
        raise NotImplementedError

    def project(self, cells: Tensor) -> Tensor:
        """Project and clip cell outputs `(rows, dim)` to `(rows, projection_dim)`."""
        if self.projection_weight is None:
            return cells
        return _clip(F.linear(cells, self.projection_weight), self.proj_clip)

    def forward(
        self, inputs: Tensor, index: Tensor | None, batch_sizes: Sequence[int], state: LayerState
    ) -> tuple[Tensor, LayerState]:
        """Run over a packed batch.

        Args:
            inputs: Vectors, shape `(m, projection_dim)`.
            index: Which of `inputs` stands at each place of the batch, int64 `(n,)`; None if they
                stand there already, one each.
            batch_sizes: Rows at each time step, never growing; their sum is n.
            state: The state before the first step, `batch_sizes[0]` rows.

        Returns:
            Outputs of shape `(n, projection_dim)` and the state of each row after its last word.
        """
        products = F.linear(inputs, self.input_weight, self.gate_bias())
        if index is not None:
            products = products.index_select(0, index)
        outputs: list[Tensor] = []
        finished: list[LayerState] = []
        for step_inputs in torch.split(products, list(batch_sizes)):
            rows = step_inputs.shape[0]
            if rows < state.hidden.shape[0]:
                finished.append(LayerState(state.hidden[rows:], state.memory[rows:]))
                state = LayerState(state.hidden[:rows], state.memory[:rows])
            state = self.step(step_inputs, state)
            outputs.append(state.hidden)
        return torch.cat(outputs), join_states([state, *reversed(finished)])


class LSTMLayer(RecurrentLayer):
    """The LSTM of the published biLMs (TensorFlow's LSTMCell with projection and clips).

        i, f, g, o = W_x x + W_h h + b          f gets another +1
        c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g), cell_clip)
        h = clip(W_p (sigmoid(o) * tanh(c)), proj_clip)

    Args:
        config: Sizes.
    """

    n_gates = 4

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config, self.n_gates)

    def gate_bias(self) -> Tensor:
        """Give the bias with the forget gate's constant added, shape `(4 * dim,)`."""
        input_gate, forget_gate, *others = self.bias.chunk(self.n_gates)
        return torch.cat([input_gate, forget_gate + FORGET_BIAS, *others])

    def step(self, inputs: Tensor, state: LayerState) -> LayerState:
        """Take one time step; see `RecurrentLayer.step`."""
        gates = inputs + F.linear(state.hidden, self.recurrent_weight)
        i, f, g, o = gates.chunk(self.n_gates, dim=1)
        memory = torch.sigmoid(f) * state.memory + torch.sigmoid(i) * torch.tanh(g)
        memory = _clip(memory, self.cell_clip)
        return LayerState(self.project(torch.sigmoid(o) * torch.tanh(memory)), memory)


class GRULayer(RecurrentLayer):
    """A GRU in the LSTM's place, with the same projection and clips; no published biLM uses it.

        r, z = sigmoid(W_x x + W_h h + b)
        n = tanh(W_x x + b + r * (W_h h + b_n))
        m = clip((1 - z) * n + z * m, cell_clip)
        h = clip(W_p m, proj_clip)

    Without a projection this is torch.nn.GRU.

    Args:
        config: Sizes.
    """

    n_gates = 3

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config, self.n_gates)
        self.candidate_bias = nn.Parameter(torch.empty(config.dim))

    def reset_parameters(self) -> None:
        """Draw fresh weights."""
        super().reset_parameters()
        nn.init.zeros_(self.candidate_bias)

    def step(self, inputs: Tensor, state: LayerState) -> LayerState:
        """Take one time step; see `RecurrentLayer.step`."""
        recurrent = F.linear(state.hidden, self.recurrent_weight)
        reset_x, update_x, candidate_x = inputs.chunk(self.n_gates, dim=1)
        reset_h, update_h, candidate_h = recurrent.chunk(self.n_gates, dim=1)
        reset = torch.sigmoid(reset_x + reset_h)
        update = torch.sigmoid(update_x + update_h)
        candidate = torch.tanh(candidate_x + reset * (candidate_h + self.candidate_bias))
        memory = _clip((1 - update) * candidate + update * state.memory, self.cell_clip)
        return LayerState(self.project(memory), memory)


class ScalarMix(nn.Module):
    """gamma * sum_k softmax(w)_k h_k, with w and gamma learned (Peters et al. 2018, equation 1).

    Arguments and parameter names are AllenNLP's, so its saved mixes load as they are.

    Args:
        mixture_size: How many layers are mixed.
        do_layer_norm: Normalise each layer first, with one mean and variance over all its unmasked
            values in the batch (not per word), as published: a vector then depends on the batch.
        initial_scalar_parameters: Weights before the softmax; zeros (the average) by default.
            One weight far above the others selects a layer.
        trainable: Whether weights and gamma learn.
        l2: Coefficient of `penalty`, the pull of the weights towards the average.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
        l2: float = 0.0,
    ) -> None:
        super().__init__()
        initial = (
            [0.0] * mixture_size
            if initial_scalar_parameters is None
            else (list(initial_scalar_parameters))
        )
        if len(initial) != mixture_size:
            raise ConfigError(
                f"initial_scalar_parameters has {len(initial)} weights, expected {mixture_size}"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.l2 = l2
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(weight)]), requires_grad=trainable)
            for weight in initial
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def weights(self) -> Tensor:
        """Give the weights after the softmax, shape `(mixture_size,)`."""
        return torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)

    def penalty(self) -> Tensor:
        """Give `l2 * ||w||^2`, to be added to the loss.

        It pulls the weights before the softmax towards zero, hence the mix towards the average
        (section 3.3 of the paper; bilm-tf's `l2_coef`).
        """
        return self.l2 * torch.cat(list(self.scalar_parameters)).square().sum()

    def forward(self, layers: Sequence[Tensor] | Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix layers.

        Args:
            layers: `mixture_size` tensors of one shape, such as `(batch, time, dim)`.
            mask: True where there is a word, `(batch, time)`; only needed for the layer norm.

        Returns:
            The mix, of the shape of one layer.
        """
        if len(layers) != self.mixture_size:
            raise ConfigError(f"got {len(layers)} layers to mix, expected {self.mixture_size}")
        if self.do_layer_norm:
            if mask is None:
                raise ConfigError("do_layer_norm needs the mask of the words")
            layers = [_norm_over_batch(layer, mask) for layer in layers]
        weights = self.weights()
        mixed = weights[0] * layers[0]
        for weight, layer in zip(weights[1:], layers[1:], strict=True):
            mixed = mixed + weight * layer
        return torch.mul(self.gamma, mixed)


def _norm_over_batch(layer: Tensor, mask: Tensor) -> Tensor:
    """Centre and scale by one mean and one biased variance over all unmasked values.

    The epsilon is AllenNLP's for float32 (bilm-tf has 1e-12); it matters to constant layers only.
    """
    keep = mask.unsqueeze(-1)
    count = mask.sum() * layer.shape[-1]
    mean = (layer * keep).sum() / count
    variance = ((layer - mean) * keep).square().sum() / count
    return (layer - mean) / torch.sqrt(variance + 1e-13)


def _table(rows: int, width: int) -> nn.Embedding:
    """Give a table of vectors, not filled in; row 0 is for "no word here" and learns nothing."""
    return nn.Embedding(rows, width, padding_idx=0, _weight=torch.empty(rows, width))


def join_states(states: Sequence[LayerState]) -> LayerState:
    """Put the rows of several states one after another."""
    hidden, memory = zip(*states, strict=True)
    return LayerState(torch.cat(hidden), torch.cat(memory))


def _clip(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else values.clamp(-bound, bound)

"""The biLM as a language model: the objective that is trained, and the one that is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.gpu.kernels.gpu import triton_ready
from elmo.lm.output_base import Drawn, OutputLayer
from elmo.model.bilm import BiLM
from elmo.model.cells import Cell, LayerState
from elmo.model.layers import CharacterEncoder
from elmo.model.perplexity import Perplexity
from elmo.model.state import State, zero_state
from elmo.text.characters import padding_character
from elmo.training.characters import encode_spelling
from elmo.training.recurrence import run_layer
from elmo.training.streams import Batch


class LanguageModel(nn.Module):
    """A biLM with an output layer that both directions share.

    The objective is the sum of the log-likelihoods of both directions (Peters et al. 2018, section
    3.1): word vectors and output layer are shared, the recurrent layers are not.

    Args:
        bilm: The biLM.
        output: The output layer.
        dropout: Share of values that are dropped from each layer's input and from the top output.
        kernels: Whether kernels are used where they can run (`kernels.gpu.triton_ready`).
    """

    def __init__(
        self, bilm: BiLM, output: OutputLayer, dropout: float = 0.0, kernels: bool = True
    ) -> None:
        super().__init__()
        self.bilm = bilm
        self.output = output
        self.dropout = dropout
        self.kernels = kernels

    def start(self, rows: int, device: torch.device) -> State:
        """Give the state before anything was read, in the type of the weights."""
        dtype = next(self.bilm.forward_layers.parameters()).dtype
        parts = zero_state(self.bilm.config, rows, torch.empty(0, device=device))
        return State(*(part.to(dtype) for part in parts))

    def forward(
        self,
        types: Tensor,
        inputs: Tensor,
        targets: Tensor,
        restarts: Tensor,
        hidden: Tensor,
        memory: Tensor,
        seed: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Give the training criterion of a batch.

        Everything comes and goes as tensors, as `DistributedDataParallel` wants it.

        Args:
            types: See `Batch`, as `inputs`, `targets` and `restarts`.
            inputs: `(2, time, rows)`.
            targets: `(2, time, rows)`.
            restarts: `(time, rows)`.
            hidden: `(layers, 2, rows, projection_dim)`; see `State`.
            memory: `(layers, 2, rows, dim)`.
            seed: Decides the candidates of a sampled softmax.

        Returns:
            Mean loss of each direction `(2,)`, and the state after the batch in two tensors.
        """
        drawn = self.output.draw(seed)
        losses, state = self.losses(
            Batch(types, inputs, targets, restarts),
            State(hidden, memory),
            None if drawn is None else drawn.to(targets.device),
        )
        return losses, state.hidden, state.memory

    def losses(self, batch: Batch, state: State, drawn: Drawn | None) -> tuple[Tensor, State]:
        """Give the mean loss of each direction `(2,)`, and the state after the batch.

        Args:
            batch: The batch.
            state: The state before it.
            drawn: What the output layer drew for this step, on the device of the batch.
        """
        tops, state = self.read(batch, state)
        fused = self._is_fused(batch.targets.device)
        told = batch.targets.flatten(1)
        return self.output.training_losses(tops.flatten(1, 2), told, drawn, fused), state

    def read(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        """Read a batch.

        Returns:
            The top output of both directions `(2, time, rows, projection_dim)`, dropout applied,
            and the state after the batch, detached.
        """
        vectors = self._encode(batch.types)
        keep = None
        # To ask takes longer on a GPU than to do it.
        if batch.restarts.device.type != "cpu" or batch.restarts.any():
            keep = (~batch.restarts).to(state.memory.dtype).unsqueeze(-1)
        return self._climb(F.embedding(batch.inputs, vectors), state, keep)

    def _encode(self, types: Tensor) -> Tensor:
        if not isinstance(self.bilm.words, CharacterEncoder):
            return self.bilm.encode_words(types)
        padding = padding_character(self.bilm.config)
        return encode_spelling(self.bilm.words, types, padding, self._is_fused(types.device))

    def _climb(self, inputs: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        """Run all layers on `(2, time, rows, projection_dim)`."""
        ends: list[LayerState] = []
        pairs = zip(self.bilm.forward_layers, self.bilm.backward_layers, strict=True)
        for number, sides in enumerate(pairs):
            # As in bilm-tf, the residual branch gets the input after its dropout.
            inputs = self._dropped(inputs)
            before = LayerState(state.hidden[number], state.memory[number])
            fused = self._is_fused(inputs.device)
            outputs, end = run_layer(_recurrent(sides), inputs, before, keep, fused)
            ends.append(end)
            skips = number > 0 and self.bilm.config.skip_connections
            inputs = outputs + inputs if skips else outputs
        return self._dropped(inputs), _joined(ends)

    def _is_fused(self, device: torch.device) -> bool:
        return self.kernels and triton_ready(device)

    def _dropped(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.dropout, self.training)


def _recurrent(sides: Sequence[nn.Module]) -> list[Cell]:
    return [side for side in sides if isinstance(side, Cell)]


def _joined(ends: list[LayerState]) -> State:
    """Join the states of all layers, without a way back for gradients."""
    dtype = ends[0].memory.dtype  # autocast leaves it wide
    hidden, memory = (
        torch.stack([part.detach().to(dtype) for part in parts])
        for parts in zip(*ends, strict=True)
    )
    return State(hidden, memory)


class HeldoutLoss:
    """Sums negative log-likelihoods of both directions over words and boundaries."""

    def __init__(self) -> None:
        self.nll = torch.zeros(2, dtype=torch.float64)
        self.n_tokens = 0

    def add(self, nll: Tensor) -> None:
        """Count the values of a batch, `(2, n)`."""
        self.nll += nll.double().sum(dim=1).cpu()
        self.n_tokens += nll.shape[1]

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood of both directions."""
        return float(self.nll.mean()) / max(1, self.n_tokens)

    @property
    def perplexity(self) -> Perplexity:
        """Exp of the mean over all words and boundaries, for each direction."""
        forward, backward = (self.nll / max(1, self.n_tokens)).exp().tolist()
        return Perplexity(forward=forward, backward=backward, n_predictions=self.n_tokens)


@torch.no_grad()
def measure(model: LanguageModel, batches: Iterable[Batch], device: torch.device) -> HeldoutLoss:
    """Measure a model on text that is read from a zero state, with the full softmax."""
    was_training = model.training
    model.eval()
    result = HeldoutLoss()
    state: State | None = None
    for batch in batches:
        moved = batch.to(device)
        if state is None:
            state = model.start(batch.restarts.shape[1], device)
        tops, state = model.read(moved, state)
        pairs = zip(tops, moved.targets, strict=True)
        result.add(
            torch.stack(
                [model.output.nll(top.flatten(0, 1), told.flatten()) for top, told in pairs]
            )
        )
    model.train(was_training)
    return result

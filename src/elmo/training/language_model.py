"""The biLM as a language model: its training loss, and its held-out loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.gpu.kernels.gpu import triton_ready
from elmo.lm.output_base import Drawn, OutputLayer
from elmo.model.bilm import BiLM, State, zero_state
from elmo.model.cells import Cell, LayerState
from elmo.model.layers import CharacterEncoder
from elmo.model.perplexity import Perplexity
from elmo.text.characters import padding_character
from elmo.training.characters import encode_characters
from elmo.training.recurrence import run_layer
from elmo.training.streams import Batch


class LanguageModel(nn.Module):
    """A biLM with an output layer that both directions share.

    The objective is the sum of the log-likelihoods of both directions (Peters et al. 2018, section
    3.1): word vectors and output layer are shared, the recurrent layers are not.

    Args:
        bilm: The biLM.
        output: The output layer.
        dropout: Probability, on each layer's input and on the top output.
        kernels: Whether to use GPU kernels where they can run (`kernels.gpu.triton_ready`).
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
        """Return a zero state in the type of the weights; see `State`."""
        dtype = next(self.bilm.forward_layers.parameters()).dtype
        parts = zero_state(self.bilm.config, rows, torch.empty(0, device=device))
        return State(*(part.to(dtype) for part in parts))

    def forward(
        self,
        types: Tensor,
        inputs: Tensor,
        targets: Tensor,
        resets: Tensor,
        hidden: Tensor,
        memory: Tensor,
        seed: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the training loss of a batch.

        Arguments and results are tensors alone, for `DistributedDataParallel`.

        Args:
            types: See `Batch`, as for `inputs`, `targets` and `resets`.
            inputs: `(2, time, rows)`.
            targets: `(2, time, rows)`.
            resets: `(time, rows)`.
            hidden: `(layers, 2, rows, projection_dim)`; see `State`.
            memory: `(layers, 2, rows, dim)`.
            seed: Decides the candidates of a sampled softmax.

        Returns:
            Mean loss of each direction `(2,)`, and the state after the batch in two tensors.
        """
        drawn = self.output.draw(seed)
        losses, state = self.losses(
            Batch(types, inputs, targets, resets),
            State(hidden, memory),
            None if drawn is None else drawn.to(targets.device),
        )
        return losses, state.hidden, state.memory

    def losses(self, batch: Batch, state: State, drawn: Drawn | None) -> tuple[Tensor, State]:
        """Return the mean loss of each direction `(2,)`, and the state after the batch.

        Args:
            batch: The batch.
            state: The state before it.
            drawn: The candidates of this step, on the device of the batch.
        """
        tops, state = self.read(batch, state)
        fused = self._is_fused(batch.targets.device)
        targets = batch.targets.flatten(1)
        return self.output.training_losses(tops.flatten(1, 2), targets, drawn, fused), state

    def read(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        """Run the forward pass of a batch, without the output layer.

        Returns:
            The top output of both directions `(2, time, rows, projection_dim)`, dropout applied,
            and the state after the batch, detached.
        """
        vectors = self._encode(batch.types)
        keep = None
        # On a GPU `any` takes longer than a mask that is not needed.
        if batch.resets.device.type != "cpu" or batch.resets.any():
            keep = (~batch.resets).to(state.memory.dtype).unsqueeze(-1)
        return self._run_stack(F.embedding(batch.inputs, vectors), state, keep)

    def _encode(self, types: Tensor) -> Tensor:
        if not isinstance(self.bilm.words, CharacterEncoder):
            return self.bilm.encode_words(types)
        padding = padding_character(self.bilm.config)
        return encode_characters(self.bilm.words, types, padding, self._is_fused(types.device))

    def _run_stack(self, inputs: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        """Run all layers on `(2, time, rows, projection_dim)`."""
        ends: list[LayerState] = []
        pairs = zip(self.bilm.forward_layers, self.bilm.backward_layers, strict=True)
        for number, sides in enumerate(pairs):
            # As in bilm-tf, the residual branch gets the input after its dropout.
            inputs = self._dropped(inputs)
            before = LayerState(state.hidden[number], state.memory[number])
            fused = self._is_fused(inputs.device)
            cells = [side for side in sides if isinstance(side, Cell)]
            outputs, end = run_layer(cells, inputs, before, keep, fused)
            ends.append(end)
            skips = number > 0 and self.bilm.config.skip_connections
            inputs = outputs + inputs if skips else outputs
        return self._dropped(inputs), _stacked(ends)

    def _is_fused(self, device: torch.device) -> bool:
        return self.kernels and triton_ready(device)

    def _dropped(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.dropout, self.training)


def _stacked(ends: list[LayerState]) -> State:
    """Stack the states of all layers, detached: gradients are truncated between steps."""
    dtype = ends[0].memory.dtype  # float32 under autocast, too
    hidden, memory = (
        torch.stack([part.detach().to(dtype) for part in parts])
        for parts in zip(*ends, strict=True)
    )
    return State(hidden, memory)


class HeldoutLoss(NamedTuple):
    """Exact losses over words and boundaries of a held-out text."""

    loss: float
    """Mean negative log-likelihood of both directions."""
    perplexity: Perplexity


@torch.no_grad()
def measure(model: LanguageModel, batches: Iterable[Batch], device: torch.device) -> HeldoutLoss:
    """Measure a model on text that is read from a zero state, with the full softmax."""
    was_training = model.training
    model.eval()
    nll = torch.zeros(2, dtype=torch.float64)
    n_tokens = 0
    state: State | None = None
    for batch in batches:
        moved = batch.to(device)
        if state is None:
            state = model.start(batch.resets.shape[1], device)
        tops, state = model.read(moved, state)
        pairs = zip(tops, moved.targets, strict=True)
        of_words = torch.stack(
            [model.output.nll(top.flatten(0, 1), targets.flatten()) for top, targets in pairs]
        )  # (2, n)
        nll += of_words.double().sum(dim=1).cpu()
        n_tokens += of_words.shape[1]
    model.train(was_training)
    forward, backward = (nll / max(1, n_tokens)).exp().tolist()
    perplexity = Perplexity(forward=forward, backward=backward, n_predictions=n_tokens)
    return HeldoutLoss(float(nll.mean()) / max(1, n_tokens), perplexity)

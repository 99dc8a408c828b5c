"""The contract of output layers, and exact probabilities by weights that are packed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.backends.cpu.products import frozen_linear
from elmo.lm.softmax_losses import row_chunks, wide

Product = Callable[[Tensor], Tensor]
"""x `(n, in)` -> x W^T + b."""


class Drawn(NamedTuple):
    """The candidates of a training step."""

    candidates: Tensor
    """Their numbers, int64 `(k,)`."""
    log_q: Tensor
    """Logarithm of the probability that each is among them, `(k,)`."""

    def to(self, device: torch.device) -> Drawn:
        """Return them on another device."""
        return Drawn(*(part.to(device, non_blocking=True) for part in self))


class OutputLayer(nn.Module):
    """Outputs of one direction, `(n, dim)` -> probabilities of `n_words` words.

    Args:
        n_words: Words of the vocabulary.
        dim: Width of an output.
    """

    def __init__(self, n_words: int, dim: int) -> None:
        super().__init__()
        self.n_words = n_words
        self.dim = dim
        self._packed: dict[int, tuple[list[tuple[int, int]], Product]] = {}

    def training_loss(self, hidden: Tensor, targets: Tensor, drawn: Drawn | None) -> Tensor:
        """Return the mean loss that is optimized.

        Args:
            hidden: Outputs of one direction, shape `(n, dim)`.
            targets: The word that each should predict, int64 `(n,)`.
            drawn: What `draw` returned, on the device of `hidden`.

        Returns:
            A float32 scalar (float64 if the layer is).
        """
        raise NotImplementedError

    def draw(self, seed: int) -> Drawn | None:
        """Draw the candidates of a training step, on the CPU; None if all words are.

        Args:
            seed: Any whole number. It alone decides: no global random state is read or changed.
        """
        return None

    def training_losses(
        self, hidden: Tensor, targets: Tensor, drawn: Drawn | None, fused: bool = False
    ) -> Tensor:
        """Return the mean losses of several directions.

        Args:
            hidden: Shape `(sides, n, dim)`.
            targets: Int64 `(sides, n)`.
            drawn: See `training_loss`.
            fused: Whether kernels may be used; see `kernels.gpu.triton_ready`.

        Returns:
            Float32 (float64 if the layer is) of shape `(sides,)`.
        """
        pairs = zip(hidden, targets, strict=True)
        return torch.stack([self.training_loss(rows, words, drawn) for rows, words in pairs])

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return exact negative log-likelihoods over the full vocabulary, without gradients.

        Rows are computed in chunks of bounded memory. On a CPU a row's value does not depend, bit
        for bit, on its neighbors.

        Args:
            hidden: Shape `(n, dim)`.
            targets: Int64 `(n,)`.

        Returns:
            Float32 (float64 if the layer is) of shape `(n,)`.
        """
        values = hidden.new_empty(len(hidden), dtype=self._dtype)
        with torch.no_grad(), _without_autocast(hidden):
            for part in row_chunks(len(hidden), self.n_words, hidden.device):
                values[part] = self._nll_rows(hidden[part].to(self._dtype), targets[part])
        return values

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Return the exact log-probabilities of all words, without gradients.

        Args:
            hidden: Shape `(n, dim)`.

        Returns:
            Float32 (float64 if the layer is) of shape `(n, n_words)`.
        """
        with torch.no_grad(), _without_autocast(hidden):
            return self._log_prob_rows(hidden.to(self._dtype))

    def to_tensors(self) -> dict[str, Tensor]:
        """Return what `Checkpoint.softmax` holds, float32 on the CPU."""
        raise NotImplementedError

    # --- for subclasses ---------------------------------------------------------------------------

    @property
    def _dtype(self) -> torch.dtype:
        """Numbers in which exact values are computed."""
        return wide(next(self.parameters()).dtype)

    def _nll_rows(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return negative log-likelihoods `(n,)` of `targets (n,)` after `hidden (n, dim)`."""
        raise NotImplementedError

    def _log_prob_rows(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities `(n, n_words)` after `hidden (n, dim)`."""
        raise NotImplementedError

    def _product(self, place: int, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Return x -> x W^T + b such that, on a CPU, rows do not depend on each other.

        Weights are packed once and stay packed until they change; in training mode they may change
        at any moment, so nothing is kept.

        Args:
            place: Which product of this layer it is.
            weight: Shape `(out, in)`.
            bias: Shape `(out,)`.
        """
        stamps = [(t.data_ptr(), t._version) for t in (weight, bias) if t is not None]
        known = self._packed.get(place)
        if known is not None and known[0] == stamps:
            return known[1]
        weight = weight.detach().to(self._dtype)
        bias = None if bias is None else bias.detach().to(self._dtype)
        if weight.device.type != "cpu":
            return lambda rows: F.linear(rows, weight, bias)
        product = frozen_linear(weight, bias)
        if not self.training:
            self._packed[place] = (stamps, product)
        return product

    def train(self, mode: bool = True) -> OutputLayer:
        """Switch between training and evaluation."""
        self._packed.clear()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies without packed weights, which cannot be copied."""
        return {**self.__dict__, "_packed": {}}


def saved_copy(tensor: Tensor) -> Tensor:
    """Return a weight as `to_tensors` does: a float32 copy on the CPU."""
    return tensor.detach().cpu().float().clone()


def _without_autocast(tensor: Tensor) -> torch.autocast:
    return torch.autocast(tensor.device.type, enabled=False)

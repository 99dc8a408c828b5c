"""Full and sampled softmax, and how output layers are made and loaded.

Whatever loss a layer is trained by, `nll` and `log_probs` are exact over the whole vocabulary. Both
directions of a biLM share one layer. The vocabulary is sorted by frequency, the most frequent word
first, on which the sampled and the adaptive kind rely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ConfigError, WeightsError
from elmo.lm.adaptive_softmax import AdaptiveSoftmax, adaptive_cutoffs
from elmo.lm.output_base import Drawn, OutputLayer, saved_copy
from elmo.lm.softmax_losses import (
    draw_candidates,
    full_loss,
    pick,
    sampled_loss,
    sampled_losses,
    wide,
)
from elmo.settings import SoftmaxKind
from elmo.weights.files import is_adaptive

DEFAULT_SAMPLES = 8192
"""Candidates drawn for a step of the sampled softmax, as in bilm-tf."""


def make_output_layer(
    kind: SoftmaxKind,
    n_words: int,
    dim: int,
    n_samples: int = DEFAULT_SAMPLES,
    tied: Tensor | None = None,
) -> OutputLayer:
    """Return a new output layer: weights normal with deviation 1/sqrt(dim), biases 0, as bilm-tf.

    Args:
        kind: `full` for exact cross-entropy; `sampled` for cross-entropy against a few drawn
            words; `adaptive` for a tree of clusters, the rare words in narrow ones.
        n_words: Words of the vocabulary, frequent ones first.
        dim: Width of a direction's output.
        n_samples: Candidates drawn for a step of the sampled kind.
        tied: The table of a model that reads words, shape `(n_words + 1, dim)`, row 0 for
            padding: its other rows are then also the weights of this layer.
    """
    if kind not in get_args(SoftmaxKind):
        raise ConfigError(
            f"softmax is {kind!r}, expected one of {', '.join(get_args(SoftmaxKind))}"
        )
    for name, value in (("n_words", n_words), ("dim", dim), ("n_samples", n_samples)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} is {value!r}, expected a whole number of at least 1")
    if tied is not None and tuple(tied.shape) != (n_words + 1, dim):
        raise ConfigError(
            f"the table to share has shape {tuple(tied.shape)}, expected ({n_words + 1}, {dim}): "
            "a row for padding and one for each word"
        )
    if kind == "adaptive":
        if tied is not None:
            raise ConfigError(
                "an adaptive softmax has no weight that could be shared with the words' table; "
                "choose softmax 'full' or 'sampled', or do not share"
            )
        return AdaptiveSoftmax(n_words, dim, adaptive_cutoffs(n_words, dim))
    table = torch.randn(n_words, dim) / math.sqrt(dim) if tied is None else tied
    samples = n_samples if kind == "sampled" else None
    return LinearSoftmax(table, torch.zeros(n_words), tied is not None, samples)


def load_output_layer(
    tensors: Mapping[str, Tensor],
    *,
    kind: SoftmaxKind | None = None,
    n_samples: int = DEFAULT_SAMPLES,
    tied: Tensor | None = None,
) -> OutputLayer:
    """Build a layer around saved tensors, without copying them.

    Args:
        tensors: What `to_tensors` returned.
        kind: How it is trained further; `full` and `sampled` have the same tensors. By default
            `full`, or `adaptive` if it was.
        n_samples: See `make_output_layer`.
        tied: See `make_output_layer`; needed where the tensors have no weight of their own.
    """
    saved: SoftmaxKind = "adaptive" if is_adaptive(tensors) else "full"
    if kind is not None and (kind == "adaptive") != (saved == "adaptive"):
        raise ConfigError(f"the saved output layer is {saved!r} and cannot be trained as {kind!r}")
    if saved == "adaptive":
        return AdaptiveSoftmax.from_tensors(tensors)
    own = tensors.get("weight")
    table = own if tied is None else tied
    if table is None or "bias" not in tensors:
        raise WeightsError(
            f"the saved output layer has {', '.join(sorted(tensors)) or 'no tensors'}, expected "
            "weight and bias (weight may be missing only if it is the table of a model that reads "
            "words)"
        )
    bias = tensors["bias"]
    expected = (len(bias) + (tied is not None), table.shape[-1])
    if bias.ndim != 1 or tuple(table.shape) != expected:
        raise WeightsError(
            f"the saved output layer has a weight of shape {tuple(table.shape)} and a bias of "
            f"shape {tuple(bias.shape)}; expected a row of the weight for each value of the bias"
        )
    samples = n_samples if kind == "sampled" else None
    return LinearSoftmax(table, bias, tied is not None, samples)


class LinearSoftmax(OutputLayer):
    """p(v) = softmax(W h + b)_v, trained exactly or against a sample of words for each step.

    Args:
        table: W, shape `(n_words, dim)`; or the table of a model that reads words, shape
            `(n_words + 1, dim)`, used and trained in place.
        bias: b, shape `(n_words,)`.
        tied: Whether `table` is that of the words.
        n_samples: Words drawn for a step, see `sampled_loss`; the distinct ones are the candidates.
            None for exact cross-entropy.
    """

    def __init__(
        self, table: Tensor, bias: Tensor, tied: bool = False, n_samples: int | None = None
    ) -> None:
        super().__init__(bias.shape[0], table.shape[1])
        self.tied, self.n_samples = tied, n_samples
        # Named as in `to_tensors`; a shared table has another name, since its row 0 is not of W.
        self.register_parameter("table" if tied else "weight", _parameter(table))
        self.bias = _parameter(bias)

    def word_rows(self) -> Tensor:
        """Return W, shape `(n_words, dim)`."""
        rows: Tensor = getattr(self, "table" if self.tied else "weight")
        return rows[1:] if self.tied else rows

    def draw(self, seed: int) -> Drawn | None:
        """Draw candidates; see `OutputLayer.draw`."""
        if self.n_samples is None:
            return None
        candidates, log_q = draw_candidates(self.n_words, self.n_samples, seed)
        return Drawn(candidates, log_q.to(wide(self.bias.dtype)))

    def training_loss(self, hidden: Tensor, targets: Tensor, drawn: Drawn | None) -> Tensor:
        """Return the mean loss, against candidates if some were drawn; see `OutputLayer`."""
        if drawn is None:
            return full_loss(hidden, targets, self.word_rows(), self.bias)
        return sampled_loss(hidden, targets, self.word_rows(), self.bias, *drawn)

    def training_losses(
        self, hidden: Tensor, targets: Tensor, drawn: Drawn | None, fused: bool = False
    ) -> Tensor:
        """Return the mean losses of several directions; see `OutputLayer.training_losses`."""
        if drawn is None:
            return super().training_losses(hidden, targets, drawn, fused)
        return sampled_losses(hidden, targets, self.word_rows(), self.bias, *drawn, fused)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return `weight` and `bias`; a shared weight is saved with the words, as bilm-tf does."""
        tensors = {"bias": saved_copy(self.bias)}
        return tensors if self.tied else {"weight": saved_copy(self.word_rows()), **tensors}

    def _nll_rows(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return -pick(self._log_prob_rows(hidden), targets)

    def _log_prob_rows(self, hidden: Tensor) -> Tensor:
        # One pass over each row: unlike logsumexp, its sums do not depend on the other rows.
        return F.log_softmax(self._product(0, self.word_rows(), self.bias)(hidden), dim=1)


def _parameter(tensor: Tensor) -> nn.Parameter:
    """Return a parameter itself, so that it stays shared, or a new one for a plain tensor."""
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor)

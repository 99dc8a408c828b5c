"""What turns the top output of one direction into probabilities of words.

Three ways to train it, one way to be judged: whatever a layer optimises, `nll` and `log_probs` are
exact over the whole vocabulary. Both directions of a biLM share one layer. The vocabulary is sorted
by frequency, the most frequent word first, on which the sampled and the adaptive kind rely.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ConfigError, WeightsError
from elmo.linear import frozen_linear
from elmo.settings import SoftmaxKind
from elmo.softmax_losses import (
    draw_candidates,
    full_loss,
    pick,
    row_chunks,
    sampled_loss,
    sampled_losses,
    wide,
)

__all__ = [
    "AdaptiveSoftmax",
    "FullSoftmax",
    "OutputLayer",
    "SampledSoftmax",
    "draw_candidates",
    "full_loss",
    "make_output_layer",
    "sampled_loss",
]

DEFAULT_SAMPLES = 8192
"""Candidates drawn for a step of the sampled softmax, as in bilm-tf."""

Product = Callable[[Tensor], Tensor]
"""x `(n, in)` -> x W^T + b."""
Linear = Callable[[int, Tensor, Tensor, Tensor | None], Tensor]
"""The product with this number of a layer; x, W, b -> x W^T + b."""

_CUTOFFS = (2_000, 10_000, 50_000, 250_000)
"""Where the clusters of the adaptive softmax may begin."""
_NARROWER = 4
"""By which factor each cluster of the adaptive softmax is narrower than the one before."""


class Drawn(NamedTuple):
    """The words that a step is trained against."""

    candidates: Tensor
    """Their numbers, int64 `(k,)`."""
    log_q: Tensor
    """Logarithm of the probability that each is among them, `(k,)`."""

    def to(self, device: torch.device) -> Drawn:
        """Give them on another device."""
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

    def training_loss(self, hidden: Tensor, targets: Tensor, seed: int) -> Tensor:
        """Give the mean criterion that is optimised.

        Args:
            hidden: Outputs of one direction, shape `(n, dim)`.
            targets: The word that each should predict, int64 `(n,)`.
            seed: Any whole number. It alone decides the candidates of this step: no global random
                state is read or changed.

        Returns:
            A float32 scalar (float64 if the layer is).
        """
        raise NotImplementedError

    def draw(self, seed: int) -> Drawn | None:
        """Draw the words that a step is trained against, on the CPU; None if it is against all.

        Args:
            seed: See `training_loss`.
        """
        return None

    def training_losses(
        self, hidden: Tensor, targets: Tensor, drawn: Drawn | None, fused: bool = False
    ) -> Tensor:
        """Give the mean criterion of several directions.

        Args:
            hidden: Shape `(sides, n, dim)`.
            targets: Int64 `(sides, n)`.
            drawn: What `draw` gave, on the device of `hidden`.
            fused: Whether kernels may be used; see `kernels.gpu.triton_ready`.

        Returns:
            Float32 (float64 if the layer is) of shape `(sides,)`.
        """
        pairs = zip(hidden, targets, strict=True)
        return torch.stack([self.training_loss(rows, told, seed=0) for rows, told in pairs])

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Give exact negative log-likelihoods over the full vocabulary, without gradients.

        Rows are computed in chunks of bounded memory. On a CPU a row's value does not depend, bit
        for bit, on its neighbours.

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
        """Give the exact log-probabilities of all words, without gradients.

        Args:
            hidden: Shape `(n, dim)`.

        Returns:
            Float32 (float64 if the layer is) of shape `(n, n_words)`.
        """
        with torch.no_grad(), _without_autocast(hidden):
            return self._log_prob_rows(hidden.to(self._dtype))

    def to_tensors(self) -> dict[str, Tensor]:
        """Give what `Checkpoint.softmax` holds, float32 on the CPU."""
        raise NotImplementedError

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        *,
        kind: SoftmaxKind | None = None,
        n_samples: int = DEFAULT_SAMPLES,
        tied: Tensor | None = None,
    ) -> OutputLayer:
        """Build a layer around saved tensors, without copying them.

        Args:
            tensors: What `to_tensors` gave.
            kind: How it is trained on; `full` and `sampled` have the same tensors. By default
                `full`, or `adaptive` if it was.
            n_samples: See `make_output_layer`.
            tied: See `make_output_layer`; needed where the tensors have no weight of their own.
        """
        saved: SoftmaxKind = "adaptive" if "head.weight" in tensors else "full"
        if kind is not None and (kind == "adaptive") != (saved == "adaptive"):
            raise ConfigError(f"the saved output layer is {saved!r} and cannot go on as {kind!r}")
        if saved == "adaptive":
            return _loaded_adaptive(tensors)
        return _loaded_linear(tensors, kind or saved, n_samples, tied)

    # --- for the kinds ----------------------------------------------------------------------------

    @property
    def _dtype(self) -> torch.dtype:
        """In which numbers exact values are computed."""
        return wide(next(self.parameters()).dtype)

    def _nll_rows(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Give negative log-likelihoods `(n,)` of `targets (n,)` after `hidden (n, dim)`."""
        raise NotImplementedError

    def _log_prob_rows(self, hidden: Tensor) -> Tensor:
        """Give log-probabilities `(n, n_words)` after `hidden (n, dim)`."""
        raise NotImplementedError

    def _product(self, place: int, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Give x -> x W^T + b such that, on a CPU, rows do not depend on each other.

        Weights are packed for that once and stay packed until they change; in training mode they
        may change at any moment, so nothing is kept.

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
        """Give what copies need; packed weights cannot be copied."""
        return {**self.__dict__, "_packed": {}}


def make_output_layer(
    kind: SoftmaxKind,
    n_words: int,
    dim: int,
    n_samples: int = DEFAULT_SAMPLES,
    tied: Tensor | None = None,
) -> OutputLayer:
    """Give a fresh output layer: weights normal with deviation 1/sqrt(dim), biases 0, as bilm-tf.

    Args:
        kind: `full` for exact cross-entropy; `sampled` for cross-entropy against a few drawn
            words; `adaptive` for a tree of clusters, the rare words in narrow ones.
        n_words: Words of the vocabulary, frequent ones first.
        dim: Width of a direction's output.
        n_samples: Candidates drawn for a step of the sampled kind.
        tied: The table of a model that reads words, shape `(n_words + 1, dim)`, row 0 for "no
            word here": its other rows are then also the weights of this layer.
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
            "one row for each word and one before them"
        )
    if kind == "adaptive":
        if tied is not None:
            raise ConfigError(
                "an adaptive softmax has no weight that could be shared with the words' table; "
                "choose softmax 'full' or 'sampled', or do not share"
            )
        return AdaptiveSoftmax(n_words, dim, adaptive_cutoffs(n_words, dim))
    table = nn.Parameter(torch.randn(n_words, dim) / math.sqrt(dim)) if tied is None else tied
    return _linear_kind(
        kind, table, nn.Parameter(torch.zeros(n_words)), tied is not None, n_samples
    )


# --- full -----------------------------------------------------------------------------------------


class FullSoftmax(OutputLayer):
    """p(v) = softmax(W h + b)_v, trained by exact cross-entropy.

    Args:
        table: W, shape `(n_words, dim)`; or the table of a model that reads words, shape
            `(n_words + 1, dim)`, used and trained in place.
        bias: b, shape `(n_words,)`.
        tied: Whether `table` is that of the words.
    """

    def __init__(self, table: Tensor, bias: Tensor, tied: bool = False) -> None:
        super().__init__(bias.shape[0], table.shape[1])
        self.tied = tied
        # The names are those of `to_tensors`; a shared table has another one, for it is not W.
        self.register_parameter("table" if tied else "weight", _parameter(table))
        self.bias = _parameter(bias)

    def word_rows(self) -> Tensor:
        """Give W, shape `(n_words, dim)`."""
        rows: Tensor = getattr(self, "table" if self.tied else "weight")
        return rows[1:] if self.tied else rows

    def training_loss(self, hidden: Tensor, targets: Tensor, seed: int) -> Tensor:
        """Give the mean negative log-likelihood; see `OutputLayer.training_loss`."""
        return full_loss(hidden, targets, self.word_rows(), self.bias)

    def to_tensors(self) -> dict[str, Tensor]:
        """Give `weight` and `bias`; a shared weight is saved with the words, as bilm-tf does."""
        tensors = {"bias": _saved(self.bias)}
        return tensors if self.tied else {"weight": _saved(self.word_rows()), **tensors}

    def _nll_rows(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return -pick(self._log_prob_rows(hidden), targets)

    def _log_prob_rows(self, hidden: Tensor) -> Tensor:
        # One pass over each row, whose sums do not depend on the other rows as logsumexp's do.
        return F.log_softmax(self._product(0, self.word_rows(), self.bias)(hidden), dim=1)


# --- sampled --------------------------------------------------------------------------------------


class SampledSoftmax(FullSoftmax):
    """The same probabilities, trained against a few words that are drawn anew for each step.

    See `sampled_loss` for what is optimised.

    Args:
        table: See `FullSoftmax`.
        bias: See `FullSoftmax`.
        tied: See `FullSoftmax`.
        n_samples: How many are drawn; the distinct ones are the candidates.
    """

    def __init__(
        self, table: Tensor, bias: Tensor, tied: bool = False, n_samples: int = DEFAULT_SAMPLES
    ) -> None:
        super().__init__(table, bias, tied)
        self.n_samples = n_samples

    def training_loss(self, hidden: Tensor, targets: Tensor, seed: int) -> Tensor:
        """Give the mean loss against this step's candidates; see `OutputLayer.training_loss`."""
        drawn = self.draw(seed).to(hidden.device)
        return sampled_loss(hidden, targets, self.word_rows(), self.bias, *drawn)

    def draw(self, seed: int) -> Drawn:
        """Draw candidates; see `OutputLayer.draw`."""
        candidates, log_q = draw_candidates(self.n_words, self.n_samples, seed)
        return Drawn(candidates, log_q.to(wide(self.bias.dtype)))

    def training_losses(
        self, hidden: Tensor, targets: Tensor, drawn: Drawn | None, fused: bool = False
    ) -> Tensor:
        """Give the mean losses against what was drawn; see `OutputLayer.training_losses`."""
        assert drawn is not None
        return sampled_losses(hidden, targets, self.word_rows(), self.bias, *drawn, fused)


# --- adaptive -------------------------------------------------------------------------------------


class AdaptiveSoftmax(OutputLayer):
    """Frequent words in one softmax, rare ones in narrower clusters below it (Grave et al. 2017).

    The weights and the loss are those of `torch.nn.AdaptiveLogSoftmaxWithLoss`; its own code does
    not run under autocast on a CPU, and its rows depend on each other's number. A layer of this
    kind has no place in the published HDF5 layout.

    Args:
        n_words: Words of the vocabulary.
        dim: Width of an output.
        cutoffs: First word of each cluster, rising.
    """

    def __init__(self, n_words: int, dim: int, cutoffs: Sequence[int]) -> None:
        super().__init__(n_words, dim)
        self.cutoffs = [*cutoffs, n_words]
        self.tree = nn.AdaptiveLogSoftmaxWithLoss(
            dim, n_words, list(cutoffs), div_value=_NARROWER, head_bias=True
        )
        for linear in self.tree.modules():
            if isinstance(linear, nn.Linear):
                nn.init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
        nn.init.zeros_(self.tree.head.bias)

    def training_loss(self, hidden: Tensor, targets: Tensor, seed: int) -> Tensor:
        """Give the mean negative log-likelihood; see `OutputLayer.training_loss`."""
        return self._nll(hidden, targets, self._plain_linear).mean()

    def to_tensors(self) -> dict[str, Tensor]:
        """Give the weights of the head and of the two steps of each cluster."""
        return {name: _saved(tensor) for name, tensor in self.tree.state_dict().items()}

    def _nll_rows(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self._nll(hidden, targets, self._packed_linear)

    def _log_prob_rows(self, hidden: Tensor) -> Tensor:
        head = self._head(hidden, self._packed_linear)
        first = self.cutoffs[0]
        parts = [head[:, :first]]
        for cluster in range(len(self.cutoffs) - 1):
            above = head[:, first + cluster, None]
            parts.append(above + self._cluster(cluster, hidden, self._packed_linear))
        return torch.cat(parts, dim=1)

    def _nll(self, hidden: Tensor, targets: Tensor, linear: Linear) -> Tensor:
        """Give negative log-likelihoods `(n,)`, looking only into the clusters of the targets."""
        head = self._head(hidden, linear)
        first = self.cutoffs[0]
        values = pick(head, targets.clamp(max=first - 1))
        for cluster, (begin, end) in enumerate(itertools.pairwise(self.cutoffs)):
            rows = ((targets >= begin) & (targets < end)).nonzero().squeeze(1)
            inside = pick(self._cluster(cluster, hidden[rows], linear), targets[rows] - begin)
            values = values.index_copy(0, rows, head[rows, first + cluster] + inside)
        return -values

    def _head(self, hidden: Tensor, linear: Linear) -> Tensor:
        """Give log-probabilities of the frequent words and of each cluster."""
        head = self.tree.head
        return F.log_softmax(linear(0, hidden, head.weight, head.bias), dim=1, dtype=self._dtype)

    def _cluster(self, cluster: int, hidden: Tensor, linear: Linear) -> Tensor:
        """Give log-probabilities of a cluster's words within it."""
        for step in range(2):
            weight = self.tree.get_parameter(f"tail.{cluster}.{step}.weight")
            hidden = linear(1 + 2 * cluster + step, hidden, weight, None)
        return F.log_softmax(hidden, dim=1, dtype=self._dtype)

    def _plain_linear(
        self, place: int, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        return F.linear(hidden.to(weight.dtype), weight, bias)

    def _packed_linear(
        self, place: int, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        return self._product(place, weight, bias)(hidden)


def adaptive_cutoffs(n_words: int, dim: int) -> list[int]:
    """Choose where clusters begin: 2,000, 10,000, 50,000 and 250,000 words, as far as they fit.

    A vocabulary too small for the first has one cluster, of its rarer three quarters.
    """
    deepest = int(math.log(dim, _NARROWER)) if dim >= _NARROWER else 0
    if not deepest or n_words < 2:
        raise ConfigError(
            f"an adaptive softmax of {n_words} words over {dim} values is not possible: it needs "
            f"2 words and {_NARROWER} values at least; choose softmax 'full'"
        )
    fitting = [cutoff for cutoff in _CUTOFFS if 2 * cutoff <= n_words]
    return fitting[:deepest] or [max(1, n_words // 4)]


# --- loading --------------------------------------------------------------------------------------


def _linear_kind(
    kind: SoftmaxKind, table: Tensor, bias: Tensor, tied: bool, n_samples: int
) -> OutputLayer:
    if kind == "sampled":
        return SampledSoftmax(table, bias, tied, n_samples)
    return FullSoftmax(table, bias, tied)


def _loaded_linear(
    tensors: Mapping[str, Tensor], kind: SoftmaxKind, n_samples: int, tied: Tensor | None
) -> OutputLayer:
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
    return _linear_kind(kind, table, bias, tied is not None, n_samples)


def _loaded_adaptive(tensors: Mapping[str, Tensor]) -> OutputLayer:
    """Read the sizes off the shapes: the head has a row for each frequent word and each cluster."""
    sizes: list[int] = []
    while (weight := tensors.get(f"tail.{len(sizes)}.1.weight")) is not None:
        sizes.append(len(weight))
    head, dim = tensors["head.weight"].shape
    first = head - len(sizes)
    ends = [first + sum(sizes[:cluster]) for cluster in range(len(sizes) + 1)]
    try:
        with torch.device("meta"):
            layer = AdaptiveSoftmax(ends[-1], dim, ends[:-1])
        layer.tree.load_state_dict(dict(tensors), assign=True)
    except (RuntimeError, ValueError) as error:
        raise WeightsError(f"the saved adaptive output layer is damaged: {error}") from None
    return layer


# --- small things ---------------------------------------------------------------------------------


def _without_autocast(tensor: Tensor) -> torch.autocast:
    return torch.autocast(tensor.device.type, enabled=False)


def _parameter(tensor: Tensor) -> nn.Parameter:
    """Give a parameter as it is, so that it stays shared, or make one of a plain tensor."""
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor)


def _saved(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float().clone()

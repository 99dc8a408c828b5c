"""Adaptive softmax: frequent words first, rare words in narrower clusters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ConfigError, WeightsError
from elmo.lm.output_base import Drawn, OutputLayer, saved_copy
from elmo.lm.softmax_losses import pick

Linear = Callable[[int, Tensor, Tensor, Tensor | None], Tensor]
"""The product with this number of a layer; x, W, b -> x W^T + b."""

_CUTOFFS = (2_000, 10_000, 50_000, 250_000)
"""First words at which clusters may begin."""
_NARROWER = 4
"""Each cluster is narrower than the one before by this factor."""


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

    def training_loss(self, hidden: Tensor, targets: Tensor, drawn: Drawn | None) -> Tensor:
        """Return the mean negative log-likelihood; see `OutputLayer.training_loss`."""
        return self._nll(hidden, targets, self._plain_linear).mean()

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the weights of the head and of the two products of each cluster."""
        return {name: saved_copy(tensor) for name, tensor in self.tree.state_dict().items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Build a layer around saved tensors, without copying them.

        Sizes follow from their shapes: the head has a row for each frequent word and each cluster.

        Args:
            tensors: What `to_tensors` returned.
        """
        sizes: list[int] = []
        while (weight := tensors.get(f"tail.{len(sizes)}.1.weight")) is not None:
            sizes.append(len(weight))
        head, dim = tensors["head.weight"].shape
        first = head - len(sizes)
        ends = [first + sum(sizes[:cluster]) for cluster in range(len(sizes) + 1)]
        try:
            with torch.device("meta"):
                layer = cls(ends[-1], dim, ends[:-1])
            layer.tree.load_state_dict(dict(tensors), assign=True)
        except (RuntimeError, ValueError) as error:
            raise WeightsError(f"the saved adaptive output layer is damaged: {error}") from None
        return layer

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
        """Return negative log-likelihoods `(n,)`, computing only the clusters of the targets."""
        head = self._head(hidden, linear)
        first = self.cutoffs[0]
        values = pick(head, targets.clamp(max=first - 1))
        for cluster, (begin, end) in enumerate(itertools.pairwise(self.cutoffs)):
            rows = ((targets >= begin) & (targets < end)).nonzero().squeeze(1)
            inside = pick(self._cluster(cluster, hidden[rows], linear), targets[rows] - begin)
            values = values.index_copy(0, rows, head[rows, first + cluster] + inside)
        return -values

    def _head(self, hidden: Tensor, linear: Linear) -> Tensor:
        """Return log-probabilities of the frequent words and of each cluster."""
        head = self.tree.head
        return F.log_softmax(linear(0, hidden, head.weight, head.bias), dim=1, dtype=self._dtype)

    def _cluster(self, cluster: int, hidden: Tensor, linear: Linear) -> Tensor:
        """Return log-probabilities of a cluster's words within it."""
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

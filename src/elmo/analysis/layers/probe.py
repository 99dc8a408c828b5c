"""A linear probe: how much of some labels can be read off vectors by a single product."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 100
_DECAY = 1e-4
"""Weight of the squared weights in the loss: it has one minimum, whatever the start."""
_LEAST_SPREAD = 1e-6


class LinearProbe:
    """Softmax regression on standardised vectors, always the same for the same vectors.

    Args:
        vectors: What is learned from, float32 `(n, dim)`.
        labels: What is learned, int64 `(n,)`, from 0 on.
        n_labels: How many different labels there are.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, n_labels: int) -> None:
        self._mean = vectors.mean(dim=0)
        self._spread = vectors.std(dim=0, correction=0).clamp_min(_LEAST_SPREAD)
        inputs = self._standardised(vectors)
        self._weight = torch.zeros(n_labels, vectors.shape[1], device=vectors.device)
        self._bias = torch.zeros(n_labels, device=vectors.device)
        self._learn(inputs, labels)

    def predict(self, vectors: Tensor) -> Tensor:
        """Give the most probable label, int64 `(n,)`, of each of the vectors `(n, dim)`."""
        return self._scores(self._standardised(vectors)).argmax(dim=1)

    def _learn(self, inputs: Tensor, labels: Tensor) -> None:
        parameters = [self._weight.requires_grad_(), self._bias.requires_grad_()]
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=_STEPS, history_size=10, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = F.cross_entropy(self._scores(inputs), labels)
            value = value + _DECAY * self._weight.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        for parameter in parameters:
            parameter.requires_grad_(False)

    def _scores(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self._weight, self._bias)

    def _standardised(self, vectors: Tensor) -> Tensor:
        return (vectors - self._mean) / self._spread

"""The learned mix of layers that makes one vector of a word (Peters et al. 2018, equation 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError


class ScalarMix(nn.Module):
    """gamma * sum_k softmax(w)_k h_k, with w and gamma learned.

    Arguments and parameter names are AllenNLP's, so its saved mixes load as they are.

    Args:
        mixture_size: How many layers are mixed.
        do_layer_norm: Normalize each layer first, with one mean and variance over all its unmasked
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
        initial = initial_scalar_parameters
        initial = [0.0] * mixture_size if initial is None else list(initial)
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
        """Return the weights after the softmax, shape `(mixture_size,)`."""
        return torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)

    def penalty(self) -> Tensor:
        """Return `l2 * ||w||^2`, to be added to the loss.

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
    """Center and scale by one mean and one biased variance over all unmasked values.

    The epsilon is AllenNLP's for float32 (bilm-tf has 1e-12); it matters to constant layers only.
    """
    keep = mask.unsqueeze(-1)  # (batch, time, 1)
    count = mask.sum() * layer.shape[-1]
    mean = (layer * keep).sum() / count
    variance = ((layer - mean) * keep).square().sum() / count
    return (layer - mean) / torch.sqrt(variance + 1e-13)

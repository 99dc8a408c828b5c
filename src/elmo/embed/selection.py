"""Which vectors of a word are wanted: every layer, one of them, or a mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import ConfigError
from elmo.settings import Layers


@dataclass(frozen=True)
class Selection:
    """A choice of layers, ready to be made."""

    depth: int
    """Recurrent layers that must be computed for it."""
    choose: Callable[[list[Tensor]], Tensor]
    """Layers 0 to `depth`, each `(n, dim)` -> `(n_layers, n, dim)` for "all", else `(n, dim)`."""


def select_layers(layers: Layers, config: ElmoConfig) -> Selection:
    """Understand a choice of layers.

    Args:
        layers: `all`, `top`, `average`, `mix`, or a number: 0 for the context-free layer, -1
            for the top.
        config: The model's sizes and its mix weights.
    """
    top = config.n_layers
    if layers == "all":
        return Selection(top, torch.stack)
    if layers == "average":
        return Selection(top, lambda computed: torch.stack(computed).mean(dim=0))
    if layers == "mix":
        return Selection(top, lambda computed: mix_layers(computed, config))
    number = top if layers == "top" else layers
    if isinstance(number, bool) or not isinstance(number, int) or not -top - 1 <= number <= top:
        raise ConfigError(f"layers is {layers!r}, expected 'all', {_one_of_each(config)}")
    depth = number % (top + 1)
    return Selection(depth, lambda computed: computed[depth])


def require_layer(layer: Layers, config: ElmoConfig) -> None:
    """Refuse what `--layer` cannot be for a model, before any text is read."""
    try:
        select_layers(layer, config)
    except ConfigError:
        raise ConfigError(f"--layer is {layer}, expected {_one_of_each(config)}") from None


def _one_of_each(config: ElmoConfig) -> str:
    """List what gives one vector a word."""
    top = config.n_layers
    return (
        f"'top', 'average', 'mix' or a number from 0 to {top} (from -1 to {-top - 1}: counted from "
        "the top)"
    )


def mix_layers(layers: list[Tensor], config: ElmoConfig) -> Tensor:
    """Mix layers by the model's own weights: gamma * sum_k softmax(w)_k h_k."""
    raw = config.mix_weights or (0.0,) * len(layers)
    weights = torch.softmax(torch.tensor(raw, dtype=torch.float64), dim=0).tolist()
    mixed = torch.mul(layers[0], weights[0])
    for weight, layer in zip(weights[1:], layers[1:], strict=True):
        mixed.add_(layer, alpha=weight)
    return mixed.mul_(config.mix_gamma)

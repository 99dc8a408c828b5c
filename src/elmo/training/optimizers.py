"""Which parameters learn, how fast, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import Parameter

from elmo.training.language_model import LanguageModel
from elmo.training.settings import TrainSettings

_REFERENCE_TOKENS = 128 * 20
"""Words in a step for which the default rate of AdamW was chosen: the published batch."""
_LEAST_SHARE = 0.02
"""Of the highest rate, at the end of the cosine."""


@dataclass(frozen=True)
class Recipe:
    """The numbers of an optimizer, defaults filled in."""

    rate: float
    clip: float
    loss_factor: float
    """bilm-tf multiplies the mean loss by the unrolled steps; Adagrad and its clip depend on it."""


def recipe(settings: TrainSettings, batch: int) -> Recipe:
    """Fill in what the settings leave open.

    Args:
        settings: The settings.
        batch: Streams in a batch.
    """
    if settings.optimizer == "adagrad":
        return Recipe(settings.rate or 0.2, settings.clip or 10.0, float(settings.unroll))
    tokens = batch * settings.unroll * settings.accumulate
    rate = 1e-3 * min(4.0, max(1.0, math.sqrt(tokens / _REFERENCE_TOKENS)))
    return Recipe(settings.rate or rate, settings.clip or 1.0, 1.0)


def make_optimizer(
    model: LanguageModel, settings: TrainSettings, rate: float
) -> torch.optim.Optimizer:
    """Make the optimizer; each group of parameters knows its share of the rate.

    Groups are the layers in their order, the output layer last. With `layer_decay` below 1 the
    layers near the input learn more slowly than those near the output (discriminative rates).
    """
    groups = [
        {"params": parameters, "lr": rate, "share": settings.layer_decay**distance}
        for distance, parameters in enumerate(reversed(layer_groups(model)))
    ]
    if settings.optimizer == "adagrad":
        # PyTorch has a fused Adagrad for CPUs only; elsewhere it chooses the fastest itself.
        on_cpu = model.bilm.boundaries.device.type == "cpu"
        fused = True if on_cpu else None
        return torch.optim.Adagrad(groups, lr=rate, initial_accumulator_value=1.0, fused=fused)
    return torch.optim.AdamW(
        groups, lr=rate, betas=(0.9, 0.99), weight_decay=settings.weight_decay, fused=True
    )


def layer_groups(model: LanguageModel) -> list[list[Parameter]]:
    """Give the learning parameters: words, each recurrent layer, output layer.

    A parameter that two parts share belongs to the first of them.
    """
    bilm = model.bilm
    pairs = zip(bilm.forward_layers, bilm.backward_layers, strict=True)
    parts: list[Iterable[nn.Module]] = [[bilm.words], *pairs, [model.output]]
    seen: set[int] = set()
    groups = []
    for modules in parts:
        parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        groups.append([p for p in parameters if id(p) not in seen])
        seen.update(map(id, parameters))
    return [group for group in groups if group]


def set_rate(
    optimizer: torch.optim.Optimizer, settings: TrainSettings, rate: float, step: int, done: float
) -> float:
    """Set the rate of the next step.

    Args:
        optimizer: The optimizer.
        settings: The settings.
        rate: The highest rate.
        step: Steps taken so far.
        done: Share of the run that is done.

    Returns:
        The rate of the output layer.
    """
    if settings.optimizer == "adamw":
        # `done / step` is the share that a step takes: warm-up lasts a tenth of the run at most.
        tenth = 0.1 * step / done if done > 0 else settings.warmup
        rising = min(1.0, (step + 1) / max(1.0, min(settings.warmup, tenth)))
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        rate *= rising * max(_LEAST_SHARE, falling)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]
    return rate

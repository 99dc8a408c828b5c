"""Optimizers, parameter groups and the learning-rate schedule."""

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
"""Tokens of a step for which the default learning rate of AdamW was chosen: as published."""
_FINAL_FACTOR = 0.02
"""Of the peak learning rate, at the end of the cosine."""


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of an optimizer, defaults filled in."""

    learning_rate: float
    """At its peak."""
    grad_clip: float
    """Bound on the norm of the gradient."""
    loss_factor: float
    """bilm-tf multiplies the mean loss by the unrolled steps; Adagrad and its clipping need it."""


def hyperparameters(settings: TrainSettings, batch: int) -> Hyperparameters:
    """Return the hyperparameters of a run, with defaults for what the settings leave open.

    Args:
        settings: The settings.
        batch: Streams in a batch.
    """
    if settings.optimizer == "adagrad":
        rate, clip = settings.learning_rate or 0.2, settings.grad_clip or 10.0
        return Hyperparameters(rate, clip, float(settings.unroll_steps))
    tokens = batch * settings.unroll_steps * settings.grad_accumulation
    rate = 1e-3 * min(4.0, max(1.0, math.sqrt(tokens / _REFERENCE_TOKENS)))
    return Hyperparameters(settings.learning_rate or rate, settings.grad_clip or 1.0, 1.0)


def make_optimizer(
    model: LanguageModel, settings: TrainSettings, rate: float
) -> torch.optim.Optimizer:
    """Return the optimizer; `scale` of a parameter group multiplies its learning rate.

    Groups are the layers, the output layer first. With `layer_decay` below 1 the learning rates
    are discriminative: the lower a layer, the lower its rate.
    """
    groups = [
        {"params": parameters, "lr": rate, "scale": settings.layer_decay**distance}
        for distance, parameters in enumerate(reversed(_layer_parameters(model)))
    ]
    if settings.optimizer == "adagrad":
        # PyTorch has a fused Adagrad for CPUs only; elsewhere it chooses the fastest itself.
        on_cpu = model.bilm.boundaries.device.type == "cpu"
        fused = True if on_cpu else None
        return torch.optim.Adagrad(groups, lr=rate, initial_accumulator_value=1.0, fused=fused)
    return torch.optim.AdamW(
        groups, lr=rate, betas=(0.9, 0.99), weight_decay=settings.weight_decay, fused=True
    )


def _layer_parameters(model: LanguageModel) -> list[list[Parameter]]:
    """Return the parameters that learn: of words, of each recurrent layer, of the output layer.

    A parameter that two layers share belongs to the lower one.
    """
    bilm = model.bilm
    pairs = zip(bilm.forward_layers, bilm.backward_layers, strict=True)
    layers: list[Iterable[nn.Module]] = [[bilm.words], *pairs, [model.output]]
    seen: set[int] = set()
    groups = []
    for modules in layers:
        parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        groups.append([p for p in parameters if id(p) not in seen])
        seen.update(map(id, parameters))
    return [group for group in groups if group]


def set_rate(
    optimizer: torch.optim.Optimizer, settings: TrainSettings, rate: float, step: int, done: float
) -> float:
    """Set the learning rate of the next step.

    Args:
        optimizer: The optimizer.
        settings: The settings.
        rate: The peak learning rate.
        step: Steps taken so far.
        done: Fraction of the run that is done.

    Returns:
        The learning rate of the output layer.
    """
    if settings.optimizer == "adamw":
        # `done / step` is the fraction that a step takes: warm-up lasts at most a tenth of the run.
        tenth = 0.1 * step / done if done > 0 else settings.warmup_steps
        rising = min(1.0, (step + 1) / max(1.0, min(settings.warmup_steps, tenth)))
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        rate *= rising * max(_FINAL_FACTOR, falling)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    return rate

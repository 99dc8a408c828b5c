"""Settings -> the features of a new model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elmo.hub.names import open_model
from elmo.model.bilm import BiLM
from elmo.model.checkpoint import Checkpoint
from elmo.tasks.features.inputs import CachedLayers
from elmo.tasks.features.static_words import StaticWords
from elmo.tasks.features.word_features import ElmoChoice, WordFeatures
from elmo.tasks.heads.base import Words
from elmo.tasks.settings import Recipe, TaskSettings
from elmo.text.vector_sources import open_vectors


@dataclass(frozen=True)
class Assembly:
    """Features, and the source of layers."""

    features: WordFeatures
    source: CachedLayers | None
    """None without ELMo, or if the biLM is fine-tuned."""
    fingerprint: str | None
    """Of the biLM before training."""


def assemble(
    settings: TaskSettings,
    recipe: Recipe,
    training: Sequence[Words],
    others: Sequence[Words],
    device: torch.device,
) -> Assembly:
    """Build the features of a new model.

    Args:
        settings: The user's choices.
        recipe: Sizes and training of the task.
        training: Sentences of the training data.
        others: Further sentences that will be read.
        device: Where layers are computed.
    """
    static = _static(settings, training, others)
    if not settings.reads_elmo:
        return Assembly(WordFeatures(static, None), None, None)
    checkpoint = open_model(settings.model)
    choice = elmo_choice(settings, recipe, checkpoint)
    if settings.finetune_elmo:
        bilm = BiLM.from_checkpoint(checkpoint)
        return Assembly(WordFeatures(static, choice, bilm), None, checkpoint.fingerprint())
    source = CachedLayers(checkpoint, device, settings.cache, settings.quiet)
    return Assembly(WordFeatures(static, choice), source, source.fingerprint)


def elmo_choice(settings: TaskSettings, recipe: Recipe, checkpoint: Checkpoint) -> ElmoChoice:
    """Return how the layers of a model are used."""
    return ElmoChoice(
        n_layers=checkpoint.config.n_layers + 1,
        dim=checkpoint.config.output_dim,
        at=settings.elmo_at,
        mix=settings.mix,
        mix_l2=recipe.mix_l2,
        dropout=recipe.elmo_dropout,
    )


def _static(
    settings: TaskSettings, training: Sequence[Words], others: Sequence[Words]
) -> StaticWords | None:
    if settings.static == "glove":
        words = {word for sentences in (training, others) for s in sentences for word in s}
        return StaticWords.from_source(open_vectors(settings.vectors), words, settings.tune_vectors)
    if settings.static == "random":
        return StaticWords.random(training, settings.random_dim)
    return None

"""Static vectors and mixed layers of ELMo: h_k = [x_k; ELMo_k] (section 3.3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.model.bilm import BiLM, Checkpoint
from elmo.model.scalar_mix import ScalarMix
from elmo.module import Mix, fixed_mix_weights
from elmo.tasks.features.static_words import StaticWords
from elmo.tasks.heads.base import FeatureDims, WordVectors
from elmo.tasks.settings import ElmoPlace, Recipe, TaskSettings


@dataclass(frozen=True)
class FeatureInputs:
    """Inputs of `WordFeatures` for the words of a batch."""

    rows: Tensor | None = None
    """Rows of the static table, int64 of shape `(n_words,)`."""
    layers: Tensor | None = None
    """Layers of ELMo, `(n_words, n_layers, dim)`."""
    ids: Tensor | None = None
    """Instead of layers, if the biLM is fine-tuned: ids `(sentences, time, characters)`, or
    `(sentences, time)` for a biLM over whole words."""


@dataclass(frozen=True, kw_only=True)
class ElmoChoice:
    """How layers of ELMo become vectors."""

    n_layers: int
    dim: int
    at: ElmoPlace = "input"
    mix: Mix = "learned"
    mix_l2: float = 0.0
    dropout: float = 0.5


class WordFeatures(nn.Module):
    """Joins static vectors and mixed layers of ELMo.

    Args:
        static: Vectors without context, if used.
        elmo: How ELMo's layers are used, if they are.
        bilm: The biLM, if it is fine-tuned; otherwise layers come with the inputs.
    """

    def __init__(
        self, static: StaticWords | None, elmo: ElmoChoice | None, bilm: BiLM | None = None
    ) -> None:
        super().__init__()
        self.static = static
        self.elmo = elmo
        self.bilm = None if bilm is None else bilm.requires_grad_(True)
        self.input_mix = _mix(elmo) if elmo and elmo.at != "output" else None
        self.output_mix = _mix(elmo) if elmo and elmo.at != "input" else None
        self.dropout = nn.Dropout(elmo.dropout if elmo else 0.0)

    @property
    def dims(self) -> FeatureDims:
        """Widths of what a head receives."""
        static = self.static.dim if self.static else 0
        dim = self.elmo.dim if self.elmo else 0
        return FeatureDims(
            input=static + (dim if self.input_mix else 0), output=dim if self.output_mix else 0
        )

    def forward(self, inputs: FeatureInputs) -> WordVectors:
        """Return the vectors of the words of a batch."""
        layers = self._layers(inputs)
        parts: list[Tensor] = []
        if self.static is not None:
            assert inputs.rows is not None
            parts.append(self.static(inputs.rows))
        if self.input_mix is not None:
            parts.append(self.dropout(self.input_mix(layers)))
        output = None if self.output_mix is None else self.dropout(self.output_mix(layers))
        return WordVectors(torch.cat(parts, dim=1), output)

    def penalty(self) -> Tensor | float:
        """Return the L2 penalty of the mixes, a term of the loss."""
        mixes = [mix for mix in (self.input_mix, self.output_mix) if mix is not None]
        return sum((mix.penalty() for mix in mixes if mix.l2), start=0.0)

    def mix_weights(self) -> dict[str, list[float]]:
        """Return the weights of the layers after the softmax, for input and output."""
        mixes = {"input": self.input_mix, "output": self.output_mix}
        return {place: mix.weights().tolist() for place, mix in mixes.items() if mix is not None}

    def _layers(self, inputs: FeatureInputs) -> Sequence[Tensor]:
        """Return layers of shape `(n_words, dim)` each."""
        if self.elmo is None:
            return ()
        if self.bilm is not None:
            assert inputs.ids is not None
            output = self.bilm.run(inputs.ids)
            return output.layers[:, output.mask].unbind(0)
        assert inputs.layers is not None
        return inputs.layers.float().unbind(1)


def join_features(
    settings: TaskSettings,
    recipe: Recipe,
    static: StaticWords | None,
    checkpoint: Checkpoint | None,
) -> WordFeatures:
    """Return the features that settings ask for.

    Args:
        settings: The user's choices.
        recipe: Sizes and training of the task.
        static: Vectors without context, if used.
        checkpoint: The biLM, if used.
    """
    if checkpoint is None:
        return WordFeatures(static, None)
    choice = ElmoChoice(
        n_layers=checkpoint.config.n_layers + 1,
        dim=checkpoint.config.output_dim,
        at=settings.elmo_at,
        mix=settings.mix,
        mix_l2=recipe.mix_l2,
        dropout=recipe.elmo_dropout,
    )
    bilm = BiLM.from_checkpoint(checkpoint) if settings.finetune_elmo else None
    return WordFeatures(static, choice, bilm)


def _mix(elmo: ElmoChoice) -> ScalarMix:
    weights = fixed_mix_weights(elmo.mix, elmo.n_layers)
    return ScalarMix(
        elmo.n_layers,
        initial_scalar_parameters=weights,
        trainable=weights is None,
        l2=elmo.mix_l2,
    )

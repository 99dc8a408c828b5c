"""Outputs of a language model, aligned with the words that they predict.

`Reader` is the pipeline of embedding with the outputs of both directions shifted by one step: the
output after `<S> w1 ... w(k-1)` is that for word k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo.embed.pipeline import Pipeline, bounded, carry_rows, deliver_tensors, select_layers
from elmo.errors import MissingFileError, WeightsError
from elmo.lm.output_base import OutputLayer
from elmo.lm.softmax import load_output_layer
from elmo.model.bilm import Checkpoint, State
from elmo.settings import StatePolicy
from elmo.text.sentences import Words
from elmo.text.vocabulary import Vocabulary


class TopOutputs(NamedTuple):
    """The top outputs for a sentence of n words."""

    forward: Tensor
    """Row k predicts word k, the last row `</S>`; shape `(n + 1, projection_dim)`."""
    backward: Tensor
    """Row 0 predicts `<S>`, row k + 1 word k; shape `(n + 1, projection_dim)`."""


class Reader(Pipeline):
    """A pipeline that yields the outputs that predict words, see `TopOutputs`."""

    def outputs(
        self, sentences: Sequence[Words], policy: StatePolicy, batch_size: int | None
    ) -> Iterator[tuple[int, TopOutputs]]:
        """Read sentences, batch by batch, in whatever order is fastest.

        Args:
            sentences: Lists of words, possibly empty.
            policy: Initial state of a sentence.
            batch_size: Sentences in a batch at most; with "carry", exactly.

        Yields:
            The number of a sentence and its outputs, on the model's device.
        """
        if policy == "carry":
            yield from self._carried_outputs(sentences, carry_rows(batch_size))
            return
        width = self.config.projection_dim
        top = select_layers("top", self.config)
        for batch, parts in deliver_tensors(self.batches(sentences, top, policy, batch_size)):
            after_begin, after_end = self._after_boundaries(self.start(policy))
            for number, vectors in zip(batch.numbers, parts, strict=True):
                forward = torch.cat([after_begin, vectors[:, :width]])
                yield number, TopOutputs(forward, torch.cat([vectors[:, width:], after_end]))

    def _after_boundaries(self, start: State) -> list[Tensor]:
        """Return the top outputs at `<S>` forward and at `</S>` backward, `(1, dim)` each.

        The state holds the output of each layer before its residual.
        """
        tops = []
        for direction in range(2):
            hidden = start.hidden[:, direction]
            top = hidden[0]
            for above in hidden[1:]:
                top = above + top if self.config.skip_connections else above
            tops.append(top)
        return tops

    def _carried_outputs(
        self, sentences: Sequence[Words], rows: int
    ) -> Iterator[tuple[int, TopOutputs]]:
        """Read as `embed` does with carried state, boundaries included."""
        width = self.config.projection_dim
        for first in range(0, len(sentences), rows):
            batch = [bounded(sentence) for sentence in sentences[first : first + rows]]
            start = self.carried.first_rows(len(batch), self.device)
            layers, final = self.read(batch, start, self.config.n_layers)
            self.carried.keep(final)
            parts = torch.split(layers[-1], [len(sentence) for sentence in batch])
            for number, part in enumerate(parts, start=first):
                yield number, TopOutputs(part[:-1, :width].clone(), part[1:, width:].clone())


def open_output_layer(checkpoint: Checkpoint) -> tuple[Vocabulary, OutputLayer]:
    """Return the vocabulary of the output layer, and the layer; an error says how to get one."""
    if not checkpoint.softmax:
        raise WeightsError(
            "the model has no output layer (softmax), so it cannot predict words: most published "
            "ones were saved without it. Train a model with 'elmo train', or give this one an "
            "output layer with 'elmo finetune MODEL CORPUS'"
        )
    if checkpoint.vocabulary is None:
        raise MissingFileError(
            "the model has an output layer, but not the words that it predicts: put the vocab.txt "
            "that it was trained with into its folder"
        )
    checkpoint.vocabulary.require_specials("the words of the output layer")
    tied = None
    if "weight" not in checkpoint.softmax and not checkpoint.config.reads_characters:
        tied = checkpoint.tensors["words.embedding.weight"]
    layer = load_output_layer(checkpoint.softmax, tied=tied)
    expected = (len(checkpoint.vocabulary), checkpoint.config.projection_dim)
    if (layer.n_words, layer.dim) != expected:
        raise WeightsError(
            f"the output layer is for {layer.n_words} words and {layer.dim} values, but the model "
            f"has a vocabulary of {expected[0]} and outputs of {expected[1]}"
        )
    return checkpoint.vocabulary, layer

"""Classification of texts: sentiment, topics, kinds of questions, any labels.

* words -> biLSTM, with sequence dropout before it;
* attention between all words of the text and the text itself, as in the biattentive classifier of
  McCann et al. (2017), which the paper extends: each word sees what of the text concerns it;
* a second biLSTM over words, what they attend to, the difference and the product of the two;
* pooled by attention and maximum -> a layer with tanh -> labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import InputError
from elmo.tasks.heads.base import FeatureDims, Head, Layout, Task, Words, WordVectors
from elmo.tasks.heads.encoders import AttentionPooling, BiLstm
from elmo.tasks.heads.labels import (
    LabelPrediction,
    label_numbers,
    most_probable,
    require_known,
    require_labels,
)
from elmo.tasks.heads.limits import shortened
from elmo.tasks.metrics.labels import accuracy, macro_f1
from elmo.tasks.readers.examples import TextExample
from elmo.tasks.readers.formats import read_texts
from elmo.tasks.recipe import ReadOptions, Recipe
from elmo.text.files import get_tokenizer


@dataclass(frozen=True)
class TextBatch:
    """Texts as tensors."""

    layout: Layout
    labels: Tensor
    """Numbers of labels, `(texts,)`; 0 where there is none."""


class Classifier(Head[TextBatch, LabelPrediction]):
    """The network; see the module.

    Args:
        dims: Widths of the words' vectors.
        labels: All labels.
        recipe: Sizes.
    """

    def __init__(self, dims: FeatureDims, labels: Sequence[str], recipe: Recipe) -> None:
        super().__init__()
        self.labels = labels
        hidden = recipe.hidden
        self.encoder = BiLstm(dims.input, hidden, recipe.layers, recipe.dropout)
        self.integrator = BiLstm(4 * 2 * hidden, hidden, 1, recipe.dropout)
        width = 2 * hidden + dims.output
        self.pooling = AttentionPooling(width)
        self.dropout = nn.Dropout(recipe.dropout)
        self.between = nn.Linear(self.pooling.output_dim, hidden)
        self.output = nn.Linear(hidden, len(labels))

    def forward(self, words: WordVectors, batch: TextBatch) -> Tensor:
        """Give the scores of labels, `(texts, labels)`."""
        padded = words.padded(batch.layout)
        encoded = self.encoder(padded.input, padded.layout)
        attended = _self_attention(encoded, padded.mask)
        compared = torch.cat([encoded, attended, encoded - attended, encoded * attended], dim=-1)
        integrated = self.integrator(compared, padded.layout)
        pooled = self.pooling(padded.beside(integrated), padded.mask)
        scores: Tensor = self.output(self.dropout(torch.tanh(self.between(self.dropout(pooled)))))
        return scores

    def loss(self, words: WordVectors, batch: TextBatch) -> Tensor:
        """Give the mean cross-entropy of the labels, shape `()`."""
        return F.cross_entropy(self(words, batch).float(), batch.labels)

    def predict(self, words: WordVectors, batch: TextBatch) -> list[LabelPrediction]:
        """Give the most probable label of each text."""
        return most_probable(self.labels, self(words, batch))


@dataclass(frozen=True)
class Classify(Task[TextExample, TextBatch, LabelPrediction]):
    """Texts with one label each."""

    labels: tuple[str, ...]

    name: ClassVar[str] = "classify"
    metric: ClassVar[str] = "accuracy"
    recipe: ClassVar[Recipe] = Recipe(
        hidden=128, dropout=0.2, batch=32, epochs=10, patience=4, rate=2e-3, weight_decay=1e-4
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))

    @classmethod
    def read(cls, paths: Sequence[Path], options: ReadOptions) -> list[TextExample]:
        """Read csv, tsv, JSON lines, SST trees, or lines that begin with their label."""
        return shortened(read_texts(paths, options), options.max_words)

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample], options: ReadOptions) -> Self:
        """Learn the labels."""
        del options
        labels = require_labels(example.label for example in examples)
        if len(labels) < 2:
            raise InputError(f"all training texts have the label {labels[0]!r}: nothing to learn")
        return cls(labels)

    def check(self, examples: Sequence[TextExample]) -> None:
        """Refuse labels that the training data do not have."""
        require_known(((e.label, e.place) for e in examples), self.labels)

    def sentences(self, example: TextExample) -> list[Words]:
        """Give the text as one sequence of words."""
        return [example.words]

    def build(self, dims: FeatureDims, recipe: Recipe) -> Classifier:
        """Make the network."""
        return Classifier(dims, self.labels, recipe)

    def collate(self, examples: Sequence[TextExample]) -> TextBatch:
        """Make a batch."""
        layout = Layout.of([len(example.words) for example in examples])
        return TextBatch(layout, label_numbers((e.label for e in examples), self.labels))

    def evaluate(
        self, examples: Sequence[TextExample], predictions: Sequence[LabelPrediction]
    ) -> dict[str, float]:
        """Give accuracy and macro F1."""
        gold = [str(example.label) for example in examples]
        predicted = [prediction.label for prediction in predictions]
        return {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}

    def parse(self, text: str, options: ReadOptions) -> list[TextExample]:
        """Split a raw text into words."""
        sentences = get_tokenizer(options.tokenizer).sentences(text)
        return [TextExample([word for words in sentences for word in words])]

    def render(self, example: TextExample, prediction: LabelPrediction) -> dict[str, Any]:
        """Show a text, its label, and how probable each label is."""
        shares = {label: round(share, 4) for label, share in prediction.probabilities.items()}
        return {
            "text": " ".join(example.words),
            "label": prediction.label,
            "probabilities": shares,
        }


def _self_attention(vectors: Tensor, mask: Tensor) -> Tensor:
    """Let each word see the words of its text: `(texts, time, dim)` there and back."""
    scale = vectors.shape[-1] ** -0.5
    scores = torch.einsum("std,sud->stu", vectors * scale, vectors)
    lowest = torch.finfo(scores.dtype).min
    shares = torch.softmax(scores.masked_fill(~mask.unsqueeze(1), lowest), dim=-1)
    return torch.einsum("stu,sud->std", shares, vectors) * mask.unsqueeze(-1)

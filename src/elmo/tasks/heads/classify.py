"""Classification of texts: sentiment, topics, question types, any labels.

* words -> biLSTM, with variational dropout before it;
* attention between all words of the text, as in the biattentive classification network of McCann et
  al. (2017), which the paper extends;
* a second biLSTM over words, what they attend to, the difference and the product of the two;
* attention and max pooling -> a layer with tanh -> labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from elmo.tasks.heads.base import FeatureDims, Layout, WordVectors
from elmo.tasks.heads.encoders import AttentionPooling, BiLstm
from elmo.tasks.heads.labels import LabelBatch, LabelHead, LabelTask
from elmo.tasks.readers.examples import TextExample
from elmo.tasks.readers.files import words_of
from elmo.tasks.readers.formats import read_texts
from elmo.tasks.settings import ReadOptions, Recipe


class Classifier(LabelHead):
    """The network; see the module."""

    def __init__(self, dims: FeatureDims, labels: Sequence[str], recipe: Recipe) -> None:
        super().__init__(labels)
        hidden = recipe.hidden_size
        self.encoder = BiLstm(dims.input, hidden, recipe.layers, recipe.dropout)
        self.integrator = BiLstm(4 * 2 * hidden, hidden, 1, recipe.dropout)
        width = 2 * hidden + dims.output
        self.pooling = AttentionPooling(width)
        self.dropout = nn.Dropout(recipe.dropout)
        self.between = nn.Linear(self.pooling.output_dim, hidden)
        self.output = nn.Linear(hidden, len(labels))

    def forward(self, words: WordVectors, batch: LabelBatch) -> Tensor:
        """Return the scores of labels, `(texts, labels)`."""
        padded = words.padded(batch.layout)
        encoded = self.encoder(padded.input, padded.layout)
        attended = _self_attention(encoded, padded.mask)
        compared = torch.cat([encoded, attended, encoded - attended, encoded * attended], dim=-1)
        integrated = self.integrator(compared, padded.layout)
        pooled = self.pooling(padded.join(integrated), padded.mask)
        scores: Tensor = self.output(self.dropout(torch.tanh(self.between(self.dropout(pooled)))))
        return scores


class Classify(LabelTask[TextExample]):
    """Texts with one label each."""

    metric: ClassVar[str] = "accuracy"
    recipe: ClassVar[Recipe] = Recipe(
        hidden_size=128,
        dropout=0.2,
        batch_size=32,
        epochs=10,
        patience=4,
        learning_rate=2e-3,
        weight_decay=1e-4,
    )
    read = staticmethod(read_texts)

    def build(self, dims: FeatureDims, recipe: Recipe) -> Classifier:
        """Build the network."""
        return Classifier(dims, self.labels, recipe)

    def collate(self, examples: Sequence[TextExample]) -> LabelBatch:
        """Return a batch."""
        layout = Layout.of([len(example.words) for example in examples])
        return LabelBatch(layout, self.numbers(examples))

    def parse(self, text: str, options: ReadOptions) -> list[TextExample]:
        """Split a raw text into words."""
        return [TextExample(words_of(text, options))]

    def texts(self, example: TextExample) -> dict[str, str]:
        """Return the text."""
        return {"text": " ".join(example.words)}


def _self_attention(vectors: Tensor, mask: Tensor) -> Tensor:
    """Attend from each word to the words of its text: `(texts, time, dim)`, same shape."""
    scale = vectors.shape[-1] ** -0.5
    scores = torch.einsum("std,sud->stu", vectors * scale, vectors)
    lowest = torch.finfo(scores.dtype).min
    shares = torch.softmax(scores.masked_fill(~mask.unsqueeze(1), lowest), dim=-1)
    return torch.einsum("stu,sud->std", shares, vectors) * mask.unsqueeze(-1)

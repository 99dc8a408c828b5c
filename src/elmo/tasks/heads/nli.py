"""Textual entailment by the enhanced sequential inference model, ESIM (Chen et al. 2017).

* premise and hypothesis -> one biLSTM for both, with variational dropout before it; its input is
  concatenated to its output (a shortcut connection, Nie and Bansal 2017): on ten thousand pairs the
  model would otherwise hardly learn which words match;
* each word of one attends to the words of the other;
* local inference: a word, what it attends to, their difference and product -> a layer with ReLU;
* a second biLSTM composes these, again with a shortcut; mean and max pooling over words;
* both texts together -> a layer with tanh -> labels.

Vectors for the output join the first biLSTM's output, where attention can use them, as in the
paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from elmo.tasks.heads.base import FeatureDims, Layout, WordVectors, text_pair
from elmo.tasks.heads.encoders import BiLstm, attend
from elmo.tasks.heads.labels import LabelBatch, LabelHead, LabelTask
from elmo.tasks.readers.examples import EntailmentPair, Words
from elmo.tasks.readers.files import words_of
from elmo.tasks.readers.formats import read_entailment
from elmo.tasks.settings import ReadOptions, Recipe


class Esim(LabelHead):
    """The network; see the module."""

    def __init__(self, dims: FeatureDims, labels: Sequence[str], recipe: Recipe) -> None:
        super().__init__(labels)
        hidden = recipe.hidden_size
        self.encoder = BiLstm(dims.input, hidden, recipe.layers, recipe.dropout)
        self.inference = nn.Linear(4 * (dims.input + 2 * hidden + dims.output), hidden)
        self.composition = BiLstm(hidden, hidden, 1, recipe.dropout)
        self.dropout = nn.Dropout(recipe.dropout)
        self.between = nn.Linear(4 * 3 * hidden, hidden)
        self.output = nn.Linear(hidden, len(labels))
        nn.init.kaiming_uniform_(self.inference.weight, nonlinearity="relu")
        for layer in (self.between, self.output):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, words: WordVectors, batch: LabelBatch) -> Tensor:
        """Return the scores of labels, `(pairs, labels)`."""
        padded = words.padded(batch.layout)
        mask = padded.mask
        read = torch.cat([padded.input, self.encoder(padded.input, padded.layout)], dim=-1)
        encoded = padded.join(read)
        compared = torch.cat([encoded, cross_attention(encoded, mask)], dim=-1)
        inferred = torch.relu(self.inference(self.dropout(compared))) * mask.unsqueeze(-1)
        composed = torch.cat([inferred, self.composition(inferred, padded.layout)], dim=-1)
        pooled = torch.cat(pooled_pair(composed, mask), dim=-1)
        scores: Tensor = self.output(self.dropout(torch.tanh(self.between(self.dropout(pooled)))))
        return scores


def cross_attention(encoded: Tensor, mask: Tensor) -> Tensor:
    """Attend from each word to the other text of its pair.

    Args:
        encoded: All premises, then all hypotheses, `(2 * pairs, time, dim)`.
        mask: True at words, `(2 * pairs, time)`.

    Returns:
        What a word attends to, its difference from the word, and the product of the two,
        `(2 * pairs, time, 3 * dim)`.
    """
    premise, hypothesis = encoded.chunk(2)
    premise_mask, hypothesis_mask = mask.chunk(2)
    scores = premise @ hypothesis.transpose(1, 2)
    attended = torch.cat(
        [
            attend(scores, hypothesis_mask, hypothesis),
            attend(scores.transpose(1, 2), premise_mask, premise),
        ]
    )
    return torch.cat([attended, encoded - attended, encoded * attended], dim=-1)


def pooled_pair(composed: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Pool `(2 * pairs, time, dim)` over words: mean and maximum of both texts of a pair.

    Returns:
        Four tensors `(pairs, dim)`; zero for a text without words.
    """
    weights = mask.unsqueeze(-1)
    mean = (composed * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    lowest = torch.finfo(composed.dtype).min
    highest = composed.masked_fill(~weights, lowest).amax(dim=1) * mask.any(dim=1, keepdim=True)
    return *mean.chunk(2), *highest.chunk(2)


class Nli(LabelTask[EntailmentPair]):
    """Pairs of texts with one label each."""

    metric: ClassVar[str] = "accuracy"
    takes_pairs: ClassVar[bool] = True
    recipe: ClassVar[Recipe] = Recipe(
        hidden_size=128,
        dropout=0.1,
        batch_size=32,
        epochs=12,
        patience=4,
        learning_rate=1e-3,
        elmo_dropout=0.3,
    )
    read = staticmethod(read_entailment)

    def sentences(self, example: EntailmentPair) -> list[Words]:
        """Return premise and hypothesis."""
        return [example.premise, example.hypothesis]

    def build(self, dims: FeatureDims, recipe: Recipe) -> Esim:
        """Build the network."""
        return Esim(dims, self.labels, recipe)

    def collate(self, examples: Sequence[EntailmentPair]) -> LabelBatch:
        """Return a batch; its layout has all premises, then all hypotheses."""
        lengths = [len(words) for e in examples for words in (e.premise, e.hypothesis)]
        numbers = range(len(lengths))
        layout = Layout.of(lengths, [*numbers[::2], *numbers[1::2]])
        return LabelBatch(layout, self.numbers(examples))

    def parse(self, text: str, options: ReadOptions) -> list[EntailmentPair]:
        """Split `premise<TAB>hypothesis`, or a JSON object with `sentence1` and `sentence2`."""
        keys = ("sentence1", "sentence2")
        texts = text_pair(text, keys, "a premise, a tab and a hypothesis")
        premise, hypothesis = (words_of(part, options) for part in texts)
        return [EntailmentPair(premise, hypothesis)]

    def texts(self, example: EntailmentPair) -> dict[str, str]:
        """Return premise and hypothesis."""
        return {"premise": " ".join(example.premise), "hypothesis": " ".join(example.hypothesis)}

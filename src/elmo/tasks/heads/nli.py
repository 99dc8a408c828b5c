"""Textual entailment by the enhanced sequential inference model, ESIM (Chen et al. 2017).

* premise and hypothesis -> one biLSTM for both, with sequence dropout before it; what it read stays
  beside what it gives (a shortcut, as Nie and Bansal 2017 have it): on ten thousand pairs the model
  would otherwise hardly learn which words go together;
* each word of one attends to the words of the other;
* local inference: a word, what it attends to, their difference and product -> a layer with relu;
* a second biLSTM composes these, again with a shortcut; mean and maximum over words are pooled;
* both texts together -> a layer with tanh -> labels.

Vectors for the output stand beside the first biLSTM's output, where attention can use them, as in
the paper.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.heads.attention import attend
from elmo.tasks.heads.base import FeatureDims, Head, Layout, Task, Words, WordVectors
from elmo.tasks.heads.encoders import BiLstm
from elmo.tasks.heads.labels import (
    LabelPrediction,
    label_numbers,
    most_probable,
    require_known,
    require_labels,
)
from elmo.tasks.metrics.labels import accuracy, macro_f1
from elmo.tasks.readers.examples import EntailmentPair
from elmo.tasks.readers.formats import read_entailment
from elmo.tasks.recipe import ReadOptions, Recipe
from elmo.text.files import get_tokenizer


@dataclass(frozen=True)
class PairBatch:
    """Pairs as tensors."""

    layout: Layout
    """All premises, then all hypotheses."""
    labels: Tensor
    """Numbers of labels, `(pairs,)`; 0 where there is none."""


class Esim(Head[PairBatch, LabelPrediction]):
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
        self.inference = nn.Linear(4 * (dims.input + 2 * hidden + dims.output), hidden)
        self.composition = BiLstm(hidden, hidden, 1, recipe.dropout)
        self.dropout = nn.Dropout(recipe.dropout)
        self.between = nn.Linear(4 * 3 * hidden, hidden)
        self.output = nn.Linear(hidden, len(labels))
        nn.init.kaiming_uniform_(self.inference.weight, nonlinearity="relu")
        for layer in (self.between, self.output):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, words: WordVectors, batch: PairBatch) -> Tensor:
        """Give the scores of labels, `(pairs, labels)`."""
        padded = words.padded(batch.layout)
        mask = padded.mask
        read = torch.cat([padded.input, self.encoder(padded.input, padded.layout)], dim=-1)
        encoded = padded.beside(read)
        compared = torch.cat([encoded, compared_with(encoded, mask)], dim=-1)
        inferred = torch.relu(self.inference(self.dropout(compared))) * mask.unsqueeze(-1)
        composed = torch.cat([inferred, self.composition(inferred, padded.layout)], dim=-1)
        pooled = torch.cat(pooled_pair(composed, mask), dim=-1)
        scores: Tensor = self.output(self.dropout(torch.tanh(self.between(self.dropout(pooled)))))
        return scores

    def loss(self, words: WordVectors, batch: PairBatch) -> Tensor:
        """Give the mean cross-entropy of the labels, shape `()`."""
        return F.cross_entropy(self(words, batch).float(), batch.labels)

    def predict(self, words: WordVectors, batch: PairBatch) -> list[LabelPrediction]:
        """Give the most probable label of each pair."""
        return most_probable(self.labels, self(words, batch))


def compared_with(encoded: Tensor, mask: Tensor) -> Tensor:
    """Lay beside each word what the other text of its pair says about it.

    Args:
        encoded: All premises, then all hypotheses, `(2 * pairs, time, dim)`.
        mask: True where there is a word, `(2 * pairs, time)`.

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


@dataclass(frozen=True)
class Nli(Task[EntailmentPair, PairBatch, LabelPrediction]):
    """Pairs of texts with one label each."""

    labels: tuple[str, ...]

    name: ClassVar[str] = "nli"
    metric: ClassVar[str] = "accuracy"
    recipe: ClassVar[Recipe] = Recipe(
        hidden=128, dropout=0.1, batch=32, epochs=12, patience=4, rate=1e-3, elmo_dropout=0.3
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))

    @classmethod
    def read(cls, paths: Sequence[Path], options: ReadOptions) -> list[EntailmentPair]:
        """Read SNLI's JSON lines, or tsv; texts that are too long are cut."""
        pairs = read_entailment(paths, options)
        limit = options.max_words
        long = [p for p in pairs if max(len(p.premise), len(p.hypothesis)) > limit]
        if long:
            warnings.warn(
                f"{len(long)} pairs have a text of more than {limit} words, which is cut (first: "
                f"{long[0].place}); see --max-words",
                ElmoWarning,
                stacklevel=2,
            )
        return [
            dataclasses.replace(p, premise=p.premise[:limit], hypothesis=p.hypothesis[:limit])
            for p in pairs
        ]

    @classmethod
    def from_examples(cls, examples: Sequence[EntailmentPair], options: ReadOptions) -> Self:
        """Learn the labels."""
        del options
        labels = require_labels(example.label for example in examples)
        if len(labels) < 2:
            raise InputError(f"all training pairs have the label {labels[0]!r}: nothing to learn")
        return cls(labels)

    def check(self, examples: Sequence[EntailmentPair]) -> None:
        """Refuse labels that the training data do not have."""
        require_known(((e.label, e.place) for e in examples), self.labels)

    def sentences(self, example: EntailmentPair) -> list[Words]:
        """Give premise and hypothesis."""
        return [example.premise, example.hypothesis]

    def build(self, dims: FeatureDims, recipe: Recipe) -> Esim:
        """Make the network."""
        return Esim(dims, self.labels, recipe)

    def collate(self, examples: Sequence[EntailmentPair]) -> PairBatch:
        """Make a batch."""
        lengths = [len(words) for e in examples for words in (e.premise, e.hypothesis)]
        numbers = range(len(lengths))
        layout = Layout.of(lengths, [*numbers[::2], *numbers[1::2]])
        return PairBatch(layout, label_numbers((e.label for e in examples), self.labels))

    def evaluate(
        self, examples: Sequence[EntailmentPair], predictions: Sequence[LabelPrediction]
    ) -> dict[str, float]:
        """Give accuracy and macro F1."""
        gold = [str(example.label) for example in examples]
        predicted = [prediction.label for prediction in predictions]
        return {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}

    def parse(self, text: str, options: ReadOptions) -> list[EntailmentPair]:
        """Split `premise<TAB>hypothesis`, or a JSON object with `sentence1` and `sentence2`."""
        tokenizer = get_tokenizer(options.tokenizer)
        premise, hypothesis = (
            list(chain.from_iterable(tokenizer.sentences(part))) for part in _two_texts(text)
        )
        return [EntailmentPair(premise, hypothesis)]

    def render(self, example: EntailmentPair, prediction: LabelPrediction) -> dict[str, Any]:
        """Show both texts, the label, and how probable each label is."""
        shares = {label: round(share, 4) for label, share in prediction.probabilities.items()}
        return {
            "premise": " ".join(example.premise),
            "hypothesis": " ".join(example.hypothesis),
            "label": prediction.label,
            "probabilities": shares,
        }


def _two_texts(text: str) -> tuple[str, str]:
    parts: Sequence[Any] = text.strip("\r\n").split("\t")
    if text.lstrip().startswith("{"):
        try:
            record = json.loads(text)
        except json.JSONDecodeError:
            record = {}
        parts = [record.get("sentence1"), record.get("sentence2")]
    if len(parts) != 2 or not all(isinstance(part, str) and part.strip() for part in parts):
        raise InputError(
            f"received {text[:60]!r}, expected a premise, a tab and a hypothesis, or a JSON object "
            "with sentence1 and sentence2"
        )
    return parts[0], parts[1]

"""Tags of words: named entities and other spans, parts of speech.

* words -> biLSTM layers, with variational dropout before each -> scores of tags;
* spans (IOB tags) are learned as BIOES with a CRF constrained to the scheme, as in the baseline of
  the paper; tags that encode no spans (parts of speech) by cross-entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from elmo.tasks.heads.base import FeatureDims, Head, Layout, Task, WordVectors, shown_span
from elmo.tasks.heads.crf import Crf, tag_rules
from elmo.tasks.heads.encoders import BiLstm
from elmo.tasks.heads.labels import require_labels, tag_numbers, warn_of_unknown_tags
from elmo.tasks.metrics.scores import accuracy, macro_f1, span_score
from elmo.tasks.readers.examples import TaggedSentence
from elmo.tasks.readers.files import sentences_of
from elmo.tasks.readers.formats import read_tagged
from elmo.tasks.settings import ReadOptions, Recipe
from elmo.tasks.tag_schemes import scheme_of, spans_of, to_bioes, to_iob2


@dataclass(frozen=True)
class TagBatch:
    """Sentences as tensors."""

    layout: Layout
    tags: Tensor
    """Numbers of tags, `(sentences, time)`; 0 at padding."""


class Tagger(Head[TagBatch, list[str]]):
    """The network; see the module. Its tags are BIOES if they encode spans."""

    def __init__(self, dims: FeatureDims, tags: Sequence[str], spans: bool, recipe: Recipe) -> None:
        super().__init__()
        self.tags = tags
        self.encoder = BiLstm(dims.input, recipe.hidden_size, recipe.layers, recipe.dropout)
        self.dropout = nn.Dropout(recipe.dropout)
        self.output = nn.Linear(self.encoder.output_dim + dims.output, len(tags))
        self.crf = Crf(tag_rules(tags, "bioes")) if spans else None

    def forward(self, words: WordVectors, batch: TagBatch) -> Tensor:
        """Return the scores of tags, `(sentences, time, tags)`."""
        padded = words.padded(batch.layout)
        encoded = padded.join(self.encoder(padded.input, padded.layout))
        scores: Tensor = self.output(self.dropout(encoded))
        return scores

    def loss(self, words: WordVectors, batch: TagBatch) -> Tensor:
        """Return the mean negative log-likelihood, of a sentence (CRF) or of a word, shape `()`."""
        scores, mask = self(words, batch), batch.layout.mask
        if self.crf is not None:
            return -self.crf.log_likelihood(scores, batch.tags, mask).mean()
        unpad = batch.layout.unpad
        return F.cross_entropy(unpad(scores).float(), unpad(batch.tags))

    def predict(self, words: WordVectors, batch: TagBatch) -> list[list[str]]:
        """Return the best tags of each sentence."""
        scores, mask = self(words, batch), batch.layout.mask
        if self.crf is not None:
            paths = self.crf.decode(scores, mask)
        else:
            best = scores.argmax(dim=-1).tolist()
            paths = [row[:size] for row, size in zip(best, batch.layout.sizes, strict=True)]
        return [[self.tags[number] for number in path] for path in paths]


@dataclass(frozen=True)
class Tag(Task[TaggedSentence, TagBatch, list[str]]):
    """Sentences with one tag for each word."""

    tags: tuple[str, ...]
    """BIOES where the tags are spans, else as they are in the data."""
    spans: bool
    """Whether tags encode spans."""

    metric: ClassVar[str] = "score"
    recipe: ClassVar[Recipe] = Recipe(
        hidden_size=128,
        layers=2,
        dropout=0.2,
        batch_size=16,
        epochs=15,
        patience=5,
        learning_rate=3e-3,
        elmo_dropout=0.3,
        mix_l2=0.001,
    )
    read = staticmethod(read_tagged)

    @classmethod
    def from_examples(cls, examples: Sequence[TaggedSentence]) -> Self:
        """Collect the tags, and whether they encode spans."""
        spans = scheme_of(example.tags or [] for example in examples) != "labels"
        tags = require_labels(tag for e in examples for tag in _targets(e, spans))
        if spans:  # every type may have spans of every length, whatever the training data have
            types = sorted({tag[2:] for tag in tags if tag != "O"})
            tags = ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BIES"))
        return cls(tags, spans)

    def check(self, examples: Sequence[TaggedSentence]) -> None:
        """Warn of tags that the training data do not have."""
        warn_of_unknown_tags(
            ((tag, e.place) for e in examples for tag in _targets(e, self.spans)), self.tags
        )

    def build(self, dims: FeatureDims, recipe: Recipe) -> Tagger:
        """Build the network."""
        return Tagger(dims, self.tags, self.spans, recipe)

    def collate(self, examples: Sequence[TaggedSentence]) -> TagBatch:
        """Return a batch."""
        layout = Layout.of([len(example.words) for example in examples])
        rows = [_targets(example, self.spans) for example in examples]
        return TagBatch(layout, tag_numbers(rows, self.tags, layout.mask.shape[1]))

    def evaluate(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[list[str]]
    ) -> dict[str, float]:
        """Return F1 of spans, or accuracy of tags, as `score` and under its own name."""
        gold = [example.tags or [] for example in examples]
        if self.spans:
            score = span_score(gold, predictions)
            return {"score": score.f1, **score.as_dict()}
        flat = [tag for tags in gold for tag in tags]
        predicted = [tag for tags in predictions for tag in tags]
        right = accuracy(flat, predicted)
        return {"score": right, "accuracy": right, "macro_f1": macro_f1(flat, predicted)}

    def parse(self, text: str, options: ReadOptions) -> list[TaggedSentence]:
        """Split a raw text into sentences of words."""
        return [TaggedSentence(words) for words in sentences_of(text, options)]

    def render(self, example: TaggedSentence, prediction: list[str]) -> dict[str, Any]:
        """Return words and tags (spans in IOB2), and the spans with their words."""
        shown: dict[str, Any] = {"words": example.words, "tags": prediction}
        if self.spans:
            spans = spans_of(prediction)
            shown["tags"] = to_iob2(spans, len(example.words))
            shown["spans"] = [
                {"type": kind, **shown_span(example.words, a, b)} for a, b, kind in spans
            ]
        return shown


def _targets(example: TaggedSentence, spans: bool) -> list[str]:
    tags = example.tags or []
    return to_bioes(spans_of(tags), len(tags)) if spans else tags

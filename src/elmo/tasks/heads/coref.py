"""Coreference resolution: which spans of a document refer to the same entity.

End-to-end span ranking (Lee et al. 2017), with the pruning of its successor (Lee et al. 2018):

* each sentence -> biLSTM, with variational dropout before it;
* every span of up to `LONGEST_MENTION` words is represented by its first word, its last word, its
  words weighted by learned attention (which tends to find the head), and its width;
* a score ranks them as mentions; the best `SPANS_A_WORD` per word are kept;
* for each kept span, a cheap score selects `ANTECEDENTS` of the kept spans before it, and a network
  scores these by both representations, their product and their distance;
* a span is linked to its best antecedent, or to none if no score is above 0.

Training maximizes the marginal probability of the correct antecedents. Where the training documents
have clusters of one mention (LitBank has, OntoNotes has not), the score of mentions also learns to
be above 0 for mentions only, and mentions without a link are predicted as singletons.

Vectors for the output join the biLSTM's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.errors import InputError
from elmo.tasks.heads.base import FeatureDims, Head, Layout, Task, WordVectors, shown_span
from elmo.tasks.heads.encoders import BiLstm
from elmo.tasks.heads.span_scores import (
    Antecedents,
    AntecedentScorer,
    SpanEncoder,
    antecedent_loss,
    best_antecedents,
)
from elmo.tasks.metrics.clusters import (
    assignment_solver,
    average_f1,
    coreference_scores,
    without_singletons,
)
from elmo.tasks.readers.examples import Document, Span, Words
from elmo.tasks.readers.files import sentences_of, warn_of
from elmo.tasks.readers.formats import read_documents
from elmo.tasks.settings import ReadOptions, Recipe

LONGEST_MENTION = 12
"""Words of a mention, at most: 98.7 % of LitBank's are as short."""
SPANS_A_WORD = 0.35
"""Spans that are kept for each word of a document."""
LEAST_SPANS = 20
"""Spans that are kept of the shortest text, if it has as many."""
ANTECEDENTS = 50
"""Antecedents that are scored for each span."""
TRAINED_WORDS = 3000
"""Of longer documents, training reads this many consecutive words, drawn anew each time."""

_RARE = -4.0
"""Initial log-odds of a span to be a mention: one in fifty."""

Clusters = list[list[Span]]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CorefBatch:
    """Documents as tensors."""

    layout: Layout
    """All sentences of all documents."""
    spans: Tensor
    """First words, words after the last, and numbers of sentences, counted within each document,
    `(3, spans)`."""
    clusters: Tensor
    """Numbers of the spans' clusters, from 1, `(spans,)`; 0 for none."""
    sizes: tuple[tuple[int, int], ...]
    """Words and spans of each document."""


class SpanRanker(Head[CorefBatch, Clusters]):
    """The network; see the module.

    With `singletons`, mentions without a link are learned and predicted.
    """

    def __init__(self, dims: FeatureDims, recipe: Recipe, singletons: bool) -> None:
        super().__init__()
        self.singletons = singletons
        self.encoder = BiLstm(dims.input, recipe.hidden_size, recipe.layers, recipe.dropout)
        width = self.encoder.output_dim + dims.output
        self.spans = SpanEncoder(
            width,
            dims.input,
            hidden=recipe.hidden_size,
            longest=LONGEST_MENTION,
            dropout=recipe.dropout,
        )
        if singletons:  # few spans are mentions
            nn.init.constant_(self.spans.output.bias, _RARE)
        self.antecedents = AntecedentScorer(
            self.spans.output_dim, hidden=recipe.hidden_size, dropout=recipe.dropout
        )

    def loss(self, words: WordVectors, batch: CorefBatch) -> Tensor:
        """Return the mean over documents of the loss per mention, shape `()`."""
        losses = []
        for document in self._documents(words, batch):
            if len(document.encoded) > TRAINED_WORDS:
                document = document.random_window(TRAINED_WORDS)
            losses.append(self._document_loss(document))
        return torch.stack(losses).mean()

    def predict(self, words: WordVectors, batch: CorefBatch) -> list[Clusters]:
        """Return the clusters of each document, mentions and clusters in the order of the text."""
        return [self._clusters(document) for document in self._documents(words, batch)]

    def _documents(self, words: WordVectors, batch: CorefBatch) -> list[_EncodedDocument]:
        """Encode sentences, and join those of each document."""
        padded = words.padded(batch.layout)
        encoded = padded.join(self.encoder(padded.input, padded.layout))
        rows = batch.layout.unpad(encoded), batch.layout.unpad(padded.input)
        n_words, n_spans = ([size[k] for size in batch.sizes] for k in (0, 1))
        parts = zip(
            torch.split(rows[0], n_words),
            torch.split(rows[1], n_words),
            torch.split(batch.spans, n_spans, dim=1),
            torch.split(batch.clusters, n_spans),
            strict=True,
        )
        return [_EncodedDocument(*part) for part in parts]

    def _ranked(self, document: _EncodedDocument) -> tuple[Tensor, Tensor, Antecedents]:
        """Score the spans of a document as mentions, prune them, and score their antecedents.

        Returns:
            Scores of all spans `(spans,)`, numbers of the kept ones in order `(kept,)`, and their
            antecedents.
        """
        spans = document.spans
        read = self.spans.prepared(document.encoded, document.inputs)
        scores = self.spans.mention_scores(read, spans)
        wanted = max(LEAST_SPANS, round(SPANS_A_WORD * len(document.encoded)))
        n_kept = min(len(scores), wanted)
        kept = scores.detach().topk(n_kept).indices.sort().values
        vectors = self.spans.vectors(read, spans[:, kept])
        # Log-probabilities are at most 0: being mentions does not by itself link two spans.
        return scores, kept, self.antecedents(vectors, F.logsigmoid(scores[kept]), ANTECEDENTS)

    def _document_loss(self, document: _EncodedDocument) -> Tensor:
        if not document.spans.shape[1]:
            return document.encoded.sum() * 0.0
        scores, kept, antecedents = self._ranked(document)
        loss = antecedent_loss(antecedents, document.clusters[kept])
        mentions = document.clusters > 0
        if self.singletons:
            loss = loss + F.binary_cross_entropy_with_logits(
                scores, mentions.to(scores.dtype), reduction="sum"
            )
        return loss / mentions.sum().clamp(min=1)

    def _clusters(self, document: _EncodedDocument) -> Clusters:
        if not document.spans.shape[1]:
            return []
        scores, kept, antecedents = self._ranked(document)
        chosen = best_antecedents(antecedents).tolist()
        mentions = (scores[kept] > 0).tolist() if self.singletons else [False] * len(chosen)
        places = document.spans[:2, kept].T.tolist()
        return grouped([Span(*place) for place in places], chosen, mentions)


@dataclass(frozen=True)
class _EncodedDocument:
    """One document after the biLSTM."""

    encoded: Tensor
    """Words, `(words, width)`."""
    inputs: Tensor
    """Input of the biLSTM, `(words, dims.input)`."""
    spans: Tensor
    """See `CorefBatch.spans`."""
    clusters: Tensor
    """See `CorefBatch.clusters`."""

    def random_window(self, words: int) -> _EncodedDocument:
        """Return a random window of consecutive words, with the spans in it."""
        latest = len(self.encoded) - words
        first = int(torch.randint(latest + 1, ()))
        inside = (self.spans[0] >= first) & (self.spans[1] <= first + words)
        spans = self.spans[:, inside].clone()
        spans[:2] -= first
        part = slice(first, first + words)
        return _EncodedDocument(self.encoded[part], self.inputs[part], spans, self.clusters[inside])


def grouped(
    spans: Sequence[Span], antecedents: Sequence[int], singletons: Sequence[bool]
) -> Clusters:
    """Group linked spans into clusters.

    Args:
        spans: In the order of the text.
        antecedents: For each span the number of an earlier span; -1 for none.
        singletons: Whether a span without a link is a cluster of its own.

    Returns:
        Clusters, ordered by first mention.
    """
    cluster_of = list(range(len(spans)))  # the number of its first mention
    members: dict[int, list[Span]] = {}
    for number, antecedent in enumerate(antecedents):
        if antecedent >= 0:
            cluster_of[number] = cluster_of[antecedent]
        members.setdefault(cluster_of[number], []).append(spans[number])
    return [group for first, group in members.items() if len(group) > 1 or singletons[first]]


def candidate_spans(lengths: Sequence[int], longest: int) -> Integers:
    """Enumerate all spans of up to `longest` words within sentences.

    Args:
        lengths: Words of each sentence of a document.
        longest: Words of a span at most.

    Returns:
        First words, words after the last, and numbers of sentences, `(3, spans)`, words counted
        over the whole document; sorted by first words, then by length.
    """
    sentence_of = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.cumsum(lengths)[sentence_of] if len(lengths) else sentence_of
    starts = np.arange(len(sentence_of)).reshape(-1, 1)
    stops = starts + np.arange(1, longest + 1).reshape(1, -1)
    inside = stops <= ends.reshape(-1, 1)
    starts, stops = np.broadcast_to(starts, stops.shape)[inside], stops[inside]
    return np.stack([starts, stops, sentence_of[starts]])


def cluster_numbers(spans: Integers, clusters: Sequence[Sequence[Span]]) -> Integers:
    """Return the number of each span's cluster, from 1; 0 for spans that are no mentions.

    Args:
        spans: From `candidate_spans`, `(3, spans)`.
        clusters: Mentions of a document.

    Returns:
        Shape `(spans,)`.
    """
    longest = int((spans[1] - spans[0]).max(initial=1))
    table: Integers = np.zeros((int(spans[1].max(initial=0)), longest), dtype=np.int64)
    for number, cluster in enumerate(clusters, start=1):
        for start, stop in cluster:
            if stop <= len(table) and stop - start <= longest:
                table[start, stop - start - 1] = number
    numbers: Integers = table[spans[0], spans[1] - spans[0] - 1]
    return numbers


def warn_of_long_mentions(documents: Sequence[Document], longest: int) -> None:
    """Warn of mentions that are longer than all candidates."""
    mentions = [(d.place, span) for d in documents for m in d.clusters or [] for span in m]
    warn_of(
        f"of {len(mentions):,} mentions have more than {longest} words and cannot be found",
        [place for place, span in mentions if span.stop - span.start > longest],
    )


@dataclass(frozen=True)
class Coref(Task[Document, CorefBatch, Clusters]):
    """Documents with clusters of mentions."""

    singletons: bool
    """Whether the training documents have clusters of one mention."""

    metric: ClassVar[str] = "average_f1"
    recipe: ClassVar[Recipe] = Recipe(
        hidden_size=128,
        dropout=0.3,
        batch_size=1,
        epochs=40,
        patience=10,
        learning_rate=1e-3,
        elmo_dropout=0.5,
    )
    read = staticmethod(read_documents)

    @classmethod
    def from_examples(cls, examples: Sequence[Document]) -> Self:
        """Detect whether there are singletons."""
        clusters = [mentions for e in examples for mentions in e.clusters or []]
        if not any(len(mentions) > 1 for mentions in clusters):
            raise InputError("no training document has two mentions of the same entity")
        warn_of_long_mentions(examples, LONGEST_MENTION)
        return cls(singletons=any(len(mentions) == 1 for mentions in clusters))

    def check(self, examples: Sequence[Document]) -> None:
        """Warn of mentions that are too long to be found; require SciPy."""
        assignment_solver()  # now, and not after the first epoch
        warn_of_long_mentions(examples, LONGEST_MENTION)

    def sentences(self, example: Document) -> list[Words]:
        """Return the sentences of the document."""
        return example.sentences

    def build(self, dims: FeatureDims, recipe: Recipe) -> SpanRanker:
        """Build the network."""
        return SpanRanker(dims, recipe, self.singletons)

    def collate(self, examples: Sequence[Document]) -> CorefBatch:
        """Return a batch."""
        lengths = [[len(words) for words in e.sentences] for e in examples]
        spans = [candidate_spans(own, LONGEST_MENTION) for own in lengths]
        clusters = [
            cluster_numbers(own, e.clusters or []) for own, e in zip(spans, examples, strict=True)
        ]
        sizes = zip(lengths, spans, strict=True)
        return CorefBatch(
            Layout.of([n for own in lengths for n in own]),
            torch.from_numpy(np.concatenate(spans, axis=1)),
            torch.from_numpy(np.concatenate(clusters)),
            tuple((sum(own), found.shape[1]) for own, found in sizes),
        )

    def evaluate(
        self, examples: Sequence[Document], predictions: Sequence[Clusters]
    ) -> dict[str, float]:
        """Return F1 of MUC, B3 and CEAFe, and their average as annotated and without singletons."""
        gold = [example.clusters or [] for example in examples]
        scores = coreference_scores(gold, predictions)
        linked = coreference_scores(
            [without_singletons(clusters) for clusters in gold],
            [without_singletons(clusters) for clusters in predictions],
        )
        return {
            "average_f1": average_f1(scores),
            "muc_f1": scores["muc"].f1,
            "b3_f1": scores["b3"].f1,
            "ceafe_f1": scores["ceafe"].f1,
            "mention_f1": scores["mentions"].f1,
            "average_f1_without_singletons": average_f1(linked),
        }

    def parse(self, text: str, options: ReadOptions) -> list[Document]:
        """Split a raw text into sentences of words."""
        sentences = [words for words in sentences_of(text, options) if words]
        return [Document(sentences or [[]])]

    def render(self, example: Document, prediction: Clusters) -> dict[str, Any]:
        """Return the sentences, and each mention with its words, counted over the document."""
        words = [word for sentence in example.sentences for word in sentence]
        clusters = [[shown_span(words, *span) for span in mentions] for mentions in prediction]
        shown = {"sentences": example.sentences, "clusters": clusters}
        return {"name": example.name, **shown} if example.name else shown

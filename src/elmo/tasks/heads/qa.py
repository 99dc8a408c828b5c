"""Question answering: the answer is a piece of the paragraph.

BiDAF with self-attention, as Clark and Gardner (2018) have it and the paper extends it:

* paragraph and question -> one biLSTM for both, with variational dropout before it; its input is
  concatenated to its output, so that attention sees the words themselves, too;
* bidirectional attention between them (Seo et al. 2017) -> a layer with ReLU;
* self-attention of the paragraph, a word not to itself: biLSTM, attention, a layer with ReLU, and a
  residual connection;
* a biLSTM for the start of the answer, and one that also reads the first for its end.

Training maximizes the marginal probability of all starts and ends at which the paragraph has the
answer: which occurrence is meant is not always known.

Vectors for the output join the first biLSTM's output, where attention can use them, as in the
paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from elmo.errors import InputError
from elmo.tasks.heads.base import (
    FeatureDims,
    Head,
    Layout,
    PaddedWords,
    Task,
    WordVectors,
    text_pair,
)
from elmo.tasks.heads.encoders import (
    BiLstm,
    SequenceDropout,
    TrilinearScores,
    attend,
    masked_softmax,
)
from elmo.tasks.heads.passages import Passage, locate, passage_of, read_passages
from elmo.tasks.metrics.scores import answer_scores
from elmo.tasks.readers.examples import Question, Span, Words
from elmo.tasks.settings import ReadOptions, Recipe

LONGEST_ANSWER = 20
"""Words of a predicted answer, at most: 99 % of those in SQuAD are as short."""


@dataclass(frozen=True)
class QaBatch:
    """Questions as tensors."""

    contexts: Layout
    questions: Layout
    starts: Tensor
    """True where an answer begins, `(questions, context words)`; for the loss only."""
    stops: Tensor
    """True at the last word of an answer, likewise."""


@dataclass(frozen=True)
class AnswerPrediction:
    """The words that answer a question."""

    words: Span
    probability: float


class Bidaf(Head[QaBatch, AnswerPrediction]):
    """The network; see the module."""

    def __init__(self, dims: FeatureDims, recipe: Recipe) -> None:
        super().__init__()
        hidden = recipe.hidden_size
        width = 2 * hidden
        encoded = dims.input + width + dims.output
        self.encoder = BiLstm(dims.input, hidden, recipe.layers, recipe.dropout)
        self.between = TrilinearScores(encoded)
        self.merged = nn.Linear(4 * encoded, width)
        self.reader = BiLstm(width, hidden, 1, recipe.dropout)
        self.within = TrilinearScores(width)
        self.residual = nn.Linear(3 * width, width)
        self.start_reader = BiLstm(width, hidden, 1, recipe.dropout)
        self.stop_reader = BiLstm(2 * width, hidden, 1, recipe.dropout)
        self.start = nn.Linear(width, 1)
        self.stop = nn.Linear(width, 1)
        self.dropout = SequenceDropout(recipe.dropout)
        for layer in (self.merged, self.residual):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")

    def forward(self, words: WordVectors, batch: QaBatch) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of starts and of last words.

        Returns:
            Two tensors `(questions, context words)`; the lowest number at padding.
        """
        context, question = words.padded(batch.contexts), words.padded(batch.questions)
        query, read = self._read(question), self._read(context)
        attended = bidirectional_attention(
            self.between(read, query), read, context.mask, query, question.mask
        )
        merged = torch.relu(self.merged(attended)) * context.mask.unsqueeze(-1)
        merged = merged + self._self_attention(merged, batch.contexts)
        for_start = self.start_reader(merged, batch.contexts)
        for_stop = self.stop_reader(torch.cat([merged, for_start], dim=-1), batch.contexts)
        return (
            _log_probabilities(self.start(for_start).squeeze(-1), context.mask),
            _log_probabilities(self.stop(for_stop).squeeze(-1), context.mask),
        )

    def _read(self, words: PaddedWords) -> Tensor:
        """Encode texts: `(texts, time, dims.input + 2 * hidden + dims.output)`."""
        both = torch.cat([words.input, self.encoder(words.input, words.layout)], dim=-1)
        read: Tensor = self.dropout(words.join(both))
        return read

    def _self_attention(self, merged: Tensor, layout: Layout) -> Tensor:
        """Attend from words of the context `(questions, time, dim)` to the others; same shape."""
        mask, read = layout.mask, self.dropout(self.reader(merged, layout))
        itself = torch.eye(read.shape[1], dtype=torch.bool, device=read.device)
        attended = attend(self.within(read, read), mask.unsqueeze(1) & ~itself, read)
        compared = torch.cat([read, attended, read * attended], dim=-1)
        return torch.relu(self.residual(compared)) * mask.unsqueeze(-1)

    def loss(self, words: WordVectors, batch: QaBatch) -> Tensor:
        """Return the mean of -log p(start) - log p(last word), shape `()`."""
        starts, stops = self(words, batch)
        return marginal_loss(starts, batch.starts) + marginal_loss(stops, batch.stops)

    def predict(self, words: WordVectors, batch: QaBatch) -> list[AnswerPrediction]:
        """Return the most probable answer of at most `LONGEST_ANSWER` words to each question."""
        starts, stops = self(words, batch)
        first, last, probability = best_spans(starts, stops, LONGEST_ANSWER)
        found = zip(first.tolist(), last.tolist(), probability.tolist(), strict=True)
        return [AnswerPrediction(Span(a, b + 1), p) for a, b, p in found]


def bidirectional_attention(
    scores: Tensor, context: Tensor, context_mask: Tensor, question: Tensor, question_mask: Tensor
) -> Tensor:
    """Attend from context to question and from question to context (Seo et al. 2017).

    Args:
        scores: Similarity of words, `(batch, n, m)`.
        context: Shape `(batch, n, dim)`.
        context_mask: True at words, `(batch, n)`.
        question: Shape `(batch, m, dim)`.
        question_mask: True at words, `(batch, m)`.

    Returns:
        The word, what it attends to in the question, the product of the two, and what the question
        attends to in the context, times the word: `(batch, n, 4 * dim)`.
    """
    attended = attend(scores, question_mask, question)
    lowest = torch.finfo(scores.dtype).min
    highest = scores.masked_fill(~question_mask.unsqueeze(1), lowest).amax(dim=2)
    weights = masked_softmax(highest, context_mask).to(context.dtype)
    important = torch.einsum("bn,bnd->bd", weights, context).unsqueeze(1)
    return torch.cat([context, attended, context * attended, context * important], dim=-1)


def marginal_loss(log_probabilities: Tensor, correct: Tensor) -> Tensor:
    """Return -log p(any correct position), the mean over rows that have one, shape `()`.

    Args:
        log_probabilities: Of positions, `(rows, positions)`.
        correct: True at correct positions, `(rows, positions)`.
    """
    lowest = torch.finfo(log_probabilities.dtype).min
    summed = log_probabilities.masked_fill(~correct, lowest).logsumexp(dim=1)
    has_one = correct.any(dim=1)
    return -(summed * has_one).sum() / has_one.sum().clamp(min=1)


def best_spans(starts: Tensor, stops: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the most probable span of each row.

    Args:
        starts: Log-probabilities of first words, `(rows, words)`.
        stops: Log-probabilities of last words, `(rows, words)`.
        longest: Words of a span at most.

    Returns:
        First words, last words and probabilities, each `(rows,)`.
    """
    lowest = torch.finfo(stops.dtype).min
    ends = nn.functional.pad(stops, (0, longest - 1), value=lowest).unfold(1, longest, 1)
    together = (starts.unsqueeze(2) + ends.clamp(min=lowest / 4)).flatten(1)
    best, place = together.max(dim=1)
    first = place // longest
    return first, first + place % longest, best.exp()


def _log_probabilities(scores: Tensor, mask: Tensor) -> Tensor:
    scores = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min / 4)
    return torch.log_softmax(scores, dim=1)


@dataclass(frozen=True)
class Qa(Task[Passage, QaBatch, AnswerPrediction]):
    """Questions about paragraphs."""

    metric: ClassVar[str] = "f1"
    takes_pairs: ClassVar[bool] = True
    recipe: ClassVar[Recipe] = Recipe(
        hidden_size=100,
        dropout=0.1,
        batch_size=64,
        epochs=3,
        patience=2,
        learning_rate=2e-3,
        elmo_dropout=0.3,
    )
    read = staticmethod(read_passages)

    @classmethod
    def from_examples(cls, examples: Sequence[Passage]) -> Self:
        """Collect nothing: answers are pieces of texts."""
        if not any(example.spans for example in examples):
            raise InputError("no training question has an answer in its context")
        return cls()

    def sentences(self, example: Passage) -> list[Words]:
        """Return the sentences of the context, and the question."""
        return [*example.context.sentences, example.words]

    def build(self, dims: FeatureDims, recipe: Recipe) -> Bidaf:
        """Build the network."""
        return Bidaf(dims, recipe)

    def collate(self, examples: Sequence[Passage]) -> QaBatch:
        """Return a batch."""
        lengths = [n for e in examples for n in (len(e.context), len(e.words))]
        numbers = range(len(lengths))
        contexts = Layout.of(lengths, numbers[::2])
        shape = tuple(contexts.mask.shape)
        starts, stops = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for row, example in enumerate(examples):
            starts[row, [span.start for span in example.spans]] = True
            stops[row, [span.stop - 1 for span in example.spans]] = True
        return QaBatch(
            contexts,
            Layout.of(lengths, numbers[1::2]),
            torch.from_numpy(starts),
            torch.from_numpy(stops),
        )

    def evaluate(
        self, examples: Sequence[Passage], predictions: Sequence[AnswerPrediction]
    ) -> dict[str, float]:
        """Return exact match and F1 by SQuAD's rules."""
        gold = [[answer.text for answer in e.question.answers] for e in examples]
        predicted = [e.context.cut_out(p.words) for e, p in zip(examples, predictions, strict=True)]
        return answer_scores(gold, predicted)

    def parse(self, text: str, options: ReadOptions) -> list[Passage]:
        """Split `question<TAB>context`, or a JSON object with `question` and `context`."""
        keys = ("question", "context")
        question, context = text_pair(text, keys, "a question, a tab and a text", max_tabs=1)
        located = locate(context, options)
        raw = Question("", context, question)
        return [passage_of(raw, options, located.first_words(options.max_words))]

    def render(self, example: Passage, prediction: AnswerPrediction) -> dict[str, Any]:
        """Return the question, its answer, and the answer's character offsets in the context."""
        words, context = prediction.words, example.context
        shown = {
            "question": example.question.question,
            "answer": context.cut_out(words),
            "start": context.starts[words.start],
            "stop": context.stops[words.stop - 1],
            "probability": round(prediction.probability, 4),
        }
        return {"id": example.question.id, **shown} if example.question.id else shown

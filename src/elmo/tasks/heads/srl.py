"""Semantic roles: who did what to whom, for one predicate at a time.

* words with a predicate flag -> deep biLSTM with highways (after He et al. 2017, the baseline of
  the paper) -> scores of IOB tags;
* trained by cross-entropy, decoded by Viterbi under the constraints of IOB2;
* a small separate biLSTM learns which words are predicates, so that raw text can be read; words in
  brackets (`The cat [sat] down .`) are taken as predicates instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.tasks.heads.base import (
    FeatureDims,
    Head,
    Layout,
    Task,
    WordVectors,
    send,
    shown_span,
)
from elmo.tasks.heads.crf import FORBIDDEN, tag_rules, viterbi
from elmo.tasks.heads.encoders import BiLstm, HighwayLstm, SequenceDropout
from elmo.tasks.heads.labels import require_labels, tag_numbers, warn_of_unknown_tags
from elmo.tasks.metrics.scores import Score, role_score
from elmo.tasks.readers.examples import Frame, Words
from elmo.tasks.readers.files import sentences_of
from elmo.tasks.readers.formats import read_frames
from elmo.tasks.settings import ReadOptions, Recipe
from elmo.tasks.tag_schemes import spans_of

_FLAG_DIM = 32
_TABLES = ("transitions", "start", "end")
_FINDER_SHARE = 2
"""The biLSTM that finds predicates is narrower by this factor."""


@dataclass(frozen=True)
class SrlBatch:
    """Frames as tensors."""

    layout: Layout
    flags: Tensor
    """1 at the predicate, 0 elsewhere, int64 of shape `(frames, time)`."""
    tags: Tensor
    """Numbers of tags, `(frames, time)`."""
    predicates: Tensor
    """1 at predicates, of this frame or another, 0 elsewhere, `(frames, time)`."""
    wanted: tuple[int | None, ...]
    """The predicate of each frame; None where predicates must be found."""


@dataclass(frozen=True)
class SrlPrediction:
    """Predicates of one sentence and their arguments."""

    tags: dict[int, list[str]]
    """Tags by predicate; of the given predicate alone if there is one."""
    found: tuple[int, ...]
    """The words classified as predicates."""


class RoleLabeler(Head[SrlBatch, SrlPrediction]):
    """The network; see the module. Its tags are IOB2."""

    def __init__(self, dims: FeatureDims, tags: Sequence[str], recipe: Recipe) -> None:
        super().__init__()
        self.tags = tags
        self.flag = nn.Embedding(2, _FLAG_DIM)
        self.input_dropout = SequenceDropout(recipe.dropout)
        self.encoder = HighwayLstm(
            dims.input + _FLAG_DIM, recipe.hidden_size, recipe.layers, recipe.dropout
        )
        self.output = nn.Linear(self.encoder.output_dim + dims.output, len(tags))
        finder = max(1, recipe.hidden_size // _FINDER_SHARE)
        self.finder = BiLstm(dims.input, finder, 1, recipe.dropout)
        self.finder_output = nn.Linear(2 * finder + dims.output, 1)
        for name, allowed in zip(_TABLES, tag_rules(tags, "iob2"), strict=True):
            self.register_buffer(name, torch.where(allowed, 0.0, FORBIDDEN), persistent=False)

    def roles(self, words: WordVectors, layout: Layout, flags: Tensor) -> Tensor:
        """Return the scores of tags, `(frames, time, tags)`, for flags `(frames, time)`."""
        padded = words.padded(layout)
        vectors = torch.cat([padded.input, self.flag(flags)], dim=-1)
        encoded = self.encoder(self.input_dropout(vectors), padded.layout)
        scores: Tensor = self.output(padded.join(encoded))
        return scores

    def predicates(self, words: WordVectors, layout: Layout) -> Tensor:
        """Return the log-odds of each word being a predicate, `(frames, time)`."""
        padded = words.padded(layout)
        encoded = padded.join(self.finder(padded.input, padded.layout))
        scores: Tensor = self.finder_output(encoded).squeeze(-1)
        return scores

    def loss(self, words: WordVectors, batch: SrlBatch) -> Tensor:
        """Return the sum of the mean cross-entropies of tags and of predicates, shape `()`."""
        unpad = batch.layout.unpad
        tags = unpad(self.roles(words, batch.layout, batch.flags)).float()
        found = unpad(self.predicates(words, batch.layout)).float()
        return F.cross_entropy(tags, unpad(batch.tags)) + F.binary_cross_entropy_with_logits(
            found, unpad(batch.predicates)
        )

    def predict(self, words: WordVectors, batch: SrlBatch) -> list[SrlPrediction]:
        """Return the roles of given predicates, or of all words classified as predicates."""
        scores = self.predicates(words, batch.layout).float()
        positive = ((scores > 0) & batch.layout.mask).tolist()
        found = [tuple(k for k, is_one in enumerate(row) if is_one) for row in positive]
        asked = [
            (number, predicate)
            for number, given in enumerate(batch.wanted)
            for predicate in (found[number] if given is None else [given])
        ]
        paths = self._decode(words, batch.layout, asked) if asked else []
        predictions = [SrlPrediction({}, words_found) for words_found in found]
        for (number, predicate), path in zip(asked, paths, strict=True):
            predictions[number].tags[predicate] = [self.tags[tag] for tag in path]
        return predictions

    def _decode(
        self, words: WordVectors, layout: Layout, asked: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        chosen = Layout.of(layout.sizes, [number for number, _ in asked])
        flags = _flags([predicate for _, predicate in asked], chosen.mask.shape[1])
        chosen, flags = send((chosen, flags), layout.mask.device)
        scores = self.roles(words, chosen, flags).float().log_softmax(dim=-1)
        transitions, start, end = (getattr(self, name) for name in _TABLES)
        return viterbi(scores, chosen.mask, (transitions, start, end))


@dataclass(frozen=True)
class Srl(Task[Frame, SrlBatch, SrlPrediction]):
    """Sentences with predicates and their arguments."""

    tags: tuple[str, ...]

    metric: ClassVar[str] = "f1"
    recipe: ClassVar[Recipe] = Recipe(
        hidden_size=128,
        layers=4,
        dropout=0.1,
        batch_size=64,
        epochs=12,
        patience=3,
        learning_rate=1.5e-3,
        grad_clip=1.0,
        elmo_dropout=0.2,
        mix_l2=0.001,
    )
    read = staticmethod(read_frames)

    @classmethod
    def from_examples(cls, examples: Sequence[Frame]) -> Self:
        """Collect the roles."""
        tags = require_labels(tag for example in examples for tag in example.tags or ())
        roles = sorted({tag[2:] for tag in tags if tag != "O"})
        return cls(("O", *(f"{prefix}-{role}" for role in roles for prefix in "BI")))

    def check(self, examples: Sequence[Frame]) -> None:
        """Warn of roles that the training data do not have."""
        warn_of_unknown_tags(((tag, e.place) for e in examples for tag in e.tags or ()), self.tags)

    def build(self, dims: FeatureDims, recipe: Recipe) -> RoleLabeler:
        """Build the network."""
        return RoleLabeler(dims, self.tags, recipe)

    def collate(self, examples: Sequence[Frame]) -> SrlBatch:
        """Return a batch."""
        layout = Layout.of([len(example.words) for example in examples])
        length = layout.mask.shape[1]
        predicates = np.zeros((len(examples), length), dtype=np.float32)
        for row, example in enumerate(examples):
            predicates[row, list(example.predicates)] = 1.0
        return SrlBatch(
            layout,
            _flags([example.predicate for example in examples], length),
            tag_numbers([example.tags or [] for example in examples], self.tags, length),
            torch.from_numpy(predicates),
            tuple(example.predicate for example in examples),
        )

    def evaluate(
        self, examples: Sequence[Frame], predictions: Sequence[SrlPrediction]
    ) -> dict[str, float]:
        """Return F1 of arguments for the gold predicates, and F1 of finding predicates."""
        gold = [example.tags or [] for example in examples]
        score = role_score(gold, [next(iter(p.tags.values())) for p in predictions])
        predicates = _predicate_score(examples, predictions)
        return {**score.as_dict(), "predicate_f1": predicates.f1}

    def parse(self, text: str, options: ReadOptions) -> list[Frame]:
        """Split a raw text; words in brackets are the predicates of their sentence."""
        examples = []
        for tokens in sentences_of(text, options):
            words, marked = _without_brackets(tokens)
            wanted: list[int | None] = [*marked] or [None]
            examples += [Frame(words, predicate) for predicate in wanted]
        return examples

    def render(self, example: Frame, prediction: SrlPrediction) -> dict[str, Any]:
        """Return the words, and for each predicate its arguments with their words."""
        frames = []
        for predicate, tags in prediction.tags.items():
            arguments = [
                {"role": role, **shown_span(example.words, a, b)}
                for a, b, role in spans_of(tags)
                if role != "V"
            ]
            frames.append(
                {
                    "predicate": predicate,
                    "word": example.words[predicate],
                    "arguments": arguments,
                    "tags": tags,
                }
            )
        return {"words": example.words, "frames": frames}


def _flags(predicates: Sequence[int | None], length: int) -> Tensor:
    flags = np.zeros((len(predicates), length), dtype=np.int64)
    for row, predicate in enumerate(predicates):
        if predicate is not None:
            flags[row, predicate] = 1
    return torch.from_numpy(flags)


def _predicate_score(examples: Sequence[Frame], predictions: Sequence[SrlPrediction]) -> Score:
    """Score the predicates of each sentence, counted once however many frames it has."""
    pairs = zip(examples, predictions, strict=True)
    sentences = {(e.place, tuple(e.words)): (set(e.predicates), set(p.found)) for e, p in pairs}
    return Score.of_counts(
        sum(len(gold & found) for gold, found in sentences.values()),
        sum(len(found) for _, found in sentences.values()),
        sum(len(gold) for gold, _ in sentences.values()),
    )


def _without_brackets(tokens: Words) -> tuple[Words, list[int]]:
    """Remove the brackets of `[sat]`, or `[` `sat` `]` if the tokenizer split them."""
    words: Words = []
    marked: list[int] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token == "[" and tokens[place + 2 : place + 3] == ["]"]:
            marked.append(len(words))
            token, place = tokens[place + 1], place + 2
        elif len(token) > 2 and token[0] == "[" and token[-1] == "]":
            marked.append(len(words))
            token = token[1:-1]
        words.append(token)
        place += 1
    return words, marked

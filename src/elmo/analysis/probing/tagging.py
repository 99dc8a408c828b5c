"""Parts of speech: a treebank of Universal Dependencies (CoNLL-U files), and a linear probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.errors import InputError, MissingFileError
from elmo.text.conllu import read_conllu
from elmo.text.files import COMPRESSED
from elmo.text.sentences import Words

Part = Literal["train", "test"]

_UNKNOWN = -1
"""Label of a tag that is not in the training part."""


_STEPS = 100
_DECAY = 1e-4
"""Weight of the L2 penalty: with it the loss has one minimum, whatever the start."""
_LEAST_SPREAD = 1e-6


class TaggedSentence(NamedTuple):
    """A sentence with one tag for each word."""

    words: list[str]
    tags: list[str]


@dataclass(frozen=True)
class TagTask:
    """The two parts of a tagging task."""

    train: list[Words]
    test: list[Words]
    train_labels: Tensor
    """Int64 `(train words,)`."""
    test_labels: Tensor
    """Int64 `(test words,)`; -1 for a tag that is not in training."""
    n_labels: int


def read_tag_task(folder: Path, max_train_words: int, max_test_words: int) -> TagTask:
    """Read both parts of a treebank as a task.

    Args:
        folder: See `read_treebank`.
        max_train_words: Words of the training part, at most by about a sentence.
        max_test_words: Words of the test part, likewise.
    """
    train = read_treebank(folder, "train", max_train_words)
    test = read_treebank(folder, "test", max_test_words)
    if not train or not test:
        raise InputError(f"{folder}: a part of the treebank has no sentences")
    places = {tag: n for n, tag in enumerate(sorted({t for s in train for t in s.tags}))}
    return TagTask(
        train=[sentence.words for sentence in train],
        test=[sentence.words for sentence in test],
        train_labels=_labels(train, places),
        test_labels=_labels(test, places),
        n_labels=len(places),
    )


def _labels(sentences: Sequence[TaggedSentence], places: dict[str, int]) -> Tensor:
    tags = [tag for sentence in sentences for tag in sentence.tags]
    return torch.tensor([places.get(tag, _UNKNOWN) for tag in tags])


def read_treebank(folder: Path, part: Part, max_words: int) -> list[TaggedSentence]:
    """Read a sample of the sentences of one part of a treebank, always the same.

    A sample, not the beginning, because treebanks are sorted by source.

    Args:
        folder: Where the files `...train.conllu` and `...test.conllu` are; they may be compressed.
        part: Which file.
        max_words: Stop when the sample has so many words.
    """
    sentences = [
        TaggedSentence([row.field("form") for row in rows], [row.field("upos") for row in rows])
        for rows in read_conllu(_find(folder, part))
    ]
    return _draw(sentences, max_words)


def _find(folder: Path, part: Part) -> Path:
    if not folder.is_dir():
        raise MissingFileError(f"no such folder: {folder}; expected one with a treebank in it")
    found = sorted(folder.glob(f"*{part}.conllu*"))
    # A file may be there twice, compressed and decompressed.
    found = [
        path for path in found if path.suffix not in COMPRESSED or path.with_suffix("") not in found
    ]
    if len(found) != 1:
        raise MissingFileError(
            f"{folder} has {len(found)} files named *{part}.conllu, expected one (it may be "
            "compressed)"
        )
    return found[0]


def _draw(sentences: Sequence[TaggedSentence], max_words: int) -> list[TaggedSentence]:
    chosen: list[TaggedSentence] = []
    words = 0
    for place in np.random.default_rng(0).permutation(len(sentences)):
        if words >= max_words:
            break
        chosen.append(sentences[place])
        words += len(sentences[place].words)
    return chosen


# --- the probe ------------------------------------------------------------------------------------


class LinearProbe:
    """Softmax regression on standardized vectors, deterministic.

    Args:
        vectors: Inputs of training, float32 `(n, dim)`.
        labels: Their labels, int64 `(n,)`, from 0 on.
        n_labels: Number of labels.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, n_labels: int) -> None:
        self._mean = vectors.mean(dim=0)
        self._spread = vectors.std(dim=0, correction=0).clamp_min(_LEAST_SPREAD)
        inputs = self._standardized(vectors)
        self._weight = torch.zeros(n_labels, vectors.shape[1], device=vectors.device)
        self._bias = torch.zeros(n_labels, device=vectors.device)
        self._fit(inputs, labels)

    def predict(self, vectors: Tensor) -> Tensor:
        """Return the most probable label, int64 `(n,)`, of each of the vectors `(n, dim)`."""
        return self._scores(self._standardized(vectors)).argmax(dim=1)

    def _fit(self, inputs: Tensor, labels: Tensor) -> None:
        parameters = [self._weight.requires_grad_(), self._bias.requires_grad_()]
        optimizer = torch.optim.LBFGS(
            parameters, max_iter=_STEPS, history_size=10, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = F.cross_entropy(self._scores(inputs), labels)
            value = value + _DECAY * self._weight.square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        for parameter in parameters:
            parameter.requires_grad_(False)

    def _scores(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self._weight, self._bias)

    def _standardized(self, vectors: Tensor) -> Tensor:
        return (vectors - self._mean) / self._spread

"""Words and their parts of speech, from a treebank of Universal Dependencies (CoNLL-U files)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from elmo.errors import InputError, MissingFileError
from elmo.text.conllu import read_conllu
from elmo.text.files import COMPRESSED
from elmo.text.sentences import Words

Part = Literal["train", "test"]

_UNKNOWN = -1
"""The label of a tag that no training sentence has."""


@dataclass(frozen=True)
class TaggedSentence:
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


def read_tag_task(folder: Path, train_words: int, test_words: int) -> TagTask:
    """Read both parts of a treebank as a task.

    Args:
        folder: See `read_treebank`.
        train_words: About how many words are learned from.
        test_words: About how many words are judged.
    """
    train = read_treebank(folder, "train", train_words)
    test = read_treebank(folder, "test", test_words)
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
    """Read one part of a treebank, or as many sentences of it as have so many words.

    Which sentences these are is drawn, always in the same way: treebanks are sorted by source.

    Args:
        folder: Where the files `...train.conllu` and `...test.conllu` are; they may be compressed.
        part: Which file.
        max_words: About how many words are wanted.
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
    # One that is there twice, unpacked and not, is the same.
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

"""The second pass of `elmo prepare`: parts with numbers of their own -> shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.runtime.array_files import (
    Array,
    Stream,
    pack_words,
    stored_facts,
    write_arrays,
)
from elmo.runtime.files import sha256_of
from elmo.training.corpus.heldout_split import Side, Split, choose
from elmo.training.corpus.part_files import Ids, Part

Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ShardJob:
    """Parts that become a shard."""

    path: Path
    side: Side
    parts: tuple[Path, ...]
    split: Split
    vocabulary: Path
    unknown: int
    """Place of `<UNK>` in the vocabulary."""


@dataclass(frozen=True)
class ShardFacts:
    """What is known of a shard."""

    n_words: int
    n_unknown: int
    n_rare: int
    sha256: str
    size: int


def write_shard(job: ShardJob) -> ShardFacts:
    """Write a shard, holding one part and the rare words in memory."""
    places = _vocabulary(job.vocabulary, job.vocabulary.stat().st_mtime_ns)
    rare: dict[str, int] = {}
    numbers: list[Numbers] = []
    sentences: list[Ids] = []
    documents: list[Ids] = []
    n_unknown = 0
    for path in job.parts:
        part = Part(path)
        chosen = choose(part, job.split, job.side)
        counts = np.bincount(chosen.ids, minlength=part.n_types)
        numbers.append(_numbers(part.types(), counts > 0, places, rare))
        sentences.append(chosen.sentence_lengths)
        documents.append(chosen.document_lengths)
        is_unknown = (numbers[-1] >= len(places)) | (numbers[-1] == job.unknown)
        n_unknown += int(counts[is_unknown].sum())
    sentence_starts, document_starts = _starts(sentences), _starts(documents)
    n_words = int(sentence_starts[-1])
    letters, rare_starts = pack_words(rare)
    arrays: dict[str, Array | Stream] = {
        "tokens": Stream("uint32", n_words, _tokens(job, numbers)),
        "sentence_starts": sentence_starts,
        "document_starts": document_starts,
        "rare_letters": letters,
        "rare_starts": rare_starts,
    }
    known = {"n_words": n_words, "n_unknown": n_unknown, "n_rare": len(rare)}
    sha256 = write_arrays(job.path, arrays, {"format": "elmo shard", "facts": json.dumps(known)})
    return ShardFacts(**known, sha256=sha256, size=job.path.stat().st_size)


def read_shard_facts(path: Path) -> ShardFacts | None:
    """Read what a finished shard says about itself; None if it is not there or not whole."""
    known = stored_facts(path)
    if known is None:
        return None
    return ShardFacts(**known, sha256=sha256_of(path), size=path.stat().st_size)


def plan_shards(part_words: dict[int, int], shard_words: int) -> list[list[int]]:
    """Group consecutive parts into shards of about so many words.

    Args:
        part_words: Words of each part that has any, by its number.
        shard_words: Words at which a shard is full.
    """
    shards: list[list[int]] = []
    room = 0
    for number in sorted(part_words):
        if room <= 0:
            shards.append([])
            room = shard_words
        shards[-1].append(number)
        room -= part_words[number]
    return shards


@lru_cache(maxsize=1)
def _vocabulary(path: Path, changed: int) -> dict[str, int]:
    """Read words and their places; not through `Vocabulary`, which brings PyTorch along."""
    words = path.read_text(encoding="utf-8").split("\n")[:-1]
    return {word: place for place, word in enumerate(words)}


def _numbers(
    types: list[str], used: npt.NDArray[np.bool_], places: dict[str, int], rare: dict[str, int]
) -> Numbers:
    """Number the words of a part for the shard; new rare ones are added.

    Args:
        types: The part's words.
        used: Which of them stand in this shard, `(n_types,)`.
        places: The vocabulary.
        rare: The shard's rare words so far.

    Returns:
        Numbers of shape `(n_types,)`; 0 for words that are not used.
    """
    first_rare = len(places)
    numbers = np.zeros(len(types), np.uint32)
    for row in np.flatnonzero(used).tolist():
        place = places.get(types[row])
        if place is None:
            place = first_rare + rare.setdefault(types[row], len(rare))
        numbers[row] = place
    return numbers


def _tokens(job: ShardJob, numbers: list[Numbers]) -> Iterator[Numbers]:
    """Yield the words of each part by their numbers in the shard, `(n,)`."""
    for path, of_type in zip(job.parts, numbers, strict=True):
        yield of_type[choose(Part(path), job.split, job.side).ids]


def _starts(lengths: list[Ids]) -> Ids:
    joined = np.concatenate([np.zeros(1, np.int64), *lengths])
    return np.cumsum(joined, out=joined)

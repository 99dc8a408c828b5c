"""The last pass of `elmo prepare`: parts, with ids of their own -> shards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmo.runtime.array_files import Array, Stream, pack_words, stored_facts, write_arrays
from elmo.runtime.files import sha256_of
from elmo.training.corpus.heldout_split import Split, SplitRule, select_split
from elmo.training.corpus.part_files import Part, starts_of
from elmo.training.corpus.shards import FileFacts

Ids = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ShardJob:
    """Parts that become a shard."""

    path: Path
    split: Split
    parts: tuple[Path, ...]
    rule: SplitRule
    vocabulary: Path
    unknown: int
    """Place of `<UNK>` in the vocabulary."""


class ShardFacts(NamedTuple):
    """What is known of a finished shard."""

    n_unknown: int
    """Words that are not in the vocabulary."""
    file: FileFacts


def write_shard(job: ShardJob) -> ShardFacts:
    """Write a shard, with one part and the rare words in memory."""
    places = _vocabulary(job.vocabulary, job.vocabulary.stat().st_mtime_ns)
    rare: dict[str, int] = {}
    ids_of_types: list[Ids] = []
    sentences: list[npt.NDArray[np.int64]] = []
    documents: list[npt.NDArray[np.int64]] = []
    n_unknown = 0
    for path in job.parts:
        part = Part(path)
        text = select_split(part, job.rule, job.split)
        counts = np.bincount(text.ids, minlength=part.n_types)
        ids = _shard_ids(part.types(), counts > 0, places, rare)
        n_unknown += int(counts[(ids >= len(places)) | (ids == job.unknown)].sum())
        ids_of_types.append(ids)
        sentences.append(text.sentence_lengths)
        documents.append(text.document_lengths)
    sentence_starts = starts_of(np.concatenate(sentences))
    n_words = int(sentence_starts[-1])
    letters, rare_starts = pack_words(rare)
    arrays: dict[str, Array | Stream] = {
        "tokens": Stream("uint32", n_words, _tokens(job, ids_of_types)),
        "sentence_starts": sentence_starts,
        "document_starts": starts_of(np.concatenate(documents)),
        "rare_letters": letters,
        "rare_starts": rare_starts,
    }
    known = {"n_words": n_words, "n_unknown": n_unknown, "n_rare": len(rare)}
    sha256 = write_arrays(job.path, arrays, {"format": "elmo shard", "facts": json.dumps(known)})
    return ShardFacts(n_unknown, FileFacts(job.path.stat().st_size, sha256))


def read_shard_facts(path: Path) -> ShardFacts | None:
    """Read what a finished shard says about itself; None if it is missing or damaged."""
    known = stored_facts(path)
    if known is None:
        return None
    return ShardFacts(known["n_unknown"], FileFacts(path.stat().st_size, sha256_of(path)))


def plan_shards(part_words: Sequence[int], shard_words: int) -> list[list[int]]:
    """Group consecutive parts into shards of about so many words.

    Args:
        part_words: Words of each part; parts without any are left out.
        shard_words: Words at which a shard is full.
    """
    shards: list[list[int]] = []
    remaining = 0
    for number, n_words in enumerate(part_words):
        if not n_words:
            continue
        if remaining <= 0:
            shards.append([])
            remaining = shard_words
        shards[-1].append(number)
        remaining -= n_words
    return shards


@lru_cache(maxsize=1)
def _vocabulary(path: Path, changed: int) -> dict[str, int]:
    """Read words and their places; not by `Vocabulary`, which imports PyTorch."""
    words = path.read_text(encoding="utf-8").split("\n")[:-1]
    return {word: place for place, word in enumerate(words)}


def _shard_ids(
    types: list[str], used: npt.NDArray[np.bool_], places: dict[str, int], rare: dict[str, int]
) -> Ids:
    """Return the ids of a part's words in the shard; new rare words are added.

    Args:
        types: The part's words.
        used: Which of them occur in this shard, `(n_types,)`.
        places: The vocabulary.
        rare: The shard's rare words so far.

    Returns:
        Ids of shape `(n_types,)`; 0 for words that are not used.
    """
    first_rare = len(places)
    ids = np.zeros(len(types), np.uint32)
    for row in np.flatnonzero(used).tolist():
        place = places.get(types[row])
        if place is None:
            place = first_rare + rare.setdefault(types[row], len(rare))
        ids[row] = place
    return ids


def _tokens(job: ShardJob, ids_of_types: list[Ids]) -> Iterator[Ids]:
    """Yield the words of each part as ids in the shard, `(n,)`."""
    for path, ids in zip(job.parts, ids_of_types, strict=True):
        yield ids[select_split(Part(path), job.rule, job.split).ids]

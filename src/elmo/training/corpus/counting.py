"""Exact word counts of a corpus of any size: sorted lists on disk, merged in a stream."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from elmo.runtime.array_files import pack_words, stored_facts, write_arrays
from elmo.training.corpus.heldout_split import Side, Split, choose
from elmo.training.corpus.part_files import Part, read_words

PARTS_A_RUN = 16
"""Parts that are counted together in memory: some hundred thousand words."""
FAN_IN = 64
"""Sorted lists that are merged together; each needs an open file."""
LONG_WORD = 48
"""Bytes of a word that the standard models read; the rest is cut."""
_STREAM_WORDS = 1 << 16


@dataclass
class SideFacts:
    """What is known of one side of some parts."""

    n_words: int = 0
    n_sentences: int = 0
    n_documents: int = 0
    n_long_words: int = 0
    """Words of more than 48 bytes, whose end the standard models do not read."""
    longest_sentence: int = 0
    part_words: dict[int, int] = field(default_factory=dict)
    """Words of each part, by its number; parts without any are left out."""

    def add(self, other: SideFacts) -> None:
        """Add the facts of other parts."""
        self.n_words += other.n_words
        self.n_sentences += other.n_sentences
        self.n_documents += other.n_documents
        self.n_long_words += other.n_long_words
        self.longest_sentence = max(self.longest_sentence, other.longest_sentence)
        self.part_words.update(other.part_words)


Facts = dict[Side, SideFacts]


@dataclass(frozen=True)
class CountJob:
    """Parts to count, with their numbers."""

    path: Path
    parts: tuple[tuple[int, Path], ...]
    split: Split


def write_counts(job: CountJob) -> Facts:
    """Count the words of some parts: the training side into a sorted list on disk."""
    totals: dict[str, int] = {}
    facts: Facts = {"train": SideFacts(), "heldout": SideFacts()}
    for number, path in job.parts:
        part = Part(path)
        is_long = np.diff(part.type_starts) > LONG_WORD
        for side in ("train", "heldout"):
            chosen = choose(part, job.split, side)
            counts = np.bincount(chosen.ids, minlength=part.n_types)
            facts[side].add(
                SideFacts(
                    n_words=len(chosen.ids),
                    n_sentences=len(chosen.sentence_lengths),
                    n_documents=len(chosen.document_lengths),
                    n_long_words=int(counts[is_long].sum()),
                    longest_sentence=int(chosen.sentence_lengths.max(initial=0)),
                    part_words={number: len(chosen.ids)} if len(chosen.ids) else {},
                )
            )
            if side == "train":
                for word, count in zip(part.types(), counts.tolist(), strict=True):
                    if count:
                        totals[word] = totals.get(word, 0) + count
    words = sorted(totals)
    letters, starts = pack_words(words)
    arrays = {
        "type_letters": letters,
        "type_starts": starts,
        "counts": np.array([totals[word] for word in words], np.int64),
    }
    about = {side: asdict(known) for side, known in facts.items()}
    write_arrays(job.path, arrays, {"facts": json.dumps(about)})
    return facts


def read_count_facts(path: Path) -> Facts | None:
    """Read what a list of counts says about its parts; None if it is not there or not whole."""
    told = stored_facts(path)
    return None if told is None else {side: _side_facts(known) for side, known in told.items()}


def _side_facts(known: dict[str, Any]) -> SideFacts:
    numbered = {int(number): count for number, count in known.pop("part_words").items()}
    return SideFacts(**known, part_words=numbered)


def merged(paths: list[Path], work: Path) -> Iterator[tuple[str, int]]:
    """Yield every word and its count over all lists, sorted by word.

    Args:
        paths: Sorted lists.
        work: Folder for lists in between, which are needed where there are very many.
    """
    level = 0
    while len(paths) > FAN_IN:
        level += 1
        groups = [paths[first : first + FAN_IN] for first in range(0, len(paths), FAN_IN)]
        paths = [
            _write_merged(group, work / f"merged-{level}-{number:05d}.safetensors")
            for number, group in enumerate(groups)
        ]
    return _merge(paths)


def _merge(paths: list[Path]) -> Iterator[tuple[str, int]]:
    rows = heapq.merge(*(read_words(path) for path in paths))
    for word, same in groupby(rows, key=itemgetter(0)):
        yield word, sum(count for _, count in same)


def _write_merged(paths: list[Path], path: Path) -> Path:
    """Merge some lists into one, without holding them in memory."""
    letters, starts, counts = (path.with_suffix(f".{name}") for name in ("letters", "at", "count"))
    end, n_words = 0, 0
    with letters.open("wb") as a, starts.open("wb") as b, counts.open("wb") as c:
        np.zeros(1, np.int64).tofile(b)
        for rows in _windows(_merge(paths), _STREAM_WORDS):
            packed, at = pack_words(word for word, _ in rows)
            packed.tofile(a)
            (at[1:] + end).tofile(b)
            np.array([count for _, count in rows], np.int64).tofile(c)
            end, n_words = end + len(packed), n_words + len(rows)
    arrays = {
        "type_letters": _mapped(letters, np.uint8, end),
        "type_starts": _mapped(starts, np.int64, n_words + 1),
        "counts": _mapped(counts, np.int64, n_words),
    }
    write_arrays(path, arrays, {"facts": "{}"})
    for file in (letters, starts, counts):
        file.unlink()
    return path


def _mapped(path: Path, dtype: Any, length: int) -> Any:
    return np.memmap(path, dtype, "r", 0, (length,)) if length else np.zeros(0, dtype)


def _windows(rows: Iterable[tuple[str, int]], size: int) -> Iterator[list[tuple[str, int]]]:
    window: list[tuple[str, int]] = []
    for row in rows:
        window.append(row)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


@dataclass
class CountedWords:
    """What the stream of all counts tells while it is read."""

    n_types: int = 0
    """Different words of the training text."""

    def watch(self, rows: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        """Hand rows through, counting them."""
        for row in rows:
            self.n_types += 1
            yield row


def most_frequent(
    rows: Iterable[tuple[str, int]], size: int, min_count: int, without: frozenset[str]
) -> list[tuple[str, int]]:
    """Choose words by falling count, then by the word, holding no more than asked for.

    Args:
        rows: Words and counts.
        size: How many at most.
        min_count: What they must occur.
        without: Words that are not chosen.
    """
    frequent = (row for row in rows if row[1] >= min_count and row[0] not in without)
    return heapq.nsmallest(size, frequent, key=lambda row: (-row[1], row[0]))

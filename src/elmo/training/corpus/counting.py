"""Exact word counts of a corpus of any size: sorted lists on disk, merged in a stream."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from elmo.runtime.array_files import (
    map_arrays,
    pack_words,
    stored_facts,
    unpack_words,
    write_arrays,
)
from elmo.training.corpus.heldout_split import Split, SplitRule, select_split
from elmo.training.corpus.part_files import Part
from elmo.training.corpus.shards import SplitCounts

PARTS_A_LIST = 16
"""Parts that are counted together in memory: some hundred thousand words."""
MOST_BYTES = 48
"""Bytes of a word that models of the standard 50 characters read: two are its boundary marks."""
_MERGED_WORDS = 1 << 20
"""Words that are in memory while lists are merged, of all lists together."""

Counts = dict[Split, list[SplitCounts]]
"""How much text each part has, by split."""


@dataclass(frozen=True)
class CountJob:
    """Parts to count together."""

    path: Path
    """The list to write."""
    parts: tuple[Path, ...]
    rule: SplitRule


def write_counts(job: CountJob) -> Counts:
    """Count the words of some parts: the training split into a sorted list on disk."""
    totals: Counter[str] = Counter()
    counted: Counts = {"train": [], "heldout": []}
    for path in job.parts:
        part = Part(path)
        is_long = np.diff(part.type_starts) > MOST_BYTES
        for split, found in counted.items():
            text = select_split(part, job.rule, split)
            counts = np.bincount(text.ids, minlength=part.n_types)
            found.append(
                SplitCounts(
                    words=len(text.ids),
                    sentences=len(text.sentence_lengths),
                    documents=len(text.document_lengths),
                    longest_sentence=int(text.sentence_lengths.max(initial=0)),
                    long_words=int(counts[is_long].sum()),
                )
            )
            if split == "train":
                of_words = zip(part.types(), counts.tolist(), strict=True)
                totals.update({word: count for word, count in of_words if count})
    words = sorted(totals)
    letters, starts = pack_words(words)
    arrays = {
        "type_letters": letters,
        "type_starts": starts,
        "counts": np.array([totals[word] for word in words], np.int64),
    }
    facts = {split: [asdict(counts) for counts in found] for split, found in counted.items()}
    write_arrays(job.path, arrays, {"facts": json.dumps(facts)})
    return counted


def read_count_facts(path: Path) -> Counts | None:
    """Read what a list of counts says about its parts; None if it is missing or damaged."""
    facts = stored_facts(path)
    if facts is None:
        return None
    return {split: [SplitCounts(**counts) for counts in found] for split, found in facts.items()}


def merge_counts(paths: Sequence[Path]) -> Iterator[tuple[str, int]]:
    """Yield every word and its count over all sorted lists, sorted by word."""
    window = max(256, _MERGED_WORDS // max(1, len(paths)))
    rows = heapq.merge(*(_read_words(path, window) for path in paths))
    for word, same in groupby(rows, key=itemgetter(0)):
        yield word, sum(count for _, count in same)


def _read_words(path: Path, window: int) -> Iterator[tuple[str, int]]:
    """Yield the words and counts of a list, with one window of them in memory."""
    first, end = 0, 1
    while first < end:
        # A mapped file stays open, and there may be thousands: each window maps it anew.
        arrays, _ = map_arrays(path)
        starts = arrays["type_starts"][first : first + window + 1]
        counts = arrays["counts"][first : first + window].tolist()
        words = unpack_words(arrays["type_letters"], starts)
        first, end = first + window, len(arrays["counts"])
        del arrays, starts
        yield from zip(words, counts, strict=True)


def most_frequent(
    rows: Iterable[tuple[str, int]], size: int, min_count: int, without: frozenset[str]
) -> list[tuple[str, int]]:
    """Return the most frequent words by falling count, then by the word; only those are kept.

    Args:
        rows: Words and counts.
        size: The largest number of words.
        min_count: Rarer words are not chosen.
        without: Words that are not chosen.
    """
    frequent = (row for row in rows if row[1] >= min_count and row[0] not in without)
    return heapq.nsmallest(size, frequent, key=lambda row: (-row[1], row[0]))

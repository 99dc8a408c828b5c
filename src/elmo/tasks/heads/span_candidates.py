"""Candidate spans of coreference, and their gold clusters."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo.errors import ElmoWarning
from elmo.tasks.readers.examples import Document, Span

Integers = npt.NDArray[np.int64]


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
    numbers = np.zeros(spans.shape[1], dtype=np.int64)
    mentions = [(*span, k) for k, cluster in enumerate(clusters, start=1) for span in cluster]
    if not mentions or not len(numbers):
        return numbers
    wanted = np.array(mentions, dtype=np.int64).T
    size = int(spans[1].max()) + 1  # spans are sorted by these keys
    keys, wanted_keys = (own[0] * size + np.minimum(own[1], size - 1) for own in (spans, wanted))
    places = np.searchsorted(keys, wanted_keys).clip(max=len(keys) - 1)
    there = (spans[:2, places] == wanted[:2]).all(axis=0)
    numbers[places[there]] = wanted[2, there]
    return numbers


def warn_of_long_mentions(documents: Sequence[Document], longest: int) -> None:
    """Warn of mentions longer than all candidates, with file and line of the first."""
    long = [
        (document, span)
        for document in documents
        for mentions in document.clusters or []
        for span in mentions
        if span.stop - span.start > longest
    ]
    if long:
        total = sum(len(m) for d in documents for m in d.clusters or [])
        warnings.warn(
            f"{len(long):,} of {total:,} mentions have more than {longest} words and cannot be "
            f"found (first: {_place(*long[0])})",
            ElmoWarning,
            stacklevel=3,
        )


def _place(document: Document, span: Span) -> str:
    """Return file and line where a mention begins."""
    first = 0
    for words, line in zip(document.sentences, document.lines, strict=False):
        if span.start < first + len(words):
            file = document.place.rpartition(", line ")[0]
            return f"{file}, line {line + span.start - first}"
        first += len(words)
    return document.place or "a text"

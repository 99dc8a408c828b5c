"""Candidate spans of coreference, and their gold clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo.tasks.readers.examples import Document, Span
from elmo.tasks.readers.files import warn_of

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
    longest = int((spans[1] - spans[0]).max(initial=1))
    table = np.zeros((int(spans[1].max(initial=0)), longest), dtype=np.int64)
    for number, cluster in enumerate(clusters, start=1):
        for start, stop in cluster:
            if stop <= len(table) and stop - start <= longest:
                table[start, stop - start - 1] = number
    return table[spans[0], spans[1] - spans[0] - 1]


def warn_of_long_mentions(documents: Sequence[Document], longest: int) -> None:
    """Warn of mentions longer than all candidates, with file and line of the first."""
    long = [
        (document, span)
        for document in documents
        for mentions in document.clusters or []
        for span in mentions
        if span.stop - span.start > longest
    ]
    total = sum(len(m) for d in documents for m in d.clusters or [])
    warn_of(
        f"of {total:,} mentions have more than {longest} words and cannot be found",
        [_place(*one) for one in long],
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

"""The first pass of `elmo prepare`: a block of text -> a part file with numbered words.

A part file holds the sentences of one block as numbers of its own, sorted list of words, and what
the split into training and held-out text needs: lines, their hashes, and documents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.errors import InputError
from elmo.runtime.array_files import (
    Array,
    Stream,
    map_arrays,
    pack_words,
    unpack_words,
    write_arrays,
)
from elmo.settings import TokenizerName
from elmo.text.files import Tokenizer, get_tokenizer

Ids = npt.NDArray[np.int64]

# A character model reads these two words as its own marks, so that text must not hold them.
_BOUNDARY_MARK = re.compile(r"</?S>")


@dataclass(frozen=True)
class PartJob:
    """A block of text and what to do with it; everything that a worker needs."""

    path: Path
    text: str
    source: str
    """Name of the text file, for messages."""
    heldout: bool
    tokenizer: TokenizerName
    min_sentence: int
    max_sentence: int

    def digest(self) -> str:
        """Identify the text, so that a part is not taken for one of another text."""
        about = f"{self.heldout} {self.source}\n".encode()
        return hashlib.blake2b(about + self.text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class PartFacts:
    """What is known of a part without reading it."""

    digest: str
    source: str
    heldout: bool
    n_words: int
    n_lines: int
    n_documents: int
    n_cut_sentences: int
    """Sentences longer than allowed, which became several."""
    n_short_sentences: int
    """Sentences shorter than allowed, which were left out."""
    n_boundary_marks: int
    """`<S>` and `</S>` in the text, which were left out."""


class _Numbers(dict[str, int]):
    """Words and their numbers; a word that is asked for gets one."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class _PartBuilder:
    """The sentences of a block, as they come."""

    def __init__(self, job: PartJob) -> None:
        self._job = job
        self._tokenizer = _tokenizer(job.tokenizer)
        self.words: list[str] = []
        self.lengths: list[int] = []
        self.line_starts: list[int] = []
        """First sentence of each line."""
        self.line_hashes: list[bytes] = []
        self.document_starts: list[int] = []
        """First line of each document."""
        self.n_cut = self.n_short = self.n_marks = 0

    def read(self) -> None:
        """Take all lines of the block; a blank one ends a document."""
        new_document = True
        for line in self._job.text.split("\n"):
            if not line or line.isspace():
                new_document = True
            elif self._add_line(line):
                if new_document:
                    self.document_starts.append(len(self.line_starts) - 1)
                new_document = False

    def _add_line(self, line: str) -> bool:
        """Add the sentences of a line; tells whether there were any."""
        if "S>" in line:
            line, n_marks = _BOUNDARY_MARK.subn(" ", line)
            self.n_marks += n_marks
        before = len(self.lengths)
        for words in self._tokenizer.sentences(line):
            self._add_sentence(words)
        if len(self.lengths) == before:
            return False
        self.line_starts.append(before)
        self.line_hashes.append(hashlib.blake2b(line.encode(), digest_size=8).digest())
        return True

    def _add_sentence(self, words: list[str]) -> None:
        longest, count = self._job.max_sentence, len(words)
        if count < self._job.min_sentence:
            self.n_short += count > 0
        elif count <= longest:
            self.words += words
            self.lengths.append(count)
        else:
            self.n_cut += 1
            self.words += words
            self.lengths += [longest] * (count // longest)
            if count % longest:
                self.lengths.append(count % longest)

    def facts(self) -> PartFacts:
        """Sum up."""
        return PartFacts(
            digest=self._job.digest(),
            source=self._job.source,
            heldout=self._job.heldout,
            n_words=len(self.words),
            n_lines=len(self.line_starts),
            n_documents=len(self.document_starts),
            n_cut_sentences=self.n_cut,
            n_short_sentences=self.n_short,
            n_boundary_marks=self.n_marks,
        )


@cache
def _tokenizer(name: TokenizerName) -> Tokenizer:
    return get_tokenizer(name)  # a worker builds it once, and keeps what it remembers


def write_part(job: PartJob) -> PartFacts:
    """Tokenise a block and write its part file."""
    builder = _PartBuilder(job)
    builder.read()
    numbers = _Numbers()
    ids = np.fromiter(map(numbers.__getitem__, builder.words), np.uint32, len(builder.words))
    types = sorted(numbers)  # the order of code points is that of UTF-8 bytes
    ranks = np.empty(len(types), np.uint32)
    ranks[np.fromiter(map(numbers.__getitem__, types), np.int64, len(types))] = np.arange(
        len(types), dtype=np.uint32
    )
    letters, starts = pack_words(types)
    facts = builder.facts()
    arrays: dict[str, Array | Stream] = {
        "ids": ranks[ids],
        "sentence_starts": _starts(builder.lengths),
        "line_starts": np.array([*builder.line_starts, len(builder.lengths)], np.int64),
        "line_hashes": np.frombuffer(b"".join(builder.line_hashes), np.uint64),
        "document_starts": np.array([*builder.document_starts, facts.n_lines], np.int64),
        "type_letters": letters,
        "type_starts": starts,
    }
    write_arrays(job.path, arrays, {"facts": json.dumps(asdict(facts))})
    return facts


def _starts(lengths: list[int]) -> Ids:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def read_facts(path: Path) -> PartFacts | None:
    """Read what a part says about itself; None if it is not there or not whole."""
    if not path.is_file():
        return None
    try:
        _, metadata = map_arrays(path)
        return PartFacts(**json.loads(metadata["facts"]))
    except (InputError, KeyError, TypeError):
        return None


class Part:
    """A part file, mapped into memory.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        arrays, metadata = map_arrays(path)
        self.facts = PartFacts(**json.loads(metadata["facts"]))
        self.ids: npt.NDArray[np.uint32] = arrays["ids"]
        """Places in `types` of all words, `(n_words,)`."""
        self.sentence_starts: Ids = arrays["sentence_starts"]
        """First word of each sentence, `(n_sentences + 1,)`."""
        self.line_starts: Ids = arrays["line_starts"]
        """First sentence of each line, `(n_lines + 1,)`."""
        self.line_hashes: npt.NDArray[np.uint64] = arrays["line_hashes"]
        """`(n_lines,)`."""
        self.document_starts: Ids = arrays["document_starts"]
        """First line of each document, `(n_documents + 1,)`."""
        self._letters: Any = arrays["type_letters"]
        self.type_starts: Ids = arrays["type_starts"]
        """Where each word begins among the letters, `(n_types + 1,)`."""

    @property
    def n_types(self) -> int:
        """Number of different words."""
        return len(self.type_starts) - 1

    def types(self) -> list[str]:
        """Give the different words, sorted."""
        return unpack_words(self._letters, self.type_starts)


def read_words(path: Path, window: int = 1 << 14) -> Iterator[tuple[str, int]]:
    """Yield the words and counts of a file of counts (see `counting`), some thousand at a time."""
    arrays, _ = map_arrays(path)
    starts, counts = arrays["type_starts"], arrays["counts"]
    for first in range(0, len(counts), window):
        words = unpack_words(arrays["type_letters"], starts[first : first + window + 1])
        yield from zip(words, counts[first : first + window].tolist(), strict=True)

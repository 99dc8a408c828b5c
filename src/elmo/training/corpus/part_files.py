"""The first pass of `elmo prepare`: a block of text -> a part file of word ids.

A part file holds the sentences of one block as ids into its own sorted list of words, and what the
held-out split needs: lines, their hashes, and documents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.runtime.array_files import (
    Array,
    Stream,
    map_arrays,
    pack_words,
    stored_facts,
    unpack_words,
    write_arrays,
)
from elmo.settings import TokenizerName
from elmo.text.files import Tokenizer, get_tokenizer
from elmo.training.corpus.settings import PrepareSettings

Ids = npt.NDArray[np.int64]

# A character model reads these two words as its own boundaries, so that text must not hold them.
_BOUNDARY_MARK = re.compile(r"</?S>")


@dataclass(frozen=True)
class PartJob:
    """A block of text and what to do with it; everything that a worker needs."""

    path: Path
    text: str
    source: str
    """Name of the text file, for messages."""
    heldout: bool
    settings: PrepareSettings

    def digest(self) -> str:
        """Return a hash of the text: a part of another text must not be used for it."""
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
    """Sentences above the limit, which became several."""
    n_short_sentences: int
    """Sentences below the limit, which were left out."""
    n_boundary_marks: int
    """`<S>` and `</S>` in the text, which were left out."""


class _PartBuilder:
    """The sentences of a block, as they come."""

    def __init__(self, job: PartJob) -> None:
        self._job = job
        self._tokenizer = _tokenizer(job.settings.tokenizer)
        self.words: list[str] = []
        self.lengths: list[int] = []
        self.line_starts: list[int] = []
        """First sentence of each line."""
        self.line_hashes: list[bytes] = []
        self.document_starts: list[int] = []
        """First line of each document."""
        self.n_cut = self.n_short = self.n_marks = 0
        new_document = True
        for line in job.text.split("\n"):
            if not line or line.isspace():
                new_document = True
            elif self._add_line(line):
                if new_document:
                    self.document_starts.append(len(self.line_starts) - 1)
                new_document = False

    def _add_line(self, line: str) -> bool:
        """Add the sentences of a line; return whether there were any."""
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
        longest, count = self._job.settings.max_sentence_length, len(words)
        if count < self._job.settings.min_sentence_length:
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
        """Return the facts of the whole block."""
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
    return get_tokenizer(name)  # built once in a worker, with what it remembers


def write_part(job: PartJob) -> PartFacts:
    """Tokenize a block and write its part file."""
    builder = _PartBuilder(job)
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new word gets the next number
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
        "sentence_starts": starts_of(builder.lengths),
        "line_starts": np.array([*builder.line_starts, len(builder.lengths)], np.int64),
        "line_hashes": np.frombuffer(b"".join(builder.line_hashes), np.uint64),
        "document_starts": np.array([*builder.document_starts, facts.n_lines], np.int64),
        "type_letters": letters,
        "type_starts": starts,
    }
    write_arrays(job.path, arrays, {"facts": json.dumps(asdict(facts))})
    return facts


def starts_of(lengths: Sequence[int] | Ids) -> Ids:
    """Return where each of some runs starts, and where the last one ends, `(n + 1,)`."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def read_facts(path: Path) -> PartFacts | None:
    """Read what a part says about itself; None if it is missing or damaged."""
    facts = stored_facts(path)
    return None if facts is None else PartFacts(**facts)


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
        """Number of distinct words."""
        return len(self.type_starts) - 1

    def types(self) -> list[str]:
        """Return the distinct words, sorted."""
        return unpack_words(self._letters, self.type_starts)

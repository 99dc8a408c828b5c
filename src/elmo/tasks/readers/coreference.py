"""Coreference in the last column of CoNLL files: CoNLL-2012, LitBank.

`#begin document (name); part 000`, then a word on each line, a blank line between sentences, and
`#end document`. The last column opens and closes mentions by the number of their cluster: `(3`,
`3)`, `(3)`, several separated by `|`; `-`, `_` or nothing where there are none.
"""

from __future__ import annotations

import re
from pathlib import Path

from elmo.errors import InputError
from elmo.tasks.readers.examples import Document, Span, Words
from elmo.tasks.readers.files import Remarks, numbered_lines, place, problem
from elmo.tasks.settings import ReadOptions

_BEGIN = re.compile(r"#begin document\s*\(?(.*?)\)?;?\s*(?:part\s*(\d+))?\s*$")
_END = "#end document"
_MARK = re.compile(r"(\()?(\d+)(\))?")
_NOTHING = ("", "-", "_", "*")
_WORD_COLUMN = 3


def read_coreference(path: Path, options: ReadOptions) -> list[Document]:
    """Read the documents of a file; parts of a document are documents of their own.

    Clusters are in the order of their first mentions, mentions in that of the text. A mention that
    is marked twice is taken once, with a counted warning.
    """
    remarks = Remarks(path)
    documents: list[Document] = []
    current: _Builder | None = None
    last = 0
    for number, text in numbered_lines(path, options.encoding):
        last = number
        if text.startswith("#begin document"):
            if current is not None:
                raise problem(path, number, "a document begins inside of another")
            current = _Builder(path, number, text, remarks)
        elif text.startswith(_END):
            if current is None:
                raise problem(path, number, "a document ends that did not begin")
            documents += current.finished(number)
            current = None
        elif current is not None:
            current.add(number, text)
        elif text.strip():
            raise problem(path, number, "a word before '#begin document'")
    if current is not None:
        raise problem(path, last, f"the file ends inside of a document, expected {_END!r}")
    return remarks.finish(documents, "documents ('#begin document')")


def find_documents(folder: Path) -> list[Path]:
    """Return the CoNLL files of a folder, sorted by name; one of `a.conll` and `a.conll.xz`."""
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        name, found, _ = file.name.partition("conll")
        if file.is_file() and found:
            files.setdefault(name, file)
    if not files:
        raise InputError(f"{folder}: no files named *conll in it")
    return list(files.values())


class _Builder:
    """One document under construction."""

    def __init__(self, path: Path, number: int, header: str, remarks: Remarks) -> None:
        found = _BEGIN.match(header)
        if found is None or not found.group(1):
            raise problem(path, number, f"{header[:60]!r}: expected '#begin document (name)'")
        self._path = path
        self._place = place(path, number)
        self._name = found.group(1) + (f"; part {found.group(2)}" if found.group(2) else "")
        self._remarks = remarks
        self._sentences: list[Words] = []
        self._lines: list[int] = []
        self._words: Words = []
        self._n_words = 0
        self._open: dict[int, list[tuple[int, int]]] = {}
        self._clusters: dict[int, list[Span]] = {}
        self._seen: dict[Span, int] = {}

    def add(self, number: int, text: str) -> None:
        """Add a line."""
        if not text.strip():
            self._end_sentence()
            return
        columns = text.split("\t") if "\t" in text else text.split()
        if len(columns) <= _WORD_COLUMN + 1:
            raise problem(
                self._path, number, f"{len(columns)} columns, expected those of CoNLL-2012"
            )
        if not self._words:
            self._lines.append(number)
        self._words.append(columns[_WORD_COLUMN].strip())
        self._mark(number, columns[-1].strip())
        self._n_words += 1

    def _mark(self, number: int, marks: str) -> None:
        """Open and close mentions at the last word."""
        if marks in _NOTHING:
            return
        for mark in marks.split("|"):
            found = _MARK.fullmatch(mark.strip())
            if found is None or not (found.group(1) or found.group(3)):
                raise problem(self._path, number, f"{marks!r}: expected marks such as (3, 3), (3)")
            cluster = int(found.group(2))
            if found.group(1):
                self._open.setdefault(cluster, []).append((self._n_words, number))
            if found.group(3):
                if not self._open.get(cluster):
                    raise problem(self._path, number, f"{mark!r} closes what was not opened")
                self._close(number, cluster)

    def _close(self, number: int, cluster: int) -> None:
        start, _ = self._open[cluster].pop()
        span = Span(start, self._n_words + 1)
        if start < self._n_words + 1 - len(self._words):
            self._remarks.add("mentions go over the end of a sentence and are left out", number)
        elif span not in self._seen:
            self._seen[span] = cluster
            self._clusters.setdefault(cluster, []).append(span)
        elif self._seen[span] == cluster:
            self._remarks.add("mentions are marked twice; they are taken once", number)
        else:
            self._remarks.add("mentions are in two clusters; the first is taken", number)

    def _end_sentence(self) -> None:
        if self._words:
            self._sentences.append(self._words)
            self._words = []

    def finished(self, number: int) -> list[Document]:
        """Return the document; none if it has no words."""
        self._end_sentence()
        for cluster, places in self._open.items():
            if places:
                line = places[-1][1]
                raise problem(self._path, line, f"the mention ({cluster} is not closed")
        if not self._sentences:
            self._remarks.add("documents without words are left out", number)
            return []
        clusters = sorted(sorted(mentions) for mentions in self._clusters.values())
        lines = tuple(self._lines)
        return [Document(self._sentences, clusters, self._name, self._place, lines)]

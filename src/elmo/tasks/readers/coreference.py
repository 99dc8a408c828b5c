"""Coreference in the last column of CoNLL files: CoNLL-2012, LitBank.

`#begin document (name); part 000`, then a word on each line, a blank line between sentences, and
`#end document`. The last column opens and closes mentions by the number of their cluster: `(3`,
`3)`, `(3)`, several separated by `|`; `-`, `_` or nothing where there are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from elmo.errors import InputError
from elmo.tasks.readers.examples import Document, Span, Words
from elmo.tasks.readers.files import Line, Remarks, cells_of, numbered_lines, place, problem
from elmo.tasks.settings import ReadOptions

_BEGIN = re.compile(r"#begin document\s*\(?(.*?)\)?;?\s*(?:part\s*(\d+))?\s*$")
_END = "#end document"
_MARK = re.compile(r"(\()?(\d+)(\))?")
_NOTHING = ("", "-", "_", "*")
_WORD_COLUMN = 3


def read_coreference(path: Path, options: ReadOptions) -> list[Document]:
    """Read the documents of a file; parts of a document are documents of their own.

    Clusters are in the order of their first mentions, mentions in that of the text; a mention that
    is marked twice is taken once.
    """
    remarks = Remarks(path)
    documents: list[Document] = []
    header: Line | None = None
    rows: list[Line] = []
    number = 0
    for number, text in numbered_lines(path, options.encoding):
        if text.startswith("#begin document"):
            if header is not None:
                raise problem(path, number, "a document begins inside of another")
            header, rows = Line(number, text), []
        elif text.startswith(_END):
            if header is None:
                raise problem(path, number, "a document ends that did not begin")
            documents += _document(path, header, rows, remarks)
            header = None
        elif header is not None:
            rows.append(Line(number, text))
        elif text.strip():
            raise problem(path, number, "a word before '#begin document'")
    if header is not None:
        raise problem(path, number, f"the file ends inside of a document, expected {_END!r}")
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


class _Marks(NamedTuple):
    """Mentions that begin or end at a word."""

    line: int
    cell: str
    sentence_start: int
    """Number of the first word of its sentence."""


def _document(path: Path, header: Line, rows: list[Line], remarks: Remarks) -> list[Document]:
    """Return the document of the lines after a header; none if it has no words."""
    found = _BEGIN.match(header.text)
    if found is None or not found[1]:
        raise problem(
            path, header.number, f"{header.text[:60]!r}: expected '#begin document (name)'"
        )
    sentences: list[Words] = []
    marks: list[_Marks] = []
    begins = True
    for number, text in rows:
        if not text.strip():
            begins = True
            continue
        columns = cells_of(text)
        if len(columns) <= _WORD_COLUMN + 1:
            raise problem(path, number, f"{len(columns)} columns, expected those of CoNLL-2012")
        if begins:
            sentences.append([])
            begins = False
        sentence_start = len(marks) - len(sentences[-1])
        sentences[-1].append(columns[_WORD_COLUMN])
        marks.append(_Marks(number, columns[-1], sentence_start))
    if not sentences:
        remarks.add("documents without words are left out", header.number)
        return []
    name = found[1] + (f"; part {found[2]}" if found[2] else "")
    where = place(path, header.number)
    return [Document(sentences, _clusters(path, marks, remarks), name, where)]


def _clusters(path: Path, marks: list[_Marks], remarks: Remarks) -> list[list[Span]]:
    """Return the clusters of a document whose words have marks."""
    opened: dict[int, list[tuple[int, int]]] = {}
    cluster_of: dict[Span, int] = {}
    for word, (line, cell, sentence_start) in enumerate(marks):
        for begins, cluster, ends in _parsed(path, line, cell):
            if begins:
                opened.setdefault(cluster, []).append((word, line))
            if ends:
                if not opened.get(cluster):
                    raise problem(path, line, f"'{cluster})' closes what was not opened")
                span = Span(opened[cluster].pop()[0], word + 1)
                if span.start < sentence_start:
                    remarks.add("mentions go over the end of a sentence and are left out", line)
                elif cluster_of.setdefault(span, cluster) != cluster:
                    remarks.add("mentions are in two clusters; the first is taken", line)
    if unclosed := [(line, cluster) for cluster in opened for _, line in opened[cluster]]:
        raise problem(path, unclosed[0][0], f"the mention ({unclosed[0][1]} is not closed")
    return _grouped(cluster_of)


def _grouped(cluster_of: Mapping[Span, int]) -> list[list[Span]]:
    mentions: dict[int, list[Span]] = {}
    for span in sorted(cluster_of):
        mentions.setdefault(cluster_of[span], []).append(span)
    return sorted(mentions.values())


def _parsed(path: Path, line: int, cell: str) -> Iterator[tuple[bool, int, bool]]:
    """Yield for each mark of a word whether it begins a mention, of which cluster, and ends one."""
    for mark in cell.split("|") if cell not in _NOTHING else ():
        found = _MARK.fullmatch(mark.strip())
        if found is None or not (found[1] or found[3]):
            raise problem(path, line, f"{cell!r}: expected marks such as (3, 3), (3)")
        yield bool(found[1]), int(found[2]), bool(found[3])

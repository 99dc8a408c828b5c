"""Arguments of predicates in bracket columns, as in CoNLL-2005 and CoNLL-2012.

A word on each line, a blank line between sentences; one column marks the predicates (anything but
`-`), and each predicate has a column of its own further right: `(A0*`, `*`, `*)`, `(V*)`.
CoNLL-2012 files (`#begin document`) have fixed columns and a last one for coreference; in others
the word is in the first column, and the column of predicates is found by counting.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elmo.tasks.heads.tag_schemes import LabelledSpan, to_iob2
from elmo.tasks.readers.examples import Frame
from elmo.tasks.readers.files import Line, blocks, not_empty, place, problem

_CELL = re.compile(r"((?:\([^()*\s]+)*)\*(\)*)")
_NO_PREDICATE = "-"
_VERB = "V"


class _Columns(NamedTuple):
    """Where things are on a line."""

    word: int
    predicate: int
    sense: int | None
    first_argument: int
    after_arguments: int
    """Columns behind those of arguments."""


_CONLL_2012 = _Columns(word=3, predicate=7, sense=7, first_argument=11, after_arguments=1)


class _Sentence(NamedTuple):
    path: Path
    numbers: list[int]
    rows: list[list[str]]

    def problem(self, row: int, what: str) -> Exception:
        return problem(self.path, self.numbers[row], what)


def read_props(path: Path, *, encoding: str = "utf-8") -> list[Frame]:
    """Read the frames of all sentences, tags in IOB2.

    Args:
        path: A file, packed or not; words and props of CoNLL-2005 pasted together.
        encoding: Of the file.
    """
    frames: list[Frame] = []
    modern = False
    for block in blocks(path, encoding):
        modern |= any(line.text.startswith("#begin document") for line in block)
        sentence = _split(path, block)
        if sentence.rows:
            columns = _CONLL_2012 if modern else _find_columns(sentence)
            frames += _frames(sentence, columns)
    return not_empty(frames, path, "predicates with arguments")


def _split(path: Path, block: list[Line]) -> _Sentence:
    lines = [line for line in block if not line.text.startswith(("#begin ", "#end "))]
    rows = [line.text.split() for line in lines]
    sentence = _Sentence(path, [line.number for line in lines], rows)
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise sentence.problem(
                number,
                f"{len(row)} columns, expected {len(rows[0])} as in the sentence's first line",
            )
    return sentence


def _find_columns(sentence: _Sentence) -> _Columns:
    """Find the column of predicates: it has as many as there are columns of brackets after it."""
    width = len(sentence.rows[0])
    for column in range(width - 1, 0, -1):
        n_predicates = sum(row[column] != _NO_PREDICATE for row in sentence.rows)
        if n_predicates == width - column - 1:
            return _Columns(0, column, column, column + 1, 0)
        if not all(_CELL.fullmatch(row[column]) for row in sentence.rows):
            break
    raise sentence.problem(
        0, "no column marks as many predicates as there are columns of arguments after it"
    )


def _frames(sentence: _Sentence, columns: _Columns) -> list[Frame]:
    rows = sentence.rows
    width = len(rows[0])
    if width < columns.first_argument + columns.after_arguments:
        raise sentence.problem(0, f"{width} columns, too few for CoNLL-2012")
    words = [row[columns.word] for row in rows]
    predicates = [k for k, row in enumerate(rows) if row[columns.predicate] != _NO_PREDICATE]
    n_columns = width - columns.after_arguments - columns.first_argument
    if len(predicates) != n_columns:
        raise sentence.problem(
            0, f"{len(predicates)} predicates, but {n_columns} columns of arguments"
        )
    frames = []
    for number, predicate in enumerate(predicates):
        column = columns.first_argument + number
        spans = _spans(sentence, column)
        if not any(kind == _VERB and start == predicate for start, _, kind in spans):
            spans = _with_verb(sentence, spans, predicate)
        where = place(sentence.path, sentence.numbers[predicate])
        sense = _sense(rows[predicate], columns)
        frames.append(Frame(words, predicate, to_iob2(spans, len(words)), sense, where))
    return frames


def _sense(row: Sequence[str], columns: _Columns) -> str:
    if columns is not _CONLL_2012:
        return row[columns.predicate]
    return f"{row[6]}.{row[7]}"


def _with_verb(
    sentence: _Sentence, spans: list[LabelledSpan], predicate: int
) -> list[LabelledSpan]:
    """Mark the predicate itself where the file does not."""
    if any(start <= predicate < stop for start, stop, _ in spans):
        raise sentence.problem(predicate, "the predicate is inside of its own argument")
    return [*spans, LabelledSpan(predicate, predicate + 1, _VERB)]


def _spans(sentence: _Sentence, column: int) -> list[LabelledSpan]:
    """Read one column of brackets."""
    spans: list[LabelledSpan] = []
    opened: tuple[int, str] | None = None
    for number, row in enumerate(sentence.rows):
        found = _CELL.fullmatch(row[column])
        if found is None:
            raise sentence.problem(number, f"{row[column]!r} in column {column}, expected brackets")
        kinds = found.group(1).split("(")[1:]
        if len(kinds) + (opened is not None) > 1:
            raise sentence.problem(number, f"{row[column]!r}: an argument inside of another")
        if kinds:
            opened = number, kinds[0]
        if found.group(2):
            if opened is None or len(found.group(2)) > 1:
                raise sentence.problem(number, f"{row[column]!r} closes what was not opened")
            spans.append(LabelledSpan(opened[0], number + 1, opened[1]))
            opened = None
    if opened is not None:
        raise sentence.problem(opened[0], f"the bracket ({opened[1]} is not closed")
    return spans

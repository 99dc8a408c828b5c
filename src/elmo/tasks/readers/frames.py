"""Predicates and their arguments: PropBank's JSON lines, or the bracket columns of CoNLL.

JSON lines are `{"words": [...], "frames": [{"pred": 3, "sense": ..., "tags": [...]}]}`: one
sentence a line, one frame for each of its predicates; `tags` has one a word, in any scheme.

Bracket columns (CoNLL-2005, CoNLL-2012) have a word on each line, a blank line between sentences;
one column marks the predicates (anything but `-`), and each predicate has a column of its own
further right: `(A0*`, `*`, `*)`, `(V*)`. CoNLL-2012 files (`#begin document`) have fixed columns
and a last one for coreference; in others the word is in the first column, and the column of
predicates is found by counting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from elmo.tasks.readers.examples import Frame, Words
from elmo.tasks.readers.files import Line, Remarks, Rows, blocks, json_lines, place, problem
from elmo.tasks.settings import ReadOptions
from elmo.tasks.tag_schemes import LabeledSpan, irregular_places, scheme_of, spans_of, to_iob2

_CELL = re.compile(r"((?:\([^()*\s]+)*)\*(\)*)")
_NO_PREDICATE = "-"
_VERB = "V"


class _Columns(NamedTuple):
    """Columns of a line."""

    word: int
    predicate: int
    first_argument: int
    after_arguments: int
    """Number of columns after those of arguments."""


_CONLL_2012 = _Columns(word=3, predicate=7, first_argument=11, after_arguments=1)


def read_propbank(path: Path, options: ReadOptions) -> list[Frame]:
    """Read the frames of all sentences from JSON lines, tags in IOB2."""
    remarks = Remarks(path)
    frames = []
    for number, record in json_lines(path, options.encoding):
        words = record.get("words")
        if not _are_strings(words) or not words:
            raise problem(path, number, "no 'words' that is a list of strings")
        items = record.get("frames")
        if not isinstance(items, list):
            raise problem(path, number, "no 'frames' that is a list")
        tagged = [_tagged_predicate(path, number, words, item, remarks) for item in items]
        frames += _frames(words, tagged, place(path, number))
    return remarks.finish(frames, "frames")


def _frames(words: Words, tagged: Iterable[tuple[int, list[str]]], where: str) -> list[Frame]:
    """Return the frames of a sentence, each with all of its predicates."""
    tagged = list(tagged)
    predicates = tuple(sorted({predicate for predicate, _ in tagged}))
    return [Frame(words, predicate, tags, predicates, where) for predicate, tags in tagged]


def _tagged_predicate(
    path: Path, number: int, words: Words, item: Any, remarks: Remarks
) -> tuple[int, list[str]]:
    predicate = item.get("pred") if isinstance(item, dict) else None
    if not isinstance(predicate, int) or not 0 <= predicate < len(words):
        raise problem(
            path, number, f"'pred' is {predicate!r}, expected a word from 0 to {len(words) - 1}"
        )
    tags = item.get("tags")
    if not _are_strings(tags) or len(tags) != len(words):
        raise problem(
            path, number, f"the frame of word {predicate}: expected {len(words)} tags, one a word"
        )
    if scheme_of([tags]) == "labels":
        raise problem(
            path, number, f"the frame of word {predicate}: tags are not O, B-ARG, I-ARG and so on"
        )
    if irregular_places(tags):
        remarks.add("frames have tags that continue nothing; they begin an argument", number)
    return predicate, to_iob2(spans_of(tags), len(tags))


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def read_props(path: Path, options: ReadOptions) -> list[Frame]:
    """Read the frames of all sentences from bracket columns, tags in IOB2.

    The file has words and props: those of CoNLL-2005 are pasted together.
    """
    frames: list[Frame] = []
    modern = False
    for block in blocks(path, options.encoding):
        modern |= any(line.text.startswith("#begin document") for line in block)
        sentence = _split(path, block)
        if sentence.rows:
            columns = _CONLL_2012 if modern else _find_columns(sentence)
            words = [row[columns.word] for row in sentence.rows]
            where = place(path, sentence.numbers[0])
            frames += _frames(words, _tagged_predicates(sentence, columns), where)
    return Remarks(path).finish(frames, "predicates with arguments")


def _split(path: Path, block: list[Line]) -> Rows:
    lines = [line for line in block if not line.text.startswith(("#begin ", "#end "))]
    rows = [line.text.split() for line in lines]
    sentence = Rows(path, [line.number for line in lines], rows)
    if rows:
        sentence.require_width(len(rows[0]))
    return sentence


def _find_columns(sentence: Rows) -> _Columns:
    """Find the column of predicates: it has as many as there are columns of brackets after it."""
    width = len(sentence.rows[0])
    for column in range(width - 1, 0, -1):
        n_predicates = sum(row[column] != _NO_PREDICATE for row in sentence.rows)
        if n_predicates == width - column - 1:
            return _Columns(0, column, column + 1, 0)
        if not all(_CELL.fullmatch(row[column]) for row in sentence.rows):
            break
    raise sentence.problem(
        0, "no column marks as many predicates as there are columns of arguments after it"
    )


def _tagged_predicates(sentence: Rows, columns: _Columns) -> Iterator[tuple[int, list[str]]]:
    """Yield the predicates of a sentence with their tags."""
    rows = sentence.rows
    width = len(rows[0])
    if width < columns.first_argument + columns.after_arguments:
        raise sentence.problem(0, f"{width} columns, too few for CoNLL-2012")
    predicates = [k for k, row in enumerate(rows) if row[columns.predicate] != _NO_PREDICATE]
    n_columns = width - columns.after_arguments - columns.first_argument
    if len(predicates) != n_columns:
        raise sentence.problem(
            0, f"{len(predicates)} predicates, but {n_columns} columns of arguments"
        )
    for column, predicate in enumerate(predicates, start=columns.first_argument):
        spans = _spans(sentence, column)
        if not any(kind == _VERB and start == predicate for start, _, kind in spans):
            if any(start <= predicate < stop for start, stop, _ in spans):
                raise sentence.problem(predicate, "the predicate is inside of its own argument")
            spans.append(LabeledSpan(predicate, predicate + 1, _VERB))
        yield predicate, to_iob2(spans, len(rows))


def _spans(sentence: Rows, column: int) -> list[LabeledSpan]:
    """Read one column of brackets."""
    spans: list[LabeledSpan] = []
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
            spans.append(LabeledSpan(opened[0], number + 1, opened[1]))
            opened = None
    if opened is not None:
        raise sentence.problem(opened[0], f"the bracket ({opened[1]} is not closed")
    return spans

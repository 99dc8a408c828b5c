"""Tables of texts and labels: csv, tsv, JSON lines, or lines that begin with their label."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from elmo.tasks.readers.examples import TextExample
from elmo.tasks.readers.files import (
    Remarks,
    json_lines,
    listed,
    not_empty,
    numbered_lines,
    place,
    problem,
    table_kind,
)
from elmo.text.files import Tokenizer

_LABELS = ("label", "gold_label", "class", "category", "target", "sentiment")
"""Default names of the column of labels."""
_FASTTEXT = "__label__"


def read_table(
    path: Path,
    tokenizer: Tokenizer,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    kind: str | None = None,
    encoding: str = "utf-8",
) -> list[TextExample]:
    """Read texts with labels from a .csv, .tsv or .jsonl file, compressed or not.

    A csv or tsv file begins with the names of its columns; where it does not, columns are given as
    numbers. Quoted cells of csv files may hold several lines.

    Args:
        path: The file.
        tokenizer: Splits texts into words; the sentences of a text are concatenated.
        text_column: Name or number (from 0) of the column of texts, or several separated by commas,
            whose texts are concatenated; by default `text`, else all but the label.
        label_column: Name or number of the column of labels; by default one with a usual name.
        kind: `csv`, `tsv` or `jsonl`; by the file's name if None.
        encoding: Of the file.
    """
    kind = kind or table_kind(path)
    remarks = Remarks(path)
    by_number = label_column is not None and label_column.isdecimal()
    examples = []
    for number, values in table_records(path, kind, encoding, by_number=by_number):
        record = {key: _as_text(value) for key, value in values.items()}
        label_name = _label_name(path, number, record, label_column)
        label = record[label_name].strip()
        texts = [
            record[name] for name in _text_names(path, number, record, text_column, label_name)
        ]
        words = list(chain.from_iterable(tokenizer.sentences(" ".join(texts).strip())))
        if not words or not label:
            what = "texts" if label else "labels"
            remarks.add(f"rows with empty {what} are left out", number)
        else:
            examples.append(TextExample(words, label, place(path, number)))
    remarks.warn()
    return not_empty(examples, path, "texts with labels")


def read_label_lines(
    path: Path, tokenizer: Tokenizer, *, encoding: str = "utf-8"
) -> list[TextExample]:
    """Read lines of a label, white space and a text, as of TREC (`LOC:city Where is ... ?`).

    The prefix `__label__` of fastText's files is removed.
    """
    remarks = Remarks(path)
    examples = []
    for number, line in numbered_lines(path, encoding):
        if not line.strip():
            continue
        label, *rest = line.split(maxsplit=1)
        words = list(chain.from_iterable(tokenizer.sentences(rest[0]))) if rest else []
        if words:
            label = label.removeprefix(_FASTTEXT)
            examples.append(TextExample(words, label, place(path, number)))
        else:
            remarks.add("labels without a text are left out", number)
    remarks.warn()
    return not_empty(examples, path, "texts with labels")


def table_records(
    path: Path, kind: str, encoding: str, *, by_number: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a table, with their line numbers, as values by column.

    Args:
        path: A file, compressed or not.
        kind: `csv`, `tsv` or `jsonl`.
        encoding: Of the file.
        by_number: Whether columns have no names in the first line, but numbers from 0.
    """
    if kind == "jsonl":
        yield from json_lines(path, encoding)
        return
    header: list[str] | None = None
    for number, row in _rows(path, kind, encoding):
        if header is None:
            header = [str(k) for k in range(len(row))] if by_number else [n.strip() for n in row]
            if not by_number:
                continue
        if len(row) != len(header):
            raise problem(
                path, number, f"{len(row)} columns, expected {len(header)}: {listed(header)}"
            )
        yield number, dict(zip(header, row, strict=True))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _rows(path: Path, kind: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not blank, with the line number where each begins."""
    if kind == "tsv":  # where quotation marks are text
        for number, text in numbered_lines(path, encoding):
            if text.strip():
                yield number, text.split("\t")
        return
    reader = csv.reader((f"{text}\n" for _, text in numbered_lines(path, encoding)), strict=True)
    number = 1
    try:
        for row in reader:
            if row:
                yield number, row
            number = reader.line_num + 1
    except csv.Error as error:
        raise problem(path, number, f"not valid csv: {error}") from None


def _label_name(path: Path, number: int, record: dict[str, str], given: str | None) -> str:
    if given is not None:
        return _checked_name(path, number, record, given)
    for name in _LABELS:
        if name in record:
            return name
    raise problem(
        path,
        number,
        f"which column is the label? There are: {listed(list(record))}. Name it with "
        "--label-column; in a file without names, give its number, from 0",
    )


def _text_names(
    path: Path, number: int, record: dict[str, str], given: str | None, label: str
) -> Sequence[str]:
    if given is not None:
        return [_checked_name(path, number, record, name) for name in given.split(",")]
    names = ["text"] if "text" in record else [name for name in record if name != label]
    if not names:
        raise problem(path, number, "no column but the label; expected a text")
    return names


def _checked_name(path: Path, number: int, record: dict[str, str], name: str) -> str:
    """Return the name of a column that was given by its name or, from 0, its number."""
    name = name.strip()
    if name not in record:
        names = list(record)
        if name.isdecimal() and int(name) < len(names):
            return names[int(name)]
        raise problem(path, number, f"no column {name!r}; there are: {listed(names)}")
    return name

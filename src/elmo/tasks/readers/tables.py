"""Rows of csv, tsv and JSON lines: texts with labels, and pairs of texts for entailment.

A csv or tsv file begins with the names of its columns; where it does not, columns are given as
numbers, from 0. Cells of csv files may be quoted and hold several lines; in tsv files, quotation
marks are text. Lines that begin with their label are read here, too.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from elmo.tasks.readers.examples import EntailmentPair, TextExample
from elmo.tasks.readers.files import (
    JSON_LINES,
    Remarks,
    json_lines,
    listed,
    numbered_lines,
    place,
    problem,
    suffix_of,
    words_of,
)
from elmo.tasks.settings import ReadOptions

_LABELS = ("label", "gold_label", "class", "category", "target", "sentiment")
"""Default names of the column of labels."""
_PREMISE, _HYPOTHESIS = "sentence1", "sentence2"
_PAIR_LABELS = ("gold_label", "label")
_NO_AGREEMENT = "-"
_FASTTEXT = "__label__"

Row = dict[str, str]


def read_table(path: Path, options: ReadOptions) -> list[TextExample]:
    """Read texts with labels.

    The text is the column `text`, else all columns but the label, concatenated; or those of
    `text_column`, separated by commas. The label has one of the usual names, or `label_column`.
    """
    remarks = Remarks(path)
    examples = []
    for number, row in table_rows(path, options):
        label_name = _column(path, number, row, options.label_column, _LABELS)
        if options.text_column is not None:
            given = options.text_column.split(",")
            names = [_column(path, number, row, name.strip(), ()) for name in given]
        else:
            names = ["text"] if "text" in row else [name for name in row if name != label_name]
        label = row[label_name].strip()
        words = words_of(" ".join(row[name] for name in names).strip(), options)
        if words and label:
            examples.append(TextExample(words, label, place(path, number)))
        else:
            remarks.add(f"rows with empty {'texts' if label else 'labels'} are left out", number)
    return remarks.finish(examples, "texts with labels")


def read_pairs(path: Path, options: ReadOptions) -> list[EntailmentPair]:
    """Read pairs of texts: `sentence1`, the premise, `sentence2`, the hypothesis, and a label.

    The label is `gold_label` or `label`; pairs without agreement of the annotators (`-`) are left
    out. The parses of SNLI are not used, so that all files of a task are split alike.
    """
    remarks = Remarks(path)
    pairs = []
    for number, row in table_rows(path, options):
        label = row[_column(path, number, row, options.label_column, _PAIR_LABELS)].strip()
        texts = [row[_column(path, number, row, None, (key,))] for key in (_PREMISE, _HYPOTHESIS)]
        premise, hypothesis = (words_of(text, options) for text in texts)
        if label == _NO_AGREEMENT:
            remarks.add(
                "pairs have no label ('-': annotators did not agree) and are left out", number
            )
        elif label and premise and hypothesis:
            pairs.append(EntailmentPair(premise, hypothesis, label, place(path, number)))
        else:
            remarks.add("pairs lack a text or a label and are left out", number)
    return remarks.finish(pairs, "pairs of texts with labels")


def read_label_lines(path: Path, options: ReadOptions) -> list[TextExample]:
    """Read lines of a label, white space and a text, as of TREC (`LOC:city Where is ... ?`).

    The prefix `__label__` of fastText's files is removed.
    """
    remarks = Remarks(path)
    examples = []
    for number, line in numbered_lines(path, options.encoding):
        if not line.strip():
            continue
        label, *rest = line.split(maxsplit=1)
        if words := words_of("".join(rest), options):
            label = label.removeprefix(_FASTTEXT)
            examples.append(TextExample(words, label, place(path, number)))
        else:
            remarks.add("labels without a text are left out", number)
    return remarks.finish(examples, "texts with labels")


def table_rows(path: Path, options: ReadOptions) -> Iterator[tuple[int, Row]]:
    """Yield rows as texts by column, with the numbers of the lines on which they begin."""
    suffix = suffix_of(path)
    kind = options.format or ("jsonl" if suffix in JSON_LINES else suffix.removeprefix("."))
    if kind == "jsonl":
        for number, record in json_lines(path, options.encoding):
            yield number, {key: _as_text(value) for key, value in record.items()}
        return
    lines = (_csv_cells if kind == "csv" else _tsv_cells)(path, options.encoding)
    header: list[str] | None = None
    if options.label_column is not None and options.label_column.isdecimal():
        header = []
    for number, cells in lines:
        if header is None:
            header = [name.strip() for name in cells]
            continue
        header = header or [str(column) for column in range(len(cells))]
        if len(cells) != len(header):
            raise problem(
                path, number, f"{len(cells)} columns, expected {len(header)}: {listed(header)}"
            )
        yield number, dict(zip(header, cells, strict=True))


def _tsv_cells(path: Path, encoding: str) -> Iterator[tuple[int, list[str]]]:
    for number, text in numbered_lines(path, encoding):
        if text.strip():
            yield number, text.split("\t")


def _csv_cells(path: Path, encoding: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{text}\n" for _, text in numbered_lines(path, encoding)), strict=True)
    number = 1
    try:
        for cells in reader:
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise problem(path, number, f"not valid csv: {error}") from None


def _as_text(value: object) -> str:
    return "" if value is None else str(value)


def _column(path: Path, number: int, row: Row, given: str | None, usual: tuple[str, ...]) -> str:
    """Return the name of a column: that which was given by name or number, else a usual one."""
    names = list(row)
    for name in usual if given is None else (given,):
        if name in row:
            return name
        if name.isdecimal() and int(name) < len(names):
            return names[int(name)]
    wanted = repr(given) if given is not None else " or ".join(usual)
    raise problem(
        path,
        number,
        f"no column {wanted}; there are: {listed(names)}. Choose with --text-column and "
        "--label-column; in a file without names, give numbers, from 0",
    )

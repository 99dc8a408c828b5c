"""CoNLL-U, the format of Universal Dependencies: ten columns, a word on each line.

Words that are written together and split in the annotation (`3-4 don't`) are read as their parts;
words that are not in the text (`8.1`, empty nodes) and comments are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from elmo.errors import InputError
from elmo.text.files import TextFile

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class Row(NamedTuple):
    """A word of a sentence."""

    line: int
    """Its line in the file, from 1."""
    columns: list[str]

    def field(self, name: str) -> str:
        """Return a column by its name."""
        return self.columns[COLUMNS.index(name)]


def read_conllu(path: Path, encoding: str = "utf-8") -> Iterator[list[Row]]:
    """Yield the sentences of a file, compressed or not; errors name file and line."""
    rows: list[Row] = []
    with TextFile(path, encoding) as lines:
        for number, line in enumerate(chain(lines, [""]), start=1):
            if line.startswith("#"):
                continue
            if line.strip():
                columns = _columns(f"{path}, line {number}", line, len(rows) + 1)
                if columns:
                    rows.append(Row(number, columns))
            elif rows:
                yield rows
                rows = []


def _columns(place: str, line: str, expected: int) -> list[str] | None:
    """Split the line of a word, whose number is expected; None for one that is no word."""
    columns = line.split("\t")
    if len(columns) != len(COLUMNS):
        raise InputError(f"{place}: {len(columns)} columns, expected the 10 of CoNLL-U")
    name = columns[0]
    if name.isdecimal():
        if int(name) != expected:
            raise InputError(f"{place}: word {name}, expected word {expected}")
        return columns
    if not all(part.isdecimal() for part in name.partition("-" if "-" in name else ".")[::2]):
        raise InputError(
            f"{place}: {name!r} is no number of a word, of words (1-2) or of an empty node (1.1)"
        )
    return None

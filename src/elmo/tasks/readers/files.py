"""What readers share: numbered lines, errors that name the line, counted warnings, tokens."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elmo.errors import ElmoWarning, InputError
from elmo.settings import TokenizerName
from elmo.tasks.readers.examples import Words
from elmo.tasks.settings import ReadOptions
from elmo.text.files import COMPRESSED, TextFile, Tokenizer, get_tokenizer

E = TypeVar("E")
JSON_LINES = (".jsonl", ".json", ".ndjson")
"""Suffixes of files with one JSON object on each line."""


class Line(NamedTuple):
    """A line of a file."""

    number: int
    """From 1."""
    text: str


def place(path: Path, where: int | str) -> str:
    """Return a file and a line (or the name of something in it) for a message."""
    return f"{path}, {f'line {where}' if isinstance(where, int) else where}"


def problem(path: Path, where: int | str, what: str) -> InputError:
    """Return the error for something in a file that cannot be read."""
    return InputError(f"{place(path, where)}: {what}")


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[Line]:
    """Yield the lines of a file, compressed or not, without their ends."""
    with TextFile(path, encoding) as lines:
        for number, text in enumerate(lines, start=1):
            yield Line(number, text)


class Rows(NamedTuple):
    """The lines of a sentence, split into columns."""

    path: Path
    numbers: list[int]
    rows: list[list[str]]

    def problem(self, row: int, what: str) -> InputError:
        """Return the error for a row."""
        return problem(self.path, self.numbers[row], what)

    def require_width(self, width: int) -> None:
        """Refuse rows with another number of columns."""
        for number, row in enumerate(self.rows):
            if len(row) != width:
                message = f"{len(row)} columns, expected {width} as in the rest of the sentence"
                raise self.problem(number, message)


def blocks(path: Path, encoding: str) -> Iterator[list[Line]]:
    """Yield the lines between blank ones; lines of white space alone are blank, too."""
    block: list[Line] = []
    for line in numbered_lines(path, encoding):
        if line.text.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def cells_of(text: str) -> list[str]:
    """Split a line into columns: between tabs where it has any, else at white space."""
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def json_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file with one on each line, with their line numbers."""
    for number, text in numbered_lines(path, encoding):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise problem(path, number, f"not valid JSON: {error.msg}") from None
        if not isinstance(record, dict):
            raise problem(path, number, f"expected a JSON object, received {text.strip()[:40]!r}")
        yield number, record


def suffix_of(path: Path) -> str:
    """Return the suffix of the format, as `.jsonl` of `dev.jsonl.gz`."""
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix.lower()


@cache
def tokenizer_of(name: TokenizerName) -> Tokenizer:
    """Return a tokenizer; some take a while to load."""
    return get_tokenizer(name)


def sentences_of(text: str, options: ReadOptions) -> list[Words]:
    """Split a raw text into sentences of words; the tokenizer may return empty ones."""
    return tokenizer_of(options.tokenizer or "english").sentences(text)


def words_of(text: str, options: ReadOptions) -> Words:
    """Split a raw text into the words of all its sentences."""
    return list(chain.from_iterable(sentences_of(text, options)))


def warn_of(what: str, places: Sequence[str]) -> None:
    """Warn of cases that were skipped or changed, if there are any.

    Args:
        what: Continues their number: `pairs without a label are left out`.
        places: Where each of them is.
    """
    if places:
        warnings.warn(
            f"{len(places):,} {what} (first: {places[0] or 'a text'})", ElmoWarning, stacklevel=3
        )


class Remarks:
    """What a reader skips or reads in another way: one warning for each kind.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, list[str]] = {}

    def add(self, what: str, where: int | str) -> None:
        """Note one case; see `warn_of` and `place`."""
        self._places.setdefault(what, []).append(place(self._path, where))

    def finish(self, examples: list[E], what: str) -> list[E]:
        """Warn of all cases and return the examples; a file without any is an error."""
        for remark, places in self._places.items():
            warn_of(remark, places)
        if not examples:
            raise InputError(f"{self._path}: no {what} in it; is this the file that was meant?")
        return examples


def listed(names: Sequence[object], limit: int = 8) -> str:
    """Join names for a message, the first few of many."""
    text = ", ".join(map(str, names[:limit]))
    return text if len(names) <= limit else f"{text}, ..."

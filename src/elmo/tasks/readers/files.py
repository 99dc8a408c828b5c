"""What readers share: numbered lines, errors with their line, counted warnings."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elmo.errors import ElmoWarning, InputError
from elmo.text.files import COMPRESSED, TextFile

E = TypeVar("E")
JSON_LINES = (".jsonl", ".json", ".ndjson")
"""Suffixes of files with one JSON object on each line."""


class Line(NamedTuple):
    """A line of a file."""

    number: int
    """From 1."""
    text: str


def place(path: Path | str, line: int) -> str:
    """Return file and line for a message."""
    return f"{path}, line {line}"


def problem(path: Path | str, line: int, what: str) -> InputError:
    """Return the error for a line that cannot be read."""
    return InputError(f"{place(path, line)}: {what}")


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[Line]:
    """Yield the lines of a file, compressed or not, without their ends."""
    with TextFile(path, encoding) as lines:
        for number, text in enumerate(lines, start=1):
            yield Line(number, text)


def blocks(path: Path, encoding: str = "utf-8") -> Iterator[list[Line]]:
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


def table_kind(path: Path) -> str:
    """Return `jsonl`, `csv` or `tsv` by the name of a file; anything else counts as tsv."""
    suffix = suffix_of(path)
    if suffix in JSON_LINES:
        return "jsonl"
    return "csv" if suffix == ".csv" else "tsv"


def not_empty(examples: list[E], path: Path, what: str) -> list[E]:
    """Return the examples; an empty file is an error."""
    if not examples:
        raise InputError(f"{path}: no {what} in it; is this the file that was meant?")
    return examples


class Remarks:
    """What a reader skips or reads in another way: counted, one warning for each kind.

    Args:
        path: The file.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, what: str, line: int, name: str = "") -> None:
        """Count one case.

        Args:
            what: Continues a number: `pairs without a label are left out`.
            line: Its line.
            name: Its name, if the line does not identify it.
        """
        self._counts[what] += 1
        self._first.setdefault(what, f"line {line}, {name}" if name else f"line {line}")

    def warn(self) -> None:
        """Warn once for each kind of case."""
        for what, count in self._counts.items():
            warnings.warn(
                f"{self._path}: {count:,} {what}; the first is in {self._first[what]}",
                ElmoWarning,
                stacklevel=3,
            )


def listed(names: Sequence[object], limit: int = 8) -> str:
    """Join names for a message, the first few of many."""
    text = ", ".join(map(str, names[:limit]))
    return text if len(names) <= limit else f"{text}, ..."

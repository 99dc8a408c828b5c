"""What readers share: numbered lines, problems with their place, what is left out and counted."""

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
    """Name a line of a file."""
    return f"{path}, line {line}"


def problem(path: Path | str, line: int, what: str) -> InputError:
    """Make the error for a line that cannot be read."""
    return InputError(f"{place(path, line)}: {what}")


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[Line]:
    """Yield the lines of a file, packed or not, without their ends."""
    with TextFile(path, encoding) as lines:
        for number, text in enumerate(lines, start=1):
            yield Line(number, text)


def blocks(path: Path, encoding: str = "utf-8") -> Iterator[list[Line]]:
    """Yield what stands between blank lines; lines of white space alone are blank, too."""
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
    """Yield the objects of a file with one on each line, with the numbers of the lines."""
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
    """Give the suffix that tells the format, as `.jsonl` of `dev.jsonl.gz`."""
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix.lower()


def table_kind(path: Path) -> str:
    """Tell whether a table is `jsonl`, `csv` or `tsv`, by its name; anything else counts as tsv."""
    suffix = suffix_of(path)
    if suffix in JSON_LINES:
        return "jsonl"
    return "csv" if suffix == ".csv" else "tsv"


def not_empty(examples: list[E], path: Path, what: str) -> list[E]:
    """Hand examples through, or say that a file has none."""
    if not examples:
        raise InputError(f"{path}: no {what} in it; is this the file that was meant?")
    return examples


class Remarks:
    """What a reader leaves out or reads in another way: counted, and told once a kind.

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
            what: Goes on from a number: `pairs without a label are left out`.
            line: Where it is.
            name: What it is, if the line does not say it.
        """
        self._counts[what] += 1
        self._first.setdefault(what, f"line {line}, {name}" if name else f"line {line}")

    def tell(self) -> None:
        """Warn, once for each kind of case."""
        for what, count in self._counts.items():
            warnings.warn(
                f"{self._path}: {count:,} {what}; the first is in {self._first[what]}",
                ElmoWarning,
                stacklevel=3,
            )


def shown(names: Sequence[object], limit: int = 8) -> str:
    """List names for a message, the first few of many."""
    listed = ", ".join(map(str, names[:limit]))
    return listed if len(names) <= limit else f"{listed}, ..."

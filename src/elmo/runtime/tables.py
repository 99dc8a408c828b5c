"""Numbers and tables as text: aligned for terminals, or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

NOTHING = "-"
"""Placeholder of a cell without a figure."""


def counted(count: int, what: str) -> str:
    """Return a count with its noun in the singular or plural: `1 word`, `2 words`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns: names on the left, numbers on the right."""
    lines = [header, *rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [line[0] + " " * (widths[0] - _width(line[0]))]
            + [
                " " * (width - _width(cell)) + cell
                for cell, width in zip(line[1:], widths[1:], strict=True)
            ]
        )
        for line in lines
    )


def _width(text: str) -> int:
    """Return how many terminal columns a text takes: Chinese characters take two."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table: names on the left, numbers on the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])

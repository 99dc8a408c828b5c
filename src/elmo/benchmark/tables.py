"""Tables as text: aligned for terminals, or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

NOTHING = "-"
"""What stands where there is no figure."""


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
    """Give the columns that a text takes in a terminal: Chinese characters take two."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a Markdown table: names on the left, numbers on the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])

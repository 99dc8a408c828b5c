"""Words for numbers in what users are told."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Say how many there are of something: `1 word`, `2 words`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"

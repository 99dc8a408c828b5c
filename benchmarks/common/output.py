"""Files of measurements."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from elmo.errors import OutputError


def require_writable(path: Path | None) -> None:
    """Fail unless a file can be written, before hours are spent on what it will hold.

    Its folder is made if it is not there.
    """
    if path is None:
        return
    was_there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


def write_json(report: Any, path: Path | None) -> None:
    """Write a record of measurements as JSON, if there is a file for it."""
    write_text(json.dumps(dataclasses.asdict(report), indent=2) + "\n", path)


def write_text(text: str, path: Path | None) -> None:
    """Write a text, if there is a file for it."""
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None

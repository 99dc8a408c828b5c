"""The files of a training run's figures: `metrics.jsonl`, a JSON object a line, and its picture."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, InputError
from elmo.runtime.files import output_errors
from elmo.runtime.input_files import parse_json, read_text

METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "curve.png"

MOST_METRICS_BYTES = 2**28
"""A row has some 300 bytes, and is written every hundred steps."""

Row = dict[str, Any]


class MetricsFile:
    """A growing file of JSON rows, cut to its length in the snapshot when a run is resumed.

    Args:
        path: The file.
        length: Bytes to keep of what is there.
    """

    def __init__(self, path: Path, length: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("ab")
        there = path.stat().st_size
        if there < length:
            raise InputError(
                f"{path} has {there} bytes, but the snapshot was taken when it had {length}: "
                "a part of it was removed"
            )
        self._file.truncate(length)
        self._file.seek(0, os.SEEK_END)

    def write(self, row: Row) -> None:
        """Append a row."""
        with output_errors(self._path):
            self._file.write(json.dumps(row).encode() + b"\n")
            self._file.flush()

    @property
    def length(self) -> int:
        """Bytes in the file, all of them flushed to disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[Row]:
    """Read the rows of a `metrics.jsonl`."""
    lines = read_text(path, MOST_METRICS_BYTES, "file of metrics").splitlines()
    rows = [parse_json(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    if not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path}: expected a JSON object on each line")
    return rows

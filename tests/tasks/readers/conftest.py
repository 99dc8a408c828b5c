"""Files of task data, written by tests."""

import gzip
import lzma

import pytest


@pytest.fixture
def write(tmp_path):
    """Write a text to a file, compressed if its name says so, and return its path."""

    def write(text, name="data.txt"):
        path = tmp_path / name
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "wt", encoding="utf-8") as file:
            file.write(text)
        return path

    return write

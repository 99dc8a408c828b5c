"""Where static word vectors come from: a file, or a package that was installed with pip."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from elmo.errors import InputError, MissingExtraError, MissingFileError
from elmo.text.static_vectors import StaticVectors, is_vector_file, read_static_vectors


class VectorSource(Protocol):
    """Something that has vectors of words."""

    name: str
    """What a user wrote to get it."""

    def read(self, words: Iterable[str]) -> StaticVectors:
        """Give the vectors of some words."""


class VectorFile:
    """A GloVe or word2vec file.

    Args:
        name: Its path.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, words: Iterable[str]) -> StaticVectors:
        """Give the vectors of some words; the whole file is read."""
        return read_static_vectors(Path(self.name), words)


class VectorPackage:
    """A package that holds a table of vectors (`*_emb.npy`) and its words (`*_index.parquet`).

    Its files are read; nothing of its code is run.

    Args:
        name: Its name, as pip knows it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        spec = importlib.util.find_spec(_module(name))
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise MissingFileError(
                f"no file and no installed package has the name {name!r}: give a GloVe or word2vec "
                f"file, or pip install {name}"
            )
        self._folder = Path(places[0])

    def read(self, words: Iterable[str]) -> StaticVectors:
        """Give the vectors of some words."""
        found: dict[str, int] = {}
        rows: list[int] = []
        for word in words:
            row = self._rows.get(word)
            if row is not None and word not in found:
                found[word] = len(rows)
                rows.append(row)
        vectors = np.asarray(self._table[np.array(rows, dtype=np.int64)], dtype=np.float32)
        return StaticVectors(
            found=found, vectors=vectors, dim=self._table.shape[1], n_read=len(self._rows)
        )

    @cached_property
    def _rows(self) -> dict[str, int]:
        try:
            from pyarrow import parquet
        except ImportError:
            raise MissingExtraError(f"the package {self.name}", "glove") from None
        names = parquet.read_table(self._file("*_index.parquet")).column(0).to_pylist()
        if len(names) != len(self._table):
            raise InputError(
                f"the package {self.name} has {len(names)} words, but {len(self._table)} vectors"
            )
        return {word: row for row, word in reversed(list(enumerate(names)))}

    @cached_property
    def _table(self) -> Any:
        table = np.load(self._file("*_emb.npy"), mmap_mode="r", allow_pickle=False)
        if table.ndim != 2:
            raise InputError(f"the package {self.name} has a table of shape {table.shape}")
        return table

    def _file(self, pattern: str) -> Path:
        found = sorted(self._folder.rglob(pattern))
        if len(found) != 1:
            raise InputError(
                f"the package {self.name} has {len(found)} files {pattern}, expected one: it is "
                "no package of word vectors"
            )
        return found[0]


def open_vectors(name: str) -> VectorSource:
    """Find word vectors by the name that a user wrote: a file, else a package.

    Args:
        name: Path of a GloVe or word2vec file, or the name of a package such as
            `settings.DEFAULT_VECTORS`.
    """
    if is_vector_file(Path(name)) or not _module(name).isidentifier():
        if not is_vector_file(Path(name)):
            raise MissingFileError(
                f"no such file of word vectors: {name}; give a GloVe or word2vec file, or the name "
                "of a package"
            )
        return VectorFile(name)
    return VectorPackage(name)


def _module(name: str) -> str:
    return name.replace("-", "_")

"""Vectors as a Parquet table: a row for each sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from elmo.bulk.spool import SpoolWriter
from elmo.bulk.writer import Array
from elmo.text.sentences import Words

_ROW_GROUP_BYTES = 64 << 20


class ParquetWriter(SpoolWriter):
    """Writes columns `sentence`, `words`, and `vectors` or `layer_0`, ...

    Vectors are lists of fixed-size lists, one for each word.
    """

    endings = ("parquet",)
    extra = "parquet"
    package = "pyarrow"

    def assemble(self, path: Path) -> None:
        """Write the whole file; see `SpoolWriter.assemble`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [f"layer_{k}" for k in range(self.info.n_layers)] or ["vectors"]
        number_type = {"float32": pa.float32(), "float16": pa.float16()}[self.info.dtype]
        vectors_type = pa.list_(pa.list_(number_type, self.info.dim))
        schema = pa.schema(
            [("sentence", pa.int64()), ("words", pa.list_(pa.string()))]
            + [(name, vectors_type) for name in names],
            metadata={key: str(value) for key, value in self.facts().items()},
        )
        with pq.ParquetWriter(path, schema) as writer:
            first = 0
            for group in self._row_groups():
                numbers = pa.array(range(first, first + len(group)), pa.int64())
                words = pa.array([words for words, _ in group], pa.list_(pa.string()))
                columns = [numbers, words, *_layer_columns(pa, group, len(names), self.info.dim)]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                first += len(group)

    def _row_groups(self) -> Iterator[list[tuple[Words, Array]]]:
        """Collect sentences up to the size of a row group."""
        group: list[tuple[Words, Array]] = []
        size = 0
        for words, vectors in self.rows():
            group.append((words, vectors))
            size += 1 + vectors.nbytes
            if size >= _ROW_GROUP_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group


def _layer_columns(pa: Any, group: list[tuple[Words, Array]], n_layers: int, dim: int) -> list[Any]:
    """Return an Arrow column of vectors for each layer."""
    offsets = np.cumsum([0] + [len(words) for words, _ in group], dtype=np.int32)
    arrays = [vectors.reshape(n_layers, -1, dim) for _, vectors in group]
    together = np.concatenate(arrays, axis=1)  # (layers, words of the group, dim)
    return [
        pa.ListArray.from_arrays(
            pa.array(offsets),
            pa.FixedSizeListArray.from_arrays(pa.array(layer.reshape(-1)), dim),
        )
        for layer in together
    ]

"""Formats that cannot grow: vectors wait in a spool until all of them are there.

npz, safetensors and Parquet are assembled from it at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from elmo.bulk.writer import Array, VectorWriter, append_to, keep_lines
from elmo.errors import OutputError
from elmo.runtime.files import replacing
from elmo.text.sentences import Words

_HEADER_LIMIT = 100_000_000
"""Bytes of a header that the safetensors library accepts."""
_WORDS_LIMIT = 16 << 20
"""Bytes of sentences up to which the header carries them."""
_ROW_GROUP_BYTES = 64 << 20


class SpoolWriter(VectorWriter):
    """Spools vectors in the working folder; a subclass assembles the file from them."""

    @property
    def _spool(self) -> Path:
        """File of the vectors of all sentences, one after another."""
        return self.work / "vectors.bin"

    def assemble(self, path: Path) -> None:
        """Write the whole file in bounded memory.

        Args:
            path: File to write; it takes its name when it is complete.
        """
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[Words, Array]]:
        """Yield each sentence with its vectors, mapped from the spool: `([layers], words, dim)`."""
        dtype = np.dtype(self.info.dtype)
        empty = self._spool.stat().st_size == 0
        flat = np.empty(0, dtype) if empty else np.memmap(self._spool, dtype, mode="r")
        start = 0
        for words in self.written_sentences():
            shape = self.info.shape(len(words))
            size = int(np.prod(shape))
            yield words, flat[start : start + size].reshape(shape)
            start += size

    def _create(self) -> None:
        self._spool.touch()

    def _recover(self) -> int:
        """Count the sentences whose vectors are all there; cut off what is torn."""
        available = self._spool.stat().st_size
        count = used = 0
        with self._sentences.open("rb") as lines:
            for line in lines:
                size = self._bytes(line)
                if size is None or used + size > available:
                    break
                count, used = count + 1, used + size
        keep_lines(self._sentences, count)
        os.truncate(self._spool, used)
        return count

    def _bytes(self, line: bytes) -> int | None:
        """Return the size of a sentence's vectors; None if its line is torn."""
        if not line.endswith(b"\n"):
            return None
        shape = self.info.shape(len(json.loads(line)))
        return int(np.prod(shape)) * np.dtype(self.info.dtype).itemsize

    def _append_vectors(self, vectors: list[Array]) -> None:
        append_to(self._spool, b"".join(array.tobytes() for array in vectors))

    def _finish(self) -> None:
        with replacing(self.path, folder=self.work) as temporary:
            self.assemble(temporary)


class NpzWriter(SpoolWriter):
    """Writes `.npz`, with `info.json` and `sentences.jsonl` beside the arrays."""

    @staticmethod
    def read_facts(path: Path) -> Mapping[str, Any]:
        """Return the content of `info.json`."""
        with zipfile.ZipFile(path) as archive:
            facts: dict[str, Any] = json.loads(archive.read("info.json"))
        return facts

    def assemble(self, path: Path) -> None:
        """Write the whole file; see `SpoolWriter.assemble`."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            # ZipInfo without a date: equal vectors make equal bytes, whenever they are written.
            archive.writestr(zipfile.ZipInfo("info.json"), json.dumps(self.facts()))
            with (
                archive.open(zipfile.ZipInfo("sentences.jsonl"), "w", force_zip64=True) as member,
                self._sentences.open("rb") as lines,
            ):
                shutil.copyfileobj(lines, member)
            for number, (_, vectors) in enumerate(self.rows()):
                entry = zipfile.ZipInfo(f"{number}.npy")
                with archive.open(entry, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, vectors, allow_pickle=False)


class SafetensorsWriter(SpoolWriter):
    """Writes `.safetensors`.

    The library takes all tensors at once, from memory. The format is the length of a JSON header,
    the header, and the numbers in its order, which is that of the spool; so it is written here.
    """

    @staticmethod
    def read_facts(path: Path) -> Mapping[str, Any]:
        """Return the metadata of the header."""
        with safe_open(path, "np") as file:
            return dict(file.metadata() or {})

    def assemble(self, path: Path) -> None:
        """Write the whole file; see `SpoolWriter.assemble`."""
        header: dict[str, Any] = {"__metadata__": {k: str(v) for k, v in self.facts().items()}}
        if self._sentences.stat().st_size <= _WORDS_LIMIT:
            lines = self._sentences.read_text(encoding="utf-8").splitlines()
            header["__metadata__"]["sentences"] = f"[{','.join(lines)}]"
        end = 0
        for number, words in enumerate(self.written_sentences()):
            shape = self.info.shape(len(words))
            start, end = end, end + int(np.prod(shape)) * np.dtype(self.info.dtype).itemsize
            header[str(number)] = {
                "dtype": {"float32": "F32", "float16": "F16"}[self.info.dtype],
                "shape": list(shape),
                "data_offsets": [start, end],
            }
        encoded = json.dumps(header).encode()
        encoded += b" " * (-len(encoded) % 8)  # tensors begin at a multiple of eight bytes
        if len(encoded) > _HEADER_LIMIT:
            raise OutputError(
                f"{self.n_written} sentences are too many for a safetensors file; use hdf5 or "
                "parquet"
            )
        with path.open("wb") as file, self._spool.open("rb") as vectors:
            file.write(len(encoded).to_bytes(8, "little") + encoded)
            shutil.copyfileobj(vectors, file)


class ParquetWriter(SpoolWriter):
    """Writes columns `sentence`, `words`, and `vectors` or `layer_0`, ...

    Vectors are lists of fixed-size lists, one for each word.
    """

    @staticmethod
    def read_facts(path: Path) -> Mapping[str, Any]:
        """Return the metadata of the schema."""
        import pyarrow.parquet as pq

        metadata = pq.read_schema(path).metadata or {}
        return {key.decode(): value.decode() for key, value in metadata.items()}

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

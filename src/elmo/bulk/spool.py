"""Writers of formats that cannot grow: vectors wait in a spool until all of them are there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elmo.bulk.writer import Array, VectorWriter, append_to, keep_lines
from elmo.runtime.files import replacing
from elmo.text.sentences import Words


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
        super()._create()
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

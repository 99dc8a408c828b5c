"""Vectors in the safetensors format: a tensor "i" for each sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from elmo.bulk.spool import SpoolWriter
from elmo.errors import OutputError

_DTYPES = {"float32": "F32", "float16": "F16"}
_HEADER_LIMIT = 100_000_000
"""Bytes of a header that the safetensors library accepts."""
_WORDS_LIMIT = 16 << 20
"""Bytes of sentences up to which the header carries them."""


class SafetensorsWriter(SpoolWriter):
    """Writes `.safetensors`.

    The library takes all tensors at once, from memory. The format is the length of a JSON header,
    the header, and the numbers in its order, which is that of the spool; so it is written here.
    """

    endings = ("safetensors",)

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
                "dtype": _DTYPES[self.info.dtype],
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

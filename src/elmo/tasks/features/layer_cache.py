"""Layers of sentences, computed once: one file a model, half precision, read by memory map.

The key of a sentence is a hash of its words, that of a file the fingerprint of the model: what was
embedded for one task, or one share of its data, is there for all others. The file `*.layers` holds
`(n_layers, dim)` float16 values for word after word, and `*.index` for each sentence its hash, its
first row and its number of words. Both are append-only, the index last, under a lock: a run that is
killed loses the sentences of one block.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.embedder import ELMo
from elmo.runtime.files import locked, output_errors

Array = npt.NDArray[Any]
Words = list[str]

_RECORD = np.dtype([("hash", "V16"), ("start", "<u8"), ("words", "<u4"), ("spare", "<u4")])


class LayerCache:
    """The layers of sentences under one model.

    Args:
        folder: Folder of the files; created if missing.
        fingerprint: The model's.
        n_layers: Layers of vectors, the context-free one included.
        dim: Width of a vector.
    """

    def __init__(self, folder: Path, fingerprint: str, n_layers: int, dim: int) -> None:
        self.n_layers, self.dim = n_layers, dim
        with output_errors(folder, "choose another cache folder with --cache-dir"):
            folder.mkdir(parents=True, exist_ok=True)
        name = f"{fingerprint[:32]}-{n_layers}x{dim}"
        self._layers = folder / f"{name}.layers"
        self._index = folder / f"{name}.index"
        self._lock = folder / f"{name}.lock"
        self._word_bytes = 2 * n_layers * dim
        self._places: dict[bytes, tuple[int, int]] = {}
        self._index_bytes = 0
        self._mapped: Array | None = None
        self._read_index()

    def add(
        self,
        sentences: Iterable[Words],
        elmo: Callable[[], ELMo],
        progress: Callable[[int], object] = lambda words: None,
    ) -> None:
        """Compute the layers of sentences that are not in the cache.

        Args:
            sentences: Lists of words.
            elmo: Returns the model; only called if something is missing.
            progress: Called with numbers of words that are done.
        """
        missing = self.missing(sentences)
        if not missing:
            return
        model = elmo()
        # By length, so that windows make good batches; results do not depend on it.
        for window in model.windows(sorted(missing, key=len)):
            # Locked for one window at a time: runs on other sentences need not wait for all of
            # these, and runs on the same ones share the work.
            with locked(self._lock):
                self._read_index()
                left = self.missing(window)
                if left:
                    self._append(left, model)
            progress(sum(map(len, window)))

    def missing(self, sentences: Iterable[Words]) -> list[Words]:
        """Return the sentences that are not in the cache, each once."""
        found = {digest(words): words for words in sentences}
        return [words for key, words in found.items() if key not in self._places]

    def place(self, words: Words) -> tuple[int, int]:
        """Return the first row of a sentence and its number of words."""
        return self._places[digest(words)]

    def rows(self) -> Array:
        """Map all layers into memory: float16 of shape `(n_words, n_layers, dim)`."""
        size = self._n_words()
        if self._mapped is None or len(self._mapped) < size:
            shape = (size, self.n_layers, self.dim)
            if not size:
                return np.zeros(shape, np.float16)
            self._mapped = np.memmap(self._layers, np.float16, "r", 0, shape).view(np.ndarray)
        return self._mapped

    def gather(self, places: Sequence[tuple[int, int]]) -> Array:
        """Return the layers of sentences, concatenated: `(n_words, n_layers, dim)` float16."""
        rows = self.rows()
        parts = [rows[start : start + words] for start, words in places]
        if not parts:
            return np.zeros((0, self.n_layers, self.dim), np.float16)
        return np.concatenate(parts)

    # --- files ------------------------------------------------------------------------------------

    def _append(self, sentences: list[Words], elmo: ELMo) -> None:
        computed = elmo.encode_tokens(sentences, layers="all", dtype="float16")
        largest = np.finfo(np.float16).max
        block = np.concatenate([np.swapaxes(layers, 0, 1) for layers in computed])
        np.clip(block, -largest, largest, out=block)  # rounding may have made values infinite
        records = np.zeros(len(sentences), _RECORD)
        with output_errors(self._layers, "make room, or choose another folder with --cache-dir"):
            with self._layers.open("ab") as file:
                # A killed run may have left a part of a word, or words that the index lacks.
                start = -(-file.tell() // self._word_bytes)
                file.truncate(start * self._word_bytes)
                file.seek(0, os.SEEK_END)
                file.write(np.ascontiguousarray(block, np.float16).data)
                file.flush()
                os.fsync(file.fileno())
            for record, words in zip(records, sentences, strict=True):
                record["hash"], record["start"] = np.void(digest(words)), start
                record["words"] = len(words)
                start += len(words)
            with self._index.open("ab") as file:
                file.truncate(self._index_bytes)
                file.seek(0, os.SEEK_END)
                file.write(records.tobytes())
        self._read_index()

    def _n_words(self) -> int:
        return self._layers.stat().st_size // self._word_bytes if self._layers.exists() else 0

    def _read_index(self) -> None:
        """Read the records that this run and others have appended since the last time."""
        if not self._index.exists():
            return
        records = np.fromfile(self._index, _RECORD, offset=self._index_bytes)  # whole ones
        starts, counts = records["start"].tolist(), records["words"].tolist()
        n_words = self._n_words()
        for key, start, words in zip(records["hash"], starts, counts, strict=True):
            if start + words <= n_words:  # a file that was cut short is filled again
                self._places[bytes(key)] = (start, words)
        self._index_bytes += records.nbytes


def digest(words: Words) -> bytes:
    """Return the 16-byte key of a sentence."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in words]
    sizes = np.array([len(word) for word in encoded], dtype="<u4").tobytes()
    return hashlib.blake2b(sizes + b"".join(encoded), digest_size=16).digest()

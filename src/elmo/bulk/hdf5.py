"""Vectors as HDF5, in the layout of `allennlp elmo`; the file grows and can be read at any time."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5s, h5t

from elmo.bulk.journal import JournaledFile, begin_journal, recover
from elmo.bulk.writer import N_WRITTEN, Array, VectorWriter, keep_lines
from elmo.errors import ElmoWarning, OutputError
from elmo.runtime.interrupts import interrupts_later

SENTENCE_INDEX = "sentence_to_index"
COMPLETE = "complete"

_INDEX_LIMIT = 1 << 28
"""Bytes of sentences beyond which `sentence_to_index`, one string, is left out."""
_BYTES_PER_DATASET = 2048
"""More than HDF5 writes around a dataset."""


class Hdf5Writer(VectorWriter):
    """Writes a dataset for each sentence, and `sentence_to_index`.

    A list of sentences is written atomically (`journal.py`), so that the file is whole and readable
    whenever a run is killed; and space is reserved first: a full disk stops a run, but leaves the
    file as it was.
    """

    endings = ("hdf5", "h5")

    @property
    def _journal(self) -> Path:
        return self.work / "journal"

    def _create(self) -> None:
        super()._create()
        self._begin_file()

    def _begin_file(self) -> None:
        with h5py.File(self.path, "w") as file:
            file.attrs.update(asdict(self.info) | {N_WRITTEN: 0, COMPLETE: False})
        begin_journal(self.path, self._journal)

    def _recover(self) -> int:
        if not self._journal.exists() and not self._sentences.stat().st_size:
            self._begin_file()  # killed before it was begun
        try:
            recover(self.path, self._journal)
            with h5py.File(self.path, "r") as file:
                n_written, was_finished = int(file.attrs[N_WRITTEN]), file.attrs[COMPLETE]
            if was_finished:
                with self._changed_file() as file:
                    file.attrs[COMPLETE] = False
                    file.pop(SENTENCE_INDEX, None)
        except OutputError:
            raise
        except (OSError, KeyError, ValueError) as error:
            raise OutputError(
                f"{self.path} cannot be resumed, it is damaged ({error}); "
                "start again with --overwrite"
            ) from None
        keep_lines(self._sentences, n_written)
        return n_written

    @contextmanager
    def _changed_file(self, needed: int = 0) -> Iterator[h5py.File]:
        """Open the file for changes, and commit them at the end of the block.

        Args:
            needed: Bytes that it may grow by.
        """
        with interrupts_later(), JournaledFile(self.path, self._journal) as journaled:
            journaled.reserve(needed + (1 << 20))
            with h5py.File(journaled, "r+") as file:
                yield file
            journaled.commit()

    def _append_vectors(self, vectors: list[Array]) -> None:
        needed = sum(array.nbytes + _BYTES_PER_DATASET for array in vectors)
        with self._changed_file(needed) as file:
            # The low-level functions of h5py: half the time of `create_dataset` a sentence.
            kind = h5t.py_create(np.dtype(self.info.dtype))
            for number, array in enumerate(vectors, start=self.n_written):
                dataset = h5d.create(
                    file.id, str(number).encode(), kind, h5s.create_simple(array.shape)
                )
                dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(array))
            file.attrs[N_WRITTEN] = self.n_written + len(vectors)

    def _finish(self) -> None:
        size = self._sentences.stat().st_size
        with_index = not self._forget_sentences and size <= _INDEX_LIMIT
        with self._changed_file(2 * size if with_index else 0) as file:
            if with_index:
                dataset = file.create_dataset(SENTENCE_INDEX, (1,), dtype=h5py.string_dtype())
                dataset[0] = self._sentence_index()
            file.attrs[COMPLETE] = True
        if not (with_index or self._forget_sentences):
            warnings.warn(
                f"{self.path}: {size >> 20} MB of sentences are too many for {SENTENCE_INDEX}, "
                "which is one string; it was left out",
                ElmoWarning,
                stacklevel=3,
            )

    def _sentence_index(self) -> str:
        """Return {sentence: key} as JSON; of equal sentences the last one counts (AllenNLP)."""
        # Written as text, not through a dict: readers of JSON keep the last of equal keys anyway.
        entries = (
            f'{json.dumps(" ".join(words))}: "{number}"'
            for number, words in enumerate(self.written_sentences())
        )
        return "{" + ", ".join(entries) + "}"

"""Files of vectors: one schema in four formats, written so that an interruption loses nothing.

Sentence i of the input has the key "i" (HDF5, npz, safetensors) or the row i (Parquet). Its
vectors have shape `(layers, words, dim)`, or `(words, dim)` where one vector a word was asked for.
Each file says which model and settings made it. `docs/formats.md` describes the files,
`vector_writer.py` what happens until they are complete.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5d, h5s, h5t

from elmo.bulk.journal import (
    JournaledFile,
    begin_journal,
    refuse_if_taken,
    settle,
)
from elmo.bulk.vector_files import ASSEMBLERS, check_format
from elmo.bulk.writer import VectorInfo, VectorWriter, append_safely, keep_lines, work_folder
from elmo.errors import (
    ConfigError,
    ElmoWarning,
    OutputError,
    OutputExistsError,
    reason_of,
)
from elmo.runtime.interrupts import interrupts_later
from elmo.settings import OutputFormat
from elmo.text.sentences import Words

Array = npt.NDArray[Any]

SENTENCE_INDEX = "sentence_to_index"
N_WRITTEN = "n_sentences"
COMPLETE = "complete"

_INDEX_LIMIT = 1 << 28
"""Bytes of sentences beyond which `sentence_to_index`, one string, is left out of an HDF5 file."""
_BYTES_PER_DATASET = 2048
"""More than HDF5 writes around a dataset."""


class Hdf5Writer(VectorWriter):
    """The layout of `allennlp elmo`: a dataset a sentence, and `sentence_to_index`.

    A list of sentences comes in as a whole or not at all (`journaled_file.py`), so that the file is
    complete and readable whenever a run is killed; and space is reserved first: a full disk stops a
    run, but leaves the file as it was.

    Args:
        path: See `VectorWriter`.
        info: See `VectorWriter`.
        resume: See `VectorWriter`.
        overwrite: See `VectorWriter`.
        forget_sentences: Leave `sentence_to_index` out.
    """

    def __init__(
        self,
        path: Path,
        info: VectorInfo,
        resume: bool = False,
        overwrite: bool = False,
        forget_sentences: bool = False,
    ) -> None:
        self._forget_sentences = forget_sentences
        super().__init__(path, info, resume, overwrite)

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
            self._begin_file()  # it was never begun
        try:
            settle(self.path, self._journal)
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
        """Open the file to change it, and keep what was changed.

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
            # By the functions below h5py's own, which take half of the time for each sentence.
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
        """Give {sentence: key} as JSON; of equal sentences the last one counts, as in AllenNLP."""
        # Written as text, not through a dict: readers of JSON keep the last of equal keys anyway.
        entries = (
            f'{json.dumps(" ".join(words))}: "{number}"'
            for number, words in enumerate(self.written_sentences())
        )
        return "{" + ", ".join(entries) + "}"


class SpoolWriter(VectorWriter):
    """For formats that cannot grow: vectors wait in the working folder until all are there.

    Args:
        path: See `VectorWriter`.
        info: See `VectorWriter`.
        resume: See `VectorWriter`.
        overwrite: See `VectorWriter`.
        format: Which format.
    """

    def __init__(
        self,
        path: Path,
        info: VectorInfo,
        resume: bool = False,
        overwrite: bool = False,
        format: OutputFormat = "npz",
    ) -> None:
        self._format = format
        super().__init__(path, info, resume, overwrite)

    @property
    def _spool(self) -> Path:
        return self.work / "vectors.bin"

    def _create(self) -> None:
        super()._create()
        self._spool.touch()

    def _recover(self) -> int:
        """Count the sentences whose vectors are all there; drop what is torn."""
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
        """Give the size of a sentence's vectors; None if its line is torn."""
        if not line.endswith(b"\n"):
            return None
        shape = self.info.shape(len(json.loads(line)))
        return int(np.prod(shape)) * np.dtype(self.info.dtype).itemsize

    def _append_vectors(self, vectors: list[Array]) -> None:
        append_safely(self._spool, b"".join(array.tobytes() for array in vectors))

    def _finish(self) -> None:
        temporary = self.work / "output"
        info = asdict(self.info) | {N_WRITTEN: self.n_written}
        ASSEMBLERS[self._format](temporary, info, self._sentences, self._arrays())
        temporary.replace(self.path)

    def _arrays(self) -> Iterator[tuple[Words, Array]]:
        """Yield each sentence with its vectors, mapped from the spool."""
        dtype = np.dtype(self.info.dtype)
        empty = self._spool.stat().st_size == 0
        flat = np.empty(0, dtype) if empty else np.memmap(self._spool, dtype, mode="r")
        start = 0
        for words in self.written_sentences():
            shape = self.info.shape(len(words))
            size = int(np.prod(shape))
            yield words, flat[start : start + size].reshape(shape)
            start += size


def open_writer(
    path: Path | str,
    format: OutputFormat,
    info: VectorInfo,
    *,
    resume: bool = False,
    overwrite: bool = False,
    forget_sentences: bool = False,
) -> VectorWriter:
    """Begin an output, or go on with an unfinished one.

    Args:
        path: Output file.
        format: Its kind.
        info: What it will hold.
        resume: Go on with an unfinished output, if there is one.
        overwrite: Replace an output that exists.
        forget_sentences: Leave `sentence_to_index` out of an HDF5 file.
    """
    check_output(path, format, resume, overwrite)
    path = Path(path)
    try:
        if format == "hdf5":
            return Hdf5Writer(path, info, resume, overwrite, forget_sentences)
        return SpoolWriter(path, info, resume, overwrite, format)
    except OSError as error:
        if isinstance(error, OutputError | OutputExistsError):
            raise
        raise OutputError(f"cannot write {path}: {reason_of(error)}") from error


def is_complete(path: Path | str) -> bool:
    """Tell whether an output exists and no run has left it unfinished."""
    return Path(path).is_file() and not is_unfinished(path)


def is_unfinished(path: Path | str) -> bool:
    """Tell whether a run has left an output that can be resumed."""
    return work_folder(Path(path)).is_dir()


def check_output(
    path: Path | str, format: OutputFormat, resume: bool = False, overwrite: bool = False
) -> None:
    """Fail if an output may not be written, without touching anything."""
    check_format(format)
    if resume and overwrite:
        raise ConfigError("--resume goes on with an output, --overwrite starts anew: give one")
    if str(path) == "-":
        raise OutputError("vectors cannot be written to standard output: name a file")
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder, expected the name of a file")
    refuse_if_taken(work_folder(path), path)
    if overwrite or resume:
        return
    if is_unfinished(path):
        raise OutputExistsError(
            f"{path} is unfinished; give --resume to complete it or --overwrite to start anew"
        )
    if path.exists():
        raise OutputExistsError(f"{path} exists; give --overwrite to replace it")

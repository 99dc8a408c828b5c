"""Vectors as HDF5, in the layout of `allennlp elmo`; the file grows and can be read at any time.

HDF5 changes its index in place: a process that is killed in the middle of that leaves a file that
cannot be read, with the work of hours in it. So h5py writes through a `JournaledFile`, which a
write-ahead journal makes atomic:

* what is appended to the file is written at once, where nobody reads yet;
* what replaces committed bytes stays in memory, visible to the writer only;
* `commit` writes those bytes to a journal, which replaces the journal before it atomically, and
  then to the file.

The journal stays. After a kill, `recover` applies it once more, which changes nothing if it was
applied already, and truncates what was appended: the file is as the last commit left it.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from h5py import h5d, h5s, h5t

from elmo.bulk.writer import N_WRITTEN, Array, VectorWriter, keep_lines
from elmo.errors import ElmoWarning, OutputError
from elmo.runtime.files import replacing
from elmo.runtime.interrupts import interrupts_later

try:
    import fcntl
except ImportError:  # Windows: concurrent readers may see half-written data
    fcntl = None  # type: ignore[assignment]

SENTENCE_INDEX = "sentence_to_index"
COMPLETE = "complete"

_INDEX_LIMIT = 1 << 28
"""Bytes of sentences beyond which `sentence_to_index`, one string, is left out."""
_BYTES_PER_DATASET = 2048
"""More than HDF5 writes around a dataset."""
_PAGE = 4096
"""Bytes of a page, the unit of what is replaced."""
_PATIENCE = 60.0
"""Seconds to wait for processes that are reading the file."""


class Hdf5Writer(VectorWriter):
    """Writes a dataset for each sentence, and `sentence_to_index`.

    A list of sentences is written atomically, so that the file is whole and readable whenever a run
    is killed; and space is reserved first: a full disk stops a run, but leaves the file as it was.
    """

    @property
    def _journal(self) -> Path:
        return self.work / "journal"

    def _create(self) -> None:
        with h5py.File(self.path, "w") as file:
            file.attrs.update(asdict(self.info) | {N_WRITTEN: 0, COMPLETE: False})
        begin_journal(self.path, self._journal)

    def _recover(self) -> int:
        if not self._journal.exists() and not self._sentences.stat().st_size:
            self._create()  # killed before it was begun
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
            file.attrs.update(self.facts() | {COMPLETE: True})
        if not (with_index or self._forget_sentences):
            warnings.warn(
                f"{self.path}: {size >> 20} MB of sentences are too many for {SENTENCE_INDEX}, "
                "which is one string; it was left out",
                ElmoWarning,
                stacklevel=3,
            )

    @staticmethod
    def read_facts(path: Path) -> Mapping[str, Any]:
        """Return the attributes of a file."""
        with h5py.File(path, "r") as file:
            return dict(file.attrs)

    def _sentence_index(self) -> str:
        """Return {sentence: key} as JSON; of equal sentences the last one counts (AllenNLP)."""
        # Written as text, not through a dict: readers of JSON keep the last of equal keys anyway.
        entries = (
            f'{json.dumps(" ".join(words))}: "{number}"'
            for number, words in enumerate(self.written_sentences())
        )
        return "{" + ", ".join(entries) + "}"


# --- the journal ----------------------------------------------------------------------------------


class JournaledFile:
    """A file open for changes, with the methods of a file object that h5py calls.

    Args:
        path: The file; it exists.
        journal: Its journal.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self._path = path
        self._journal = journal
        self._file = path.open("r+b", buffering=0)
        self._committed = _size(self._file)
        self._size = self._committed
        self._place = 0
        self._changed: dict[int, bytearray] = {}
        """New content of committed pages, by their numbers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file as the last commit left it."""
        self._file.truncate(self._committed)
        self._file.close()

    def reserve(self, size: int) -> None:
        """Reserve space for bytes to be appended, so that a full disk fails before any change."""
        if hasattr(os, "posix_fallocate"):  # elsewhere a full disk fails later
            os.posix_fallocate(self._file.fileno(), self._committed, size)

    def commit(self) -> None:
        """Make all changes permanent."""
        with _locked(self._file, self._path):
            if _size(self._file) < self._size:
                self._file.truncate(self._size)
            os.fsync(self._file.fileno())
            _write_journal(self._journal, self._size, self._changed)
            _replace(self._file, self._size, self._changed)
        self._committed = self._size
        self._changed.clear()

    # --- what h5py calls --------------------------------------------------------------------------

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, and return it."""
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}
        self._place = origins[whence] + offset
        return self._place

    def tell(self) -> int:
        """Return the position."""
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all that are left."""
        content = bytearray(max(0, self._size - self._place) if size < 0 else size)
        return bytes(content[: self.readinto(content)])

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, with zeros after the end of the file; return the bytes read."""
        view = memoryview(buffer).cast("B")
        start = self._place
        end = max(start, min(start + len(view), self._size))
        view[:] = _read_at(self._file, end - start, start).ljust(len(view), b"\0")
        for number in _pages(start, min(end, self._committed)):
            page = self._changed.get(number)
            if page is not None:
                first = number * _PAGE
                low, high = max(start, first), min(end, first + len(page))
                view[low - start : high - start] = page[low - first : high - first]
        self._place = end
        return end - start

    def write(self, content: Any) -> int:
        """Write bytes: to the file after its committed end, into memory before it."""
        view = memoryview(content).cast("B")
        start, end = self._place, self._place + len(view)
        replaced = max(0, min(end, self._committed) - start)
        self._replace_part(start, view[:replaced])
        _write_at(self._file, view[replaced:], start + replaced)
        self._place = end
        if start < end:
            self._size = max(self._size, end)
        return len(view)

    def truncate(self, size: int) -> int:
        """Set the size; bytes that are added are 0 until they are written."""
        if size < self._size:
            self._replace_part(size, bytes(max(0, min(self._size, self._committed) - size)))
            if self._size > self._committed:
                self._file.truncate(max(size, self._committed))
        self._size = size
        return size

    def flush(self) -> None:
        """Do nothing: only `commit` makes changes permanent."""

    def _replace_part(self, start: int, content: bytes | memoryview) -> None:
        """Replace committed bytes, in memory."""
        end = start + len(content)
        for number in _pages(start, end):
            page, first = self._page(number), number * _PAGE
            low, high = max(start, first), min(end, first + len(page))
            page[low - first : high - first] = content[low - start : high - start]

    def _page(self, number: int) -> bytearray:
        if number not in self._changed:
            first = number * _PAGE
            size = min(_PAGE, self._committed - first)
            self._changed[number] = bytearray(_read_at(self._file, size, first))
        return self._changed[number]


def begin_journal(path: Path, journal: Path) -> None:
    """Commit a file as it is, for the first time."""
    _write_journal(journal, path.stat().st_size, {})


def recover(path: Path, journal: Path) -> None:
    """Restore the last commit of a file whose writer may have been killed.

    Raises:
        ValueError: The file or the journal is not what a writer left.
    """
    with journal.open("rb") as file:
        header = json.loads(file.readline())
        pages = {number: file.read(size) for number, size in header["pages"]}
    with path.open("r+b", buffering=0) as changed, _locked(changed, path):
        if _size(changed) < header["size"]:
            raise ValueError(f"{_size(changed)} bytes, expected at least {header['size']}")
        _replace(changed, header["size"], pages)


def _size(file: FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _pages(start: int, end: int) -> range:
    """Return the numbers of the pages that a range of bytes touches; none if it is empty."""
    return range(start // _PAGE, -(-end // _PAGE)) if start < end else range(0)


def _write_journal(path: Path, size: int, pages: Mapping[int, bytes | bytearray]) -> None:
    """Write a journal: the size of the file, and the content of changed pages."""
    header = {"size": size, "pages": [(number, len(page)) for number, page in pages.items()]}
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.writelines(pages.values())


def _replace(file: FileIO, size: int, pages: Mapping[int, bytes | bytearray]) -> None:
    for number, page in pages.items():
        _write_at(file, memoryview(page), number * _PAGE)
    file.truncate(size)
    os.fsync(file.fileno())


def _read_at(file: FileIO, size: int, place: int) -> bytes:
    """Read so many bytes, or as many as there are; the system may return fewer at a time."""
    file.seek(place)
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_at(file: FileIO, view: memoryview, place: int) -> None:
    """Write all bytes of a view; the system may write fewer at a time."""
    file.seek(place)
    while len(view):
        view = view[file.write(view) :]


@contextmanager
def _locked(file: FileIO, path: Path) -> Iterator[None]:
    """Hold the lock that HDF5 takes for whoever opens the file; wait for readers to close it."""
    if fcntl is None:
        yield
        return
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise OutputError(
                    f"{path} has been open elsewhere for {_PATIENCE:.0f} seconds ({error}): close "
                    "it there, and run the same command with --resume"
                ) from None
            time.sleep(0.05)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)

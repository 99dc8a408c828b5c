"""A file that is changed all at once or not at all, whatever stops the process in between.

HDF5 keeps an index that it changes in place, here and there: a process that is killed while it does
so leaves a file that cannot be read any more, with the work of hours in it. So it writes through a
`JournaledFile` instead:

* what comes behind the end of the file is written there at once, where nobody looks yet;
* what replaces something waits in memory, and is seen by nobody but the writer;
* `commit` writes what waits to a journal, which takes the place of the journal before it in one
  step, and only then to the file.

The journal stays. After a kill, `settle` does once more what it says, which changes nothing where
that was done already, and cuts off what came behind: the file is as the last commit left it.

All of this is for one writer: `take_alone` keeps a second process away for as long as the first one
lives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from elmo.errors import OutputError, OutputExistsError

try:
    import fcntl
except ImportError:  # not on every system; there, who reads a file while it changes sees a mixture
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
"""Who holds it is the only one to write; the system lets go of it when a process ends, however."""
_PAGE = 4096
"""Bytes that are replaced together."""
_PATIENCE = 60.0
"""Seconds that a writer waits for others who read the file this moment."""


def take_alone(folder: Path, output: Path) -> FileLock:
    """Be the only process that writes an output, until the lock is released or the process ends.

    Args:
        folder: Where the lock is; it exists.
        output: What is written, to name it.
    """
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise OutputExistsError(
            f"another elmo process is writing {output}: wait for it, or name another output"
        ) from None
    return lock


def refuse_if_taken(folder: Path, output: Path) -> None:
    """Fail if another process is writing an output; see `take_alone`."""
    if (folder / LOCK_FILE).is_file():
        take_alone(folder, output).release()


class JournaledFile:
    """A file open for changes, with the methods that h5py wants of a Python object.

    Args:
        path: The file; it exists.
        journal: Where its journal is kept.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self._path = path
        self._journal = journal
        self._file = path.open("r+b", buffering=0)
        self._committed = _size(self._file)
        self._size = self._committed
        self._place = 0
        self._changed: dict[int, bytearray] = {}
        """Pages of what is committed, as they are to become, by their numbers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the file as the last commit left it."""
        self._file.truncate(self._committed)
        self._file.close()

    def reserve(self, size: int) -> None:
        """Make sure that so many bytes can be added: a full disk shows before anything else."""
        if hasattr(os, "posix_fallocate"):  # not on every system; then a full disk shows later
            os.posix_fallocate(self._file.fileno(), self._committed, size)

    def commit(self) -> None:
        """Make all changes lasting."""
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
        """Go to a place."""
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}
        self._place = origins[whence] + offset
        return self._place

    def tell(self) -> int:
        """Give the place where reading and writing go on."""
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all there are."""
        content = bytearray(max(0, self._size - self._place) if size < 0 else size)
        return bytes(content[: self.readinto(content)])

    def readinto(self, buffer: Any) -> int:
        """Read as many bytes as a buffer takes; those behind the end are 0."""
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
        """Write bytes: at once behind the end, into memory where they replace something."""
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
        """Set where the file ends; bytes that are added later are 0 until they are written."""
        if size < self._size:
            self._replace_part(size, bytes(max(0, min(self._size, self._committed) - size)))
            if self._size > self._committed:
                self._file.truncate(max(size, self._committed))
        self._size = size
        return size

    def flush(self) -> None:
        """Do nothing: `commit` decides when changes are lasting."""

    def _replace_part(self, start: int, content: bytes | memoryview) -> None:
        """Change bytes of what is committed, in memory."""
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
    """Take a file as it is for its first commit."""
    _write_journal(journal, path.stat().st_size, {})


def settle(path: Path, journal: Path) -> None:
    """Put a file, whose writer may have been killed, in the state of the last commit.

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
    """Give the numbers of the pages that have a byte of a range; none if it is empty."""
    return range(start // _PAGE, -(-end // _PAGE)) if start < end else range(0)


def _write_journal(path: Path, size: int, pages: Mapping[int, bytes | bytearray]) -> None:
    """Write down how long a file is to be, and what its pages hold."""
    header = {"size": size, "pages": [(number, len(page)) for number, page in pages.items()]}
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.writelines(pages.values())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _replace(file: FileIO, size: int, pages: Mapping[int, bytes | bytearray]) -> None:
    for number, page in pages.items():
        _write_at(file, memoryview(page), number * _PAGE)
    file.truncate(size)
    os.fsync(file.fileno())


def _read_at(file: FileIO, size: int, place: int) -> bytes:
    """Read so many bytes, or as many as there are; the system may give them in several parts."""
    file.seek(place)
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_at(file: FileIO, view: memoryview, place: int) -> None:
    """Write all bytes of a view; the system may take them in several parts."""
    file.seek(place)
    while len(view):
        view = view[file.write(view) :]


@contextmanager
def _locked(file: FileIO, path: Path) -> Iterator[None]:
    """Keep everyone who opens a file by HDF5 away from it.

    Who looks into a file while it is written locks it for as long as that takes. The work of hours
    should not end there.
    """
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

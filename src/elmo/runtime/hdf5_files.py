"""HDF5 files: read when they may lie, written when the disk may be full.

A dataset of a few bytes may claim any shape: what was never written reads as a fill value, and what
is compressed may grow a thousandfold. Its values may also lie in another file. All of that is known
from the header, and refused before memory is taken.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from elmo.errors import WeightsError
from elmo.runtime.files import replacing
from elmo.runtime.input_files import damage_errors, require_file

HIGHEST_RATIO = 200
"""How many times larger than in the file values may be: weights hardly shrink at all."""
_SMALL = 2**24
"""Bytes that values may have whatever the ratio: zeros shrink a lot."""


# --- reading --------------------------------------------------------------------------------------


@contextmanager
def reading_hdf5(path: Path, what: str = "HDF5 file") -> Iterator[h5py.File]:
    """Open a regular HDF5 file; whatever h5py raises in the block becomes a `WeightsError`.

    Args:
        path: The file.
        what: What it is, for messages.
    """
    require_file(path, what)
    with damage_errors(path, "HDF5 file", WeightsError), h5py.File(path, "r") as file:
        yield file


def dataset_of(path: Path, file: h5py.File, name: str, kinds: str = "f") -> h5py.Dataset:
    """Return a dataset whose values are in the file itself and can be read without harm.

    Args:
        path: Path of the file, for messages.
        file: The open file.
        name: Name of the dataset.
        kinds: Kinds of NumPy types that are expected: `f` for floating-point numbers.
    """
    link = file.get(name, getlink=True)
    dataset = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(dataset, h5py.Dataset):
        raise WeightsError(f"{path}: '{name}' is no dataset of this file; get the file again")
    if dataset.is_virtual or dataset.external:
        raise WeightsError(
            f"{path}: the values of '{name}' are in other files, which are not read; expected all "
            "values in this one"
        )
    if dataset.dtype.kind not in kinds or dataset.shape is None:
        raise WeightsError(
            f"{path}: '{name}' has values of the type {dataset.dtype}, expected floating-point "
            "numbers"
        )
    _require_stored(path, name, dataset)
    return dataset


def _require_stored(path: Path, name: str, dataset: h5py.Dataset) -> None:
    """Raise an error if a dataset is far larger than what the file has of it."""
    itemsize = dataset.dtype.itemsize
    claimed = math.prod(dataset.shape) * itemsize
    chunk = math.prod(dataset.chunks or (1,)) * itemsize  # is unpacked as a whole
    stored = dataset.id.get_storage_size()
    if max(claimed, chunk) > max(_SMALL, HIGHEST_RATIO * stored):
        raise WeightsError(
            f"{path}: '{name}' claims the shape {dataset.shape}, {claimed:,} bytes, but the file "
            f"has {stored:,} bytes of it; it is damaged or was never filled"
        )


def texts_of(path: Path, name: str, dataset: h5py.Dataset, most: int) -> list[str]:
    """Read the texts of a dataset as h5py writes them: neither compressed nor in chunks.

    The HDF5 library loops forever over damaged texts, so they are read without it. The dataset has
    a reference to each; they lie in heaps, blocks with a header of 16 bytes and objects one after
    another, each with such a header ("Global Heap" in the HDF5 File Format Specification).

    Args:
        path: The file.
        name: Name of the dataset, for messages.
        dataset: Texts of variable length, of one axis.
        most: Bytes that they may have together; many references may be to one long text.
    """
    offset = dataset.id.get_offset()
    if not h5py.check_string_dtype(dataset.dtype) or dataset.ndim != 1 or offset is None:
        raise WeightsError(
            f"{path}: '{name}' has type {dataset.dtype} and shape {dataset.shape}, expected a list "
            "of texts, neither compressed nor in chunks"
        )
    references = np.memmap(path, _REFERENCE, mode="r", offset=offset, shape=dataset.shape)
    size = int(references["length"].sum(dtype=np.uint64))
    if size > most:
        raise WeightsError(
            f"{path}: the texts of '{name}' have {size:,} bytes, expected at most {most:,}; the "
            "file is damaged"
        )
    order = np.argsort(references["heap"], kind="stable")
    texts = [""] * len(references)
    base = dataset.file.userblock_size
    with path.open("rb") as file:
        for heap, group in groupby(order.tolist(), key=references["heap"].tolist().__getitem__):
            places = list(group)
            objects = _heap(file, base + heap) if heap else {}
            for place, (length, _, index) in zip(places, references[places].tolist(), strict=True):
                content = objects.get(index, b"")
                if len(content) < length:
                    raise WeightsError(
                        f"{path}: text {place} of '{name}' is damaged; make it again"
                    )
                texts[place] = content[:length].decode()
    return texts


def _heap(file: IO[bytes], address: int) -> dict[int, bytes]:
    """Read the objects of a heap by their numbers; number 0 is the space that is left."""
    file.seek(address)
    signature, size = _HEAP.unpack(file.read(_HEAP.size))
    content = file.read(min(size, _LARGEST_HEAP) - _HEAP.size) if signature == b"GCOL" else b""
    objects: dict[int, bytes] = {}
    place = 0
    while place + _OBJECT.size <= len(content):
        index, length = _OBJECT.unpack_from(content, place)
        if not index:
            break
        place += _OBJECT.size
        objects[index] = content[place : place + length]
        place += -(-length // 8) * 8
    return objects


_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("object", "<u4")])
_HEAP = struct.Struct("<4s4xQ")
_OBJECT = struct.Struct("<H6xQ")
_LARGEST_HEAP = 2**26
"""Bytes; each has 4,096, unless one text is larger."""


# --- writing --------------------------------------------------------------------------------------


@contextmanager
def writing_hdf5(path: Path) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """Write an HDF5 file atomically; see `files.replacing`.

    The HDF5 library does not survive a disk that is full: it crashes when the file is closed. So
    it never learns of it: `_PatientFile` remembers the error, which is raised at the end of the
    block.

    Yields:
        The file, and a function that raises the error at once, for blocks that take long.
    """
    with replacing(path) as temporary, temporary.open("w+b", buffering=0) as raw:
        patient = _PatientFile(raw)
        with h5py.File(patient, "w") as file:
            yield file, patient.require_written
        patient.require_written()


class _PatientFile:
    """A new file, with the methods that h5py calls; after an error, changes are ignored.

    Args:
        file: The file, without a buffer.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._error: OSError | None = None

    def require_written(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all that are left."""
        return self._file.read(size)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, with zeros where nothing was written; return its size."""
        view = memoryview(buffer).cast("B")
        content = self._file.read(len(view))
        view[:] = content.ljust(len(view), b"\0")
        return len(view)

    def write(self, content: Any) -> int:
        """Write all bytes, unless there was an error; return how many they are."""
        view = memoryview(content).cast("B")
        rest = view
        while rest and self._error is None:
            try:
                rest = rest[self._file.write(rest) :]
            except OSError as error:
                self._error = error
        return len(view)

    def truncate(self, size: int) -> int:
        """Set the size, unless there was an error; return it."""
        if self._error is None:
            try:
                self._file.truncate(size)
            except OSError as error:
                self._error = error
        return size

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

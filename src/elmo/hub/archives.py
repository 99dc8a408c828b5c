"""Zip and tar archives: only the files of a model, and nothing that an archive can do.

An archive decides nothing about where its files go: each is written under its bare name into one
folder. Paths that lead out of it, links, and files far larger than they should be are refused.
"""

from __future__ import annotations

import atexit
import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from elmo.errors import MissingFileError, WeightsError
from elmo.runtime.files import output_errors
from elmo.runtime.input_files import damage_errors, require_file
from elmo.weights.formats import find_model, known_files, patterns

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MOST_MEMBERS = 10_000
LARGEST_CONTENT = 16 * 2**30
"""Bytes that all wanted files of an archive may have together."""
HIGHEST_RATIO = 200
"""How many times larger than in the archive a file may be: weights hardly shrink at all."""

_CHUNK = 2**20
_SMALL = 2**24  # lists and texts may shrink a lot
_ABOUT_MODELS = ("meta.json", "LICENSE*")
_LARGEST_HEADER = 2**20
"""Bytes of what a tar archive says of a member; `tarfile` reads as many as it claims."""
_DECOMPRESSORS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
"""By the first bytes of a file."""


@dataclass(frozen=True)
class _Member:
    """A file of an archive."""

    name: str
    size: int
    packed_size: int
    problem: str
    open: Callable[[], IO[bytes] | None]


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive by its name."""
    return path.name.lower().endswith(ENDINGS)


def extract_model(archive: Path, folder: Path) -> None:
    """Unpack the files of a model into a new folder, all of them or none; see `extract`."""
    extract(archive, folder, (*patterns(), *_ABOUT_MODELS), check=find_model)


def unpacked(archive: Path) -> Path:
    """Return a folder with the model of an archive; it is deleted when this process ends."""
    return _unpacked(archive.resolve(), archive.stat().st_mtime_ns)


@cache
def _unpacked(archive: Path, modified: int) -> Path:
    temporary = tempfile.TemporaryDirectory(prefix="elmo-")
    atexit.register(temporary.cleanup)
    folder = Path(temporary.name) / "model"
    extract_model(archive, folder)
    return folder


def extract(
    archive: Path,
    folder: Path,
    wanted: Sequence[str],
    check: Callable[[Path], object] = lambda folder: None,
) -> list[str]:
    """Unpack the wanted files of an archive into a new folder, all of them or none.

    Args:
        archive: A zip archive, or a tar archive by any other ending.
        folder: Where to; it must not exist.
        wanted: Patterns of bare names, such as `*.hdf5`.
        check: Called with the folder before it gets its name; raises `MissingFileError` if the
            files are no model.

    Returns:
        The names of the files in the folder.
    """
    with output_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            with _opened(archive) as found:
                members = _choose(archive, found, wanted)
                for name, member in members.items():
                    _write(archive, member, made / name)
            try:
                check(made)
            except MissingFileError:
                raise _no_model(archive, found) from None
            made.chmod(0o755)
            made.replace(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return sorted(members)


@contextmanager
def _opened(archive: Path) -> Iterator[list[_Member]]:
    """List the files of an archive, which is open for as long as the block lasts."""
    require_file(archive, "archive")
    with ExitStack() as stack:
        with damage_errors(archive, "archive", WeightsError):
            members = _listed(archive, stack)
        yield members


def _listed(archive: Path, stack: ExitStack) -> list[_Member]:
    """List the files of an archive, which stays open until a stack is closed."""
    if archive.suffix.lower() == ".zip":
        zipped = stack.enter_context(zipfile.ZipFile(archive))
        return [
            _Member(
                member.filename,
                member.file_size,
                member.compress_size,
                "is a link"
                if stat.S_ISLNK(member.external_attr >> 16)
                else "needs a password" * (member.flag_bits & 1),
                partial(zipped.open, member),
            )
            for member in zipped.infolist()
            if not member.is_dir()
        ]
    with archive.open("rb") as file:
        magic = file.read(6)
    opener = next((o for start, o in _DECOMPRESSORS.items() if magic.startswith(start)), None)
    raw = stack.enter_context(opener(archive) if opener else archive.open("rb"))
    bounded: Any = _BoundedReads(raw)  # has what tarfile asks of a file to read
    tarred = stack.enter_context(tarfile.open(fileobj=bounded, mode="r:"))
    members = _tar_members(archive, tarred)
    packed = archive.stat().st_size / max(sum(member.size for member in members), 1)
    return [
        _Member(
            member.name,
            member.size,
            int(member.size * packed),
            "is a link" * (not member.isfile()),
            partial(tarred.extractfile, member),
        )
        for member in members
    ]


def _tar_members(archive: Path, tarred: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """List a tar archive; a member that grows too much is refused before it is unpacked."""
    limit = max(_SMALL, HIGHEST_RATIO * archive.stat().st_size)
    members: list[tarfile.TarInfo] = []
    total = 0
    for member in tarred:
        total += member.size
        if total > limit or len(members) > MOST_MEMBERS:
            raise WeightsError(
                f"{archive} has {archive.stat().st_size:,} bytes, but claims to grow to {total:,} "
                f"or more, in {len(members) + 1:,} files: refused"
            )
        if not member.isdir():
            members.append(member)
    return members


class _BoundedReads:
    """A file of which only so many bytes are read at once.

    Args:
        file: The file, unpacked on the way.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes."""
        if not 0 <= size <= _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header claims {size:,} bytes")
        return self._file.read(size)


def _choose(archive: Path, listed: list[_Member], wanted: Sequence[str]) -> dict[str, _Member]:
    """Choose the wanted files by their bare names; every file of the archive is checked."""
    if len(listed) > MOST_MEMBERS:
        raise WeightsError(f"{archive} lists {len(listed):,} files: that is no model")
    chosen: dict[str, _Member] = {}
    for member in listed:
        _refuse_tricks(archive, member)
        name = PurePosixPath(member.name).name
        if not any(fnmatch(name, pattern) for pattern in wanted):
            continue
        if name in chosen:
            raise WeightsError(
                f"{archive} has {chosen[name].name!r} and {member.name!r}: it is unclear which of "
                "them belongs to the model"
            )
        chosen[name] = member
    if not chosen:
        raise _no_model(archive, listed)
    total = sum(member.size for member in chosen.values())
    if total > LARGEST_CONTENT:
        raise WeightsError(f"{archive} would unpack to {total:,} bytes: refused")
    return chosen


def _no_model(archive: Path, listed: list[_Member]) -> MissingFileError:
    names = ", ".join(member.name for member in listed[:10]) or "nothing"
    return MissingFileError(
        f"{archive} holds no model of a known format: found {names}; expected {known_files()}"
    )


def _refuse_tricks(archive: Path, member: _Member) -> None:
    name = member.name
    parts = PurePosixPath(name).parts
    if name.startswith(("/", "\\")) or ".." in parts or "\\" in name or ":" in name:
        raise WeightsError(f"{archive} has a file {name!r} that leads out of it: refused")
    if member.problem:
        raise WeightsError(f"{archive}: {name!r} {member.problem}: refused")
    if member.size > max(_SMALL, HIGHEST_RATIO * member.packed_size):
        raise WeightsError(
            f"{archive}: {name!r} claims to grow from {member.packed_size:,} to "
            f"{member.size:,} bytes: refused"
        )


def _write(archive: Path, member: _Member, target: Path) -> None:
    written = 0
    with target.open("xb") as file:
        for chunk in _chunks(archive, member):
            written += len(chunk)
            if written > member.size:
                raise WeightsError(f"{archive}: {member.name!r} is larger than it says")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _chunks(archive: Path, member: _Member) -> Iterator[bytes]:
    """Yield the content of a file of an archive; what is damaged there is no matter of the disk."""
    with ExitStack() as stack:
        with damage_errors(archive, "archive", WeightsError):
            source = member.open()
            assert source is not None  # a plain file has content
            stack.enter_context(source)
        while True:
            with damage_errors(archive, "archive", WeightsError):
                chunk = source.read(_CHUNK)
            if not chunk:
                return
            yield chunk

"""Zip archives from elsewhere: only the files that are wanted, and nothing that an archive can do.

An archive decides nothing about where its files go: each is written under its bare name into one
folder, and what claims to be a path out of it, a link, or far larger than it should be, is refused.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from elmo.errors import MissingFileError, OutputError, WeightsError

MOST_MEMBERS = 10_000
LARGEST_CONTENT = 16 * 2**30
"""Bytes that all wanted files of an archive may have together."""
HIGHEST_RATIO = 200
"""How many times larger than in the archive a file may be: weights hardly shrink at all."""

_CHUNK = 2**20
_SMALL = 2**24  # lists and texts may shrink a lot


def extract(archive: Path, folder: Path, wanted: Sequence[str]) -> list[str]:
    """Unpack the wanted files of a zip archive into a new folder, all of them or none.

    Args:
        archive: The zip file.
        folder: Where to; it must not exist.
        wanted: Patterns of bare names, such as `*.hdf5`.

    Returns:
        The names of the files in the folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _members(archive, opened, wanted)
            for name, member in members.items():
                _write(archive, opened, member, made / name)
        made.chmod(0o755)
        made.replace(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise WeightsError(f"{archive} is not a readable zip archive: {error}") from None
    except OSError as error:
        if isinstance(error, MissingFileError):
            raise
        raise OutputError(f"cannot unpack {archive} to {folder}: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return sorted(members)


def _members(
    archive: Path, opened: zipfile.ZipFile, wanted: Sequence[str]
) -> dict[str, zipfile.ZipInfo]:
    """Choose what is wanted, after a look at everything that an archive says of itself."""
    listed = opened.infolist()
    if len(listed) > MOST_MEMBERS:
        raise WeightsError(f"{archive} lists {len(listed):,} files: that is no model")
    chosen: dict[str, zipfile.ZipInfo] = {}
    for member in listed:
        _refuse_tricks(archive, member)
        name = PurePosixPath(member.filename).name
        if member.is_dir() or not any(fnmatch(name, pattern) for pattern in wanted):
            continue
        if name in chosen:
            raise WeightsError(
                f"{archive} has {chosen[name].filename!r} and {member.filename!r}: which of them "
                "is the model's cannot be told"
            )
        chosen[name] = member
    if not chosen:
        names = ", ".join(member.filename for member in listed[:10]) or "nothing"
        raise MissingFileError(
            f"{archive} holds no model: found {names}; expected {', '.join(wanted)}"
        )
    total = sum(member.file_size for member in chosen.values())
    if total > LARGEST_CONTENT:
        raise WeightsError(f"{archive} would unpack to {total:,} bytes: refused")
    return chosen


def _refuse_tricks(archive: Path, member: zipfile.ZipInfo) -> None:
    name = member.filename
    parts = PurePosixPath(name).parts
    if name.startswith(("/", "\\")) or ".." in parts or "\\" in name or ":" in name:
        raise WeightsError(f"{archive} has a file {name!r} that leads out of it: refused")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise WeightsError(f"{archive} has a link, {name!r}: refused")
    if member.flag_bits & 1:
        raise WeightsError(f"{archive}: {name!r} needs a password")
    if member.file_size > max(_SMALL, HIGHEST_RATIO * member.compress_size):
        raise WeightsError(
            f"{archive}: {name!r} claims to grow from {member.compress_size:,} to "
            f"{member.file_size:,} bytes: refused"
        )


def _write(archive: Path, opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    written = 0
    with opened.open(member) as source, target.open("xb") as file:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > member.file_size:
                raise WeightsError(f"{archive}: {member.filename!r} is larger than it says")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())

"""Files on disk: written atomically, locked, hashed; and the cache folder.

What others wrote is read by `input_files`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from elmo.errors import (
    ElmoError,
    OutputExistsError,
    WriteError,
    reason_of,
)

if TYPE_CHECKING:  # filelock imports asyncio; help texts and most commands need no lock
    from filelock import FileLock

LOCK_FILE = ".lock"
"""Name of the lock of a folder; the system releases it when its process ends, however that is."""
PARTIAL_FILES = ".*.partial"
"""Pattern of temporary files; see `remove_partial_files`."""


# --- atomic writes ------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path, advice: str = "", folder: Path | None = None) -> Iterator[Path]:
    """Write a file atomically: readers see the old file or the whole new one, even after a crash.

    Args:
        path: File to write; one that exists is replaced.
        advice: What the user can do if it cannot be written; see `output_errors`.
        folder: Of the temporary file, on the same file system; that of `path` by default.

    Yields:
        The path of a temporary file for the block to write. It is flushed to disk and renamed after
        the block, or deleted if the block fails.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # a device or a pipe
        with output_errors(path, advice):
            yield path
        return
    temporary = (folder or path.parent) / f".{path.name}.{os.urandom(4).hex()}.partial"
    with output_errors(path, advice):
        try:
            yield temporary
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8; see `replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def remove_partial_files(folder: Path) -> None:
    """Delete the temporary files that killed processes left in a folder; nobody may write there."""
    for leftover in folder.rglob(PARTIAL_FILES):
        leftover.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, without which a rename may be undone by a power cut."""
    if os.name != "posix":  # folders cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def output_errors(path: Path | str, advice: str = "") -> Iterator[None]:
    """Raise `WriteError` in place of errors of the operating system while a file is written.

    Args:
        path: What is written, as the message names it.
        advice: What the user can do; it is appended to the reason, which may come from a file
            inside of `path` that was written in such a block of its own.
    """
    ending = f"; {advice}" if advice else ""
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough, as in `elmo info | head`
        raise
    except WriteError as error:
        raise WriteError(f"{error}{ending}") from error
    except (OSError, SafetensorError) as error:
        if isinstance(error, ElmoError):
            raise
        raise WriteError(f"cannot write {path}: {reason_of(error)}{ending}") from error


# --- locks --------------------------------------------------------------------------------------


def try_lock(path: Path) -> FileLock | None:
    """Lock a file between processes; return the lock, or None if another process holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def lock_output(folder: Path, output: Path) -> FileLock:
    """Lock an output that only one process may write, until the lock is released.

    Args:
        folder: Where the lock file is; it exists.
        output: What is written, as the message names it.
    """
    lock = try_lock(folder / LOCK_FILE)
    if lock is None:
        raise OutputExistsError(
            f"another elmo process is writing {output}: wait for it, or name another output"
        )
    return lock


def refuse_if_locked(folder: Path, output: Path) -> None:
    """Raise if another process is writing an output; see `lock_output`."""
    if (folder / LOCK_FILE).is_file():
        lock_output(folder, output).release()


@contextmanager
def locked(path: Path, on_wait: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold a lock in a block; wait for as long as another process holds it.

    Args:
        path: The lock file.
        on_wait: Called once if it is necessary to wait.
    """
    lock = try_lock(path)
    if lock is None:
        from filelock import FileLock

        on_wait()
        lock = FileLock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


# --- the cache folder, checksums ----------------------------------------------------------------


def cache_folder(*names: str) -> Path:
    """Return a folder for what can be downloaded or computed again; it need not exist.

    `ELMO_CACHE` names it; else it is `elmo-torch` in the system's cache folder.

    Args:
        names: Folders inside of it.
    """
    if chosen := os.environ.get("ELMO_CACHE"):
        return Path(chosen).expanduser().joinpath(*names)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "elmo-torch", *names)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

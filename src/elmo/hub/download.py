"""One file from the network to the disk: resumed, checked, locked, and whole or not at all.

A complete file has `NAME.sha256.json` beside it. Where nobody published a checksum, that record is
made when the file first arrives, and enforced whenever it arrives again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path

from elmo.errors import MissingFileError, WeightsError
from elmo.hub.transfer import (
    FetchOptions,
    RemoteFile,
    by_hand,
    forget_partial,
    part_path,
    read_record,
    receive,
    tell,
    write_record,
)
from elmo.runtime.files import locked, output_errors, sha256_of

RECORD_SUFFIX = ".sha256.json"


def fetch(file: RemoteFile, target: Path, options: FetchOptions | None = None) -> Path:
    """Have a file at a place on the disk, from the network if it is not there.

    Args:
        file: What.
        target: Where to. A file that a person put there is taken as if it had been downloaded.
        options: How.

    Returns:
        `target`.

    Raises:
        MissingFileError: If there is no such file, or the network may not be asked.
        DownloadError: If the network fails again and again; what arrived is kept.
        WeightsError: If what arrived is not the expected file; it is deleted.
        OutputError: If the disk is full.
    """
    options = options or FetchOptions()
    if target.is_file() and not options.force:
        _check_present(file, target)
        return target
    if options.offline:
        raise MissingFileError(
            f"{target.name} is not here, and the network may not be asked. {by_hand(file, target)}"
        )
    with output_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with download_lock(target, options):
            if target.is_file() and not options.force:  # another process was quicker
                _check_present(file, target)
            else:
                _download(file, target, options)
    return target


def record_path(target: Path) -> Path:
    """Say where the checksum of a file is kept."""
    return target.with_name(f"{target.name}{RECORD_SUFFIX}")


def _check_present(file: RemoteFile, target: Path) -> None:
    """Check a file that is there; quickly if it is the one that was checked before."""
    status = target.stat()
    record = read_record(record_path(target))
    expected = file.sha256 or record.get("sha256")
    same = {"size": status.st_size, "modified": status.st_mtime_ns}
    if expected and record.items() >= {**same, "sha256": expected}.items():
        return
    found = sha256_of(target)
    if expected and found != expected:
        raise WeightsError(
            f"{target} has the sha256 {found}, expected {expected}: it was damaged or exchanged. "
            "Delete it, and it will be downloaded anew"
        )
    with suppress(OSError):  # a folder that is shared and not ours: checked every time
        _remember(file, target, found)


def _remember(file: RemoteFile, target: Path, digest: str) -> None:
    status = target.stat()
    write_record(
        record_path(target),
        {
            "address": file.address,
            "sha256": digest,
            "published": file.sha256 is not None,
            "size": status.st_size,
            "modified": status.st_mtime_ns,
        },
    )


def download_lock(target: Path, options: FetchOptions) -> AbstractContextManager[None]:
    """Lock a file or folder that is downloaded; wait if another process is at work on it."""

    def announce() -> None:
        if options.show_progress:
            tell(f"{target}: another process downloads it; waiting")

    return locked(target.with_name(f".{target.name}.lock"), announce)


def _download(file: RemoteFile, target: Path, options: FetchOptions) -> None:
    digest = receive(file, target, options)
    _require_checksum(file, target, digest)
    part_path(target).replace(target)
    forget_partial(target)
    _remember(file, target, digest)


def _require_checksum(file: RemoteFile, target: Path, digest: str) -> None:
    expected = file.sha256 or read_record(record_path(target)).get("sha256")
    if expected is None or digest == expected:
        return
    forget_partial(target)
    advice = (
        "It is not the file that was published"
        if file.sha256
        else "It is not the file that came from there the first time. If you know that it was "
        f"exchanged for a good reason, delete {record_path(target)}"
    )
    raise WeightsError(
        f"{file.address} gave a file with the sha256 {digest}, expected {expected}; it was "
        f"deleted. {advice}"
    )

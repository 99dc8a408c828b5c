"""One file from the network to the disk: resumed, checked, locked, and whole or not at all.

While a file arrives it is `NAME.part`, with `NAME.part.json` for what the server said of it: a
later try goes on in its middle, but only if the server still has the same file. A complete file has
`NAME.sha256.json` beside it. Where nobody published a checksum, that record is made when the file
first arrives, and enforced whenever it arrives again.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import urlsplit

from tqdm.auto import tqdm

from elmo.errors import DownloadError, ElmoError, MissingFileError, OutputError, WeightsError
from elmo.runtime.files import locked, output_errors, sha256_of, write_text
from elmo.runtime.input_files import read_json, require_file

RECORD_SUFFIX = ".sha256.json"
LARGEST = 8 * 2**30
"""Bytes that are read of a file of unknown size."""

_CHUNK = 2**18
_GONE = {
    401: "asks for a password",
    403: "refuses it",
    404: "has no such file",
    410: "has it no more",
}
_LENGTH = re.compile(r"[0-9]{1,18}")
_TOO_FAR = 416  # the range that was asked for begins behind the end of the file
_BUSY = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that can be downloaded."""

    address: str
    size: int | None = None
    """Bytes, if they are known."""
    sha256: str | None = None
    """Published checksum, if there is one."""


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How the network is used."""

    offline: bool = False
    """Never use it."""
    force: bool = False
    """Download even if the file is there."""
    timeout: float = 30.0
    """Seconds without a byte until a connection counts as dead."""
    attempts: int = 4
    """Tries in a row that bring nothing, until it gives up."""
    wait: float = 1.0
    """Seconds before the second try; twice as long before each further one."""
    show_progress: bool = True


def fetch(file: RemoteFile, target: Path, options: FetchOptions | None = None) -> Path:
    """Download a file, unless it is there.

    Args:
        file: What.
        target: Where to. A file that the user put there is taken as if it had been downloaded.
        options: How.

    Returns:
        `target`.

    Raises:
        MissingFileError: If there is no such file, or the network may not be used.
        DownloadError: If the network fails again and again; what arrived is kept.
        WeightsError: If what arrived is not the expected file; it is deleted.
        OutputError: If the disk is full.
    """
    options = options or FetchOptions()
    for path in (target, part_path(target), _notes_path(target), record_path(target)):
        if path.exists():
            require_file(path)  # a pipe or a device there would never end
    if target.is_file() and not options.force:
        _check_present(file, target)
        return target
    if options.offline:
        raise MissingFileError(
            f"{target.name} is not here, and the network may not be used. {by_hand(file, target)}"
        )
    with output_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with download_lock(target, options):
            if target.is_file() and not options.force:  # another process was quicker
                _check_present(file, target)
            else:
                digest = _receive(file, target, options)
                _require_checksum(file, target, digest)
                part_path(target).replace(target)
                _forget_partial(target)
                _remember(file, target, digest)
    return target


def by_hand(file: RemoteFile, target: Path) -> str:
    """Return what a user without a network can do."""
    return f"Download {file.address} elsewhere and place it at {target}"


def download_lock(target: Path, options: FetchOptions) -> AbstractContextManager[None]:
    """Lock a file or folder; wait while another process downloads it."""

    def show_waiting() -> None:
        if options.show_progress:
            _show(f"{target}: another process downloads it; waiting")

    return locked(target.with_name(f".{target.name}.lock"), show_waiting)


def _show(text: str) -> None:
    tqdm.write(text, file=sys.stderr)  # above any progress bar


# --- checksums ------------------------------------------------------------------------------------


def record_path(target: Path) -> Path:
    """Return where the checksum of a file is kept."""
    return target.with_name(f"{target.name}{RECORD_SUFFIX}")


def _check_present(file: RemoteFile, target: Path) -> None:
    """Check a file that is there; quickly if it is the one that was checked before."""
    status = target.stat()
    record = _read_record(record_path(target))
    expected = file.sha256 or record.get("sha256")
    same = {"size": status.st_size, "modified": status.st_mtime_ns}
    if expected and record.items() >= {**same, "sha256": expected}.items():
        return
    found = sha256_of(target)
    if expected and found != expected:
        raise WeightsError(
            f"{target} has the sha256 {found}, expected {expected}: it was damaged or exchanged. "
            "Delete it, and it will be downloaded again"
        )
    with suppress(OSError):  # a folder that is shared and not ours: checked every time
        _remember(file, target, found)


def _require_checksum(file: RemoteFile, target: Path, digest: str) -> None:
    expected = file.sha256 or _read_record(record_path(target)).get("sha256")
    if expected is None or digest == expected:
        return
    _forget_partial(target)
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


def _remember(file: RemoteFile, target: Path, digest: str) -> None:
    status = target.stat()
    content = {
        "address": file.address,
        "sha256": digest,
        "published": file.sha256 is not None,
        "size": status.st_size,
        "modified": status.st_mtime_ns,
    }
    _write_record(record_path(target), content)


def _read_record(path: Path) -> dict[str, Any]:
    """Read a small JSON object; an empty one if there is none or it is damaged."""
    try:
        return read_json(path)
    except (OSError, ElmoError):
        return {}


def _write_record(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")


# --- the bytes that have arrived ------------------------------------------------------------------


def part_path(target: Path) -> Path:
    """Return where a file is while it arrives."""
    return target.with_name(f"{target.name}.part")


def _notes_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.part.json")


def _forget_partial(target: Path) -> None:
    for path in (part_path(target), _notes_path(target)):
        path.unlink(missing_ok=True)


class _Partial:
    """The bytes of a file that have arrived.

    Args:
        file: What is downloaded.
        target: Where it will be.
    """

    def __init__(self, file: RemoteFile, target: Path) -> None:
        self.target = target
        self.path = part_path(target)
        self._address = file.address
        notes = _read_record(_notes_path(target))
        self.validator = _validator(notes) if notes.get("address") == file.address else ""
        """The server's name of the version that these bytes are of; empty if it has none."""
        there = self.validator and self.path.is_file()
        self.length = self.path.stat().st_size if there else 0
        self.is_complete = 0 < self.length == notes.get("size")  # killed before it was renamed

    def begin(self, headers: dict[str, Any]) -> None:
        """Start at the first byte of what a server offers with these headers."""
        self.path.write_bytes(b"")
        self.length = 0
        self.validator = _validator(headers)
        _write_record(_notes_path(self.target), {"address": self._address, **headers})

    def reject(self, error: Exception) -> NoReturn:
        """Drop the bytes and raise an error."""
        self.begin({})
        raise error

    def write(self, stream: IO[bytes], chunk: bytes) -> None:
        """Append bytes; without a buffer, so that what is counted is on the disk."""
        rest = memoryview(chunk)
        while rest:
            with output_errors(self.target, self.kept()):
                written = stream.write(rest)
            self.length += written
            rest = rest[written:]

    def kept(self) -> str:
        """Return what becomes of the bytes, for messages."""
        if not self.length:
            return "Try again later"
        return f"{self.length:,} bytes have arrived and are kept: the next try goes on there"

    def require_space(self, total: int) -> None:
        """Raise an error before anything is downloaded that the disk cannot hold."""
        free = shutil.disk_usage(self.target.parent).free
        missing = total - self.length
        if missing > free:
            raise OutputError(
                f"{self.target} needs {missing:,} bytes more, but only {free:,} are free there; "
                "make space, or set ELMO_CACHE to a folder on another disk"
            )


def _validator(headers: dict[str, Any]) -> str:
    """Return what a range can be requested with: a strong ETag, else the time of the change."""
    tag = str(headers.get("ETag") or "")
    return tag if tag and not tag.startswith("W/") else str(headers.get("Last-Modified") or "")


# --- HTTP -----------------------------------------------------------------------------------------


class _BrokenOffError(Exception):
    """A connection that ended early; another one may bring the rest."""


def _receive(file: RemoteFile, target: Path, options: FetchOptions) -> str:
    """Bring all bytes of a file to its `.part`, over several connections if need be.

    Returns:
        Their SHA-256.
    """
    if urlsplit(file.address).scheme not in ("http", "https"):
        raise MissingFileError(f"{file.address} is no web address")
    failures = 0
    partial = _Partial(file, target)
    units = {"unit": "B", "unit_scale": True, "unit_divisor": 1000}
    try:
        with tqdm(desc=target.name, disable=not options.show_progress, **units) as bar:
            while not partial.is_complete:
                before = partial.length
                try:
                    _connect_once(file, partial, options, bar)
                except _BrokenOffError as error:
                    failures = 0 if partial.length > before else failures + 1
                    if failures >= options.attempts:
                        raise DownloadError(
                            f"{file.address}: {error}, {failures} times in a row. "
                            f"{partial.kept()}. {by_hand(file, target)}"
                        ) from error
                    if options.show_progress:
                        _show(f"{target.name}: {error}; trying again")
                    time.sleep(options.wait * 2 ** max(failures - 1, 0))
        return sha256_of(partial.path)
    finally:
        if not partial.length:
            _forget_partial(target)


def _connect_once(file: RemoteFile, partial: _Partial, options: FetchOptions, bar: Any) -> None:
    """Bring what is missing over one connection, or raise `_BrokenOffError`."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "elmo-torch"}
    if partial.length:
        headers |= {"Range": f"bytes={partial.length}-", "If-Range": partial.validator}
    request = urllib.request.Request(file.address, headers=headers)
    opener = urllib.request.build_opener(_SafeRedirects)
    try:
        with opener.open(request, timeout=options.timeout) as response:
            total = _agree(file, partial, response)
            bar.reset(total=total)
            bar.update(partial.length)
            _copy(file, partial, response, total, bar)
    except urllib.error.HTTPError as error:
        with error:
            _judge(file, partial, error)
    except ElmoError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            reason = f"the server sent nothing for {options.timeout:g} s"
        elif isinstance(reason, socket.gaierror) and not partial.length:
            raise DownloadError(
                f"{file.address} cannot be reached: {reason.strerror}. Is there a network? "
                f"{by_hand(file, partial.target)}"
            ) from error
        raise _BrokenOffError(str(reason) or type(error).__name__) from error


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to other addresses of the web, but never from HTTPS to HTTP."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request to go on with."""
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise MissingFileError(
                f"{req.full_url} leads to {newurl}, which is not encrypted: refused"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _judge(file: RemoteFile, partial: _Partial, error: urllib.error.HTTPError) -> NoReturn:
    """Distinguish answers that will not change from those that may."""
    if error.code == _TOO_FAR and partial.length:
        partial.reject(_BrokenOffError("the file on the server has become shorter"))
    if error.code in _BUSY:
        raise _BrokenOffError(f"the server answers {error.code} {error.reason}") from error
    meaning = _GONE.get(error.code, "does not give it")
    raise MissingFileError(
        f"{file.address}: the server {meaning} ({error.code} {error.reason}). "
        "Has it moved? ELMO_MIRROR names another server, and options and weights can be named one "
        "by one"
    ) from error


def _agree(file: RemoteFile, partial: _Partial, response: Any) -> int | None:
    """Check what a server offers before it is read; return the size of the whole file."""
    headers = response.headers
    if partial.length and response.status == http.client.PARTIAL_CONTENT:
        found = re.fullmatch(
            r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", headers.get("Content-Range", "")
        )
        if not found or int(found[1]) != partial.length:
            partial.reject(_BrokenOffError("the server sent another part than was asked for"))
        total: int | None = int(found[2])
    else:  # the first try, or the file has changed, or the server knows no ranges
        length = headers.get("Content-Length", "")
        total = int(length) if _LENGTH.fullmatch(length) else file.size
        if total is None and headers.get("Transfer-Encoding") != "chunked":
            raise MissingFileError(
                f"{file.address}: the server does not tell how long the file is, so it would be "
                "unknown whether all of it arrived"
            )
        tags = {name: headers[name] for name in ("ETag", "Last-Modified") if headers[name]}
        partial.begin({**tags, "size": total})
    if total is not None and total != (file.size or total):
        problem = (
            f"expected {file.size:,}: it is another file than the one that was published, or a "
            "page of a login or a proxy"
        )
        partial.reject(WeightsError(f"{file.address} has {total:,} bytes, {problem}"))
    if total is not None and total > (file.size or LARGEST):
        problem = f"more than the {LARGEST:,} allowed"
        partial.reject(WeightsError(f"{file.address} has {total:,} bytes, {problem}"))
    partial.require_space(total or 0)
    return total


def _copy(file: RemoteFile, partial: _Partial, response: Any, total: int | None, bar: Any) -> None:
    limit = total or LARGEST
    with partial.path.open("ab", buffering=0) as stream:
        while chunk := response.read1(_CHUNK):
            if partial.length + len(chunk) > limit:
                partial.reject(
                    WeightsError(f"{file.address} sends more than the {limit:,} bytes allowed")
                )
            partial.write(stream, chunk)
            bar.update(len(chunk))
    if total is not None and partial.length < total:
        raise _BrokenOffError(
            f"the connection broke off after {partial.length:,} of {total:,} bytes"
        )
    if not partial.length:
        raise WeightsError(f"{file.address} gave an empty file")
    partial.is_complete = True

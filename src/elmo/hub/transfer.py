"""Bytes of a file over HTTP, from where the last try stopped.

While a file arrives it is `NAME.part`, beside `NAME.part.json` with what the server said of it, so
that a later try can go on in its middle, and does so only if the server still has the same file.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tqdm.auto import tqdm

from elmo.errors import DownloadError, ElmoError, MissingFileError, OutputError, WeightsError
from elmo.runtime.files import output_errors, write_text

LARGEST = 8 * 2**30
"""Bytes of a file whose size nobody told; more are not read."""

_CHUNK = 2**18
_GONE = {
    401: "asks for a password",
    403: "refuses it",
    404: "has no such file",
    410: "has it no more",
}
_TOO_FAR = 416  # the range that was asked for begins behind the end of the file
_BUSY = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that can be had from somewhere."""

    address: str
    size: int | None = None
    """Bytes, if they are known."""
    sha256: str | None = None
    """Published checksum, if there is one."""


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How the network is used."""

    offline: bool = False
    """Never ask it."""
    force: bool = False
    """Ask it even if the file is there."""
    timeout: float = 30.0
    """Seconds without a byte until a connection counts as dead."""
    attempts: int = 4
    """Tries in a row that bring nothing, until it gives up."""
    wait: float = 1.0
    """Seconds before the second try; twice as long before each further one."""
    show_progress: bool = True


def receive(file: RemoteFile, target: Path, options: FetchOptions) -> str:
    """Bring all bytes of a file to its `.part`, over several connections if need be.

    Returns:
        Their SHA-256.
    """
    failures = 0
    with _Partial(file, target) as partial, _progress(target, options) as bar:
        while not partial.is_complete:
            before = partial.length
            try:
                _connect_once(file, partial, options, bar)
            except _BrokenOffError as error:
                failures = 0 if partial.length > before else failures + 1
                if failures >= options.attempts:
                    raise DownloadError(
                        f"{file.address}: {error}, {failures} times in a row. "
                        f"{_kept(partial)}. {by_hand(file, target)}"
                    ) from error
                if options.show_progress:
                    tell(f"{target.name}: {error}; trying again")
                time.sleep(options.wait * 2 ** max(failures - 1, 0))
        return partial.digest.hexdigest()


def _kept(partial: _Partial) -> str:
    if not partial.length:
        return "Try again later"
    return f"{partial.length:,} bytes have arrived and are kept: the next try goes on there"


class _BrokenOffError(Exception):
    """A connection that ended early; another one may bring the rest."""


class _Partial:
    """The bytes of a file that have arrived, with a checksum that grows along.

    Args:
        file: What is downloaded.
        target: Where it will be.
    """

    def __init__(self, file: RemoteFile, target: Path) -> None:
        self._file = file
        self.target = target
        self._stream: IO[bytes] | None = None
        self.length = 0
        self.digest = hashlib.sha256()
        self.is_complete = False

    def __enter__(self) -> _Partial:
        # Without a buffer, so that what is counted is on the disk.
        self._stream = part_path(self.target).open("a+b", buffering=0)
        notes = read_record(_notes(self.target))
        if notes.get("address") == self._file.address and _validator(notes):
            self._stream.seek(0)
            while chunk := self._stream.read(_CHUNK):
                self.digest.update(chunk)
            self.length = self._stream.tell()
            self.is_complete = self.length == notes.get("size")  # killed before it got its name
        else:  # nobody can tell whether the rest would fit
            self.begin({})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stream is not None
        self._stream.close()
        if not self.length:
            forget_partial(self.target)

    @property
    def validator(self) -> str:
        """What the server called the version that these bytes are of; empty if they are none."""
        return _validator(read_record(_notes(self.target))) if self.length else ""

    def begin(self, headers: dict[str, Any]) -> None:
        """Start at the first byte of what a server offers with these headers."""
        assert self._stream is not None
        self._stream.truncate(0)
        self.length = 0
        self.digest = hashlib.sha256()
        write_record(_notes(self.target), {"address": self._file.address, **headers})

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        assert self._stream is not None
        rest = memoryview(chunk)
        while rest:
            with output_errors(self.target, _kept(self)):
                written = self._stream.write(rest)
            self.digest.update(rest[:written])
            self.length += written
            rest = rest[written:]

    def require_space(self, total: int) -> None:
        """Fail before anything is downloaded that the disk cannot hold."""
        free = shutil.disk_usage(self.target.parent).free
        missing = total - self.length
        if missing > free:
            raise OutputError(
                f"{self.target} needs {missing:,} bytes more, but only {free:,} are free there; "
                "make space, or set ELMO_CACHE to a folder on another disk"
            )


def _validator(notes: dict[str, Any]) -> str:
    """Give what can be asked for again: a strong ETag, else the time of the last change."""
    tag = str(notes.get("ETag") or "")
    return tag if tag and not tag.startswith("W/") else str(notes.get("Last-Modified") or "")


def _connect_once(file: RemoteFile, partial: _Partial, options: FetchOptions, bar: Any) -> None:
    """Bring what is missing over one connection, or raise `_BrokenOffError`."""
    request = urllib.request.Request(file.address, headers={"Accept-Encoding": "identity"})
    if partial.length:
        request.add_header("Range", f"bytes={partial.length}-")
        request.add_header("If-Range", partial.validator)
    try:
        with _opener().open(request, timeout=options.timeout) as response:
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
    """Follows a server to other addresses, but never from HTTPS to HTTP."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Give the request to go on with."""
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise MissingFileError(
                f"{req.full_url} leads to {newurl}, which is not encrypted: refused"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Give an opener that speaks HTTP and HTTPS and nothing else, proxies included."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        _SafeRedirects,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    opener.addheaders = [("User-Agent", "elmo-torch")]
    return opener


def _judge(file: RemoteFile, partial: _Partial, error: urllib.error.HTTPError) -> None:
    """Tell answers that will not change from those that may."""
    if error.code == _TOO_FAR and partial.length:
        partial.begin({})
        raise _BrokenOffError("the file on the server has become shorter") from error
    if error.code in _BUSY:
        raise _BrokenOffError(f"the server answers {error.code} {error.reason}") from error
    meaning = _GONE.get(error.code, "does not give it")
    raise MissingFileError(
        f"{file.address}: the server {meaning} ({error.code} {error.reason}). "
        "Has it moved? ELMO_MIRROR names another server, and options and weights can be named one "
        "by one"
    ) from error


def _agree(file: RemoteFile, partial: _Partial, response: Any) -> int | None:
    """Check what a server offers before it is read; returns the size of the whole file."""
    if partial.length and response.status == http.client.PARTIAL_CONTENT:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not found or int(found[1]) != partial.length:
            partial.begin({})
            raise _BrokenOffError("the server sent another part than was asked for")
        total: int | None = int(found[2])
    else:  # the first try, or the file has changed, or the server knows no ranges
        total = _announced_size(file, response)
        names = ("ETag", "Last-Modified")
        tags = {name: response.headers[name] for name in names if response.headers[name]}
        partial.begin({**tags, "size": total})
    if file.size is not None and total is not None and total != file.size:
        partial.begin({})
        raise WeightsError(
            f"{file.address} has {total:,} bytes, expected {file.size:,}: it is another file than "
            "the one that was published, or a page of a login or a proxy"
        )
    limit = file.size or LARGEST
    if total is not None and total > limit:
        partial.begin({})
        raise WeightsError(f"{file.address} has {total:,} bytes, more than the {limit:,} allowed")
    partial.require_space(total or 0)
    return total


def _announced_size(file: RemoteFile, response: Any) -> int | None:
    length = response.headers.get("Content-Length", "")
    if length.isdigit():
        return int(length)
    if file.size is None and response.headers.get("Transfer-Encoding") != "chunked":
        raise MissingFileError(
            f"{file.address}: the server does not tell how long the file is, so nobody could tell "
            "whether all of it arrived"
        )
    return file.size


def _copy(file: RemoteFile, partial: _Partial, response: Any, total: int | None, bar: Any) -> None:
    limit = total or LARGEST
    while chunk := response.read1(_CHUNK):
        if partial.length + len(chunk) > limit:
            partial.begin({})
            raise WeightsError(f"{file.address} sends more than the {limit:,} bytes allowed")
        partial.add(chunk)
        bar.update(len(chunk))
    if total is not None and partial.length < total:
        raise _BrokenOffError(
            f"the connection broke off after {partial.length:,} of {total:,} bytes"
        )
    if not partial.length:
        raise WeightsError(f"{file.address} gave an empty file")
    partial.is_complete = True


@contextmanager
def _progress(target: Path, options: FetchOptions) -> Iterator[Any]:
    bar = tqdm(
        desc=target.name,
        unit="B",
        unit_scale=True,
        unit_divisor=1000,
        disable=not options.show_progress,
    )
    with bar:
        yield bar


# --- small things ---------------------------------------------------------------------------------


def by_hand(file: RemoteFile, target: Path) -> str:
    """Say what a person without a network can do."""
    return f"Download {file.address} elsewhere and place it at {target}"


def tell(text: str) -> None:
    """Write a line for people, above any progress bar."""
    tqdm.write(text, file=sys.stderr)


def forget_partial(target: Path) -> None:
    """Delete what has arrived of a file so far."""
    for path in (part_path(target), _notes(target)):
        path.unlink(missing_ok=True)


def part_path(target: Path) -> Path:
    """Say where a file is while it arrives."""
    return target.with_name(f"{target.name}.part")


def _notes(target: Path) -> Path:
    return target.with_name(f"{target.name}.part.json")


def read_record(path: Path) -> dict[str, Any]:
    """Read a small JSON object; an empty one if there is none or it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_record(path: Path, content: dict[str, Any]) -> None:
    """Write a small JSON object atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")

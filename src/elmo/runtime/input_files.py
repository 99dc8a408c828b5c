"""One reader of files that may be damaged or hostile: what it accepts is regular and bounded.

Model files come from the network and from strangers. Whatever they hold, reading them raises an
`ElmoError` soon, and takes memory in proportion to their size. What is read without a format of its
own (JSON, lists, texts) goes through this module.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from elmo.config import MOST_WORDS
from elmo.errors import ConfigError, ElmoError, InputError, MissingFileError, reason_of

MOST_JSON_BYTES = 2**22
"""Of a description, a card or a record; the largest known has a few kilobytes."""
MOST_LIST_BYTES = 2**26
"""Of a list of words or characters: four million words of 16 bytes."""
DEEPEST = 64
"""Objects and lists inside each other in a JSON file."""
MOST_DIGITS = 20
"""Of a whole number in a JSON file; 64 bits have 20."""

_LONGEST_NAME = 255
"""Bytes of a file's name, on every system that is in use."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


# --- what a path is -------------------------------------------------------------------------------


def require_file(path: Path, what: str = "file") -> int:
    """Raise an error unless there is a regular file at a path; return its size.

    A pipe would wait for a writer that never comes, a device may never end.

    Args:
        path: A file, or a link to one.
        what: What is expected there, for messages.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"no such {what}: {path}") from None
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long or has a NUL
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from None
    if stat.S_ISREG(status.st_mode):
        return status.st_size
    found = next((name for test, name in _KINDS if test(status.st_mode)), "no file")
    raise InputError(f"{path} is {found}, expected a regular file: put the {what} there")


def is_bare_name(name: str) -> bool:
    """Return whether a text is the name of something in a folder, and leads nowhere else."""
    is_place = name in ("", ".", "..") or bool(set(name) & set("/\\\0"))
    return not is_place and len(name.encode("utf-8", "replace")) <= _LONGEST_NAME


@contextmanager
def damage_errors(
    path: Path | str, kind: str, error: type[ElmoError] = InputError
) -> Iterator[None]:
    """Raise an `ElmoError` in place of whatever a library raises when it reads a damaged file.

    Libraries that read binary formats raise nearly anything, `IndexError` and `MemoryError`
    included, depending on where the damage is. Put only the reading itself into the block.

    Args:
        path: The file, as the message names it.
        kind: What it should be, such as `zip archive`.
        error: What is raised.
    """
    try:
        yield
    except ElmoError:
        raise
    except Exception as reason:
        raise error(
            f"{path} is not a readable {kind} (damaged or cut short?): {reason_of(reason)}"
        ) from None


# --- texts ----------------------------------------------------------------------------------------


def read_bytes(path: Path, most: int, what: str = "file") -> bytes:
    """Read a regular file of bounded size.

    Args:
        path: The file.
        most: Bytes it may have.
        what: What it is, for messages.
    """
    size = require_file(path, what)
    if size > most:
        _refuse_size(path, f"{size:,}", most, what)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # what the system makes up while it is read has no size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from None
    if len(content) > most:
        _refuse_size(path, "more", most, what)
    return content


def _refuse_size(path: Path, found: str, most: int, what: str) -> NoReturn:
    raise InputError(
        f"{path} has {found} bytes, expected at most {most:,} in a {what}: it is another file, or "
        "damaged"
    )


def read_text(path: Path, most: int = MOST_LIST_BYTES, what: str = "file") -> str:
    """Read a regular text file of bounded size, in UTF-8; a byte order mark is dropped."""
    return decoded(path, read_bytes(path, most, what))


def decoded(path: Path | str, content: bytes) -> str:
    """Decode UTF-8; a byte order mark is dropped.

    Args:
        path: Where it was read, for messages.
        content: The bytes.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid UTF-8: {error}") from None


def split_lines(path: Path | str, text: str, most: int = MOST_WORDS) -> list[str]:
    """Split the text of a list into its lines; only line feeds end them, the last need not.

    Args:
        path: Where it was read, for messages.
        text: The text.
        most: Lines it may have: each takes far more memory than its text.
    """
    count = text.count("\n")
    if count > most:
        raise InputError(
            f"{path} has {count:,} lines, expected at most {most:,}: it is another file, or damaged"
        )
    return text.removesuffix("\n").split("\n") if text else []


# --- JSON -----------------------------------------------------------------------------------------


def read_json(path: Path, most: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """Read a regular JSON file that holds an object, of bounded size and depth."""
    content = parse_json(read_bytes(path, most, "JSON file"), str(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds a {type(content).__name__}, expected a JSON object")
    return content


def parse_json(text: str | bytes, source: str) -> Any:
    """Parse JSON of bounded depth, with numbers and texts that can be used and printed.

    Args:
        text: JSON, in UTF-8.
        source: Where it was read, for messages.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        content = json.loads(text, parse_int=_whole_number)
        _require_shallow(content)
        if "\\u" in text:  # escapes may be halves of surrogate pairs, which cannot be printed
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ConfigError(f"{source} is not valid JSON: {_TOO_DEEP}") from None
    except ValueError as error:  # JSON, UTF-8, halves of surrogate pairs
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    return content


def _whole_number(digits: str) -> int:
    if len(digits.removeprefix("-")) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits, expected at most {MOST_DIGITS}")
    return int(digits)


_TOO_DEEP = f"objects or lists are nested more than {DEEPEST} levels deep"


def _require_shallow(content: Any) -> None:
    """Raise `RecursionError` if a value is nested too deeply; it is checked level by level."""
    level = [content]
    for _ in range(DEEPEST + 1):
        level = [
            inside
            for value in level
            if isinstance(value, dict | list)
            for inside in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise RecursionError

"""Files, folders and globs -> text files -> blocks of text, cut between documents.

Reading is cheap compared with tokenizing: one process reads, decompresses and decodes, and workers
get the blocks. Where blocks begin depends on the text alone.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from elmo.errors import ElmoWarning, InputError, MissingFileError
from elmo.text.files import damage, open_bytes

BLOCK_CHARACTERS = 1 << 21
"""About 350,000 words of English."""
_READ_BYTES = 1 << 20
_SENTENCE_END = re.compile(r"[.!?]\s|[\u3002\uff01\uff1f\uff1b]")  # and the Chinese ones


def find_files(places: Iterable[str | Path]) -> list[Path]:
    """List the text files that paths, folders and globs name, each file once.

    Files of a folder (with its subfolders, without hidden files) and of a glob come in the order
    of their names.
    """
    files: dict[Path, Path] = {}
    for place in places:
        for file in _files_of(place):
            if file.resolve() in files:
                warnings.warn(
                    f"{file} is named twice in the corpus; it is read once",
                    ElmoWarning,
                    stacklevel=2,
                )
            elif not os.access(file, os.R_OK):
                raise InputError(f"{file} cannot be read: check its permissions")
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _files_of(place: str | Path) -> Sequence[Path]:
    path = Path(place)
    if path.is_file():
        return [path]
    if path.is_dir():
        return _files_in_folder(path)
    if any(mark in str(place) for mark in "*?["):
        found = [Path(name) for name in sorted(glob.glob(str(place), recursive=True))]  # noqa: PTH207
        found = [file for file in found if file.is_file()]
        if not found:
            raise MissingFileError(f"no file matches {place}")
        return found
    if path.exists():
        raise InputError(
            f"{place} is no regular file, and text is read again when a run is resumed: write it "
            "to a file first"
        )
    raise MissingFileError(f"no such text file or folder: {place}")


def _files_in_folder(folder: Path) -> list[Path]:
    if (folder / "corpus.json").is_file() and (folder / "vocab.txt").is_file():
        raise InputError(
            f"{folder} is a prepared corpus already: expected text; to train on it, "
            f"give elmo train --data {folder}"
        )
    found = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    if not found:
        raise MissingFileError(f"no files in the folder {folder}: expected text files")
    return found


@dataclass(frozen=True)
class Block:
    """Consecutive lines of one file."""

    text: str
    first_line: int
    """Number of its first line in the file, from 1."""
    stored_bytes: int
    """Bytes of the file as stored that were read for it, about; for the progress bar."""
    cut_line: bool = False
    """Whether the last line continues in the next block, because it is too long for one."""


class BlockReader:
    """The text of one file in blocks.

    A block ends behind a document if one ends in its second half, else behind a line, else (a line
    of megabytes) behind a sentence or a word.

    Args:
        path: A text file, compressed or not.
        encoding: Its encoding.
        size: Characters of a block at most.
    """

    def __init__(self, path: Path, encoding: str, size: int = BLOCK_CHARACTERS) -> None:
        self.path = path
        self._encoding = encoding
        self._size = size
        self._line = 1
        """Line of the first character that was not yielded yet."""
        self._counted_bytes = 0
        """Bytes of the file that earlier blocks account for."""

    def __iter__(self) -> Iterator[Block]:
        pending = ""
        try:
            content, stored = open_bytes(self.path)
        except OSError as error:
            if isinstance(error, ValueError):  # an ElmoError
                raise
            raise InputError(f"{self.path} cannot be read: {error}") from None
        with stored:
            for text in self._decoded(content):
                pending += text
                while len(pending) > self._size:
                    end = _cut(pending, self._size)
                    yield self._block(pending[:end], stored)
                    pending = pending[end:]
            if pending:
                yield self._block(pending, stored, last=True)

    def _block(self, text: str, stored: IO[bytes], last: bool = False) -> Block:
        place = stored.tell()
        read, self._counted_bytes = place - self._counted_bytes, place
        block = Block(text, self._line, read, not last and not text.endswith("\n"))
        self._line += text.count("\n")
        return block

    def _decoded(self, content: IO[bytes]) -> Iterator[str]:
        """Yield the file as text, a megabyte at a time."""
        decoder = codecs.getincrementaldecoder(self._encoding)()
        n_bytes, n_lines, first, end = 0, 0, True, False
        while not end:
            try:
                data = content.read(_READ_BYTES)
            except damage() as error:
                raise InputError(f"{self.path} is damaged or cut short: {error}") from None
            end = not data
            n_bytes += len(data)
            try:
                text = decoder.decode(data, end)
            except UnicodeDecodeError as error:
                raise self._invalid(error, n_bytes, n_lines) from None
            if first and text:
                text, first = text.removeprefix("\ufeff"), False
            if "\0" in text:
                line = n_lines + text.count("\n", 0, text.index("\0")) + 1
                raise InputError(
                    f"{self.path}, line {line}: a NUL byte; this is a binary file or has another "
                    "encoding: leave it out, or give its --encoding"
                )
            n_lines += text.count("\n")
            yield text

    def _invalid(self, error: UnicodeDecodeError, n_bytes: int, n_lines: int) -> InputError:
        data: Any = error.object  # the bytes that the decoder had buffered, and the newest ones
        line = n_lines + data.count(b"\n", 0, error.start) + 1
        place = n_bytes - len(data) + error.start + 1
        return InputError(
            f"{self.path}, line {line}: byte 0x{data[error.start]:02x}, number {place:,} of the "
            f"text, is not valid {self._encoding}; convert the file, give its --encoding, or leave "
            "it out"
        )


def _cut(text: str, size: int) -> int:
    """Find where to end a block of at most `size` characters."""
    half = size // 2
    for blank in ("\n\n", "\n\r\n"):
        found = text.rfind(blank, half, size)
        if found >= 0:
            return found + len(blank)
    found = text.rfind("\n", 0, size)
    if found >= 0:
        return found + 1
    ends = [match.end() for match in _SENTENCE_END.finditer(text, half, size)]
    if ends:
        return ends[-1]
    space = max(text.rfind(mark, half, size) for mark in " \t\u3000")
    return space + 1 if space >= 0 else size

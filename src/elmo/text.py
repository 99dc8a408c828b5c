"""Raw text -> lines -> sentences -> words."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, get_args

from elmo.errors import InputError, MissingExtraError, MissingFileError
from elmo.settings import TokenizerName

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


class Tokenizer(Protocol):
    """Splits text; anything with these two members will do."""

    name: str

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text into sentences of words; a blank text is one empty sentence."""


class WhitespaceTokenizer:
    """Text that was tokenised before: one sentence, words between white space."""

    name = "whitespace"

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text; see `Tokenizer.sentences`."""
        return [text.split()]


class EnglishTokenizer:
    """Raw English, by spaCy's rules (`"Don't go."` -> `Do n't go .`); needs the extra `text`."""

    name = "english"

    def __init__(self) -> None:
        try:
            import spacy
        except ImportError:
            raise MissingExtraError("the tokenizer 'english'", "text") from None
        self._nlp = spacy.blank("en")
        self._nlp.add_pipe("sentencizer")
        # Rules alone have no memory problem with long texts; the limit is for parsers.
        self._nlp.max_length = sys.maxsize

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text; see `Tokenizer.sentences`."""
        doc = self._nlp(text)
        split = ([token.text for token in s if not token.is_space] for s in doc.sents)
        return [words for words in split if words] or [[]]


class ChineseTokenizer:
    """Raw Chinese: sentences at 。！？； and line ends, words by jieba; needs the extra `zh`."""

    name = "chinese"
    _sentence = re.compile(
        r"[^。！？；!?;\n]*[。！？；!?;\n]+[”’」』）》】\"')\]]*|[^。！？；!?;\n]+"
    )

    def __init__(self) -> None:
        try:
            import rjieba
        except ImportError:
            raise MissingExtraError("the tokenizer 'chinese'", "zh") from None
        self._cut = rjieba.cut

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text; see `Tokenizer.sentences`."""
        split = (
            [word for word in self._cut(part) if not word.isspace()]
            for part in self._sentence.findall(text)
        )
        return [words for words in split if words] or [[]]


def get_tokenizer(name: TokenizerName | Tokenizer) -> Tokenizer:
    """Give a tokenizer by its name; an object that is one already is handed through."""
    if not isinstance(name, str):
        return name
    kinds: dict[str, Callable[[], Tokenizer]] = {
        "whitespace": WhitespaceTokenizer,
        "english": EnglishTokenizer,
        "chinese": ChineseTokenizer,
    }
    if name not in kinds:
        raise InputError(
            f"no tokenizer {name!r}: expected one of {', '.join(get_args(TokenizerName))}"
        )
    return kinds[name]()


class TextFile:
    """The lines of a text file, read one by one; use it in a `with` block.

    Only a line feed ends a line: the other line separators of Unicode are left inside, so that
    line numbers agree with other tools.

    Args:
        path: A file, possibly .gz, .xz or .bz2; `-` for standard input.
        encoding: Its encoding.
    """

    def __init__(self, path: Path | str, encoding: str = "utf-8") -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise InputError(f"no encoding {encoding!r}; for instance utf-8 or latin-1") from None
        self._encoding = encoding
        self._raw: IO[bytes] | None = None
        self.total_bytes: int | None = None
        """Size of the file as stored; None where it is not known."""
        if str(path) == "-":
            self._lines: IO[bytes] = sys.stdin.buffer
            return
        path = Path(path)
        if not path.is_file():
            raise MissingFileError(f"no such text file: {path}")
        self.total_bytes = path.stat().st_size
        self._raw = path.open("rb")
        opener = _OPENERS.get(path.suffix)
        self._lines = opener(self._raw, "rb") if opener else self._raw

    @property
    def bytes_read(self) -> int:
        """How far reading has come, in bytes of the file as stored."""
        return 0 if self._raw is None else self._raw.tell()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._raw is not None:
            self._raw.close()

    def __enter__(self) -> TextFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        """Yield the lines without their ends."""
        try:
            for number, line in enumerate(iter(partial(self._lines.readline), b""), start=1):
                yield self._decode(number, line).rstrip("\r\n")
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise InputError(f"{self.name} is damaged or cut short: {error}") from None

    def _decode(self, number: int, line: bytes) -> str:
        try:
            text = line.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.name}, line {number}: byte 0x{line[error.start]:02x} at place "
                f"{error.start + 1} is not valid {self._encoding}; convert the file or give its "
                "--encoding"
            ) from None
        return text.removeprefix("\ufeff") if number == 1 else text


def read_sentences(file: TextFile, tokenizer: Tokenizer) -> Iterator[list[str]]:
    """Yield the sentences of a file as lists of words; a blank line is an empty sentence."""
    for line in file:
        yield from tokenizer.sentences(line)

"""Raw text -> lines -> sentences -> words."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, get_args

from elmo.errors import InputError, MissingExtraError, MissingFileError, OutputExistsError
from elmo.settings import TokenizerChoice, TokenizerName

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_ZSTD = ".zst"
_GZIP_MAGIC = b"\x1f\x8b"
LONGEST_LINE = 2**24
"""Bytes of a line, which is in memory as a whole, and then as words that take ten times as much."""
COMPRESSED = (*_OPENERS, _ZSTD)
"""Suffixes of files that are unpacked while they are read."""


class Tokenizer(Protocol):
    """Splits text; anything with these two members will do."""

    name: str

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text into sentences of words; a blank text is one empty sentence."""


class WhitespaceTokenizer:
    """Splits at white space alone: one sentence, for text that is split already."""

    name = "whitespace"

    def sentences(self, text: str) -> list[list[str]]:
        """Split a text; see `Tokenizer.sentences`."""
        return [text.split()]


class SpacyTokenizer:
    """Raw English, by spaCy's rules (`"Don't go."` -> `Do n't go .`); needs the extra `text`."""

    name = "spacy"

    def __init__(self) -> None:
        try:
            import spacy
        except ImportError:
            raise MissingExtraError("the tokenizer 'spacy'", "text") from None
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
    """Raw Chinese: sentences at 。！？； and line ends, words by jieba; needs the extra `zh`.

    In a line whose words were split by hand (`我 来到 北京 清华大学 。`) they stay as they are.
    """

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
        split = (self._words(part) for part in self._sentence.findall(text))
        return [words for words in split if words] or [[]]

    def _words(self, sentence: str) -> list[str]:
        words = sentence.split()
        if _is_split_chinese(words):
            return words
        return [word for word in self._cut(sentence) if not word.isspace()]


def _is_split_chinese(words: list[str]) -> bool:
    """Return whether what stands between spaces are words rather than clauses or verses.

    Chinese words have two characters on average and seldom more than four; verses have five.
    """
    han = [len(word) for word in words if "\u3400" <= word[0] <= "\u9fff"]
    return len(han) >= 3 and sum(han) <= 3 * len(han) and max(han) <= 8


def get_tokenizer(name: TokenizerChoice | Tokenizer, own: TokenizerName | None = None) -> Tokenizer:
    """Return a tokenizer by its name; an object that is one already is returned as it is.

    Args:
        name: Which; `model` for that of the model's own text.
        own: That of the model's own text; `whitespace` where it is not known.
    """
    if not isinstance(name, str):
        return name
    if name == "model":
        name = own or "whitespace"
    kinds: dict[str, Callable[[], Tokenizer]] = {
        "whitespace": WhitespaceTokenizer,
        "english": _english,
        "spacy": SpacyTokenizer,
        "chinese": ChineseTokenizer,
    }
    if name not in kinds:
        raise InputError(
            f"no tokenizer {name!r}: expected one of {', '.join(get_args(TokenizerName))}"
        )
    return kinds[name]()


def _english() -> Tokenizer:
    from elmo.text.english import EnglishTokenizer  # its tables are read when they are needed

    return EnglishTokenizer()


def open_bytes(path: Path) -> tuple[IO[bytes], IO[bytes]]:
    """Open a file for reading, unpacking it on the way if its name says that it is packed.

    Returns:
        The bytes of the text, and the file as stored, whose place tells the progress.
    """
    opener = _zstd().open if path.suffix == _ZSTD else _OPENERS.get(path.suffix)
    stored = path.open("rb")
    return (opener(stored, "rb") if opener else stored), stored


def require_text(path: Path | str, encoding: str = "utf-8") -> None:
    """Raise an error if something cannot be read as text; a pipe is not opened, it is read once.

    Args:
        path: A file, a pipe or a device; `-` for standard input.
        encoding: Its encoding.
    """
    _require_encoding(encoding)
    if str(path) == "-":
        return
    require_readable(path, "text file")
    if Path(path).suffix == _ZSTD:
        _zstd()


def require_readable(path: Path | str, what: str) -> None:
    """Raise an error if nothing can be read at a path; pipes and devices are as good as files."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected a {what}")
    if not path.exists():
        raise MissingFileError(f"no such {what}: {path}")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read: check its permissions")


def is_readable(name: str) -> bool:
    """Return whether a name is that of a file, a pipe or a device, rather than any other text."""
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def refuse_to_replace(source: Path | str, output: Path | str) -> None:
    """Raise an error if what is to be written would take the place of what is to be read."""
    source = Path("/dev/stdin" if str(source) == "-" else source)
    output = Path(output)
    if output.exists() and source.exists() and output.samefile(source):
        raise OutputExistsError(
            f"{output} is the input, too, and would be replaced by the output: name another output"
        )


def _require_encoding(encoding: str) -> None:
    try:
        cut_at_line_feeds = b"\n".decode(encoding) == "\n"
    except LookupError:
        raise InputError(f"no encoding {encoding!r}; for instance utf-8 or latin-1") from None
    except UnicodeError:
        cut_at_line_feeds = False
    if not cut_at_line_feeds:
        raise InputError(
            f"text in {encoding} cannot be cut into lines, where the end of a line must be the "
            f"single byte 0x0a: convert it first, as in iconv -f {encoding} -t utf-8 FILE"
        )


def damage() -> tuple[type[Exception], ...]:
    """Return the errors that reading a damaged packed file raises."""
    kinds: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
    try:
        return (*kinds, _zstd().ZstdError)
    except MissingExtraError:
        return kinds


def _zstd() -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise MissingExtraError("reading .zst files", "zst") from None
    return zstd


class TextFile:
    """The lines of a text file, read one by one; use it in a `with` block.

    Only a line feed ends a line: the other line separators of Unicode are left inside, so that
    line numbers agree with other tools.

    Args:
        path: A file, possibly .gz, .xz, .bz2 or .zst; `-` for standard input.
        encoding: Its encoding.
    """

    def __init__(self, path: Path | str, encoding: str = "utf-8") -> None:
        self.name = "standard input" if str(path) == "-" else str(path)
        require_text(path, encoding)
        self._encoding = encoding
        self._raw: IO[bytes] | None = None
        self.total_bytes: int | None = None
        """Size of the file as stored; None where it is not known."""
        if str(path) == "-":
            self._lines: IO[bytes] = sys.stdin.buffer
            return
        path = Path(path)
        if path.is_file():  # pipes and devices have no size
            self.total_bytes = path.stat().st_size
        self._lines, self._raw = open_bytes(path)

    @property
    def bytes_read(self) -> int:
        """How far reading has come, in bytes of the file as stored."""
        return 0 if self._raw is None or self.total_bytes is None else self._raw.tell()

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
        kinds = damage()  # not when Python ends, and closes this generator: nothing can be imported
        try:
            read = partial(self._lines.readline, LONGEST_LINE + 1)
            for number, line in enumerate(iter(read, b""), start=1):
                if len(line) > LONGEST_LINE:
                    raise InputError(
                        f"{self.name}, line {number} has more than {LONGEST_LINE:,} bytes, the "
                        "most that a line may have: put a line break after each sentence or "
                        "paragraph"
                    )
                yield self._decode(number, line).rstrip("\r\n")
        except kinds as error:
            raise InputError(f"{self.name} is damaged or cut short: {error}") from None

    def _decode(self, number: int, line: bytes) -> str:
        try:
            text = line.decode(self._encoding)
        except UnicodeDecodeError as error:
            if number == 1 and line.startswith(_GZIP_MAGIC):
                raise InputError(
                    f"{self.name} looks like gzip, expected text: unpack it on the way, as in "
                    "gunzip -c FILE | elmo ..., or let the name of the file end in .gz"
                ) from None
            raise InputError(
                f"{self.name}, line {number}: byte 0x{line[error.start]:02x} at place "
                f"{error.start + 1} is not valid {self._encoding}; convert the file or give its "
                "--encoding"
            ) from None
        return text.removeprefix("\ufeff") if number == 1 else text


def read_sentences(lines: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[str]]:
    """Yield the sentences of a file as lists of words; a blank line is an empty sentence."""
    for line in lines:
        yield from tokenizer.sentences(line)

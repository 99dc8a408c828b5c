"""Alphabets: the characters of a model that encodes words as code points instead of UTF-8 bytes.

A Chinese word is one to four characters, but three to twelve bytes, and a byte says little about
it. A model with an alphabet has a row of its character table for each character it knows:

    id 0        masked position (a zero vector), as in models that read bytes
    1, 2        begin and end of sentence
    3, 4        begin and end of word
    5           padding inside a word (a learned vector, it takes part in the convolution)
    6           any character that is not in the alphabet
    7 ..        the characters, the most frequent first

In the file `characters.txt` line n holds the character with id n, so the special ones come first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.config import MOST_ALPHABET, N_BYTE_CHARACTERS
from elmo.errors import InputError
from elmo.runtime.input_files import read_text, split_lines

SPECIAL_CHARACTERS = ("<S>", "</S>", "<W>", "</W>", "<PAD>", "<UNK>")
"""How the file names the ids 1 to 6. A name has several characters: it cannot be one of them."""
UNKNOWN_CHARACTER = 6
FIRST_CHARACTER = 7

_ESCAPE = re.compile(r"\\(?:\\|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_SURROGATES = range(0xD800, 0xE000)
_WORDS_AT_A_TIME = 10_000


@dataclass(frozen=True, repr=False)
class Alphabet:
    """Characters and their ids; immutable, and equal to any other of the same characters.

    Args:
        characters: Distinct characters (code points) in the order of their ids; a string or any
            iterable of single characters.

    Example:
        >>> alphabet = Alphabet("石头记")
        >>> alphabet.n_characters, alphabet.id("石"), alphabet.id("红")
        (10, 7, 6)
    """

    characters: str
    """The characters in the order of their ids, the special ones not among them."""
    _ids: npt.NDArray[np.int32] = field(init=False, compare=False)
    """The id of every code point up to the largest, and one for all beyond it."""

    def __init__(self, characters: Iterable[str]) -> None:
        listed = list(characters)
        _check(listed)
        object.__setattr__(self, "characters", "".join(listed))
        codes = _code_points(self.characters)
        ids = np.full(int(codes.max()) + 2, UNKNOWN_CHARACTER, dtype=np.int32)
        ids[codes] = np.arange(FIRST_CHARACTER, FIRST_CHARACTER + len(codes))
        ids.setflags(write=False)
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def build(
        cls, words: Iterable[str], min_count: int = 1, max_size: int | None = None
    ) -> Alphabet:
        """Collect the characters of words.

        Args:
            words: Words of running text, repeated as often as they occur. (A whole text is an
                iterable of characters, which will do, too.)
            min_count: Characters that occur more rarely are left out.
            max_size: How many characters are kept at most: the most frequent ones, of equally
                frequent ones those with the lower code point.
        """
        counts: Counter[str] = Counter()
        remaining = iter(words)
        while some := list(islice(remaining, _WORDS_AT_A_TIME)):
            counts.update("".join(some))  # counting the characters of one long string is quick
        return cls.from_counts(counts, min_count, max_size)

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], min_count: int = 1, max_size: int | None = None
    ) -> Alphabet:
        """Choose characters by how often they occur; see `build`."""
        for name, value in (("min_count", min_count), ("max_size", max_size)):
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}, expected at least 1")
        kept = [
            (character, count)
            for character, count in counts.items()
            if count >= min_count and ord(character) not in _SURROGATES  # they have no UTF-8 form
        ]
        kept.sort(key=lambda pair: (-pair[1], pair[0]))
        if not kept:
            raise InputError(
                f"no character occurs {min_count} times or more among {len(counts)} distinct ones; "
                "give more text or a lower min_count"
            )
        return cls(character for character, _ in kept[:max_size])

    @property
    def n_characters(self) -> int:
        """Rows of the character table, for `ElmoConfig.n_characters`; the masked row is included.

        261 and 262 rows mean UTF-8 bytes to every reader of `options.json`. An alphabet of just
        that size gets 263, of which the last are never used.
        """
        rows = FIRST_CHARACTER + len(self.characters)
        return N_BYTE_CHARACTERS + 1 if rows in (N_BYTE_CHARACTERS - 1, N_BYTE_CHARACTERS) else rows

    def id(self, character: str) -> int:
        """Return the id of one character; that of unknown ones if it is not in the alphabet."""
        if len(character) != 1:
            raise InputError(f"{character!r} has {len(character)} characters, expected one")
        return int(self.ids(character)[0])

    def ids(self, text: str) -> npt.NDArray[np.int32]:
        """Return the ids of all characters of a text, shape `(len(text),)`."""
        codes = _code_points(text)
        found: npt.NDArray[np.int32] = self._ids[np.minimum(codes, len(self._ids) - 1)]
        return found

    def text(self, ids: Iterable[int]) -> str:
        """Return the characters of ids; special ones are left out, unknown ones are U+FFFD."""
        return "".join(
            "\ufffd" if number == UNKNOWN_CHARACTER else self.characters[number - FIRST_CHARACTER]
            for number in ids
            if UNKNOWN_CHARACTER <= number < FIRST_CHARACTER + len(self.characters)
        )

    @classmethod
    def read(cls, path: Path | str) -> Alphabet:
        """Read a `characters.txt`."""
        path = Path(path)
        text = read_text(path, what="file of characters")
        # Only line feeds end lines; those of Windows, put in by some transfer, are tolerated.
        lines = [line.removesuffix("\r") for line in split_lines(path, text, MOST_ALPHABET)]
        specials = tuple(lines[: len(SPECIAL_CHARACTERS)])
        if specials != SPECIAL_CHARACTERS:
            raise InputError(
                f"{path} begins with the lines {', '.join(map(repr, specials))}; expected "
                f"{', '.join(SPECIAL_CHARACTERS)}. Is it a file that Alphabet.write wrote?"
            )
        characters = [
            _unescaped(path, number, line)
            for number, line in enumerate(lines[len(specials) :], start=len(specials) + 1)
        ]
        try:
            return cls(characters)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def write(self, path: Path | str) -> None:
        r"""Write one character a line.

        White space and characters that cannot be seen are written `\u` and four or `\U` and
        eight hexadecimal digits, as in Python; a backslash is doubled.
        """
        lines = (*SPECIAL_CHARACTERS, *map(_escaped, self.characters))
        Path(path).write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))

    def __len__(self) -> int:
        """How many characters are known, the special ones not counted."""
        return len(self.characters)

    def __contains__(self, character: str) -> bool:
        return len(character) == 1 and self.id(character) != UNKNOWN_CHARACTER

    def __repr__(self) -> str:
        shown = self.characters[:10] + ("..." if len(self) > 10 else "")
        return f"Alphabet({shown!r}, {len(self)} characters)"

    def __reduce__(self) -> tuple[type[Alphabet], tuple[str]]:
        """Copy and pickle as the characters alone; the table is rebuilt."""
        return Alphabet, (self.characters,)


def _check(characters: list[str]) -> None:
    if not characters:
        raise InputError("an alphabet needs at least one character")
    seen: dict[str, int] = {}
    for number, character in enumerate(characters, start=FIRST_CHARACTER):
        if not isinstance(character, str) or len(character) != 1:
            raise InputError(f"character {number} is {character!r}, expected one code point")
        if ord(character) in _SURROGATES:
            raise InputError(f"character {number} is {character!r}, half of a surrogate pair")
        if character in seen:
            raise InputError(
                f"characters {seen[character]} and {number} are both {character!r}; "
                "each may stand in an alphabet once"
            )
        seen[character] = number


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    # Lone surrogates pass as what they are: characters that no alphabet has.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _escaped(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable() and not character.isspace():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _unescaped(path: Path, number: int, line: str) -> str:
    match = _ESCAPE.fullmatch(line)
    if match is None:
        if len(line) == 1 and line != "\\":
            return line
        raise InputError(
            f"{path}, line {number}: {line[:40]!r} is no single character; expected one, or an "
            "escape such as \\u0020 for a space and \\\\ for a backslash. The file is damaged"
        )
    digits = match[1] or match[2]
    code = int(digits, 16) if digits else ord("\\")
    if code > 0x10FFFF:
        raise InputError(f"{path}, line {number}: {line!r} is beyond the last code point")
    return chr(code)

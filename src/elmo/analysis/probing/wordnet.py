"""First senses of words from WordNet 3.0, as the Debian package `wordnet-base` installs it.

Files and sense keys are described in the manual pages wndb(5) and senseidx(5): `index.noun` has a
line for each word with the offsets of its senses in `data.noun`, the most frequent first.
"""

from __future__ import annotations

from pathlib import Path

from elmo.errors import InputError, MissingFileError

PARTS = {"NOUN": "noun", "VERB": "verb", "ADJ": "adj", "ADV": "adv"}
"""Parts of speech of the evaluation data, and the endings of WordNet's files."""
_KINDS = {"n": 1, "v": 2, "a": 3, "r": 4, "s": 5}
PART_OF_KIND = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}
"""The part of speech of a sense key, by the number after its %."""
_SIMILAR = "&"
"""The pointer from a satellite adjective to the head of its cluster."""


class WordNet:
    """The senses of words.

    Args:
        folder: Where index.noun, data.noun and the like are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        missing = [
            f"{kind}.{part}"
            for part in PARTS.values()
            for kind in ("index", "data")
            if not (folder / f"{kind}.{part}").is_file()
        ]
        if missing:
            raise MissingFileError(
                f"no {missing[0]} in {folder}: WordNet 3.0 is needed for first senses; install the "
                "Debian package wordnet-base, or give --wordnet FOLDER"
            )
        self._indexes: dict[str, dict[str, int]] = {}
        self._data: dict[str, bytes] = {}

    def first_sense(self, lemma: str, part: str) -> str | None:
        """Return the key of a word's first sense, such as `art%1:09:00::`; None if unknown.

        Args:
            lemma: Its base form, `_` between the words of a phrase.
            part: NOUN, VERB, ADJ or ADV.
        """
        lemma = lemma.lower()
        offset = self._index(PARTS[part]).get(lemma)
        return None if offset is None else self._key(PARTS[part], offset, lemma)

    def _index(self, part: str) -> dict[str, int]:
        if part not in self._indexes:
            lines = (self._folder / f"index.{part}").read_text(encoding="utf-8").splitlines()
            entries = (line.split() for line in lines if not line.startswith(" "))
            # After the pointers come two counts, then the senses.
            self._indexes[part] = {e[0]: int(e[-int(e[2])]) for e in entries}
        return self._indexes[part]

    def _synset(self, part: str, offset: int) -> list[str]:
        if part not in self._data:
            self._data[part] = (self._folder / f"data.{part}").read_bytes()
        data = self._data[part]
        fields = data[offset : data.find(b"\n", offset)].decode("utf-8", "replace").split()
        if len(fields) < 6 or fields[0] != f"{offset:08d}":
            raise InputError(
                f"{self._folder}: data.{part} has no sense at {offset}, where index.{part} says it "
                "is; are the files of one version?"
            )
        return fields

    def _key(self, part: str, offset: int, lemma: str) -> str:
        fields = self._synset(part, offset)
        number = next((n for word, n in _words(fields) if word == lemma), None)
        if number is None:
            raise InputError(f"{self._folder}: {lemma!r} is not where index.{part} says it is")
        kind, head = _KINDS[fields[2]], ":"
        if fields[2] == "s":
            word, head_number = _words(self._synset(part, _head(fields)))[0]
            head = f"{word}:{head_number:02d}"
        return f"{lemma}%{kind}:{fields[1]}:{number:02d}:{head}"


def _words(fields: list[str]) -> list[tuple[str, int]]:
    """Return the words of a sense and their numbers within their file."""
    count = int(fields[3], 16)
    pairs = zip(fields[4 : 4 + 2 * count : 2], fields[5 : 5 + 2 * count : 2], strict=True)
    # A marker such as (a) gives the position of an adjective.
    return [(word.partition("(")[0].lower(), int(number, 16)) for word, number in pairs]


def _head(fields: list[str]) -> int:
    """Return the offset of the sense that a satellite belongs to."""
    start = 4 + 2 * int(fields[3], 16)
    count = int(fields[start])
    pointers = (fields[start + 1 + 4 * k : start + 5 + 4 * k] for k in range(count))
    return next(int(pointer[1]) for pointer in pointers if pointer[0] == _SIMILAR)

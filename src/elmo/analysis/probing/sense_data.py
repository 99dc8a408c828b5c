"""Data with senses of words in sentences: SemCor, the unified WSD evaluation, word in context."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from elmo.analysis.probing.wordnet import PART_OF_KIND, PARTS
from elmo.analysis.span_vectors import Spans
from elmo.errors import InputError, MissingFileError
from elmo.text.files import COMPRESSED, TextFile, Tokenizer
from elmo.text.sentences import Words

_POSITION = re.compile(r"\((?:a|p|ip)\)")
"""Positions of an adjective, in some keys of SemCor but never in WordNet's own."""


@dataclass(frozen=True)
class SenseData:
    """Sentences in which some words have senses."""

    sentences: list[Words] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """The sentence of each word with senses, its first word, and the word after its last."""
    lemmas: list[tuple[str, str]] = field(default_factory=list)
    """Lemma and part of speech of each."""
    keys: list[list[str]] = field(default_factory=list)
    """The correct senses of each, one or more."""
    groups: list[str] = field(default_factory=list)
    """The data set of each."""

    @property
    def spans(self) -> Spans:
        """The places as an array."""
        return np.array(self.places, np.int64)

    def add(
        self, units: list[str], tagged: dict[int, tuple[tuple[str, str], list[str]]], group: str
    ) -> None:
        """Add a sentence.

        Args:
            units: Its words and phrases, `_` between the words of a phrase.
            tagged: Lemma, part of speech and senses of some of them, by position.
            group: Its data set.
        """
        # A lone underscore is a word.
        split = [[word for word in unit.split("_") if word] or list(unit[:1]) for unit in units]
        words = [word for parts in split for word in parts]
        if not words:
            return
        starts = [0, *accumulate(len(parts) for parts in split)]
        for place in sorted(tagged):
            if not 0 <= place < len(units):
                raise InputError(f"a sense is tagged at word {place} of {len(units)}")
            if not split[place]:
                continue
            self.places.append((len(self.sentences), starts[place], starts[place + 1]))
            self.lemmas.append(tagged[place][0])
            self.keys.append(tagged[place][1])
            self.groups.append(group)
        self.sentences.append(words)

    def required(self, path: Path) -> SenseData:
        """Return the data; refuse a file without senses."""
        if not self.places:
            raise InputError(f"{path} has no words with senses")
        return self


@dataclass(frozen=True)
class PairData:
    """Pairs of sentences with a word that has the same sense in both or not."""

    sentences: list[Words]
    """First and second sentence of each pair in turn."""
    spans: Spans
    """The word in each of the 2 n sentences."""
    same: npt.NDArray[np.bool_]
    """Bool `(n,)`."""


def find_file(folder: Path, name: str) -> Path:
    """Find a file, compressed or not."""
    candidates = [folder / f"{name}{suffix}" for suffix in ("", *COMPRESSED)]
    for path in candidates:
        if path.is_file():
            return path
    raise MissingFileError(f"no {name} in {folder} (it may be compressed)")


# --- senses ---------------------------------------------------------------------------------------


def read_semcor(folder: Path, limit: int | None = None) -> SenseData:
    """Read SemCor, as lines of JSON: `words`, and `senses` with index, lemma, tag and key.

    Args:
        folder: Where semcor.jsonl is.
        limit: Sentences at most.
    """
    path = find_file(folder, "semcor.jsonl")
    data = SenseData()
    with TextFile(path) as lines:
        for number, line in enumerate(lines, start=1):
            if limit is not None and number > limit:
                break
            try:
                record = json.loads(line)
                tagged = {int(sense[0]): str(sense[3]) for sense in record["senses"]}
                words = [str(word) for word in record["words"]]
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise InputError(
                    f"{path}, line {number} is not in the format of SemCor: {error!r}"
                ) from None
            data.add(words, {at: _known_keys(keys) for at, keys in tagged.items()}, "semcor")
    return data.required(path)


def _known_keys(text: str) -> tuple[tuple[str, str], list[str]]:
    """Parse `year%1:28:02::;1:28:01::`: return lemma and part of speech, and all keys."""
    lemma, _, rest = _POSITION.sub("", text).partition("%")
    return (lemma.lower(), PART_OF_KIND[rest[:1]]), [f"{lemma}%{k}" for k in rest.split(";")]


def read_evaluation(folder: Path, name: str = "ALL") -> SenseData:
    """Read a data set of the unified evaluation framework (Raganato et al., EACL 2017).

    Args:
        folder: Where ALL/ALL.data.xml and ALL/ALL.gold.key.txt are.
        name: Which data set.
    """
    path = find_file(folder / name, f"{name}.data.xml")
    with TextFile(find_file(folder / name, f"{name}.gold.key.txt")) as lines:
        gold = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    with TextFile(path) as lines:
        try:
            root = ElementTree.fromstring("\n".join(lines))
        except ElementTree.ParseError as error:
            raise InputError(f"{path} is not XML: {error}") from None
    data = SenseData()
    for sentence in root.iter("sentence"):
        words: list[str] = []
        tagged = {}
        for element in sentence:
            identity, part = element.get("id"), element.get("pos", "")
            if element.tag == "instance" and identity in gold and part in PARTS:
                lemma = (element.get("lemma") or "").lower()
                tagged[len(words)] = ((lemma, part), gold[identity])
            words.append("_".join((element.text or "").split()))
        data.add(words, tagged, str(sentence.get("id")).split(".")[0])
    return data.required(path)


# --- pairs ----------------------------------------------------------------------------------------


def read_pairs(folder: Path, part: str, tokenizer: Tokenizer, limit: int | None = None) -> PairData:
    """Read a part of a word-in-context task, JSON as in MCL-WiC.

    Args:
        folder: Where `PART.data` and `PART.gold` are.
        part: Such as `training.en-en`.
        tokenizer: Splits the sentences; it must keep their characters.
        limit: Pairs at most.
    """
    path = find_file(folder, f"{part}.data")
    records = _json(path)[:limit]
    tags = {entry["id"]: entry["tag"] for entry in _json(find_file(folder, f"{part}.gold"))}
    sentences: list[Words] = []
    spans: list[tuple[int, int, int]] = []
    try:
        for record in records:
            for side in ("1", "2"):
                words, first, last = _located(
                    record[f"sentence{side}"],
                    int(record[f"start{side}"]),
                    int(record[f"end{side}"]),
                    tokenizer,
                )
                spans.append((len(sentences), first, last))
                sentences.append(words)
        same = np.array([tags[record["id"]] == "T" for record in records], np.bool_)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not in the format of MCL-WiC: {error!r}") from None
    if not len(same):
        raise InputError(f"{path} has no pairs")
    return PairData(sentences, np.array(spans, np.int64), same)


def _located(text: str, start: int, end: int, tokenizer: Tokenizer) -> tuple[Words, int, int]:
    """Split a text, and find the words that overlap with a part of it.

    Returns:
        The sentence with that part, its first word there, and the word after its last.
    """
    before, until = (len("".join(text[:place].split())) for place in (start, end))
    for words, offset in _offsets(tokenizer.sentences(text)):
        ends = [offset + n for n in accumulate(map(len, words))]
        inside = [
            place
            for place, (word, word_end) in enumerate(zip(words, ends, strict=True))
            if word_end > before and word_end - len(word) < until
        ]
        if inside:
            return words, inside[0], inside[-1] + 1
    raise ValueError(f"no word from character {start} to {end} of {text[:60]!r}")


def _offsets(sentences: list[Words]) -> Iterator[tuple[Words, int]]:
    """Yield sentences, and the number of characters before each, not counting spaces."""
    before = 0
    for words in sentences:
        yield words, before
        before += sum(map(len, words))


def _json(path: Path) -> Any:
    with TextFile(path) as lines:
        try:
            return json.loads("\n".join(lines))
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from None

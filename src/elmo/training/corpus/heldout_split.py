"""Which text is held out: by a seeded hash of its content, so that copies stay together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo.training.corpus.part_files import Ids, Part, PartFacts

Split = Literal["train", "heldout"]
Unit = Literal["documents", "passages", "lines"]

PASSAGE_LINES = 50
_ENOUGH = 10
"""Units that should be held out on average; where documents are too few for it, passages are."""
_HASHES = 1 << 64

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class SplitRule:
    """How text is split; units whose hash is below the limit are held out."""

    unit: Unit
    limit: int
    seed: int

    def heldout_lines(self, part: Part) -> npt.NDArray[np.bool_]:
        """Return which lines of a part are held out, `(n_lines,)`."""
        n_lines = len(part.line_hashes)
        if part.facts.heldout:
            return np.ones(n_lines, np.bool_)
        if not self.limit or not n_lines:
            return np.zeros(n_lines, np.bool_)
        starts = _unit_starts(part, self.unit)
        is_heldout = _unit_hashes(part, starts, self.seed) <= np.uint64(self.limit - 1)
        return np.repeat(is_heldout, np.diff([*starts, n_lines]))


class SplitText(NamedTuple):
    """The text of one split of a part."""

    ids: npt.NDArray[np.uint32]
    """Words, `(n_words,)`."""
    sentence_lengths: Ids
    """Words of each sentence, `(n_sentences,)`."""
    document_lengths: Ids
    """Sentences of each document, `(n_documents,)`."""


def choose_rule(
    parts: Iterable[Part], facts: list[PartFacts], share: float, seed: int
) -> SplitRule:
    """Choose a rule: by documents, or by smaller units where these are too few.

    If there are two units, at least one is held out and at least one is not.

    Args:
        parts: All parts, read once.
        facts: What is known of them.
        share: Fraction to hold out; 0 for nothing.
        seed: Decides which units.
    """
    split = [fact for fact in facts if not fact.heldout]
    needed = _ENOUGH / share if share else 0
    unit: Unit = "lines"
    if sum(fact.n_documents for fact in split) >= needed:
        unit = "documents"
    elif sum(fact.n_lines for fact in split) >= needed * PASSAGE_LINES:
        unit = "passages"
    if not share:
        return SplitRule(unit, 0, seed)
    lowest, highest = _HASHES, -1
    for part in parts:
        if not part.facts.heldout and part.facts.n_lines:
            hashes = _unit_hashes(part, _unit_starts(part, unit), seed)
            lowest, highest = min(lowest, int(hashes.min())), max(highest, int(hashes.max()))
    if lowest >= highest:  # one unit, or none
        return SplitRule(unit, 0, seed)
    return SplitRule(unit, min(max(round(share * _HASHES), lowest + 1), highest), seed)


def select_split(part: Part, rule: SplitRule, split: Split) -> SplitText:
    """Return the text of one split of a part, in the order of the text."""
    held = rule.heldout_lines(part)
    lines = held if split == "heldout" else ~held
    lengths = np.diff(part.sentence_starts)
    starts_document = np.zeros(len(lines) + 1, np.bool_)
    starts_document[part.document_starts] = True
    # Where lines were taken out, what follows is not a continuation.
    starts_document[1:-1] |= ~lines[:-1]
    ids: npt.NDArray[np.uint32] = part.ids
    if not lines.all():
        sentences = np.repeat(lines, np.diff(part.line_starts))
        ids = ids[np.repeat(sentences, lengths)]
        lengths = lengths[sentences]
    per_line = np.diff(part.line_starts)[lines]
    first_lines = np.flatnonzero(starts_document[:-1][lines])
    documents = np.add.reduceat(per_line, first_lines) if len(first_lines) else per_line[:0]
    return SplitText(ids, lengths, documents)


def _unit_starts(part: Part, unit: Unit) -> Ids:
    """Return the first line of each unit of a part, `(n_units,)`."""
    if unit == "documents":
        return part.document_starts[:-1]
    n_lines = len(part.line_hashes)
    if unit == "lines":
        return np.arange(n_lines)
    lengths = np.diff(part.document_starts)
    within = np.arange(n_lines) - np.repeat(part.document_starts[:-1], lengths)
    return np.flatnonzero(within % PASSAGE_LINES == 0)


def _unit_hashes(part: Part, starts: Ids, seed: int) -> Hashes:
    """Return a hash of the content of each unit, `(n_units,)`."""
    salt = _mixed(np.array([seed % _HASHES], np.uint64))
    return _mixed(np.add.reduceat(_mixed(part.line_hashes ^ salt), starts))


def _mixed(numbers: Hashes) -> Hashes:
    """Mix the bits of numbers, `(n,)`, as splitmix64 does."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

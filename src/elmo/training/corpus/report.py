"""What `elmo prepare` tells about a corpus when it is done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from elmo.training.corpus.shards import Manifest, SideCounts


@dataclass(frozen=True)
class PrepareReport:
    """A prepared corpus in figures; `report.json`."""

    folder: str
    train: SideCounts
    heldout: SideCounts
    types: int
    """Different words of the training text."""
    vocabulary_words: int
    heldout_by: str
    cut_sentences: int
    """Sentences longer than allowed, which became several."""
    short_sentences: int
    """Sentences shorter than allowed, which were left out."""
    boundary_marks: int
    """`<S>` and `</S>` in the text, which were left out."""
    seconds: float
    words_per_second: float
    """Words of the corpus by the time of this run; what an earlier run did is not counted."""
    notes: tuple[str, ...]
    """What is worth knowing about the text."""

    def to_json(self) -> str:
        """Give the content of `report.json`."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def table(self) -> str:
        """Give the figures as lines for people."""
        rows = [("", "train", "held out")]
        for name, title in (
            ("words", "words"),
            ("sentences", "sentences"),
            ("documents", "documents"),
            ("longest_sentence", "longest sentence"),
            ("long_words", "words over 48 bytes, to be cut"),
            ("unknown", "unknown words"),
        ):
            rows.append(
                (title, f"{getattr(self.train, name):,}", f"{getattr(self.heldout, name):,}")
            )
        rows.append(("unknown rate", unknown_rate(self.train), unknown_rate(self.heldout)))
        lines = [f"{title:<31}{train:>15}{held:>13}" for title, train, held in rows]
        lines.append(f"{'different words':<31}{self.types:>15,}")
        lines.append(f"{'words of the vocabulary':<31}{self.vocabulary_words:>15,}")
        lines.append(f"{'held out by':<31}{self.heldout_by:>15}")
        if self.cut_sentences or self.short_sentences:
            lines.append(f"{'sentences cut, left out':<31}{self.cut_sentences:>15,}")
            lines[-1] += f"{self.short_sentences:>13,}"
        lines.append(f"{self.folder}: {self.seconds:.1f} s, {self.words_per_second:,.0f} words/s")
        return "\n".join(lines)


def unknown_rate(side: SideCounts) -> str:
    """Give the share of words that are not in the vocabulary, for people."""
    return f"{100 * side.unknown / side.words:.2f} %" if side.words else "-"


@dataclass(frozen=True)
class TextFacts:
    """What the first pass found in the text, apart from the words."""

    cut_sentences: int
    short_sentences: int
    boundary_marks: int


def make_report(
    folder: Path, manifest: Manifest, found: TextFacts, notes: list[str], seconds: float, words: int
) -> PrepareReport:
    """Put the report of a run together.

    Args:
        folder: The prepared corpus.
        manifest: Its manifest.
        found: What the first pass found.
        notes: What is worth knowing.
        seconds: How long this run took.
        words: Words that this run tokenised.
    """
    return PrepareReport(
        folder=str(folder),
        train=manifest.train,
        heldout=manifest.heldout,
        types=manifest.types,
        vocabulary_words=manifest.vocabulary_words,
        heldout_by=manifest.heldout_by,
        **asdict(found),
        seconds=round(seconds, 2),
        words_per_second=round(words / seconds, 1),
        notes=tuple(notes),
    )

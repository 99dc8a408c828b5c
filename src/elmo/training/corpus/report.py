"""What `elmo prepare` reports of a finished corpus."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from elmo.runtime.input_files import read_json
from elmo.runtime.tables import NOTHING, text_table
from elmo.training.corpus.shards import SplitCounts

_ROWS = {
    "words": "words",
    "sentences": "sentences",
    "documents": "documents",
    "longest_sentence": "longest sentence",
    "long_words": "words of more than 48 bytes",
    "unknown": "unknown words",
}


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """A prepared corpus in figures; `report.json`."""

    folder: str
    train: SplitCounts
    heldout: SplitCounts
    types: int
    """Distinct words of the training split."""
    vocabulary_words: int
    heldout_by: str
    cut_sentences: int
    """Sentences above the limit, which became several."""
    short_sentences: int
    """Sentences below the limit, which were left out."""
    boundary_marks: int
    """`<S>` and `</S>` in the text, which were left out."""
    seconds: float
    words_per_second: float
    """Words tokenized by this run, by its time; what an earlier run did is not counted."""
    notes: tuple[str, ...]
    """What the user should know about the text."""
    was_complete: bool = False
    """Whether an earlier run had done everything; not in the file."""

    @classmethod
    def read(cls, path: Path) -> PrepareReport:
        """Read the `report.json` of a complete corpus."""
        fields = read_json(path)
        for split in ("train", "heldout"):
            fields[split] = SplitCounts(**fields[split])
        return cls(**fields | {"notes": tuple(fields["notes"]), "was_complete": True})

    def to_json(self) -> str:
        """Return the content of `report.json`."""
        fields = {k: v for k, v in asdict(self).items() if k != "was_complete"}
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    def table(self) -> str:
        """Return the figures as a table."""
        splits = (self.train, self.heldout)
        rows = [
            [title, *(f"{getattr(split, name):,}" for split in splits)]
            for name, title in _ROWS.items()
        ]
        rows += [
            ["unknown rate", *(_unknown_rate(split) for split in splits)],
            ["distinct words", f"{self.types:,}", ""],
            ["words of the vocabulary", f"{self.vocabulary_words:,}", ""],
            ["held out by", self.heldout_by, ""],
        ]
        if self.cut_sentences or self.short_sentences:
            counts = f"{self.cut_sentences:,}", f"{self.short_sentences:,}"
            rows.append(["sentences cut, left out", *counts])
        figures = text_table(["", "train", "held out"], rows)
        lines = [line.rstrip() for line in figures.split("\n")]
        if self.train.long_words or self.heldout.long_words:
            lines.append(
                "(models cut these words: they read 50 characters of a word, its 48 bytes in UTF-8 "
                "and two marks of its begin and end)"
            )
        lines.append(f"{self.folder}: {self.seconds:.1f} s, {self.words_per_second:,.0f} words/s")
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([self.table(), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return the table and the notes for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"


def _unknown_rate(split: SplitCounts) -> str:
    return f"{100 * split.unknown / split.words:.2f} %" if split.words else NOTHING

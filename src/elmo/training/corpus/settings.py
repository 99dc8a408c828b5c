"""What users choose when they prepare a corpus, as one frozen record: flags, JSON, manifest.

Nothing here imports PyTorch, so that help texts come at once.
"""

from __future__ import annotations

import codecs
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.settings import TokenizerName

_NOT_IN_THE_RESULT = ("workers", "resume", "overwrite")
"""Choices that do not change what is written."""
LEAST_SHARD_WORDS = 10_000
"""Text is read in pieces no larger than a shard: smaller ones would cut documents and lines."""


@dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """How text files become a vocabulary and shards."""

    tokenizer: TokenizerName = "whitespace"
    """whitespace: a line is a sentence, split already; english splits raw English by rules; spacy
    (extra text) and chinese (extra zh) split raw text with the libraries of other people."""
    vocab_size: int = 100_000
    """Words of the vocabulary at most, <S>, </S> and <UNK> included; the most frequent ones."""
    min_count: int = 2
    """How often a word must occur to be in the vocabulary."""
    vocabulary: Path | None = None
    """Use this list of words, one a line, instead of counting; <S>, </S> and <UNK> among them."""
    heldout: float = 0.01
    """Share of the documents to hold out. Where there are few documents, passages of 50 lines are
    held out, or lines."""
    heldout_files: tuple[str, ...] = ()
    """Files, folders or globs to hold out whole; then --heldout does not apply."""
    max_sentence: int = 400
    """Words of a sentence at most; longer ones are cut into several."""
    min_sentence: int = 1
    """Words of a sentence at least; shorter ones are left out."""
    encoding: str = "utf-8"
    """Encoding of the text files."""
    workers: int | None = None
    """Processes; by default one a core, six at most. The result does not depend on it."""
    shard_words: int = 20_000_000
    """Words in a shard, about; at least 10,000."""
    seed: int = 0
    """Which documents are held out."""
    resume: bool = False
    """Go on where an interrupted run stopped; start if there is none."""
    overwrite: bool = False
    """Replace a prepared corpus, or an unfinished one."""

    def __post_init__(self) -> None:
        at_least = {"vocab_size": 4, "min_count": 1, "min_sentence": 1}
        at_least["shard_words"] = LEAST_SHARD_WORDS
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{_flag(name)} is {getattr(self, name)}, expected at least {least:,}"
                )
        if self.max_sentence < self.min_sentence:
            raise ConfigError(
                f"--max-sentence is {self.max_sentence}, less than --min-sentence, "
                f"{self.min_sentence}: no sentence can be both"
            )
        if not 0 <= self.heldout < 1:
            raise ConfigError(f"--heldout is {self.heldout}, expected a share from 0 to below 1")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers is {self.workers}, expected at least 1")
        if self.resume and self.overwrite:
            raise ConfigError("--resume goes on with an output, --overwrite starts anew: give one")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ConfigError(
                f"no encoding {self.encoding!r}; for instance utf-8 or latin-1"
            ) from None

    def result_settings(self) -> dict[str, Any]:
        """Give the choices that the result depends on, as JSON can hold them."""
        chosen = {k: v for k, v in asdict(self).items() if k not in _NOT_IN_THE_RESULT}
        chosen["heldout_files"] = list(self.heldout_files)
        chosen["vocabulary"] = None if self.vocabulary is None else str(self.vocabulary)
        return chosen

    def difference(self, other: dict[str, Any]) -> str:
        """Say in words in what other settings, as saved, differ from these; empty if in nothing."""
        ours = self.result_settings()
        names = [field.name for field in fields(self) if field.name in ours]
        return ", ".join(
            f"{_flag(name)} was {other.get(name)!r} and is {ours[name]!r} now"
            for name in names
            if other.get(name) != ours[name]
        )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

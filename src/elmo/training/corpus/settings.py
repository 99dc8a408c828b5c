"""The settings of preparing a corpus: the flags of `elmo prepare`, and part of the manifest."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from elmo.errors import ConfigError
from elmo.settings import PART, Group, Settings, TokenizerName, at_least, flag_of

_WITHOUT_EFFECT = ("workers", "resume", "overwrite")
"""Settings that the result does not depend on."""

_VOCABULARY, _HELDOUT = Group("Vocabulary"), Group("Held-out split")
_SENTENCES = Group("Sentences and shards")


@dataclass(frozen=True, kw_only=True)
class PrepareSettings(Settings):
    """How text files become a vocabulary and shards."""

    tokenizer: TokenizerName = "whitespace"
    """whitespace: a line is a sentence, split already; english splits raw English by rules; spacy
    (extra text) and chinese (extra zh) split raw text with third-party libraries."""
    vocab_size: Annotated[int, at_least(4)] = 100_000
    """Words of the vocabulary at most, <S>, </S> and <UNK> included; the most frequent ones."""
    heldout_share: Annotated[float, PART] = 0.01
    """Fraction of the documents to hold out. Where there are few documents, passages of 50 lines
    are held out, or lines."""
    encoding: str = "utf-8"
    """Encoding of the text files."""
    workers: Annotated[int | None, at_least(1)] = None
    """Processes; by default one a core, six at most. The result does not depend on it."""
    resume: bool = False
    """Resume an interrupted run; start if there is none."""
    overwrite: bool = False
    """Replace a prepared corpus, or an unfinished one."""

    min_count: Annotated[int, at_least(1), _VOCABULARY] = 2
    """How often a word must occur to be in the vocabulary."""
    vocabulary: Annotated[Path | None, _VOCABULARY] = None
    """Use this list of words, one a line, instead of counting; <S>, </S> and <UNK> among them."""

    heldout_files: Annotated[tuple[str, ...], _HELDOUT] = ()
    """Files, folders or globs to hold out whole; then --heldout-share does not apply."""
    seed: Annotated[int, _HELDOUT] = 0
    """Decides which documents are held out."""

    max_sentence_length: Annotated[int, _SENTENCES] = 400
    """Words of a sentence at most; longer ones are cut into several."""
    min_sentence_length: Annotated[int, at_least(1), _SENTENCES] = 1
    """Words of a sentence at least; shorter ones are left out."""
    shard_words: Annotated[int, at_least(1), _SENTENCES] = 20_000_000
    """Words in a shard, about. Below 10,000 documents and long lines are cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_sentence_length < self.min_sentence_length:
            raise ConfigError(
                f"--max-sentence-length is {self.max_sentence_length}, less than "
                f"--min-sentence-length, {self.min_sentence_length}: no sentence can be both"
            )
        if self.resume and self.overwrite:
            raise ConfigError("--resume continues an output, --overwrite starts anew: give one")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ConfigError(
                f"no encoding {self.encoding!r}; for instance utf-8 or latin-1"
            ) from None

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that the result depends on, as JSON can hold them."""
        return {k: v for k, v in self.to_dict().items() if k not in _WITHOUT_EFFECT}

    def difference(self, other: dict[str, Any]) -> str:
        """Return in words how other settings, as saved, differ from these; empty if they do not."""
        return ", ".join(
            f"{flag_of(name)} was {other.get(name)!r} and is {value!r} now"
            for name, value in self.result_settings().items()
            if other.get(name) != value
        )

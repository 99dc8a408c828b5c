"""A corpus, embedded window by window in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.analysis.settings import CorpusSettings
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.lm.reading import read_text
from elmo.settings import Layers
from elmo.text.characters import ragged_positions
from elmo.text.files import Tokenizer, get_tokenizer, require_text
from elmo.text.sentences import Words

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """Sentences of n words in all that were embedded together."""

    sentences: list[Words]
    vectors: Vectors
    """Of all words in order: `(n_layers, n, dim)`, or `(n, dim)` for one layer."""
    ignore_case: bool = False

    @cached_property
    def sizes(self) -> Integers:
        """Words of each sentence, int64 `(n_sentences,)`."""
        return np.fromiter(map(len, self.sentences), np.int64, len(self.sentences))

    @cached_property
    def positions(self) -> tuple[Integers, Integers]:
        """The sentence of each word and its position there, both int64 `(n,)`."""
        return ragged_positions(self.sizes)

    @cached_property
    def numbered(self) -> tuple[list[str], Integers]:
        """The distinct words, and the number of each word among them, int64 `(n,)`."""
        words: Iterable[str] = chain.from_iterable(self.sentences)
        if self.ignore_case:
            words = map(str.lower, words)
        numbers: dict[str, int] = {}
        ids = [numbers.setdefault(word, len(numbers)) for word in words]
        return list(numbers), np.array(ids, np.int64)


class Corpus:
    """The sentences of some text files, which may be iterated over again and again.

    Args:
        settings: Which files, and how they are read.
        model: Its tokenizer splits the text unless the settings name another one.
        show_progress: Whether to show a progress bar for each file.
    """

    def __init__(
        self, settings: CorpusSettings, model: ELMo | None = None, show_progress: bool = False
    ) -> None:
        require_corpus(settings)
        self.settings = settings
        self.tokenizer: Tokenizer
        if settings.tokenizer == "model" and model is not None:
            self.tokenizer = model.tokenizer
        else:
            self.tokenizer = get_tokenizer(settings.tokenizer)
        self._look = None if model is None else model.warn_of_texts
        self._show_progress = show_progress

    @property
    def name(self) -> str:
        """The paths of the files."""
        return ", ".join(str(path) for path in self.settings.corpus)

    @property
    def facts(self) -> dict[str, str]:
        """The names of the files without their folders, and of the tokenizer, for reports."""
        names = ", ".join(path.name for path in self.settings.corpus)
        return {"corpus": names, "tokenizer": self.tokenizer.name}

    def __iter__(self) -> Iterator[Words]:
        """Yield the sentences that have words."""
        sentences = chain.from_iterable(map(self._sentences, self.settings.corpus))
        return islice(sentences, self.settings.max_sentences)

    def word(self, word: str) -> str:
        """Return the form under which a word is counted."""
        return word.lower() if self.settings.ignore_case else word

    def count_words(self) -> Counter[str]:
        """Count the occurrences of each word in the whole corpus."""
        counts: Counter[str] = Counter()
        for sentence in self:
            counts.update(map(str.lower, sentence) if self.settings.ignore_case else sentence)
        return counts

    def windows(
        self, model: ELMo, layers: Layers = "all", sentences: Iterable[Words] | None = None
    ) -> Iterator[Window]:
        """Embed the corpus, or some sentences of it.

        Args:
            model: The model.
            layers: Which vectors of a word; see `ELMo.encode_tokens`.
            sentences: Which sentences; all if None.
        """
        chosen = iter(self if sentences is None else sentences)
        for window, vectors in model.stream_windows(chosen, layers=layers):
            yield Window(window, np.concatenate(vectors, axis=-2), self.settings.ignore_case)

    def _sentences(self, path: Path) -> Iterator[Words]:
        encoding, show = self.settings.encoding, self._show_progress
        look, self._look = self._look, None  # once is enough
        read = read_text(path, self.tokenizer, encoding, look, show)
        return (sentence for sentence in read if sentence)


def require_corpus(settings: CorpusSettings) -> None:
    """Refuse a corpus without files, or with one that cannot be read, before any work."""
    if not settings.corpus:
        raise InputError("no text to read: give --corpus FILE")
    for path in settings.corpus:
        require_text(path, settings.encoding)

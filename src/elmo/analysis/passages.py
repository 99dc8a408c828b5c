"""A corpus -> windows of sentences with the vectors of all their words, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from elmo.analysis.settings import CorpusSettings
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.settings import Layers
from elmo.text.characters import ragged_positions
from elmo.text.files import TextFile, Tokenizer, get_tokenizer, read_sentences
from elmo.text.sentences import Words

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Passage:
    """Some sentences that were embedded together; n words in all."""

    sentences: list[Words]
    vectors: Vectors
    """Of all words, one sentence after another: `(n_layers, n, dim)`, or `(n, dim)` for one."""
    ignore_case: bool = False

    @cached_property
    def sizes(self) -> Integers:
        """Words of each sentence, int64 `(n_sentences,)`."""
        return np.fromiter(map(len, self.sentences), np.int64, len(self.sentences))

    @cached_property
    def places(self) -> tuple[Integers, Integers]:
        """The sentence of each word and its place there, both int64 `(n,)`."""
        return ragged_positions(self.sizes)

    @cached_property
    def numbered(self) -> tuple[list[str], Integers]:
        """The different words, and which of them each word is, int64 `(n,)`."""
        words: Iterable[str] = chain.from_iterable(self.sentences)
        if self.ignore_case:
            words = map(str.lower, words)
        numbers: dict[str, int] = {}
        ids = [numbers.setdefault(word, len(numbers)) for word in words]
        return list(numbers), np.array(ids, np.int64)


class Corpus:
    """The sentences of some text files, as often as they are wanted.

    Args:
        settings: Which files, and how they are read.
        show_progress: Whether a bar moves along with the bytes that are read.
    """

    def __init__(self, settings: CorpusSettings, show_progress: bool = False) -> None:
        if not settings.corpus:
            raise InputError("no text to read: give --corpus FILE")
        for path in settings.corpus:
            TextFile(path, settings.encoding).close()  # missing files are told of before any work
        self.settings = settings
        self.tokenizer: Tokenizer = get_tokenizer(settings.tokenizer)
        self._show_progress = show_progress

    @property
    def name(self) -> str:
        """The names of the files, for people."""
        return ", ".join(str(path) for path in self.settings.corpus)

    @property
    def title(self) -> str:
        """The names of the files without their folders, for reports."""
        return ", ".join(path.name for path in self.settings.corpus)

    def __iter__(self) -> Iterator[Words]:
        """Yield the sentences that have words."""
        return islice(chain.from_iterable(map(self._file, self.settings.corpus)), self._limit)

    @property
    def _limit(self) -> int | None:
        return self.settings.sentences

    def word(self, word: str) -> str:
        """Give the form under which a word is counted."""
        return word.lower() if self.settings.ignore_case else word

    def count_words(self) -> Counter[str]:
        """Read everything, and count how often each word occurs."""
        counts: Counter[str] = Counter()
        for sentence in self:
            counts.update(map(str.lower, sentence) if self.settings.ignore_case else sentence)
        return counts

    def passages(
        self, model: ELMo, layers: Layers = "all", sentences: Iterable[Words] | None = None
    ) -> Iterator[Passage]:
        """Embed the corpus, or some sentences of it.

        Args:
            model: What embeds.
            layers: Which vectors of a word; see `ELMo.encode_tokens`.
            sentences: Which sentences; all if None.
        """
        chosen = iter(self if sentences is None else sentences)
        for window, vectors in model.stream_windows(chosen, layers=layers):
            together = np.concatenate(vectors, axis=-2)
            yield Passage(window, together, self.settings.ignore_case)

    def _file(self, path: Any) -> Iterator[Words]:
        with (
            TextFile(path, self.settings.encoding) as file,
            tqdm(
                total=file.total_bytes,
                disable=not self._show_progress,
                unit="B",
                unit_scale=True,
                desc=str(getattr(path, "name", path)),
            ) as bar,
        ):
            for sentence in read_sentences(file, self.tokenizer):
                if sentence:
                    yield sentence
                if file.bytes_read != bar.n:
                    bar.update(file.bytes_read - bar.n)

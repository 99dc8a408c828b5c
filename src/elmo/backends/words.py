"""Context-free word vectors: computed once for each distinct word, remembered, or read from a file.

What a batch goes on with is always the same: the vectors of its distinct words, and which of them
stands where (`WordsOfBatch`). `HostWordCache` keeps vectors in host memory; backends may bring a
cache of their own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from elmo.model.bilm import BiLMBase
from elmo.model.ids import WordIds
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import exact_products, send
from elmo.runtime.interrupts import interrupts_later
from elmo.text.sentences import Words

if TYPE_CHECKING:  # reads HDF5
    from elmo.weights.token_file import TokenFile


class WordsOfBatch(NamedTuple):
    """The words of a batch, on a device."""

    vectors: Tensor
    """Vectors of the distinct words, `(m, projection_dim)`."""
    tokens: Tensor
    """Which of them stands at each place, one sentence after another, int64 `(n,)`."""
    n_cut: int
    """How many of the n are longer than the model reads and lose their end."""


class Sentences(Protocol):
    """Sentences, none of them empty, whose words can be looked up."""

    @property
    def sizes(self) -> list[int]:
        """Words of each sentence."""

    def take(self, numbers: Sequence[int] | slice) -> Sentences:
        """Return some of the sentences."""

    def words(self) -> WordsOfBatch:
        """Look up the words of all these sentences."""


@dataclass(frozen=True)
class WordSource:
    """Computes the context-free vectors of words, or reads them from a file."""

    model: BiLMBase
    device: torch.device
    """Where the model computes."""
    ids: WordIds
    """Turns words into the ids that the model reads."""
    lookup: WordLookup | None = None
    """Terms of known words that are added to what their characters give."""
    file: TokenFile | None = None
    """Precomputed vectors."""

    def compute(self, words: Sequence[str]) -> Tensor:
        """Compute the vectors `(len(words), projection_dim)` of words, on the device."""
        with torch.no_grad(), exact_products(self.device):
            vectors = self.model.encode_words(send(self.ids.rows(words).numpy(), self.device))
        return vectors if self.lookup is None else self.lookup.add_to(vectors, words)


class WordCache(ABC):
    """Word vectors by word: remembered, from a file, or computed.

    Args:
        source: Where vectors come from.
        capacity: How many vectors are kept; the least recently used go first.
    """

    checks_words: ClassVar[bool] = False
    """Whether `windows` raises an error that names what is not a word."""

    def __init__(self, source: WordSource, capacity: int) -> None:
        self.source = source
        self._capacity = capacity
        self._lock = threading.Lock()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def clear(self) -> None:
        """Forget all vectors."""

    @abstractmethod
    def lookup(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of distinct words, shape `(len(words), projection_dim)`."""

    @abstractmethod
    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Look up the words of a batch."""

    def windows(self, sentences: Sequence[Words], max_rows: int) -> Iterator[tuple[int, Sentences]]:
        """Cut a call into windows, the sentences of which are sorted into batches together.

        Args:
            sentences: The sentences of a call.
            max_rows: Sentences in a batch.

        Yields:
            The number of a window's first sentence, and its sentences.
        """
        yield 0, ListedSentences(self, sentences)


class ListedSentences:
    """Sentences as lists of words, which are looked up when the batch is run.

    Args:
        cache: Where words are looked up.
        sentences: Lists of words.
    """

    def __init__(self, cache: WordCache, sentences: Sequence[Words]) -> None:
        self._cache = cache
        self._sentences = sentences

    @property
    def sizes(self) -> list[int]:
        """Words of each sentence."""
        return list(map(len, self._sentences))

    def take(self, numbers: Sequence[int] | slice) -> ListedSentences:
        """Return some of the sentences."""
        if isinstance(numbers, slice):
            return ListedSentences(self._cache, self._sentences[numbers])
        return ListedSentences(self._cache, [self._sentences[number] for number in numbers])

    def words(self) -> WordsOfBatch:
        """Look up the words of all these sentences."""
        return self._cache.read(self._sentences)


class HostWordCache(WordCache):
    """Word vectors in host memory: from a file if it has them, from memory, else computed.

    Args:
        source: See `WordCache`.
        dim: Width of a vector.
        capacity: How many computed vectors are kept; the least recently used go first.
    """

    def __init__(self, source: WordSource, dim: int, capacity: int) -> None:
        super().__init__(source, capacity)
        self._slots: OrderedDict[str, int] = OrderedDict()
        self._table = torch.empty(capacity, dim)  # the system takes pages only as they are filled

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Forget all computed vectors."""
        with self._lock:
            self._slots.clear()

    def lookup(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of distinct words, shape `(len(words), dim)`."""
        with interrupts_later(), self._lock:
            vectors = torch.empty(len(words), self._table.shape[1])
            missing = self._fill_known(words, vectors)
            if missing:
                new_words = [words[place] for place in missing]
                new = self.source.compute(new_words).cpu()
                vectors[torch.tensor(missing)] = new
                self._remember(new_words, new)
            return vectors

    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Look up the words of a batch."""
        places: dict[str, int] = {}
        tokens = [places.setdefault(word, len(places)) for s in sentences for word in s]
        words = list(places)
        cut = {words[place] for place in self.source.ids.are_cut(words).nonzero()[0]}
        n_cut = sum(word in cut for sentence in sentences for word in sentence) if cut else 0
        device = self.source.device
        return WordsOfBatch(self.lookup(words).to(device), torch.tensor(tokens).to(device), n_cut)

    def _fill_known(self, words: Sequence[str], vectors: Tensor) -> list[int]:
        """Fill in the vectors at hand; return the places of the others."""
        file = self.source.file
        remembered: list[tuple[int, int]] = []
        on_file: list[tuple[int, int]] = []
        missing: list[int] = []
        for place, word in enumerate(words):
            row = file.row(word) if file is not None else None
            if row is not None:
                on_file.append((place, row))
            elif (slot := self._slots.get(word)) is not None:
                self._slots.move_to_end(word)
                remembered.append((place, slot))
            else:
                missing.append(place)
        if remembered:
            places, slots = torch.tensor(remembered).T
            vectors[places] = self._table[slots]
        if on_file and file is not None:
            places, rows = torch.tensor(on_file).T
            vectors[places] = torch.from_numpy(file.vectors(rows.numpy()))
        return missing

    def _remember(self, words: Sequence[str], vectors: Tensor) -> None:
        kept = words[-self._capacity :] if self._capacity else []
        if not kept:
            return
        filled = len(self._slots)
        slots = list(range(filled, min(self._capacity, filled + len(kept))))
        try:
            slots += [self._slots.popitem(last=False)[1] for _ in range(len(kept) - len(slots))]
            self._table[torch.tensor(slots)] = vectors[-len(kept) :]
            self._slots.update(zip(kept, slots, strict=True))
        except BaseException:  # such as too little memory: better no words than wrong vectors
            self._slots.clear()
            raise

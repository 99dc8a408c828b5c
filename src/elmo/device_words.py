"""Context-free word vectors that stay on a GPU: new words are spelt and sent once.

The host keeps a slot for each known word, the GPU a table with a row for each slot. Mapping a word
to its slot is all the host does for a known word, millions of times a second: one lookup in a
dictionary, in a loop that runs in C. All words of a call are looked up ahead, in the order given:
batches take sentences from here and there, and lookups that jump about in memory take longer.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count, islice
from typing import NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.characters import ragged_positions
from elmo.devices import send
from elmo.errors import InputError
from elmo.sentences import Words, checked_sentences
from elmo.word_vectors import ComputeVectors, TokenFile

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MOST_AHEAD = 1 << 18
"""Distinct words that are looked up ahead at most: those that are new are spelt at once."""


class WordsOfBatch(NamedTuple):
    """The words of a batch, on a device."""

    vectors: Tensor
    """Vectors of the distinct words, `(m, dim)`."""
    tokens: Tensor
    """Which of them stands at each place, one sentence after another, int64 `(n,)`."""
    n_cut: int
    """How many of the n are longer than the model reads and lose their end."""


class DeviceWordVectors:
    """Word vectors by word, on a device: from memory, else from a file, else computed.

    Args:
        compute: Gives the vectors `(n, dim)` of n distinct words, on the device.
        dim: Width of a vector.
        capacity: How many vectors are kept; those not asked for longest go first.
        device: Where vectors are kept.
        are_cut: Tells which words are longer than the model reads.
        file: Precomputed vectors.
    """

    def __init__(
        self,
        compute: ComputeVectors,
        dim: int,
        capacity: int,
        device: torch.device,
        are_cut: Callable[[Sequence[str]], Flags],
        file: TokenFile | None = None,
    ) -> None:
        self._compute = compute
        self._capacity = capacity
        self._device = device
        self._are_cut = are_cut
        self._file = file
        self._table = torch.empty(capacity, dim, device=device)
        self._lock = threading.Lock()
        self._forget()

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Forget all vectors."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._slots = _Slots(self._capacity)
        self._words: list[str] = []
        """The word of each slot that has one: they are filled one after another."""
        self._cut = np.zeros(self._capacity, dtype=bool)
        self._used: Numbers = np.zeros(self._capacity, dtype=np.int64)
        """The batch that last had the word of each slot; the first one is 1."""
        self._batch = 0

    def lookup(self, words: Sequence[str]) -> Tensor:
        """Give the vectors of words, shape `(len(words), dim)`."""
        found = self.read([list(words)])
        return found.vectors[found.tokens]

    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Give the words of a batch."""
        if isinstance(sentences, SentencesReadAhead):
            return sentences.words_of_batch()
        with self._lock:
            text = self._read(self._find(sentences))
        return _as_batch(text.vectors, text.tokens, text.cut)

    def read_ahead(self, sentences: Sequence[Words], first: int = 0) -> Sequence[Words]:
        """Look the words of many sentences up, so that `read` of some of them need not.

        Args:
            sentences: Lists of what should be words, which is found out here.
            first: The number of the first sentence, for what is said of those that are not.

        Returns:
            The sentences; as they were where they have too many distinct words.
        """
        with self._lock:
            slots = self._find(sentences, first)
            limit = min(self._capacity, _MOST_AHEAD)
            if self._slots.n_new > limit or len(_distinct(slots, self._limit())) > limit:
                self._slots.drop(self._slots.take_new())
                return sentences
            text = self._read(slots)
        sizes = _sizes(sentences)
        return SentencesReadAhead(sentences, text, np.cumsum(sizes) - sizes)

    def _limit(self) -> int:
        """Give a bound of the numbers of words: slots, then new ones."""
        return self._capacity + self._slots.n_new

    def _read(self, slots: Numbers) -> _Text:
        """Give the words at slots `(n,)`, new ones among them, and remember those."""
        limit = self._limit()
        new_words = self._slots.take_new()
        try:
            new = self._obtain(new_words)
        except BaseException:  # such as too little memory: the words are as unknown as before
            self._slots.drop(new_words)
            raise
        distinct, tokens = _renumber(slots, limit)
        known = distinct[: len(distinct) - len(new_words)]
        new_cut = self._are_cut(new_words)
        cut = np.concatenate([self._cut[known], new_cut])
        vectors = self._table.index_select(0, send(known, self._device))
        if new_words:
            vectors = torch.cat([vectors, new])
        self._batch += 1
        self._used[known] = self._batch
        self._remember(new_words, new, new_cut)
        return _Text(vectors, tokens, cut)

    def _find(self, sentences: Sequence[Words], first: int = 0) -> Numbers:
        """Give the slot of every word, new words included, `(n,)`; say what is not a word."""
        n = sum(map(len, sentences))
        words = chain.from_iterable(sentences)
        try:
            slots = np.fromiter(map(self._slots.__getitem__, words), dtype=np.int64, count=n)
            self._slots.require_words()
        except BaseException as error:
            self._slots.drop(self._slots.take_new())
            if isinstance(error, InputError | TypeError):  # the latter: nothing that can be a key
                for _ in checked_sentences(sentences, first):  # names the place
                    pass
            raise
        return slots

    def _obtain(self, words: Sequence[str]) -> Tensor:
        """Read or compute the vectors of new words."""
        vectors = self._table.new_empty(len(words), self._table.shape[1])
        rows = [None if self._file is None else self._file.row(word) for word in words]
        missing = [place for place, row in enumerate(rows) if row is None]
        on_file = [(place, row) for place, row in enumerate(rows) if row is not None]
        if len(missing) == len(words):
            return self._compute(words) if words else vectors
        if missing:
            computed = self._compute([words[place] for place in missing])
            vectors[send(np.array(missing), self._device)] = computed
        if self._file is not None:
            places, file_rows = np.array(on_file).T
            read = send(self._file.vectors(file_rows), self._device)
            vectors[send(places.copy(), self._device)] = read
        return vectors

    def _remember(self, words: Sequence[str], vectors: Tensor, cut: Flags) -> None:
        """Keep new words as far as there is room; see `_room_for`."""
        if not words:
            return
        slots = self._room_for(len(words))
        kept = words[: len(slots)]
        self._slots.drop(words[len(kept) :])
        self._slots.update(zip(kept, slots.tolist(), strict=True))
        n_empty = min(len(kept), self._capacity - len(self._words))
        self._words += kept[:n_empty]
        for slot, word in zip(slots[n_empty:].tolist(), kept[n_empty:], strict=True):
            self._slots.drop([self._words[slot]])
            self._words[slot] = word
        self._cut[slots] = cut[: len(kept)]
        if kept:
            self._table.index_copy_(0, send(slots, self._device), vectors[: len(kept)])

    def _room_for(self, number: int) -> Numbers:
        """Give slots for at most so many words.

        Empty ones come first, then those of the words that were not asked for longest; the words of
        this batch stay.
        """
        filled = len(self._words)
        empty = np.arange(filled, min(self._capacity, filled + number))
        self._used[empty] = self._batch
        more = min(number - len(empty), self._capacity)
        if not more:
            return empty
        oldest = np.argpartition(self._used, more - 1)[:more]
        oldest = oldest[self._used[oldest] < self._batch]
        self._used[oldest] = self._batch
        return np.concatenate([empty, oldest])


class SentencesReadAhead(list[Words]):
    """Sentences whose words have been looked up; a list, because lists are walked fastest.

    Args:
        sentences: The sentences.
        text: The words of all sentences of the call.
        starts: Where in it the words of each of these sentences begin, `(sentences,)`.
    """

    def __init__(self, sentences: Iterable[Words], text: _Text, starts: Numbers) -> None:
        super().__init__(sentences)
        self._text = text
        self._starts = starts

    @overload
    def __getitem__(self, place: SupportsIndex) -> Words: ...
    @overload
    def __getitem__(self, place: slice) -> SentencesReadAhead: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Words | SentencesReadAhead:
        if isinstance(place, slice):
            found = super().__getitem__(place)
            return SentencesReadAhead(found, self._text, self._starts[place])
        return super().__getitem__(place)

    def take(self, numbers: Sequence[int]) -> SentencesReadAhead:
        """Give some of the sentences."""
        starts = self._starts[np.asarray(numbers, dtype=np.int64)]
        return SentencesReadAhead(map(super().__getitem__, numbers), self._text, starts)

    def words_of_batch(self) -> WordsOfBatch:
        """Give the words of these sentences."""
        text = self._text
        row, place = ragged_positions(_sizes(self))
        distinct, tokens = _renumber(text.tokens[self._starts[row] + place], len(text.vectors))
        vectors = text.vectors.index_select(0, send(distinct, text.vectors.device))
        return _as_batch(vectors, tokens, text.cut[distinct])


class _Text(NamedTuple):
    """The words of some sentences."""

    vectors: Tensor
    """Vectors of the distinct words, on a device, `(m, dim)`."""
    tokens: Numbers
    """Which of them stands at each place, one sentence after another, `(n,)`."""
    cut: Flags
    """Which of them are longer than the model reads, `(m,)`."""


def _sizes(sentences: Sequence[Words]) -> Numbers:
    return np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))


def _as_batch(vectors: Tensor, tokens: Numbers, cut: Flags) -> WordsOfBatch:
    n_cut = int(np.count_nonzero(cut[tokens])) if cut.any() else 0
    return WordsOfBatch(vectors, send(tokens, vectors.device), n_cut)


class _Slots(defaultdict[str, int]):
    """Slots by word. A word that is not there gets a number above all slots and counts as new.

    All of it happens inside of a dictionary, without a step in Python: texts bring many new words.

    Args:
        capacity: How many slots there are.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._begin()

    def _begin(self) -> None:
        self.default_factory = count(self._capacity).__next__
        self._n_known = len(self)

    @property
    def n_new(self) -> int:
        """How many words were new since `take_new`."""
        return len(self) - self._n_known

    def require_words(self) -> None:
        """Fail if something new is not a word."""
        for new in self._latest():
            if not isinstance(new, str):
                raise InputError(f"received {new!r}, expected a word")

    def take_new(self) -> list[str]:
        """Give the words that were new since the last time."""
        new = self._latest()
        self._begin()
        return new

    def _latest(self) -> list[str]:
        """Give the new words in the order in which they came, as a dictionary keeps them."""
        return list(islice(reversed(self), self.n_new))[::-1]

    def drop(self, words: Sequence[str]) -> None:
        """Forget words; none may be new."""
        for word in words:
            del self[word]
        self._n_known -= len(words)


def _renumber(numbers: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    """Give the distinct numbers, sorted, and for each number its place among them.

    Args:
        numbers: Each from 0 to `limit - 1`.
        limit: Bound of the numbers.
    """
    if _are_few(numbers, limit):
        distinct, inverse = np.unique(numbers, return_inverse=True)
        return distinct, inverse
    distinct = _distinct(numbers, limit)
    places = np.empty(limit, dtype=np.int64)
    places[distinct] = np.arange(len(distinct))
    return distinct, places[numbers]


def _distinct(numbers: Numbers, limit: int) -> Numbers:
    """Give the distinct numbers, sorted."""
    if _are_few(numbers, limit):
        return np.unique(numbers)
    # Without sorting: a tenth of the time.
    seen = np.zeros(limit, dtype=bool)
    seen[numbers] = True
    return np.flatnonzero(seen)


def _are_few(numbers: Numbers, limit: int) -> bool:
    return 8 * len(numbers) < limit

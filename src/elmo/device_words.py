"""Context-free word vectors that stay on a GPU: new words are spelt and sent once.

The host keeps a slot for each known word, the GPU a table with a row for each slot. Mapping a word
to its slot is all the host does for a known word, millions of times a second: one lookup in a
dictionary, in a loop that runs in C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.devices import send
from elmo.sentences import Words
from elmo.word_vectors import ComputeVectors, TokenFile

Numbers = npt.NDArray[np.int64]


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
        is_cut: Tells whether a word is longer than the model reads.
        file: Precomputed vectors.
    """

    def __init__(
        self,
        compute: ComputeVectors,
        dim: int,
        capacity: int,
        device: torch.device,
        is_cut: Callable[[str], bool],
        file: TokenFile | None = None,
    ) -> None:
        self._compute = compute
        self._capacity = capacity
        self._device = device
        self._is_cut = is_cut
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
        self._words: list[str | None] = [None] * self._capacity
        self._cut = np.zeros(self._capacity, dtype=bool)
        self._used: Numbers = np.full(self._capacity, -1)
        """The batch that last had the word of each slot; -1 where there is no word."""
        self._filled = 0
        """Slots that have a word: they are taken one after another, then again the oldest."""
        self._batch = 0

    def lookup(self, words: Sequence[str]) -> Tensor:
        """Give the vectors of words, shape `(len(words), dim)`."""
        found = self.read([list(words)])
        return found.vectors[found.tokens]

    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Give the words of a batch."""
        with self._lock:
            slots = self._find(sentences)
            new_words = self._slots.take_new()
            try:
                new = self._obtain(new_words)
            except BaseException:  # such as too little memory: the words are as unknown as before
                self._slots.drop(new_words)
                raise
            distinct, tokens = _renumber(slots, self._capacity + len(new_words))
            known = distinct[: len(distinct) - len(new_words)]
            cut = np.array([self._is_cut(word) for word in new_words], dtype=bool)
            n_cut = int(np.count_nonzero(np.concatenate([self._cut[known], cut])[tokens]))
            vectors = self._table.index_select(0, send(known, self._device))
            if new_words:
                vectors = torch.cat([vectors, new])
            self._batch += 1
            self._used[known] = self._batch
            self._remember(new_words, new, cut)
        return WordsOfBatch(vectors, send(tokens, self._device), n_cut)

    def _find(self, sentences: Sequence[Words]) -> Numbers:
        """Give the slot of every word, new words included, `(n,)`."""
        n = sum(map(len, sentences))
        words = chain.from_iterable(sentences)
        return np.fromiter(map(self._slots.__getitem__, words), dtype=np.int64, count=n)

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

    def _remember(self, words: Sequence[str], vectors: Tensor, cut: npt.NDArray[np.bool_]) -> None:
        """Keep new words as far as there is room; see `_room_for`."""
        if not words:
            return
        slots = self._room_for(len(words))
        numbers = slots.tolist()
        self._slots.drop([old for old in map(self._words.__getitem__, numbers) if old is not None])
        self._slots.drop(words[len(numbers) :])
        for word, slot in zip(words, numbers, strict=False):
            self._slots[word] = slot
            self._words[slot] = word
        self._cut[slots] = cut[: len(numbers)]
        if numbers:
            self._table.index_copy_(0, send(slots, self._device), vectors[: len(numbers)])

    def _room_for(self, number: int) -> Numbers:
        """Give slots for at most so many words.

        Empty ones come first, then those of the words that were not asked for longest; the words of
        this batch stay.
        """
        empty = np.arange(self._filled, min(self._capacity, self._filled + number))
        self._filled += len(empty)
        self._used[empty] = self._batch
        more = min(number - len(empty), self._capacity)
        if not more:
            return empty
        oldest = np.argpartition(self._used, more - 1)[:more]
        oldest = oldest[self._used[oldest] < self._batch]
        self._used[oldest] = self._batch
        return np.concatenate([empty, oldest])


class _Slots(dict[str, int]):
    """Slots by word. A word that is not there gets a number above all slots and counts as new.

    Args:
        capacity: How many slots there are.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = self._capacity + len(self._new)
        self._new.append(word)
        return number

    def take_new(self) -> list[str]:
        """Give the words that were new since the last time."""
        new, self._new = self._new, []
        return new

    def drop(self, words: Sequence[str]) -> None:
        """Forget words."""
        for word in words:
            del self[word]


def _renumber(numbers: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    """Give the distinct numbers, sorted, and for each number its place among them.

    Args:
        numbers: Each from 0 to `limit - 1`.
        limit: Bound of the numbers.
    """
    if 8 * len(numbers) < limit:
        distinct, inverse = np.unique(numbers, return_inverse=True)
        return distinct, inverse
    # Without sorting: a tenth of the time.
    seen = np.zeros(limit, dtype=bool)
    seen[numbers] = True
    distinct = np.flatnonzero(seen)
    places = np.empty(limit, dtype=np.int64)
    places[distinct] = np.arange(len(distinct))
    return distinct, places[numbers]

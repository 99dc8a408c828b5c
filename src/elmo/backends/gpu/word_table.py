"""The cache of context-free word vectors in GPU memory: new words are sent once, as characters.

The host keeps a slot for each known word, the GPU a table with a row for each slot. Mapping a word
to its slot is all the host does for a known word, millions of times a second: one lookup in a
dictionary, in a loop that runs in C (`kernels/word_numbers.py`, or inside of Python and NumPy where
that cannot be built). All words of a call are looked up ahead, in the order given: the sentences of
a batch come from anywhere in the call, and random access to memory takes longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends.base import ListedSentences, Sentences, WordCache, WordsOfBatch, WordSource
from elmo.backends.gpu.kernels.word_numbers import find_words, renumber_runs
from elmo.config import ElmoConfig
from elmo.errors import InputError
from elmo.runtime.devices import is_out_of_memory, send
from elmo.runtime.interrupts import interrupts_later
from elmo.settings import Precision
from elmo.text.characters import ragged_positions
from elmo.text.sentences import Words, checked_sentences

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_FIRST_WINDOW_BATCHES = 1
"""Batches whose sentences are looked up and sorted together at the beginning of a call."""
_GPU_BOUND_WEIGHTS = 16_000_000
"""With so many weights to multiply for each word, a GPU takes longer than the host."""
_EXACT_COST = 16
"""How many times as long a GPU takes for a product in float32."""
_MOST_AHEAD = 1 << 18
"""Distinct words that are looked up ahead at most: new ones are computed at once."""


class DeviceWordCache(WordCache):
    """Word vectors on a device: from memory, else from a file, else computed.

    Args:
        source: See `WordCache`.
        config: Sizes of the model.
        precision: That of the model.
        capacity: How many vectors are kept; the least recently used go first.
    """

    checks_words = True

    def __init__(
        self, source: WordSource, config: ElmoConfig, precision: Precision, capacity: int
    ) -> None:
        super().__init__(source, capacity)
        self._device = source.device
        self._table = torch.empty(capacity, config.projection_dim, device=self._device)
        # Inputs and hidden state to four gates, cells to hidden state, in both directions.
        layer = 2 * 9 * config.dim * config.projection_dim
        cost = _EXACT_COST if precision == "fp32" else 1
        self._products_of_a_word = config.n_layers * layer * cost
        self._forget()

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Remove all vectors."""
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
        """Return the vectors of words, shape `(len(words), dim)`."""
        found = self.read([list(words)])
        return found.vectors[found.tokens]

    def windows(self, sentences: Sequence[Words], max_rows: int) -> Iterator[tuple[int, Sentences]]:
        """Cut a call into windows and look up their words ahead; see `WordCache.windows`.

        A GPU computes a window while the host looks up the words of the next one. The first is
        small, so that the GPU starts soon; each of the others is twice as large. With a small model
        the GPU is done before the host anyway, and one window is best: the batches of several have
        more time steps to launch.
        """
        if len(sentences) == 1:  # nothing could be looked up meanwhile
            yield 0, ListedSentences(self, sentences)
            return
        first = 0
        is_gpu_bound = self._products_of_a_word >= _GPU_BOUND_WEIGHTS
        size = _FIRST_WINDOW_BATCHES * max_rows if is_gpu_bound else len(sentences)
        while first < len(sentences):
            yield first, self._try_ahead(sentences[first : first + size], first)
            first, size = first + size, 2 * size

    def _try_ahead(self, sentences: Sequence[Words], first: int) -> Sentences:
        """Look up the words of sentences ahead, if the GPU has memory for them."""
        try:
            return self.read_ahead(sentences, first)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()  # here, not above: the error holds what did not fit
        return ListedSentences(self, sentences)

    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Look up the words of a batch."""
        with interrupts_later(), self._lock:
            text = self._read(*_renumber(self._find(sentences), self._limit()))
        return _as_batch(text.vectors, text.tokens, text.cut)

    def read_ahead(self, sentences: Sequence[Words], first: int = 0) -> Sentences:
        """Look up the words of many sentences at once, for all batches that are made of them.

        Args:
            sentences: Lists of what should be words, which is checked here.
            first: The number of the first sentence, for the error that names what is not a word.

        Returns:
            The sentences, not looked up where they have too many distinct words.
        """
        with interrupts_later(), self._lock:
            slots = self._find(sentences, first)
            # Beyond either bound batches look up their own words: the table has no slots for more,
            # and computing all new words at once would take too much memory.
            limit = min(self._capacity, _MOST_AHEAD)
            distinct, tokens = _renumber(slots, self._limit())
            if len(distinct) > limit:
                self._slots.drop(self._slots.pop_new())
                return ListedSentences(self, sentences)
            text = self._read(distinct, tokens)
        sizes = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
        return SentencesReadAhead(text, np.cumsum(sizes) - sizes, sizes)

    def _limit(self) -> int:
        """Return the bound of the numbers of words: slots, then new words."""
        return self._capacity + self._slots.n_new

    def _read(self, distinct: Numbers, tokens: Numbers) -> _Text:
        """Gather the vectors of a text's words; compute and store those that are new.

        Args:
            distinct: Their numbers, sorted, `(m,)`: slots, then new words.
            tokens: Which of them stands at each place, `(n,)`.
        """
        # Numbers of new words lie above all slots: `distinct` is sorted, so they are at its end.
        new_words = self._slots.pop_new()
        known = distinct[: len(distinct) - len(new_words)]
        # Marks the words of this batch, whose slots must not be reused below.
        self._batch += 1
        self._used[known] = self._batch
        try:
            new_cut = self.source.ids.are_cut(new_words)
            new = self._obtain(new_words)
            # Gathered before new vectors replace old rows: the stream keeps this order.
            vectors = self._table.index_select(0, send(known, self._device))
            if new_words:
                vectors = torch.cat([vectors, new])
            slots = self._free_slots(len(new_words))
            if len(slots):
                self._table.index_copy_(0, send(slots, self._device), new[: len(slots)])
        except BaseException:  # such as too little memory: the words are as unknown as before
            self._slots.drop(new_words)
            raise
        cut = np.concatenate([self._cut[known], new_cut])  # before slots change hands
        self._store(new_words, slots, new_cut)
        return _Text(vectors, tokens, cut)

    def _find(self, sentences: Sequence[Words], first: int = 0) -> Numbers:
        """Return the number of every word, `(n,)`; raise an error that names what is not a word."""
        try:
            return self._slots.find(sentences)
        except BaseException as error:
            self._slots.drop(self._slots.pop_new())
            if isinstance(error, InputError | TypeError):  # the latter: nothing that can be a key
                for _ in checked_sentences(sentences, first):  # names the place
                    pass
            raise

    def _obtain(self, words: Sequence[str]) -> Tensor:
        """Read or compute the vectors of new words."""
        vectors = self._table.new_empty(len(words), self._table.shape[1])
        file = self.source.file
        rows = [None if file is None else file.row(word) for word in words]
        missing = [place for place, row in enumerate(rows) if row is None]
        on_file = [(place, row) for place, row in enumerate(rows) if row is not None]
        if len(missing) == len(words):
            return self.source.compute(words) if words else vectors
        if missing:
            computed = self.source.compute([words[place] for place in missing])
            vectors[send(np.array(missing), self._device)] = computed
        if file is not None:
            places, file_rows = np.array(on_file).T
            read = send(file.vectors(file_rows), self._device)
            vectors[send(places.copy(), self._device)] = read
        return vectors

    def _store(self, words: Sequence[str], slots: Numbers, cut: Flags) -> None:
        """Store where the vectors of new words are; those for which there was no slot are dropped.

        Args:
            words: New words.
            slots: Of the first of them, `(k,)`, as `_free_slots` returned them.
            cut: Which words are longer than the model reads, `(len(words),)`.
        """
        kept = words[: len(slots)]
        self._slots.drop(words[len(kept) :])
        # From numbers above all slots to slots.
        self._slots.update(zip(kept, slots.tolist(), strict=True))
        n_empty = min(len(kept), self._capacity - len(self._words))
        self._words += kept[:n_empty]
        # The other slots belonged to words that are now forgotten.
        for slot, word in zip(slots[n_empty:].tolist(), kept[n_empty:], strict=True):
            self._slots.drop([self._words[slot]])
            self._words[slot] = word
        self._cut[slots] = cut[: len(kept)]

    def _free_slots(self, number: int) -> Numbers:
        """Return slots for at most so many words.

        Empty ones come first, then those of the least recently used words; the words of this batch
        stay.
        """
        filled = len(self._words)
        empty = np.arange(filled, min(self._capacity, filled + number))
        self._used[empty] = self._batch
        more = min(number - len(empty), self._capacity)
        if not more:
            return empty
        # The `more` smallest batch numbers; not those of this batch, if there are too few others.
        oldest = np.argpartition(self._used, more - 1)[:more]
        oldest = oldest[self._used[oldest] < self._batch]
        self._used[oldest] = self._batch
        return np.concatenate([empty, oldest])


class SentencesReadAhead:
    """Sentences whose words have been looked up.

    Args:
        text: The words of all sentences of the call.
        starts: Where in it the words of each of these sentences begin, `(sentences,)`.
        sizes: How many words each of them has, `(sentences,)`.
    """

    def __init__(self, text: _Text, starts: Numbers, sizes: Numbers) -> None:
        self._text = text
        self._starts = starts
        self._sizes = sizes

    @property
    def sizes(self) -> list[int]:
        """Words of each sentence."""
        sizes: list[int] = self._sizes.tolist()
        return sizes

    def subset(self, numbers: Sequence[int] | slice) -> SentencesReadAhead:
        """Return some of the sentences."""
        chosen = numbers if isinstance(numbers, slice) else np.asarray(numbers, dtype=np.int64)
        return SentencesReadAhead(self._text, self._starts[chosen], self._sizes[chosen])

    def words(self) -> WordsOfBatch:
        """Return the words of all these sentences."""
        text = self._text
        distinct, tokens = _renumber_runs(text.tokens, self._starts, self._sizes, len(text.vectors))
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


def _as_batch(vectors: Tensor, tokens: Numbers, cut: Flags) -> WordsOfBatch:
    n_cut = int(np.count_nonzero(cut[tokens])) if cut.any() else 0
    return WordsOfBatch(vectors, send(tokens, vectors.device), n_cut)


class _Slots(defaultdict[str, int]):
    """Slots by word. A word that has none gets a number above all slots and counts as new.

    A missing key is numbered by the dictionary's default factory, in C: texts have many new words.

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
        """How many words were new since `pop_new`."""
        return len(self) - self._n_known

    def find(self, sentences: Sequence[Words]) -> Numbers:
        """Return the number of every word, one sentence after another, `(n,)`.

        Raises:
            InputError: Something new is not a word.
        """
        self.drop(self.pop_new())  # what a call that failed in between may have left
        listed = sentences if isinstance(sentences, list) else list(sentences)
        found = find_words(listed, self, self._capacity)
        if found is None:
            self.drop(self.pop_new())  # what was found before something unusual was met
            found = self.find_in_python(sentences)
        return found

    def find_in_python(self, sentences: Sequence[Words]) -> Numbers:
        """Compute `find` in Python: the reference, and the fallback without a compiler."""
        # All three run in C: one step of the loop is one lookup, which numbers missing words.
        words = chain.from_iterable(sentences)
        n = sum(map(len, sentences))
        slots = np.fromiter(map(self.__getitem__, words), dtype=np.int64, count=n)
        for new in self._latest():
            if not isinstance(new, str):
                raise InputError(f"received {new!r}, expected a word")
        return slots

    def pop_new(self) -> list[str]:
        """Return the words that were new since the last call, and begin anew."""
        new = self._latest()
        self._begin()
        return new

    def _latest(self) -> list[str]:
        """Return the new words in the order in which they came, as a dictionary keeps them."""
        return list(islice(reversed(self), self.n_new))[::-1]

    def drop(self, words: Sequence[str]) -> None:
        """Remove words; none of them may count as new."""
        for word in words:
            del self[word]
        self._n_known -= len(words)


def _renumber(numbers: Numbers, limit: int) -> tuple[Numbers, Numbers]:
    """Return the distinct numbers, sorted, and for each number its index among them.

    Args:
        numbers: Each from 0 to `limit - 1`.
        limit: Bound of the numbers.
    """
    whole = np.zeros(1, dtype=np.int64), np.array([len(numbers)])
    return _renumber_runs(numbers, *whole, limit)


def _renumber_runs(
    numbers: Numbers, starts: Numbers, sizes: Numbers, limit: int
) -> tuple[Numbers, Numbers]:
    """Renumber runs of an array by the fastest way; see `renumber_runs`."""
    found = None
    if not _are_few(int(sizes.sum()), limit):
        found = renumber_runs(numbers, starts, sizes, limit)
    return found or renumber_in_numpy(numbers, starts, sizes, limit)


def renumber_in_numpy(
    numbers: Numbers, starts: Numbers, sizes: Numbers, limit: int
) -> tuple[Numbers, Numbers]:
    """Compute `renumber_runs` in NumPy: the reference, for a few, and without a compiler."""
    run, place = ragged_positions(sizes)
    chosen = numbers[starts[run] + place]
    if _are_few(len(chosen), limit):
        distinct, inverse = np.unique(chosen, return_inverse=True)
        return distinct, inverse
    # Without sorting, which would take ten times as long: mark what occurs, number the marks.
    seen = np.zeros(limit, dtype=bool)
    seen[chosen] = True
    distinct = np.flatnonzero(seen)
    places = np.empty(limit, dtype=np.int64)
    places[distinct] = np.arange(len(distinct))
    return distinct, places[chosen]


def _are_few(numbers: int, limit: int) -> bool:
    """Return whether sorting so many numbers is faster than a pass over all possible ones."""
    return 8 * numbers < limit

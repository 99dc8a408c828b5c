"""Shards -> streams -> batches: text as a biLM reads it in training, without padding.

In each epoch all sentences are laid one behind the other in a new order, and this one long line is
cut into as many equal streams as a batch has rows. A step reads the next `unroll` words of every
stream, and the layers' state is carried from step to step. Because of this layout a place in the
data is two numbers, an epoch and a window in it: a run goes on anywhere, and each process of many
reads its own rows of the same batch.

A sentence of n words takes n + 1 places in a stream. Forwards the model reads `<S> w1 .. wn` and is
to say `w1 .. wn </S>`; backwards it reads `</S> wn .. w1` in the same places and is to say
`wn .. w1 <S>`, as in bilm-tf. So both directions read nearly the same words in a step, whose
vectors are computed once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import ConfigError, InputError
from elmo.model.ids import WordIds
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE, CharacterMapper
from elmo.text.vocabulary import UNKNOWN, Vocabulary
from elmo.training.corpus.shards import Shard
from elmo.training.settings import Shuffle

Ids = npt.NDArray[np.int64]


class Position(NamedTuple):
    """A place in the data: what comes next."""

    epoch: int = 0
    window: int = 0


@dataclass(frozen=True)
class Batch:
    """What a step reads: `time` words of each of `rows` streams, in both directions."""

    types: Tensor
    """Ids of the distinct words, int32 `(m, max_characters)` or, in a word model, `(m,)`."""
    inputs: Tensor
    """Which of them is read, int64 `(2, time, rows)`; directions forward, backward."""
    targets: Tensor
    """Which word of the vocabulary comes next, int64 `(2, time, rows)`."""
    restarts: Tensor
    """True where the state is zeroed before the word is read, bool `(time, rows)`."""

    @property
    def n_tokens(self) -> int:
        """Places in the streams."""
        return self.restarts.numel()

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of it, in this order."""
        return self.types, self.inputs, self.targets, self.restarts

    def to(self, device: torch.device) -> Batch:
        """Give the batch on another device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self.parts))

    def pinned(self) -> Batch:
        """Give the batch in memory from which a GPU copies by itself."""
        return Batch(*(part.pin_memory() for part in self.parts))


class _Plan(NamedTuple):
    """The order of one epoch."""

    order: Ids
    """Numbers of the sentences as they follow each other, `(n_sentences,)`."""
    ends: Ids
    """Where each of them ends in the line, `(n_sentences,)`."""
    restarts: npt.NDArray[np.bool_]
    """Whether it is read from a zero state, `(n_sentences,)`."""


class _Plans:
    """The plans of the epoch at hand and of its neighbours, each made once, by whoever asks first.

    Args:
        make: Makes the plan of an epoch.
    """

    def __init__(self, make: Callable[[int], _Plan]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: dict[int, Future[_Plan]] = {}

    def get(self, epoch: int) -> _Plan:
        """Give the plan of an epoch; several threads may ask."""
        with self._lock:
            is_first = epoch not in self._kept
            if is_first:
                self._kept = {e: plan for e, plan in self._kept.items() if abs(e - epoch) == 1}
            plan = self._kept.setdefault(epoch, Future())
        if is_first:
            try:
                plan.set_result(self._make(epoch))
            except BaseException as error:
                plan.set_exception(error)
        return plan.result()


class Streams:
    """The batches of a corpus, from any place on.

    Args:
        shards: The text.
        vocabulary: The words that can be told, the specials among them.
        ids: What turns words into what the model reads.
        rows: Streams in a batch.
        unroll: Words of each stream in a batch.
        shuffle: What gets a new order in each epoch.
        restarts: Share of sentences that are read from a zero state.
        seed: Decides orders and restarts.
        rank: Which part of the rows is ours.
        world: How many parts there are; rows must divide evenly.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        vocabulary: Vocabulary,
        ids: WordIds,
        *,
        rows: int,
        unroll: int,
        shuffle: Shuffle = "documents",
        restarts: float = 0.0,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if rows % world:
            raise ConfigError(f"a batch of {rows} streams cannot be shared by {world} processes")
        self._text = _Text(shards, vocabulary, ids)
        self.rows, self.unroll = rows, unroll
        self._shuffle, self._restarts, self._seed = shuffle, restarts, seed
        own = rows // world
        self._rows = np.arange(rank * own, (rank + 1) * own)
        self.tokens_per_epoch = self._text.n_places
        """Places in the line of an epoch; what does not fill a window is left out."""
        self._stream_length = self.tokens_per_epoch // rows
        self.windows_per_epoch = self._stream_length // unroll
        if self.windows_per_epoch == 0:
            raise InputError(
                f"the corpus has {self.tokens_per_epoch:,} places, fewer than one step of "
                f"{rows} streams of {unroll} words; choose a smaller --batch or --unroll"
            )
        self._plans = _Plans(self._make_plan)

    def batches(self, start: Position) -> Iterator[tuple[Batch, Position]]:
        """Give batches without end, each with the place that follows it."""
        return map(self.batch_at, self.positions(start))

    def positions(self, start: Position) -> Iterator[Position]:
        """Give the places of batches without end."""
        position = start
        while True:
            if position.window >= self.windows_per_epoch:
                position = Position(position.epoch + 1, 0)
            yield position
            position = Position(position.epoch, position.window + 1)

    def batch_at(self, position: Position) -> tuple[Batch, Position]:
        """Give the batch at a place, and the place that follows it; several threads may ask."""
        first = position.window * self.unroll
        following = Position(position.epoch, position.window + 1)
        return self._window(position.epoch, first, self.unroll), following

    def plan_ahead(self, position: Position) -> None:
        """Order the next epoch beside everything else, once half of this one is over."""
        if position.window == self.windows_per_epoch // 2:
            # Waited for when Python ends: a thread that it cuts off in compiled code may abort it.
            threading.Thread(target=self._plans.get, args=(position.epoch + 1,)).start()

    def one_pass(self, limit: int | None = None) -> Iterator[Batch]:
        """Give the first epoch once, its last window shorter than the others if need be.

        Args:
            limit: End after so many words of each stream.
        """
        end = self._stream_length if limit is None else min(limit, self._stream_length)
        for first in range(0, end, self.unroll):
            yield self._window(0, first, min(self.unroll, end - first))

    def _window(self, epoch: int, first: int, time: int) -> Batch:
        """Give the batch of `time` places that begins at `first` in every stream."""
        plan = self._plans.get(epoch)
        places = self._rows * self._stream_length + first + np.arange(time)[:, None]
        position = np.empty(places.shape, np.int64)
        now = np.searchsorted(plan.ends, places[0], side="right")
        for t in range(time):
            # A sentence takes two places at least: the next place lies in it or in the next one.
            now = now + (plan.ends[now] <= places[t])
            position[t] = now
        sentences = plan.order[position]
        before = plan.ends[position] - self._text.n_slots[sentences]
        within = places - before
        restarts = plan.restarts[position] & (within == 0)
        if first == 0:
            restarts[0] = True  # whatever was read before stands elsewhere
        return self._text.batch(sentences, within, restarts)

    def _make_plan(self, epoch: int) -> _Plan:
        generator = np.random.default_rng((self._seed, epoch))
        order = self._text.ordered(self._shuffle, generator)
        restarts = generator.random(len(order)) < self._restarts
        return _Plan(order, np.cumsum(self._text.n_slots[order]), restarts)


class _Text:
    """All shards as one: sentences by number, words by number, spelling of what is rare."""

    def __init__(self, shards: Sequence[Shard], vocabulary: Vocabulary, ids: WordIds) -> None:
        vocabulary.require_specials("the corpus")
        self._shards = [shard for shard in shards if len(shard.tokens)]
        self._ids = ids
        self._n_words = len(vocabulary)
        self._begin, self._end, self._unknown = (
            vocabulary.words.index(word) for word in (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN)
        )
        self._reads_words = ids.rows([BEGIN_SENTENCE]).dim() == 1
        self._spelling = ids.rows(vocabulary.words).numpy().astype(np.int32)  # int64 is twice this
        self._set_sentences()
        self._first_rare = np.cumsum([self._n_words, *(shard.n_rare for shard in self._shards)])

    def _set_sentences(self) -> None:
        lengths = [np.diff(shard.sentence_starts) for shard in self._shards]
        self.n_slots: Ids = np.concatenate([*lengths, np.zeros(0, np.int64)]) + 1
        """Places that each sentence takes, `(n_sentences,)`."""
        self.n_places = int(self.n_slots.sum())
        counts = [len(length) for length in lengths]
        self._first_sentence = np.cumsum([0, *counts])
        starts = [shard.sentence_starts[:-1] for shard in self._shards]
        self._starts: Ids = np.concatenate([*starts, np.zeros(0, np.int64)])
        """Where each sentence starts in the words of its shard, `(n_sentences,)`."""
        documents = [
            shard.document_starts[:-1] + first
            for shard, first in zip(self._shards, self._first_sentence, strict=False)
        ]
        self._documents: Ids = np.concatenate([*documents, np.array([len(self.n_slots)])])

    def ordered(self, shuffle: Shuffle, generator: np.random.Generator) -> Ids:
        """Give the sentences' numbers in the order of an epoch, `(n_sentences,)`."""
        if shuffle == "none":
            return np.arange(len(self.n_slots))
        if shuffle == "sentences":
            return generator.permutation(len(self.n_slots))
        chosen = generator.permutation(len(self._documents) - 1)
        lengths = np.diff(self._documents)[chosen]
        before = np.cumsum(lengths) - lengths
        firsts = np.repeat(self._documents[:-1][chosen] - before, lengths)
        return firsts + np.arange(len(firsts))

    def batch(self, sentences: Ids, within: Ids, restarts: npt.NDArray[np.bool_]) -> Batch:
        """Give what is read and to be told at some places.

        Args:
            sentences: Number of the sentence at each place, `(time, rows)`.
            within: How many places of the sentence lie before, `(time, rows)`.
            restarts: Where the state is zeroed, `(time, rows)`.
        """
        # What is read at a place is what was to be told at the place before, so that looking up
        # what is told, from one place before the first on, gives both.
        sentences = np.concatenate([sentences[:1], sentences])
        within = np.concatenate([np.maximum(within[:1] - 1, 0), within])
        starts, length = self._starts[sentences], self.n_slots[sentences] - 1
        last_place = within == length
        forward = starts + np.minimum(within, length - 1)
        backward = starts + np.maximum(length - 1 - within, 0)
        words = self._words(sentences, np.stack([forward, backward]))
        first_place = within[1:] == 0
        ends = np.array([self._begin, self._end])[:, None, None]
        read = np.where(first_place, ends, words[:, :-1])
        told = np.where(last_place[1:], ends[::-1], words[:, 1:])
        told = np.where(told < self._n_words, told, self._unknown)
        if self._reads_words:
            read = np.where(read < self._n_words, read, self._unknown)
        distinct, inputs = self._distinct(read)
        return Batch(
            types=self._spell(distinct),
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(told),
            restarts=torch.from_numpy(restarts),
        )

    def _words(self, sentences: Ids, places: Ids) -> Ids:
        """Look words up: vocabulary words by their place in it, rare ones numbered behind them.

        Args:
            sentences: Number of the sentence at each place, `(time, rows)`.
            places: Which word of the sentence's shard, `(2, time, rows)`.
        """
        words = np.empty(places.shape, np.int64)
        flat_words, flat_places = words.reshape(2, -1), places.reshape(2, -1)
        shard_of = np.searchsorted(self._first_sentence, sentences.ravel(), side="right") - 1
        for number, shard in enumerate(self._shards):
            here = np.flatnonzero(shard_of == number)
            if len(here):
                found = shard.tokens[flat_places[:, here]].astype(np.int64)
                rare = self._first_rare[number] - self._n_words
                flat_words[:, here] = np.where(found < self._n_words, found, found + rare)
        return words

    def _distinct(self, words: Ids) -> tuple[Ids, Ids]:
        """Give the distinct words, rising, and where each word stands among them.

        The same as `np.unique`, which sorts: only rare words are sorted here.

        Args:
            words: Numbers of words, of any shape.
        """
        rare, rare_places = np.unique(words[words >= self._n_words], return_inverse=True)
        known = np.where(words < self._n_words, words, self._n_words)
        is_there = np.zeros(self._n_words + 1, np.bool_)
        is_there[known] = True
        distinct = np.flatnonzero(is_there[:-1])
        places = np.empty(self._n_words + 1, np.int64)
        places[distinct] = np.arange(len(distinct))
        inputs = places[known]
        inputs[words >= self._n_words] = rare_places + len(distinct)
        return np.concatenate([distinct, rare]), inputs

    def _spell(self, distinct: Ids) -> Tensor:
        """Turn word numbers, rising, into what the model reads; rare ones by their letters."""
        n_known = int(np.searchsorted(distinct, self._n_words))
        spelt = np.empty((len(distinct), *self._spelling.shape[1:]), np.int32)
        np.take(self._spelling, distinct[:n_known], axis=0, out=spelt[:n_known], mode="clip")
        shard_of = np.searchsorted(self._first_rare, distinct, side="right") - 1
        for number in np.unique(shard_of[n_known:]):
            here = slice(*np.searchsorted(shard_of, [number, number + 1]))
            numbers = distinct[here] - self._first_rare[number]
            spelt[here] = self._spell_rare(self._shards[number], numbers)
        return torch.from_numpy(spelt)

    def _spell_rare(self, shard: Shard, numbers: Ids) -> Ids:
        """Give what a model that reads characters reads of rare words of a shard."""
        if isinstance(self._ids, CharacterMapper) and self._ids.alphabet is None:
            return self._ids.rows_of_bytes(*shard.rare_bytes(numbers))
        rows: Ids = self._ids.rows(shard.rare_words(numbers)).numpy()
        return rows

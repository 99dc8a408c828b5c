"""Shards -> streams -> batches: text as a biLM reads it in training, without padding.

In each epoch all sentences are concatenated in a new order, and this sequence is cut into as many
equal streams as a batch has rows. A step reads the next window, `unroll` tokens of every stream,
and the layers' state is carried from step to step. So a position in the data is two numbers, an
epoch and a window: a run is resumed anywhere, and each of several processes reads its own rows of
the same batch.

A sentence of n words is n + 1 tokens of a stream. The forward direction reads `<S> w1 .. wn` with
the targets `w1 .. wn </S>`; the backward direction reads `</S> wn .. w1` at the same places with
the targets `wn .. w1 <S>`, as in bilm-tf. So both directions read nearly the same words in a step,
whose vectors are computed once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import ConfigError, InputError
from elmo.text.characters import CharacterMapper, WordIds
from elmo.text.vocabulary import BEGIN_SENTENCE, END_SENTENCE, UNKNOWN, Vocabulary
from elmo.training.corpus.shards import Shard
from elmo.training.settings import Shuffle

Ids = npt.NDArray[np.int64]
T = TypeVar("T")
U = TypeVar("U")


class Position(NamedTuple):
    """A position in the data: the next window."""

    epoch: int = 0
    window: int = 0


@dataclass(frozen=True)
class Batch:
    """What a step reads: `time` tokens of each of `rows` streams, in both directions."""

    types: Tensor
    """Ids of the distinct words, int32 `(m, max_characters)` or, in a word model, `(m,)`."""
    inputs: Tensor
    """Which of them is read, int64 `(2, time, rows)`; directions forward, backward."""
    targets: Tensor
    """Which word of the vocabulary comes next, int64 `(2, time, rows)`."""
    resets: Tensor
    """True where the state is zeroed before the word is read, bool `(time, rows)`."""

    @property
    def n_tokens(self) -> int:
        """Number of tokens: words, and one boundary a sentence."""
        return self.resets.numel()

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All tensors, in this order."""
        return self.types, self.inputs, self.targets, self.resets

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self.parts))

    def pinned(self) -> Batch:
        """Return the batch in pinned memory, from which a GPU copies asynchronously."""
        return Batch(*(part.pin_memory() for part in self.parts))


class _Plan(NamedTuple):
    """The order of one epoch."""

    order: Ids
    """Numbers of the sentences in their order, `(n_sentences,)`."""
    ends: Ids
    """Where each of them ends in the sequence, `(n_sentences,)`."""
    resets: npt.NDArray[np.bool_]
    """Whether each of them is read from a zero state, `(n_sentences,)`."""


class _Plans:
    """The plans of the current epoch and of its neighbors, each made once, by the first caller.

    Args:
        make: Makes the plan of an epoch.
    """

    def __init__(self, make: Callable[[int], _Plan]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: dict[int, Future[_Plan]] = {}

    def get(self, epoch: int) -> _Plan:
        """Return the plan of an epoch; thread-safe."""
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
    """The batches of a corpus, from any position on.

    Args:
        shards: The text.
        vocabulary: The words that can be targets, the specials among them.
        ids: Turns words into what the model reads.
        rows: Streams in a batch.
        unroll: Tokens of each stream in a batch.
        shuffle: What gets a new order in each epoch.
        reset_prob: Probability that a sentence is read from a zero state.
        seed: Decides orders and resets.
        rank: Number of this process.
        world: Number of processes; each reads an equal part of the rows.
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
        reset_prob: float = 0.0,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if rows % world:
            raise ConfigError(f"a batch of {rows} streams cannot be shared by {world} processes")
        self._text = _Text(shards, vocabulary, ids)
        self.rows, self.unroll = rows, unroll
        self._shuffle, self._reset_prob, self._seed = shuffle, reset_prob, seed
        own = rows // world
        self._rows = np.arange(rank * own, (rank + 1) * own)
        self.tokens_per_epoch = self._text.n_places
        """Tokens of an epoch; those that do not fill a window are left out."""
        self._stream_length = self.tokens_per_epoch // rows
        self.windows_per_epoch = self._stream_length // unroll
        if self.windows_per_epoch == 0:
            raise InputError(
                f"the corpus has {self.tokens_per_epoch:,} tokens, fewer than one step of "
                f"{rows} streams of {unroll} tokens; choose a smaller "
                "--batch-size or --unroll-steps"
            )
        self._plans = _Plans(self._make_plan)

    def batches(self, start: Position) -> Iterator[tuple[Batch, Position]]:
        """Yield batches without end, each with the position that follows it."""
        return map(self.batch_at, self.positions(start))

    def positions(self, start: Position) -> Iterator[Position]:
        """Yield the positions of batches without end."""
        position = start
        while True:
            if position.window >= self.windows_per_epoch:
                position = Position(position.epoch + 1, 0)
            yield position
            position = Position(position.epoch, position.window + 1)

    def batch_at(self, position: Position) -> tuple[Batch, Position]:
        """Return the batch at a position, and the position that follows it; thread-safe."""
        first = position.window * self.unroll
        following = Position(position.epoch, position.window + 1)
        return self._window(position.epoch, first, self.unroll), following

    def plan_ahead(self, position: Position) -> None:
        """Plan the next epoch in a thread, once half of this one is over."""
        if position.window == self.windows_per_epoch // 2:
            # No daemon: a thread that is cut off in compiled code when Python exits may abort it.
            threading.Thread(target=self._plans.get, args=(position.epoch + 1,)).start()

    def one_pass(self, limit: int | None = None) -> Iterator[Batch]:
        """Yield the first epoch once; its last window may be shorter.

        Args:
            limit: Tokens of each stream after which to end.
        """
        end = self._stream_length if limit is None else min(limit, self._stream_length)
        for first in range(0, end, self.unroll):
            yield self._window(0, first, min(self.unroll, end - first))

    def _window(self, epoch: int, first: int, time: int) -> Batch:
        """Return the batch of `time` tokens that begins at `first` in every stream."""
        plan = self._plans.get(epoch)
        places = self._rows * self._stream_length + first + np.arange(time)[:, None]
        position = np.empty(places.shape, np.int64)
        now = np.searchsorted(plan.ends, places[0], side="right")
        for t in range(time):
            # A sentence is at least two tokens: the next token lies in it or in the next one.
            now = now + (plan.ends[now] <= places[t])
            position[t] = now
        sentences = plan.order[position]
        before = plan.ends[position] - self._text.n_slots[sentences]
        within = places - before
        resets = plan.resets[position] & (within == 0)
        if first == 0:
            resets[0] = True  # the last epoch ended elsewhere in the text
        return self._text.batch(sentences, within, resets)

    def _make_plan(self, epoch: int) -> _Plan:
        generator = np.random.default_rng((self._seed, epoch))
        order = self._text.ordered(self._shuffle, generator)
        resets = generator.random(len(order)) < self._reset_prob
        return _Plan(order, np.cumsum(self._text.n_slots[order]), resets)


class _Text:
    """All shards as one: sentences and words by number, the spelling of rare words."""

    def __init__(self, shards: Sequence[Shard], vocabulary: Vocabulary, ids: WordIds) -> None:
        vocabulary.require_specials("the corpus")
        self._shards = [shard for shard in shards if len(shard.tokens)]
        self._ids = ids
        self._n_words = len(vocabulary)
        self._begin, self._end, self._unknown = (
            vocabulary.words.index(word) for word in (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN)
        )
        self._reads_words = ids.rows([BEGIN_SENTENCE]).dim() == 1
        self._inputs = ids.rows(vocabulary.words).numpy().astype(np.int32)  # half of int64's memory
        self._set_sentences()
        self._first_rare = np.cumsum([self._n_words, *(shard.n_rare for shard in self._shards)])

    def _set_sentences(self) -> None:
        lengths = [np.diff(shard.sentence_starts) for shard in self._shards]
        self.n_slots: Ids = np.concatenate([*lengths, np.zeros(0, np.int64)]) + 1
        """Tokens of each sentence, `(n_sentences,)`."""
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
        """Return the sentences' numbers in the order of an epoch, `(n_sentences,)`."""
        if shuffle == "none":
            return np.arange(len(self.n_slots))
        if shuffle == "sentences":
            return generator.permutation(len(self.n_slots))
        chosen = generator.permutation(len(self._documents) - 1)
        lengths = np.diff(self._documents)[chosen]
        before = np.cumsum(lengths) - lengths
        firsts = np.repeat(self._documents[:-1][chosen] - before, lengths)
        return firsts + np.arange(len(firsts))

    def batch(self, sentences: Ids, within: Ids, resets: npt.NDArray[np.bool_]) -> Batch:
        """Return the inputs and targets at some places.

        Args:
            sentences: Number of the sentence at each place, `(time, rows)`.
            within: Tokens of the sentence that lie before, `(time, rows)`.
            resets: Where the state is zeroed, `(time, rows)`.
        """
        # The input at a place is the target at the place before, so that the targets from one place
        # before the first on are both.
        sentences = np.concatenate([sentences[:1], sentences])
        within = np.concatenate([np.maximum(within[:1] - 1, 0), within])
        starts, length = self._starts[sentences], self.n_slots[sentences] - 1
        last_place = within == length
        forward = starts + np.minimum(within, length - 1)
        backward = starts + np.maximum(length - 1 - within, 0)
        words = self._words(sentences, np.stack([forward, backward]))
        first_place = within[1:] == 0
        ends = np.array([self._begin, self._end])[:, None, None]
        inputs = np.where(first_place, ends, words[:, :-1])
        targets = np.where(last_place[1:], ends[::-1], words[:, 1:])
        targets = np.where(targets < self._n_words, targets, self._unknown)
        if self._reads_words:
            inputs = np.where(inputs < self._n_words, inputs, self._unknown)
        distinct, inputs = self._distinct(inputs)
        return Batch(
            types=self._encode(distinct),
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            resets=torch.from_numpy(resets),
        )

    def _words(self, sentences: Ids, places: Ids) -> Ids:
        """Return the ids of words: places in the vocabulary, or those of rare words behind them.

        Args:
            sentences: Number of the sentence at each place, `(time, rows)`.
            places: Places of the words in their shards, `(2, time, rows)`.
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
        """Return the distinct ids, ascending, and the place of each id among them.

        Equal to `np.unique`, which sorts: only rare words are sorted here.

        Args:
            words: Ids of any shape.
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

    def _encode(self, distinct: Ids) -> Tensor:
        """Return what the model reads of words, given ascending ids."""
        n_known = int(np.searchsorted(distinct, self._n_words))
        encoded = np.empty((len(distinct), *self._inputs.shape[1:]), np.int32)
        np.take(self._inputs, distinct[:n_known], axis=0, out=encoded[:n_known], mode="clip")
        shard_of = np.searchsorted(self._first_rare, distinct, side="right") - 1
        for number in np.unique(shard_of[n_known:]):
            here = slice(*np.searchsorted(shard_of, [number, number + 1]))
            numbers = distinct[here] - self._first_rare[number]
            encoded[here] = self._encode_rare(self._shards[number], numbers)
        return torch.from_numpy(encoded)

    def _encode_rare(self, shard: Shard, numbers: Ids) -> Ids:
        """Return the character ids of rare words of a shard."""
        if isinstance(self._ids, CharacterMapper) and self._ids.alphabet is None:
            return self._ids.rows_of_bytes(*shard.rare_bytes(numbers))
        rows: Ids = self._ids.rows(shard.rare_words(numbers)).numpy()
        return rows


@contextmanager
def prefetched(
    prepare: Callable[[T], U], items: Iterator[T], workers: int
) -> Iterator[Iterator[U]]:
    """Prepare the next items in other threads while one is worked on; their order is kept.

    Args:
        prepare: Applied to each item.
        items: The items, without end.
        workers: Number of threads.
    """
    with ThreadPoolExecutor(max_workers=workers) as pool:

        def results() -> Iterator[U]:
            pending = deque(pool.submit(prepare, next(items)) for _ in range(workers + 1))
            while True:
                item = pending.popleft().result()
                pending.append(pool.submit(prepare, next(items)))
                yield item

        try:
            yield results()
        finally:
            pool.shutdown(cancel_futures=True)

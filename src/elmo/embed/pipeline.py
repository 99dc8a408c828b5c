"""The path of the data: sentences -> distinct words -> vectors -> layers -> one result a sentence.

Every door of the package (the `ELMo` object, the command line, later services and adapters) leads
here. Two things are decided here and nowhere else: which sentences share a batch, and what state
they start from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import get_args

import torch
from torch import Tensor

from elmo.backends.cpu.model import PackedBiLM
from elmo.backends.gpu.model import FusedBiLM
from elmo.backends.gpu.word_table import (
    DeviceWordVectors,
    Sentences,
    SentencesReadAhead,
    WordsOfBatch,
    sizes_of,
    take,
)
from elmo.embed.burn_in import BURN_IN_SENTENCES
from elmo.embed.plan import plan_batches
from elmo.embed.results import EmbeddedBatch, deliver_tensors
from elmo.embed.selection import Selection
from elmo.embed.words import TokenFile, WordVectors
from elmo.errors import ConfigError, ElmoError
from elmo.model.bilm import BiLM
from elmo.model.ids import WordIds
from elmo.model.state import CarriedState, State, zero_state
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import exact_products, free_memory, is_out_of_memory, send
from elmo.settings import StatePolicy
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.text.sentences import Words

CARRY_ROWS = 64
"""Sentences in a batch of the policy "carry" unless told: the batch of AllenNLP's ElmoEmbedder."""

_GATE_BYTES = 16 << 20
"""Size of the gates of one time step. Batches with more rows are no faster, only larger."""
_GPU_ROWS = 8192
"""Sentences in a batch of a GPU, if it has the memory; likewise, more are no faster."""
_FIRST_WINDOW_BATCHES = 1
"""Batches of a GPU whose sentences are sorted together at the beginning of a call."""
_GPU_BOUND_WEIGHTS = 16_000_000
"""A GPU that multiplies each word with so many weights takes longer than the host with words."""
_EXACT_COST = 16
"""How many times as long a GPU takes for a product in float32."""
_WINDOW_BATCHES = 4
"""Batches whose sentences are sorted together when a stream is embedded."""
_WINDOW_BYTES = 2 << 30
"""Size of their vectors at most, all layers together: batches of a GPU are large."""
_CPU_CACHE_MB, _GPU_CACHE_MB = 64, 512
"""Memory for the context-free vectors of words unless told."""


class Pipeline:
    """Runs a biLM over sentences.

    Args:
        model: The biLM.
        ids: What turns words into its ids.
        warm_state: The state of the policy "warm", one row; burned in when first needed if None.
        word_cache_mb: Memory for the context-free vectors of words seen before; if None, chosen by
            the device.
        token_file: Precomputed context-free vectors.
        lookup: Terms of known words that are added to what their characters give.
    """

    def __init__(
        self,
        model: BiLM | PackedBiLM | FusedBiLM,
        ids: WordIds,
        warm_state: State | None = None,
        word_cache_mb: float | None = None,
        token_file: TokenFile | None = None,
        lookup: WordLookup | None = None,
    ) -> None:
        self.model = model
        self.lookup = lookup
        self.ids = ids
        self.config = model.config
        self.device = model.boundaries.device
        self._threads = model.threads if isinstance(model, PackedBiLM) else nullcontext
        self.warm_state = warm_state
        self.carried = CarriedState(model.config)
        """What the policy "carry" goes on from, a row for each row of the batch."""
        self.n_cut_words = 0
        """How many words so far were longer than the model reads and lost their end."""
        self.words = self._remembered_words(word_cache_mb, token_file)
        self._starts: dict[StatePolicy, State] = {}
        self._gpu_limits: tuple[int, int] | None = None
        self._most_words: int | None = None
        """Words of a batch at most that the GPU's memory has been seen to hold."""

    def _remembered_words(
        self, cache_mb: float | None, file: TokenFile | None
    ) -> WordVectors | DeviceWordVectors:
        on_cpu = self.device.type == "cpu"
        if cache_mb is None:
            cache_mb = _CPU_CACHE_MB if on_cpu else _GPU_CACHE_MB
        dim = self.config.projection_dim
        capacity = int(cache_mb * 2**20 / (4 * dim))
        if on_cpu:
            return WordVectors(self.compute_words, dim, capacity, file)
        are_cut = self.ids.are_cut
        return DeviceWordVectors(self._encode, dim, capacity, self.device, are_cut, file)

    def embed(
        self,
        sentences: Sequence[Words],
        selection: Selection,
        policy: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
    ) -> Iterator[tuple[int, Tensor]]:
        """Embed sentences one by one; see `batches`.

        Yields:
            The number of a sentence and its vectors, on the model's device.
        """
        batches = self.batches(sentences, selection, policy, batch_size, batch_tokens)
        for batch, vectors in deliver_tensors(batches):
            yield from zip(batch.numbers, vectors, strict=True)

    def batches(
        self,
        sentences: Sequence[Words],
        selection: Selection,
        policy: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
    ) -> Iterator[EmbeddedBatch]:
        """Embed sentences, batch by batch, in whatever order is fastest.

        Args:
            sentences: Lists of words, possibly empty.
            selection: Which layers are wanted.
            policy: What the layers remember when a sentence begins.
            batch_size: Sentences in a batch at most; with "carry", exactly.
            batch_tokens: Words in a batch at most; not with "carry".

        Yields:
            Batches, on the model's device; on a GPU, they have been launched, not computed.
        """
        if policy not in get_args(StatePolicy):
            raise ConfigError(f"state is {policy!r}, expected one of {get_args(StatePolicy)}")
        if policy == "carry":
            yield from self._carried_batches(sentences, selection, self.carry_rows(batch_size))
            return
        start = self._start(policy)
        max_tokens, max_rows = self.batch_tokens(batch_tokens), self._max_rows(batch_size)
        for first, window in self._windows_ahead(sentences, max_rows):
            lengths = sizes_of(window)
            for places in plan_batches(lengths, max_tokens, max_rows):
                numbers = [first + place for place in places]
                sizes = [lengths[place] for place in places]
                filled = len(sizes) - sizes.count(0)  # sentences come with the longest first
                chosen = take(window, places[:filled])
                rows = start.repeat(filled)
                for part, vectors, _ in self._pieces(chosen, rows, selection, selection.depth):
                    yield EmbeddedBatch(numbers[part], sizes[part], vectors)
                    del vectors  # the next batch may need its memory
                if filled < len(sizes):
                    yield EmbeddedBatch(numbers[filled:], sizes[filled:], self._nothing(selection))

    def checks_words(self, policy: StatePolicy) -> bool:
        """Tell whether `batches` itself finds out what is not a word."""
        return isinstance(self.words, DeviceWordVectors) and policy != "carry"

    def compute_words(self, words: Sequence[str]) -> Tensor:
        """Compute the context-free vectors `(len(words), projection_dim)` of words, on the CPU."""
        return self._encode(words).cpu()

    def _encode(self, words: Sequence[str]) -> Tensor:
        """Compute the context-free vectors of words, on the model's device."""
        with torch.no_grad(), exact_products(self.device):
            vectors = self.model.encode_words(send(self.ids.rows(words).numpy(), self.device))
        return vectors if self.lookup is None else self.lookup.add_to(vectors, words)

    # --- state ------------------------------------------------------------------------------------

    def warm_up(self, sentences: Iterable[Sequence[str]] | None = None) -> None:
        """Burn in the state of the policy "warm" by reading text with carried state."""
        state = zero_state(self.config, 1, torch.empty(0, device=self.device))
        for sentence in BURN_IN_SENTENCES if sentences is None else sentences:
            _, state = self._run([_bounded(sentence)], state, self.config.n_layers)
        self.warm_state = state
        self._starts.pop("warm", None)

    def _start(self, policy: StatePolicy) -> State:
        """Give the one-row state in which the first word of a sentence is read.

        It does not depend on the sentence, so it is computed once: its boundaries cost nothing.
        """
        if policy not in self._starts:
            before = None
            if policy == "warm":
                if self.warm_state is None:
                    self.warm_up()
                assert self.warm_state is not None
                before = State(*(part.to(self.device) for part in self.warm_state))
            with torch.no_grad(), exact_products(self.device):
                self._starts[policy] = self.model.after_boundary(before)
        return self._starts[policy]

    def _carried_batches(
        self, sentences: Sequence[Words], selection: Selection, rows: int
    ) -> Iterator[EmbeddedBatch]:
        for first in range(0, len(sentences), rows):
            # An empty sentence is read as its two boundaries and moves the state, as in AllenNLP.
            batch = [_bounded(sentence) for sentence in sentences[first : first + rows]]
            start = self.carried.first_rows(len(batch), self.device)
            embedded: list[EmbeddedBatch] = []
            finals: list[State] = []
            for part, vectors, final in self._pieces(batch, start, selection, self.config.n_layers):
                numbers = list(range(first, first + len(batch))[part])
                sizes = list(map(len, batch[part]))
                embedded.append(_without_boundaries(EmbeddedBatch(numbers, sizes, vectors)))
                finals.append(final)
            self.carried.keep(State(*(torch.cat(parts, 2) for parts in zip(*finals, strict=True))))
            yield from embedded

    # --- one batch --------------------------------------------------------------------------------

    def _run(self, sentences: Sentences, start: State, depth: int) -> tuple[list[Tensor], State]:
        """Run the model over one batch.

        Args:
            sentences: Words, none empty; boundaries only where they are to be read.
            start: The state before the first word, a row for each sentence.
            depth: Recurrent layers that are wanted.

        Returns:
            Layers 0 to depth, each `(n, dim)` for the n words of all sentences; the final state.
        """
        vectors, index, n_cut = self._look_up(sentences)
        context_free = vectors[index]
        layers = [torch.cat([context_free, context_free], dim=1)]
        final = start
        if depth > 0:
            sizes = sizes_of(sentences)
            with torch.no_grad():
                upper, final = self.model.contextualize(vectors, index, sizes, start, depth)
            layers += upper
        self.n_cut_words += n_cut  # at the end: a batch that does not fit is run again
        return layers, final

    def _pieces(
        self, sentences: Sentences, start: State, selection: Selection, depth: int
    ) -> Iterator[tuple[slice, Tensor, State]]:
        """Run the model over one batch, in halves if the GPU's memory does not hold it.

        Args:
            sentences: See `_run`.
            start: See `_run`.
            selection: Which layers are wanted.
            depth: Recurrent layers that are computed; more than wanted where state is carried.

        Yields:
            Which sentences, their vectors, and the state after each of them.
        """
        waiting = [slice(0, len(sentences))] if sentences else []
        while waiting:
            part = waiting.pop()
            piece = sentences[part]
            n_words = sum(sizes_of(piece))
            done = None
            if len(piece) == 1 or self._most_words is None or n_words <= self._most_words:
                done = self._try(piece, start.take(part), selection, depth)
            if done is not None:
                yield part, *done
                done = None  # the next one may need its memory
            elif len(piece) == 1:
                raise ElmoError(
                    f"{self.device} has too little memory for a sentence of {n_words} words: cut "
                    "it, free memory that others hold, choose fewer layers, or use device='cpu'"
                )
            else:
                middle = (part.start + part.stop) // 2
                waiting += [slice(middle, part.stop), slice(part.start, middle)]

    def _try(
        self, sentences: Sentences, start: State, selection: Selection, depth: int
    ) -> tuple[Tensor, State] | None:
        """Run the model over one batch; None if a GPU's memory does not hold it."""
        try:
            with self._threads():
                layers, final = self._run(sentences, start, depth)
                return selection.choose(layers[: selection.depth + 1]), final
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, not above: what the error holds must be free for the next try.
        torch.cuda.empty_cache()
        self._most_words = sum(sizes_of(sentences)) // 2
        return None

    def _look_up(self, sentences: Sentences) -> WordsOfBatch:
        """Give the words of a batch."""
        if isinstance(self.words, DeviceWordVectors):
            return self.words.read(sentences)
        assert not isinstance(sentences, SentencesReadAhead)  # by those words alone
        places: dict[str, int] = {}
        tokens = [places.setdefault(word, len(places)) for s in sentences for word in s]
        words = list(places)
        cut = {words[place] for place in self.ids.are_cut(words).nonzero()[0]}
        n_cut = sum(word in cut for sentence in sentences for word in sentence) if cut else 0
        return WordsOfBatch(self.words.lookup(words), torch.tensor(tokens), n_cut)

    def _windows_ahead(
        self, sentences: Sequence[Words], max_rows: int
    ) -> Iterator[tuple[int, Sentences]]:
        """Cut a call into windows and look their words up, where that pays: on a GPU.

        A GPU computes a window while the host looks up the words of the next one. The first is
        small, so that there is soon something to compute; each of the others is twice as large.
        With a small model the GPU is done before the host anyway, and one window is best: in the
        batches of several, more time steps are launched.

        Args:
            sentences: The sentences of a call.
            max_rows: Sentences in a batch.

        Yields:
            The number of a window's first sentence, and its sentences.
        """
        if not isinstance(self.words, DeviceWordVectors) or len(sentences) == 1:
            yield 0, sentences
            return
        first = 0
        size = _FIRST_WINDOW_BATCHES * max_rows if self._is_gpu_bound() else len(sentences)
        while first < len(sentences):
            yield first, self._read_ahead(self.words, sentences[first : first + size], first)
            first, size = first + size, 2 * size

    def _is_gpu_bound(self) -> bool:
        """Tell whether a GPU takes longer to compute with words than the host to look them up."""
        # Inputs and hidden state to four gates, cells to hidden state, in both directions.
        layer = 2 * 9 * self.config.dim * self.config.projection_dim
        exact = not isinstance(self.model, FusedBiLM) or self.model.precision == "fp32"
        cost = _EXACT_COST if exact else 1
        return self.config.n_layers * layer * cost >= _GPU_BOUND_WEIGHTS

    def _read_ahead(
        self, words: DeviceWordVectors, sentences: Sequence[Words], first: int
    ) -> Sentences:
        """Look the words of sentences up, if the GPU's memory is enough."""
        try:
            return words.read_ahead(sentences, first)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()
        return sentences

    def _nothing(self, selection: Selection) -> Tensor:
        """Give the vectors of a sentence without words."""
        empty = torch.empty(0, self.config.output_dim, device=self.device)
        return selection.choose([empty] * (selection.depth + 1))

    # --- limits -----------------------------------------------------------------------------------

    def batch_tokens(self, asked: int | None) -> int:
        """Say how many words a batch may have."""
        if self.device.type == "cpu":
            return _positive("batch_tokens", asked) or max(1024, 8 * self._max_rows(None))
        return _positive("batch_tokens", asked) or self._limits_of_gpu()[1]

    def window_tokens(self, asked: int | None) -> int:
        """Say how many words of a stream are worth sorting together."""
        tokens = _WINDOW_BATCHES * self.batch_tokens(asked)
        word_bytes = 4 * (self.config.n_layers + 1) * self.config.output_dim
        return tokens if asked else min(tokens, max(1024, _WINDOW_BYTES // word_bytes))

    def carry_rows(self, asked: int | None) -> int:
        """Say how many sentences a batch has when state is carried."""
        return _positive("batch_size", asked) or CARRY_ROWS

    def _max_rows(self, asked: int | None) -> int:
        if self.device.type == "cpu":
            return _positive("batch_size", asked) or max(16, _GATE_BYTES // (16 * self.config.dim))
        return _positive("batch_size", asked) or self._limits_of_gpu()[0]

    def _limits_of_gpu(self) -> tuple[int, int]:
        """Say how many sentences and words a batch may have, by the memory that was free at first.

        A quarter of it is for what grows with the sentences, a quarter for what grows with the
        words; the rest is for results, and for others.
        """
        if self._gpu_limits is None:
            config = self.config
            quarter = _memory_for_batches(self.device) // 4
            # Gates, cells and memory of a step; the states of all layers before and after.
            row_bytes = 4 * 2 * config.dim * (6 + 2 * config.n_layers)
            # Every layer twice, and what the layer above reads.
            word_bytes = 4 * config.output_dim * (2 * config.n_layers + 3)
            rows = max(16, min(_GPU_ROWS, quarter // row_bytes))
            self._gpu_limits = rows, max(1024, min(32 * rows, quarter // word_bytes))
        return self._gpu_limits


def _memory_for_batches(device: torch.device) -> int:
    """Give the memory that batches may share; a fixed amount where it is not known."""
    return free_memory(device) if device.type == "cuda" else 4 << 30


def _positive(name: str, asked: int | None) -> int | None:
    whole = isinstance(asked, int) and not isinstance(asked, bool)
    if asked is not None and (not whole or asked < 1):
        raise ConfigError(f"{name} is {asked!r}, expected a whole number of at least 1")
    return asked


def _bounded(sentence: Sequence[str]) -> Words:
    return [BEGIN_SENTENCE, *sentence, END_SENTENCE]


def _without_boundaries(batch: EmbeddedBatch) -> EmbeddedBatch:
    """Take the first and the last word of each sentence away."""
    parts = torch.split(batch.vectors, batch.sizes, dim=-2)
    inside = torch.cat([part[..., 1:-1, :] for part in parts], dim=-2)
    return EmbeddedBatch(batch.numbers, [size - 2 for size in batch.sizes], inside)

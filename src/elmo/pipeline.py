"""The path of the data: sentences -> distinct words -> vectors -> layers -> one result a sentence.

Every door of the package (the `ELMo` object, the command line, later services and adapters) leads
here. Two things are decided here and nowhere else: which sentences share a batch, and what state
they start from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import get_args

import torch
from torch import Tensor

from elmo.batching import plan_batches
from elmo.bilm import BiLM, CarriedState, State, WordIds, zero_state
from elmo.burn_in import BURN_IN_SENTENCES
from elmo.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.errors import ConfigError
from elmo.packed import PackedBiLM
from elmo.selection import Selection
from elmo.sentences import Words
from elmo.settings import StatePolicy
from elmo.word_vectors import TokenFile, WordVectors

CARRY_ROWS = 64
"""Sentences in a batch of the policy "carry" unless told: the batch of AllenNLP's ElmoEmbedder."""

_GATE_BYTES = 16 << 20
"""Size of the gates of one time step. Batches with more rows are no faster, only larger."""


class Pipeline:
    """Runs a biLM over sentences.

    Args:
        model: The biLM.
        ids: What turns words into its ids.
        warm_state: The state of the policy "warm", one row; burned in when first needed if None.
        word_cache_mb: Memory for the context-free vectors of words seen before.
        token_file: Precomputed context-free vectors.
    """

    def __init__(
        self,
        model: BiLM | PackedBiLM,
        ids: WordIds,
        warm_state: State | None = None,
        word_cache_mb: float = 64,
        token_file: TokenFile | None = None,
    ) -> None:
        self.model = model
        self.ids = ids
        self.config = model.config
        self.device = model.boundaries.device
        self.warm_state = warm_state
        self.carried = CarriedState(model.config)
        """What the policy "carry" goes on from, a row for each row of the batch."""
        self.n_cut_words = 0
        """How many words so far were longer than the model reads and lost their end."""
        dim = self.config.projection_dim
        capacity = int(word_cache_mb * 2**20 / (4 * dim))
        self.words = WordVectors(self.compute_words, dim, capacity, token_file)
        self._starts: dict[StatePolicy, State] = {}

    def embed(
        self,
        sentences: Sequence[Words],
        selection: Selection,
        policy: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
    ) -> Iterator[tuple[int, Tensor]]:
        """Embed sentences, batch by batch, in whatever order is fastest.

        Args:
            sentences: Lists of words, possibly empty.
            selection: Which layers are wanted.
            policy: What the layers remember when a sentence begins.
            batch_size: Sentences in a batch at most; with "carry", exactly.
            batch_tokens: Words in a batch at most; not with "carry".

        Yields:
            The number of a sentence and its vectors, on the model's device.
        """
        if policy not in get_args(StatePolicy):
            raise ConfigError(f"state is {policy!r}, expected one of {get_args(StatePolicy)}")
        if policy == "carry":
            yield from self._embed_carried(sentences, selection, self.carry_rows(batch_size))
            return
        start = self._start(policy)
        filled = [number for number, sentence in enumerate(sentences) if sentence]
        for number in set(range(len(sentences))) - set(filled):
            yield number, self._nothing(selection)
        lengths = [len(sentences[number]) for number in filled]
        limits = self.batch_tokens(batch_tokens), self._max_rows(batch_size)
        for batch in plan_batches(lengths, *limits):
            numbers = [filled[place] for place in batch]
            chosen = [sentences[number] for number in numbers]
            layers, _ = self._run(chosen, start.repeat(len(chosen)), selection.depth)
            sizes = [lengths[place] for place in batch]
            vectors = torch.split(selection.choose(layers), sizes, dim=-2)
            for number, part in zip(numbers, vectors, strict=True):
                yield number, _owned(part)

    def compute_words(self, words: Sequence[str]) -> Tensor:
        """Compute the context-free vectors `(len(words), projection_dim)` of words, on the CPU."""
        with torch.no_grad(), _exact_convolutions():
            return self.model.encode_words(self.ids.rows(words).to(self.device)).cpu()

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
            with torch.no_grad(), _exact_convolutions():
                self._starts[policy] = self.model.after_boundary(before)
        return self._starts[policy]

    def _embed_carried(
        self, sentences: Sequence[Words], selection: Selection, rows: int
    ) -> Iterator[tuple[int, Tensor]]:
        for first in range(0, len(sentences), rows):
            # An empty sentence is read as its two boundaries and moves the state, as in AllenNLP.
            batch = [_bounded(sentence) for sentence in sentences[first : first + rows]]
            start = self.carried.first_rows(len(batch), self.device)
            layers, final = self._run(batch, start, self.config.n_layers)
            self.carried.keep(final)
            chosen = selection.choose(layers[: selection.depth + 1])
            vectors = torch.split(chosen, [len(sentence) for sentence in batch], dim=-2)
            for number, part in enumerate(vectors, start=first):
                yield number, _owned(part[..., 1:-1, :])

    # --- one batch --------------------------------------------------------------------------------

    def _run(
        self, sentences: Sequence[Words], start: State, depth: int
    ) -> tuple[list[Tensor], State]:
        """Run the model over one batch.

        Args:
            sentences: Words, none empty; boundaries only where they are to be read.
            start: The state before the first word, a row for each sentence.
            depth: Recurrent layers that are wanted.

        Returns:
            Layers 0 to depth, each `(n, dim)` for the n words of all sentences; the final state.
        """
        places: dict[str, int] = {}
        tokens = [places.setdefault(word, len(places)) for s in sentences for word in s]
        self._count_cut(sentences, places)
        vectors = self.words.lookup(list(places)).to(self.device)
        index = torch.tensor(tokens, device=self.device)
        context_free = vectors[index]
        layers = [torch.cat([context_free, context_free], dim=1)]
        if depth == 0:
            return layers, start
        lengths = [len(sentence) for sentence in sentences]
        with torch.no_grad():
            upper, final = self.model.contextualize(vectors, index, lengths, start, depth)
        return layers + upper, final

    def _count_cut(self, sentences: Sequence[Words], distinct: Iterable[str]) -> None:
        cut = {word for word in distinct if self.ids.is_cut(word)}
        if cut:
            self.n_cut_words += sum(word in cut for sentence in sentences for word in sentence)

    def _nothing(self, selection: Selection) -> Tensor:
        """Give the vectors of a sentence without words."""
        empty = torch.empty(0, self.config.output_dim, device=self.device)
        return selection.choose([empty] * (selection.depth + 1))

    # --- limits -----------------------------------------------------------------------------------

    def batch_tokens(self, asked: int | None) -> int:
        """Say how many words a batch may have."""
        return _positive("batch_tokens", asked) or max(1024, 8 * self._max_rows(None))

    def carry_rows(self, asked: int | None) -> int:
        """Say how many sentences a batch has when state is carried."""
        return _positive("batch_size", asked) or CARRY_ROWS

    def _max_rows(self, asked: int | None) -> int:
        return _positive("batch_size", asked) or max(16, _GATE_BYTES // (16 * self.config.dim))


def windows(
    sentences: Iterable[Words], max_tokens: int, multiple: int = 1
) -> Iterator[list[Words]]:
    """Collect a stream of sentences in windows, within which batches may be planned.

    Args:
        sentences: Lists of words.
        max_tokens: Words, and sentences, after which a window ends.
        multiple: A window has a multiple of this many sentences, but for the last: with state
            carried, windows must not cut batches.
    """
    window: list[Words] = []
    tokens = 0
    for sentence in sentences:
        window.append(sentence)
        tokens += 1 + len(sentence)
        if tokens >= max_tokens and len(window) % multiple == 0:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def _exact_convolutions() -> AbstractContextManager[None]:
    """Keep cuDNN from rounding the convolution's inputs to 10 bits (TF32), its default on a GPU.

    The vectors of words would otherwise differ from the CPU's by 1e-3 instead of 1e-6.
    """
    manager: AbstractContextManager[None] = torch.backends.cudnn.flags(
        enabled=True, deterministic=True, allow_tf32=False
    )
    return manager


def _positive(name: str, asked: int | None) -> int | None:
    whole = isinstance(asked, int) and not isinstance(asked, bool)
    if asked is not None and (not whole or asked < 1):
        raise ConfigError(f"{name} is {asked!r}, expected a whole number of at least 1")
    return asked


def _bounded(sentence: Sequence[str]) -> Words:
    return [BEGIN_SENTENCE, *sentence, END_SENTENCE]


def _owned(part: Tensor) -> Tensor:
    """Copy a part of a batch, so that keeping it does not keep the batch."""
    return part.clone(memory_format=torch.contiguous_format)

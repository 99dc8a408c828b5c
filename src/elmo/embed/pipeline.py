"""The path of the data: sentences -> distinct words -> vectors -> layers -> one result a sentence.

Every way of embedding (the `ELMo` object, the command line, the language model at work) leads here.
Two things are decided here: which sentences share a batch, and what state they start from. The
vectors are computed by a backend (`elmo.backends`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from elmo.backends.base import Backend
from elmo.backends.words import ListedSentences, Sentences
from elmo.embed.plan import plan_batches, windows
from elmo.embed.results import EmbeddedBatch
from elmo.embed.selection import Selection
from elmo.errors import ConfigError, ElmoError
from elmo.model.state import CarriedState, State, zero_state
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import exact_products, is_out_of_memory
from elmo.settings import StatePolicy
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE
from elmo.text.sentences import Words

if TYPE_CHECKING:  # reads HDF5
    from elmo.weights.token_file import TokenFile

CARRY_ROWS = 64
"""Sentences in a batch of the policy "carry" by default: the batch of AllenNLP's ElmoEmbedder."""

_WINDOW_BATCHES = 4
"""Batches whose sentences are sorted together when a stream is embedded."""
_WINDOW_BYTES = 2 << 30
"""Size of their vectors at most, all layers together: batches of a GPU are large."""


class Pipeline:
    """Runs a backend over sentences.

    Args:
        backend: Computes vectors.
        warm_state: Hidden state `(layers, 2, projection_dim)` and memory `(layers, 2, dim)` of the
            policy "warm"; burned in when first needed if None.
        word_cache_mb: Memory for the context-free vectors of words seen before; if None, chosen by
            the backend.
        token_file: Precomputed context-free vectors.
        lookup: Terms of known words that are added to what their characters give.
    """

    def __init__(
        self,
        backend: Backend,
        warm_state: tuple[Tensor, Tensor] | None = None,
        word_cache_mb: float | None = None,
        token_file: TokenFile | None = None,
        lookup: WordLookup | None = None,
    ) -> None:
        self.backend = backend
        self.config = backend.config
        self.device = backend.device
        self.words = backend.open_words(word_cache_mb, token_file, lookup)
        self.warm_state = warm_state
        self.carried = CarriedState(backend.config)
        """What the policy "carry" goes on from, a row for each row of the batch."""
        self.n_cut_words = 0
        """How many words so far were longer than the model reads and lost their end."""
        self._starts: dict[StatePolicy, State] = {}

    def windows(
        self,
        sentences: Iterable[Words],
        policy: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
    ) -> Iterator[list[Words]]:
        """Cut a stream of sentences into lists that are worth one call of `batches` each."""
        multiple = carry_rows(batch_size) if policy == "carry" else 1
        return windows(sentences, self.window_tokens(batch_tokens), multiple)

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
            Batches, on the backend's device; on a GPU, they have been launched, not computed.
        """
        if policy not in get_args(StatePolicy):
            raise ConfigError(f"state is {policy!r}, expected one of {get_args(StatePolicy)}")
        if policy == "carry":
            yield from self._carried_batches(sentences, selection, carry_rows(batch_size))
            return
        start = self.start(policy)
        max_tokens = self.batch_tokens(batch_tokens)
        max_rows = _positive("batch_size", batch_size) or self.backend.limits.rows
        for first, window in self.words.windows(sentences, max_rows):
            lengths = window.sizes
            for places in plan_batches(lengths, max_tokens, max_rows):
                numbers = [first + place for place in places]
                sizes = [lengths[place] for place in places]
                filled = len(sizes) - sizes.count(0)  # sentences come with the longest first
                chosen = window.take(places[:filled])
                rows = start.repeat(filled)
                for part, vectors, _ in self._pieces(chosen, rows, selection, selection.depth):
                    yield EmbeddedBatch(numbers[part], sizes[part], vectors)
                    del vectors  # the next batch may need its memory
                if filled < len(sizes):
                    yield EmbeddedBatch(numbers[filled:], sizes[filled:], self._nothing(selection))

    def checks_words(self, policy: StatePolicy) -> bool:
        """Return whether `batches` itself raises an error that names what is not a word."""
        return self.words.checks_words and policy != "carry"

    def batch_tokens(self, asked: int | None) -> int:
        """Return how many words a batch may have."""
        return _positive("batch_tokens", asked) or self.backend.limits.tokens

    def window_tokens(self, asked: int | None) -> int:
        """Return how many words of a stream are worth sorting together."""
        tokens = _WINDOW_BATCHES * self.batch_tokens(asked)
        word_bytes = 4 * (self.config.n_layers + 1) * self.config.output_dim
        return tokens if asked else min(tokens, max(1024, _WINDOW_BYTES // word_bytes))

    def _nothing(self, selection: Selection) -> Tensor:
        """Return the vectors of a sentence without words."""
        empty = torch.empty(0, self.config.output_dim, device=self.device)
        return selection.choose([empty] * (selection.depth + 1))

    # --- state ------------------------------------------------------------------------------------

    def warm_up(self, sentences: Iterable[Sequence[str]] | None = None) -> None:
        """Burn in the state of the policy "warm" by reading text with carried state."""
        state = zero_state(self.config, 1, torch.empty(0, device=self.device))
        for sentence in burn_in_sentences() if sentences is None else sentences:
            _, state = self.read([bounded(sentence)], state, self.config.n_layers)
        self.warm_state = state.hidden[:, :, 0], state.memory[:, :, 0]
        self._starts.pop("warm", None)

    def start(self, policy: StatePolicy) -> State:
        """Return the one-row state in which the first word of a sentence is read.

        It does not depend on the sentence, so it is computed once: its boundaries cost nothing.
        """
        if policy not in self._starts:
            before = None
            if policy == "warm":
                if self.warm_state is None:
                    self.warm_up()
                assert self.warm_state is not None
                before = State(*(part.unsqueeze(2).to(self.device) for part in self.warm_state))
            with torch.no_grad(), exact_products(self.device):
                self._starts[policy] = self.backend.after_boundary(before)
        return self._starts[policy]

    def _carried_batches(
        self, sentences: Sequence[Words], selection: Selection, rows: int
    ) -> Iterator[EmbeddedBatch]:
        for first in range(0, len(sentences), rows):
            # An empty sentence is read as its two boundaries and moves the state, as in AllenNLP.
            batch = [bounded(sentence) for sentence in sentences[first : first + rows]]
            start = self.carried.first_rows(len(batch), self.device)
            listed = ListedSentences(self.words, batch)
            embedded: list[EmbeddedBatch] = []
            finals: list[State] = []
            pieces = self._pieces(listed, start, selection, self.config.n_layers)
            for part, vectors, final in pieces:
                numbers = list(range(first, first + len(batch))[part])
                sizes = list(map(len, batch[part]))
                embedded.append(_without_boundaries(EmbeddedBatch(numbers, sizes, vectors)))
                finals.append(final)
            self.carried.keep(State(*(torch.cat(parts, 2) for parts in zip(*finals, strict=True))))
            yield from embedded

    # --- one batch --------------------------------------------------------------------------------

    def read(
        self, sentences: Sequence[Words], start: State, depth: int
    ) -> tuple[list[Tensor], State]:
        """Run the backend over a few sentences as they are; see `_run`."""
        return self._run(ListedSentences(self.words, sentences), start, depth)

    def _run(self, sentences: Sentences, start: State, depth: int) -> tuple[list[Tensor], State]:
        """Run the backend over one batch.

        Args:
            sentences: Words, none empty; boundaries only where they are to be read.
            start: The state before the first word, a row for each sentence.
            depth: Recurrent layers that are wanted.

        Returns:
            Layers 0 to depth, each `(n, dim)` for the n words of all sentences; the final state.
        """
        vectors, index, n_cut = sentences.words()
        context_free = vectors[index]
        layers = [torch.cat([context_free, context_free], dim=1)]
        final = start
        if depth > 0:
            with torch.no_grad():
                upper, final = self.backend.contextualize(
                    vectors, index, sentences.sizes, start, depth
                )
            layers += upper
        self.n_cut_words += n_cut  # at the end: a batch that does not fit is run again
        return layers, final

    def _pieces(
        self, sentences: Sentences, start: State, selection: Selection, depth: int
    ) -> Iterator[tuple[slice, Tensor, State]]:
        """Run the backend over one batch, in halves if the GPU's memory does not hold it.

        Args:
            sentences: See `_run`.
            start: See `_run`.
            selection: Which layers are wanted.
            depth: Recurrent layers that are computed; more than wanted where state is carried.

        Yields:
            Which sentences, their vectors, and the state after each of them.
        """
        limits = self.backend.limits
        waiting = [slice(0, start.rows)] if start.rows else []
        while waiting:
            part = waiting.pop()
            piece = sentences.take(part)
            n_sentences, n_words = part.stop - part.start, sum(piece.sizes)
            done = None
            if n_sentences == 1 or limits.hold(n_words):
                done = self._try(piece, start.take(part), selection, depth)
            if done is not None:
                yield part, *done
                done = None  # the next one may need its memory
            elif n_sentences == 1:
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
        """Run the backend over one batch; return None if a GPU's memory does not hold it."""
        try:
            with self.backend.computing():
                layers, final = self._run(sentences, start, depth)
                return selection.choose(layers[: selection.depth + 1]), final
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, not above: what the error holds must be free for the next try.
        torch.cuda.empty_cache()
        self.backend.limits.fitting_tokens = sum(sentences.sizes) // 2
        return None


def burn_in_sentences() -> list[Words]:
    """Return a few sentences of plain English, with which a model's state is brought to running."""
    text = files("elmo.embed").joinpath("burn_in.txt").read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines()]


def carry_rows(asked: int | None) -> int:
    """Return how many sentences a batch has when state is carried."""
    return _positive("batch_size", asked) or CARRY_ROWS


def bounded(sentence: Sequence[str]) -> Words:
    """Return a sentence between its two boundaries."""
    return [BEGIN_SENTENCE, *sentence, END_SENTENCE]


def _positive(name: str, asked: int | None) -> int | None:
    whole = isinstance(asked, int) and not isinstance(asked, bool)
    if asked is not None and (not whole or asked < 1):
        raise ConfigError(f"{name} is {asked!r}, expected a whole number of at least 1")
    return asked


def _without_boundaries(batch: EmbeddedBatch) -> EmbeddedBatch:
    """Remove the first and the last word of each sentence."""
    parts = torch.split(batch.vectors, batch.sizes, dim=-2)
    inside = torch.cat([part[..., 1:-1, :] for part in parts], dim=-2)
    return EmbeddedBatch(batch.numbers, [size - 2 for size in batch.sizes], inside)

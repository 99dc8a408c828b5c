"""The path of the data: sentences -> batches -> layers -> selection -> one result a sentence.

Every way of embedding (the `ELMo` object, the command line, the language model) leads through
`Pipeline`. It decides which sentences share a batch and what state they start from; a backend
(`elmo.backends`) computes the vectors; the functions below it select layers of them and deliver one
result for each sentence, in host memory or where it was computed.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends import host_copies
from elmo.backends.base import SHARED_BYTES, Backend, ListedSentences, Sentences
from elmo.config import ElmoConfig
from elmo.errors import ConfigError, ElmoError, ElmoWarning
from elmo.model.bilm import CarriedState, State, runs, step_runs, zero_state
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import exact_products, is_out_of_memory
from elmo.runtime.interrupts import interrupts_later
from elmo.settings import Layers, OutputDtype, StatePolicy
from elmo.text.sentences import Words, collector_paused
from elmo.text.vocabulary import BEGIN_SENTENCE, END_SENTENCE

if TYPE_CHECKING:
    from elmo.backends.gpu.host_copies import HostCopies
    from elmo.weights.token_file import TokenFile  # reads HDF5

CARRY_ROWS = 64
"""Sentences in a batch of the policy "carry" by default: the batch of AllenNLP's ElmoEmbedder."""

_WINDOW_BATCHES = 4
"""Batches whose sentences are sorted together when a stream is embedded."""
_WINDOW_BYTES = 2 << 30
"""Size of their vectors at most, all layers together: batches of a GPU are large."""
_COPYING = 2
"""Batches of a GPU that are copied at a time, each by a thread that waits for it."""
_MOST_PENDING = 2
"""Batches whose copies are begun before the next batch is launched: they take memory."""
_DTYPES = {"float32": torch.float32, "float16": torch.float16}

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class EmbeddedBatch:
    """The vectors of some sentences."""

    numbers: list[int]
    """Which sentences."""
    sizes: list[int]
    """Words of each of them."""
    vectors: Tensor
    """Of all words, one sentence after another, `(n, dim)` or `(n_layers, n, dim)`."""

    @property
    def row_bytes(self) -> int:
        """Size of the vectors of one word."""
        return self.vectors.nbytes // max(1, self.vectors.shape[-2])


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
        self._has_warned = False
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

    def stream(
        self,
        sentences: Iterable[Words],
        layers: Layers,
        policy: StatePolicy = "zero",
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        dtype: OutputDtype = "float32",
    ) -> Iterator[tuple[list[Words], list[Array]]]:
        """Yield windows of a stream of sentences with the vectors of each sentence.

        With "carry", the carried state is that after the window that was yielded last; otherwise
        a GPU begins the next window before the vectors of the last have come to the host.
        """
        selection = select_layers(layers, self.config)
        computed = (
            (window, self.batches(window, selection, policy, batch_size, batch_tokens))
            for window in self.windows(sentences, policy, batch_size, batch_tokens)
        )
        waited_for = ([one] for one in computed) if policy == "carry" else [computed]
        return self._delivered(waited_for, dtype)

    def _delivered(
        self,
        groups: Iterable[Iterable[tuple[list[Words], Iterable[EmbeddedBatch]]]],
        dtype: OutputDtype,
    ) -> Iterator[tuple[list[Words], list[Array]]]:
        """Deliver groups of windows, one group after another."""
        for windows in groups:
            for window, vectors in deliver_windows(windows, dtype):
                if self.n_cut_words:
                    self.warn_of_cut_words()
                yield window, vectors

    def warn_of_cut_words(self) -> None:
        """Warn once of words that were longer than the model reads, if there were any."""
        if self.n_cut_words and not self._has_warned:
            self._has_warned = True
            unit = "characters" if self.config.has_alphabet else "bytes"
            warnings.warn(
                f"words longer than the {self.config.max_characters - 2} {unit} that the model "
                f"reads were cut ({self.n_cut_words} so far; n_cut_words goes on counting)",
                ElmoWarning,
                stacklevel=3,
            )

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
                depth = selection.depth
                pieces = self._pieces(window, places[:filled], sizes, start, selection, depth)
                for part, vectors, _ in pieces:
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
            places, sizes = list(range(len(batch))), listed.sizes
            pieces = self._pieces(listed, places, sizes, start, selection, self.config.n_layers)
            for part, vectors, final in pieces:
                numbers = [first + place for place in places[part]]
                embedded.append(_without_boundaries(EmbeddedBatch(numbers, sizes[part], vectors)))
                finals.append(final)
            self.carried.keep(State(*(torch.cat(parts, 2) for parts in zip(*finals, strict=True))))
            yield from embedded

    # --- one batch --------------------------------------------------------------------------------

    def _pieces(
        self,
        window: Sentences,
        places: list[int],
        sizes: list[int],
        start: State,
        selection: Selection,
        depth: int,
    ) -> Iterator[tuple[slice, Tensor, State]]:
        """Run the backend over one batch, in halves if the GPU's memory does not hold it.

        Args:
            window: Sentences, among them those of the batch.
            places: Which of them; none is empty.
            sizes: How many words each of these has.
            start: The state before the first word: a row for each sentence, or one for all.
            selection: Which layers are wanted.
            depth: Recurrent layers that are computed; more than wanted where state is carried.

        Yields:
            Which of the batch's sentences, their vectors, and the state after each of them.
        """
        limits = self.backend.limits
        waiting = [slice(0, len(places))] if places else []
        while waiting:
            part = waiting.pop()
            n_sentences, n_words = part.stop - part.start, sum(sizes[part])
            done = None
            largest = n_words if limits.fitting_tokens is None else limits.fitting_tokens
            if n_sentences == 1 or n_words <= largest:
                rows = start if start.rows == 1 else start.take(part)
                done = self._try(window, places[part], sizes[part], rows, selection, depth)
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
        self,
        window: Sentences,
        places: list[int],
        sizes: list[int],
        start: State,
        selection: Selection,
        depth: int,
    ) -> tuple[Tensor, State] | None:
        """Run the backend over one batch; return None if a GPU's memory does not hold it."""
        try:
            with self.backend.computing():
                layers, final = self._run(window, places, sizes, start, depth)
                return selection.choose(layers[: selection.depth + 1]), final
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, not above: what the error holds must be free for the next try.
        torch.cuda.empty_cache()
        self.backend.limits.fitting_tokens = sum(sizes) // 2
        return None

    def read(
        self, sentences: Sequence[Words], start: State, depth: int
    ) -> tuple[list[Tensor], State]:
        """Run the backend over a few sentences, which may hold boundaries; see `_run`."""
        listed = ListedSentences(self.words, sentences)
        return self._run(listed, list(range(len(sentences))), listed.sizes, start, depth)

    def _run(
        self, window: Sentences, places: list[int], sizes: list[int], start: State, depth: int
    ) -> tuple[list[Tensor], State]:
        """Run the backend over one batch.

        Args:
            window: See `_pieces`.
            places: See `_pieces`.
            sizes: See `_pieces`.
            start: The state before the first word: a row for each sentence, or one for all.
            depth: Recurrent layers that are wanted.

        Returns:
            Layers 0 to depth, each `(n, dim)` for the n words of all sentences; the final state.
        """
        vectors, index, n_cut = window.subset(places).words()
        context_free = vectors[index]
        layers = [torch.cat([context_free, context_free], dim=1)]
        final = start.repeat(len(places)) if start.rows == 1 else start
        if depth > 0:
            with torch.no_grad():
                upper, final = self.backend.contextualize(vectors, index, sizes, final, depth)
            layers += upper
        self.n_cut_words += n_cut  # at the end: a batch that does not fit is run again
        return layers, final


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


# --- which sentences share a batch ----------------------------------------------------------------


def plan_batches(lengths: Sequence[int], max_tokens: int, max_rows: int) -> list[list[int]]:
    """Group sentences of similar length, within a budget of words and of sentences.

    Args:
        lengths: Words of each sentence.
        max_tokens: Words in a batch; one longer sentence makes a batch of its own.
        max_rows: Sentences in a batch.

    Returns:
        Numbers of sentences, longest first; every one stands in exactly one batch.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    numbers = order.tolist()
    return [numbers[start:end] for start, end in runs(sizes[order], max_tokens, max_rows)]


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


# --- selection ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """A choice of layers, ready to be made."""

    depth: int
    """Recurrent layers that must be computed for it."""
    choose: Callable[[list[Tensor]], Tensor]
    """Layers 0 to `depth`, each `(n, dim)` -> `(n_layers, n, dim)` for "all", else `(n, dim)`."""


def select_layers(layers: Layers, config: ElmoConfig) -> Selection:
    """Understand a choice of layers.

    Args:
        layers: `all`, `top`, `average`, `mix`, or a number: 0 for the context-free layer, -1
            for the top.
        config: The model's sizes and its mix weights.
    """
    top = config.n_layers
    if layers == "all":
        return Selection(top, torch.stack)
    if layers == "average":
        return Selection(top, lambda computed: torch.stack(computed).mean(dim=0))
    if layers == "mix":
        return Selection(top, lambda computed: mix_layers(computed, config))
    number = top if layers == "top" else layers
    if isinstance(number, bool) or not isinstance(number, int) or not -top - 1 <= number <= top:
        raise ConfigError(f"layers is {layers!r}, expected 'all', {_one_of_each(config)}")
    depth = number % (top + 1)
    return Selection(depth, lambda computed: computed[depth])


def require_layer(layer: Layers, config: ElmoConfig) -> None:
    """Refuse what `--layer` cannot be for a model, before any text is read."""
    try:
        select_layers(layer, config)
    except ConfigError:
        raise ConfigError(f"--layer is {layer}, expected {_one_of_each(config)}") from None


def _one_of_each(config: ElmoConfig) -> str:
    """List what gives one vector a word."""
    top = config.n_layers
    return (
        f"'top', 'average', 'mix' or a number from 0 to {top} (from -1 to {-top - 1}: counted from "
        "the top)"
    )


def mix_layers(layers: list[Tensor], config: ElmoConfig) -> Tensor:
    """Mix layers by the model's own weights: gamma * sum_k softmax(w)_k h_k."""
    raw = config.mix_weights or (0.0,) * len(layers)
    weights = torch.softmax(torch.tensor(raw, dtype=torch.float64), dim=0).tolist()
    mixed = torch.mul(layers[0], weights[0])
    for weight, layer in zip(weights[1:], layers[1:], strict=True):
        mixed.add_(layer, alpha=weight)
    return mixed.mul_(config.mix_gamma)


# --- results --------------------------------------------------------------------------------------


def deliver_tensors(
    batches: Iterable[EmbeddedBatch], dtype: OutputDtype = "float32"
) -> Iterator[tuple[EmbeddedBatch, Sequence[Tensor]]]:
    """Yield the vectors of each sentence of each batch, where they were computed.

    Args:
        batches: Batches that were computed, or on a GPU launched.
        dtype: Type of the tensors.
    """
    for computed in batches:
        with _advice_where_full(computed.vectors.device):
            batch = replace(computed, vectors=computed.vectors.to(_DTYPES[dtype]))
            is_here = batch.vectors.device.type == "cpu"
            parts = own_parts(batch) if is_here else shared_parts(batch)
        yield batch, parts


def own_parts(batch: EmbeddedBatch) -> list[Tensor]:
    """Copy the vectors of each sentence, so that keeping them does not keep the batch."""
    parts = torch.split(batch.vectors, batch.sizes, dim=-2)
    # By NumPy: a copy by PyTorch wakes its threads, and where other programs are on their cores
    # they wait for each other a hundred times longer than the copy takes.
    return [torch.from_numpy(part.numpy().copy()) for part in parts]


def shared_parts(batch: EmbeddedBatch, most_bytes: int = SHARED_BYTES) -> list[Tensor]:
    """Return views of each sentence's vectors in tensors of limited size."""
    parts: list[Tensor] = []
    start = 0
    for run in step_runs(batch.sizes, most_bytes // max(1, batch.row_bytes)):
        words = sum(run)
        shared = batch.vectors.narrow(-2, start, words).clone()
        with collector_paused():
            parts += torch.split(shared, run, dim=-2)
        start += words
    return parts


@contextmanager
def _advice_where_full(device: torch.device) -> Iterator[None]:
    """Raise an error that says what to change if the memory of a GPU does not hold all results."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ElmoError(
            f"the vectors of all sentences do not fit on {device}: take arrays in host memory "
            "(convert_to_tensor=False), fewer layers, or fewer sentences a call"
        ) from error


def deliver_arrays(
    batches: Iterable[EmbeddedBatch], dtype: OutputDtype = "float32"
) -> Iterator[tuple[EmbeddedBatch, Sequence[Array]]]:
    """Yield the vectors of each sentence of each batch in host memory.

    Args:
        batches: Batches that were computed, or on a GPU launched.
        dtype: Type of the arrays; on a GPU, converted before they are copied.
    """
    copies: HostCopies | None = None
    pending: deque[tuple[EmbeddedBatch, Callable[[], list[Array]]]] = deque()
    with ThreadPoolExecutor(_COPYING, thread_name_prefix="elmo-copies") as workers:
        failures: list[Exception] = []
        for batch in _until_failure(batches, failures):
            if batch.vectors.device.type == "cpu":
                own = replace(batch, vectors=batch.vectors.to(_DTYPES[dtype]))
                yield batch, [part.numpy() for part in own_parts(own)]
                continue
            copies = copies or host_copies(batch.vectors.device, _DTYPES[dtype], workers)
            # In place of the batch: what it was must not stay in the GPU's memory.
            batch = replace(batch, vectors=copies.converted(batch.vectors))
            pending.append((batch, copies.begin(batch.vectors, batch.sizes)))
            if len(pending) > _MOST_PENDING:
                yield _copied(*pending.popleft())
        while pending:
            yield _copied(*pending.popleft())
        if failures:
            raise failures[0]


def _copied(
    batch: EmbeddedBatch, wait: Callable[[], list[Array]]
) -> tuple[EmbeddedBatch, list[Array]]:
    with interrupts_later():  # the thread that copies takes the same locks
        return batch, wait()


def _until_failure(
    batches: Iterable[EmbeddedBatch], failures: list[Exception]
) -> Iterator[EmbeddedBatch]:
    """Yield batches until the last or a failure: those before it are delivered first."""
    try:
        yield from batches
    except Exception as error:  # raised again by the caller
        failures.append(error)


def deliver_windows(
    windows: Iterable[tuple[list[Words], Iterable[EmbeddedBatch]]], dtype: OutputDtype = "float32"
) -> Iterator[tuple[list[Words], list[Array]]]:
    """Yield windows of sentences with the vectors of each sentence, in host memory.

    While a GPU's last results of a window are copied, the batches of the next one are launched.

    Args:
        windows: Lists of sentences, none of them empty, with their batches.
        dtype: Type of the arrays.
    """
    begun: deque[list[Words]] = deque()

    def batches() -> Iterator[EmbeddedBatch]:
        for window, of_window in windows:
            begun.append(window)
            yield from of_window

    found: dict[int, Array] = {}
    for batch, arrays in deliver_arrays(batches(), dtype):
        found.update(zip(batch.numbers, arrays, strict=True))
        if len(found) == len(begun[0]):  # batches come in the order in which they were launched
            yield begun.popleft(), [found.pop(number) for number in range(len(found))]

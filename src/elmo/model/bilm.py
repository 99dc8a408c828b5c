"""The bidirectional language model: ids of words in, every layer of every word out.

`BiLM` is the plain, differentiable model. `BiLMBase` is what it shares with its faster versions in
`elmo.backends`: how the two directions read a batch, how layers stack, and what state they start
from and end in. One batch goes through it like this:

    run            add boundaries, find the distinct words          ids (batch, time, ...)
    encode_words   a context-free vector for each distinct word     (m, projection_dim)
    contextualize  all recurrent layers, forward and backward       layers x (n, 2 * projection_dim)
    run            remove boundaries, pad                           (layers + 1, batch, time, ...)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from elmo.config import ElmoConfig
from elmo.errors import ConfigError, InputError
from elmo.model.cells import Cell, LayerState, cell_class
from elmo.model.layers import CharacterEncoder, WordEncoder, run_packed
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import send
from elmo.text.alphabet import Alphabet
from elmo.text.characters import boundary_ids, checked_ids, ragged_positions, require_alphabet
from elmo.text.vocabulary import Vocabulary

Integers = npt.NDArray[np.int64]
Tensors = dict[str, Tensor]

LayerFunction = Callable[
    [Tensor, Tensor | None, Sequence[int], LayerState], tuple[Tensor, LayerState]
]
"""One direction of one recurrent layer; arguments and results are those of `run_packed`."""


class State(NamedTuple):
    """What all recurrent layers remember, for each row (sentence or stream) of a batch."""

    hidden: Tensor
    """Shape `(layers, 2, rows, projection_dim)`; directions forward, backward."""
    memory: Tensor
    """Shape `(layers, 2, rows, memory_dim)`; see `Cell.memory_dim`, `dim` for an LSTM."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.hidden.shape[2]

    def take(self, rows: Tensor | slice) -> State:
        """Return the state of some rows."""
        return State(self.hidden[:, :, rows], self.memory[:, :, rows])

    def repeat(self, rows: int) -> State:
        """Return a state whose rows all equal this one's only row."""
        return State(self.hidden.expand(-1, -1, rows, -1), self.memory.expand(-1, -1, rows, -1))

    def layer(self, layer: int, direction: int) -> LayerState:
        """Return one layer's part in one direction."""
        return LayerState(self.hidden[layer, direction], self.memory[layer, direction])


def zero_state(config: ElmoConfig, rows: int, like: Tensor) -> State:
    """Return the state before anything was read, float32 on the device of `like`."""
    shape = (config.n_layers, 2, rows)
    memory_dim = cell_class(config.cell).memory_dim(config)
    return State(
        like.new_zeros(*shape, config.projection_dim, dtype=torch.float32),
        like.new_zeros(*shape, memory_dim, dtype=torch.float32),
    )


@dataclass(frozen=True)
class BiLMOutput:
    """What a biLM computes for a padded batch."""

    layers: Tensor
    """Shape `(layers + 1, batch, time, 2 * projection_dim)`, zero where there is no word."""
    mask: Tensor
    """True where there is a word, shape `(batch, time)`."""
    state: State
    """The state after the last word of each sentence, its end mark included."""


class BiLMBase:
    """How a biLM reads, whatever its layers are made of."""

    config: ElmoConfig
    boundaries: Tensor
    """The ids of `<S>` and `</S>`, int64 `(2, max_characters)` or `(2,)`."""

    def encode_words(self, ids: Tensor) -> Tensor:
        """Encode words without their context.

        Args:
            ids: Character ids `(n, max_characters)` or word ids `(n,)`.

        Returns:
            Shape `(n, projection_dim)`.
        """
        raise NotImplementedError

    def layers_of(self, direction: int) -> Sequence[LayerFunction]:
        """Return the recurrent layers that read forwards (0) or backwards (1)."""
        raise NotImplementedError

    def run(
        self, ids: Tensor, state: State | None = None, keep_boundaries: bool = False
    ) -> BiLMOutput:
        """Read a padded batch; sentence boundaries are added inside and removed after.

        Args:
            ids: Character ids `(batch, time, max_characters)` or, in a model that reads words, word
                ids `(batch, time)`; 0 on the right of shorter sentences.
            state: What the layers remember at the start, a row for each sentence; zero if None.
            keep_boundaries: Whether the outputs of `<S>` and `</S>` are wanted too; time is then
                longer by two.
        """
        ids = checked_ids(ids)
        mask = (ids > 0).any(dim=-1) if self.config.reads_characters else ids > 0
        lengths = mask.sum(dim=1)
        if not torch.equal(mask, _prefix_mask(lengths, mask.shape[1])):
            raise InputError("ids: words must stand on the left of each row, padding on the right")
        types, places = torch.unique(ids[mask], dim=0, return_inverse=True)
        vectors = self.encode_words(torch.cat([self.boundaries.to(ids.device), types]))
        tokens, inside = _with_boundaries(places + 2, mask, lengths)
        layers, final = self.contextualize(vectors, tokens, (lengths + 2).tolist(), state)
        # Layer 0 is the context-free vector twice, so that it is as wide as the others.
        context_free = vectors[tokens]
        flat = torch.stack([torch.cat([context_free, context_free], dim=1), *layers])
        if keep_boundaries:
            mask = _prefix_mask(lengths + 2, mask.shape[1] + 2)
        else:
            flat = flat.index_select(1, inside)
        padded = flat.new_zeros(flat.shape[0], *mask.shape, flat.shape[2])
        padded[:, mask] = flat
        return BiLMOutput(padded, mask, final)

    def contextualize(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        state: State | None = None,
        depth: int | None = None,
    ) -> tuple[list[Tensor], State]:
        """Read a batch of sentences in both directions.

        Boundaries are not added here: they are words like any other.

        Args:
            vectors: Vectors of the distinct words, shape `(m, projection_dim)`.
            tokens: Which word stands at each place, one sentence after another, int64 `(n,)`.
            lengths: Words of each sentence, each at least 1; their sum is n.
            state: What the layers remember at the start, a row for each sentence; zero if None.
            depth: How many layers are wanted; all if None.

        Returns:
            For each layer `[forward; backward]` of shape `(n, 2 * projection_dim)`, in the order of
            `tokens`, and the state after each sentence (zero above `depth`).
        """
        depth = self.config.n_layers if depth is None else depth
        if not lengths:
            nothing = vectors.new_empty(0, self.config.output_dim)
            return [nothing] * depth, zero_state(self.config, 0, vectors)
        packing = pack(lengths, device=tokens.device)
        start = zero_state(self.config, len(lengths), vectors) if state is None else state
        final = zero_state(self.config, len(lengths), vectors)
        sides: list[list[Tensor]] = []
        for direction, places in enumerate((packing.forward, packing.backward)):
            outputs, ends = self._read(direction, vectors, tokens[places], packing, start, depth)
            back = inverse(places)
            sides.append([output.index_select(0, back) for output in outputs])
            for layer, end in enumerate(ends):
                final.hidden[layer, direction, packing.order] = end.hidden.float()
                final.memory[layer, direction, packing.order] = end.memory.float()
        return [torch.cat(pair, dim=1) for pair in zip(*sides, strict=True)], final

    def _read(
        self,
        direction: int,
        vectors: Tensor,
        index: Tensor,
        packing: Packing,
        start: State,
        depth: int,
    ) -> tuple[list[Tensor], list[LayerState]]:
        """Read in one direction; outputs `(n, projection_dim)` are in reading order."""
        outputs: list[Tensor] = []
        ends: list[LayerState] = []
        inputs = vectors
        places: Tensor | None = index
        for number, layer in enumerate(self.layers_of(direction)[:depth]):
            hidden, memory = start.layer(number, direction)
            state = LayerState(hidden[packing.order], memory[packing.order])
            output, end = layer(inputs, places, packing.batch_sizes, state)
            if number > 0 and self.config.skip_connections:
                # The first layer has none, and what recurs is the output before the residual.
                output = output + inputs
            outputs.append(output)
            ends.append(end)
            inputs, places = output, None
        return outputs, ends

    def after_boundary(self, state: State | None = None) -> State:
        """Return the state, one row, in which the first word of a sentence is read.

        The forward layers have then read `<S>` and the backward layers `</S>`.

        Args:
            state: What the layers remember before the sentence, one row; zero if None.
        """
        vectors = self.encode_words(self.boundaries)
        (_, begin), (_, end) = (
            self.contextualize(vectors, torch.tensor([side], device=vectors.device), [1], state)
            for side in range(2)
        )
        return State(
            *(
                torch.stack([forward[:, 0], backward[:, 1]], dim=1)
                for forward, backward in zip(begin, end, strict=True)
            )
        )


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A biLM as plain data; `elmo.weights` reads it from files and writes it to them."""

    config: ElmoConfig
    tensors: Tensors
    """The weights under the names of `BiLM.state_dict()`, float32."""
    vocabulary: Vocabulary | None = None
    """The words of a model that reads words, or of the softmax."""
    alphabet: Alphabet | None = None
    """The characters of a model that encodes words as code points."""
    warm_state: tuple[Tensor, Tensor] | None = None
    """Burned-in hidden `(layers, 2, projection_dim)` and memory `(layers, 2, dim)`, if saved."""
    format: str = "elmo"
    """Name of the weight format it was read from."""
    lookup: WordLookup | None = None
    """Terms of known words beside their characters, in models of ELMoForManyLangs."""
    softmax: Mapping[str, Tensor] = field(default_factory=dict)
    """The language model's output layer, if present: `weight` (words, projection_dim) and `bias`
    (words,), without `weight` where it is the table of words; or the tensors of an adaptive one.
    It may still be in its file: `StoredTensors`."""

    @property
    def n_parameters(self) -> int:
        """Number of weights, without the output layer."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    def fingerprint(self) -> str:
        """Return the SHA-256 of what decides a word's vectors, the same in every file format.

        That is sizes and weights, and for a model that reads words its vocabulary, for one with
        an alphabet its characters.
        """
        digest = hashlib.sha256()
        digest.update(json.dumps(self.config.to_options(), sort_keys=True).encode())
        if self.vocabulary is not None and not self.config.reads_characters:
            digest.update(json.dumps(self.vocabulary.words).encode())
        if self.alphabet is not None:
            digest.update(json.dumps(self.alphabet.characters).encode())
        for name in sorted(self.tensors):
            tensor = self.tensors[name].contiguous()
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().data)
        if self.lookup is not None:
            self.lookup.update(digest)
        return digest.hexdigest()


class BiLM(nn.Module, BiLMBase):
    """The biLM in plain PyTorch, for training, fine-tuning and as the reference of all backends.

    Args:
        config: Sizes.
        vocabulary: The words of a model that reads words (`config.n_words`); it says which ids are
            the sentence boundaries. Without it they are the first two words.
        alphabet: The characters of a model that encodes words as code points
            (`config.n_characters`).
    """

    def __init__(
        self,
        config: ElmoConfig,
        vocabulary: Vocabulary | None = None,
        alphabet: Alphabet | None = None,
    ) -> None:
        super().__init__()
        if vocabulary is not None and config.n_words and len(vocabulary) != config.n_words:
            raise ConfigError(
                f"the vocabulary has {len(vocabulary)} words, the configuration {config.n_words}"
            )
        self.config = config
        self.vocabulary = vocabulary
        self.alphabet = alphabet
        self.words: CharacterEncoder | WordEncoder = (
            CharacterEncoder(config) if config.reads_characters else WordEncoder(config)
        )
        cell = cell_class(config.cell)
        self.forward_layers = nn.ModuleList(cell(config) for _ in range(config.n_layers))
        self.backward_layers = nn.ModuleList(cell(config) for _ in range(config.n_layers))
        require_alphabet(config, alphabet)
        boundaries = boundary_ids(config, vocabulary, alphabet)
        self.register_buffer("boundaries", boundaries, persistent=False)
        if not self.words.embedding.weight.is_meta:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights."""
        self.words.reset_parameters()
        for cell in (*self.cells(0), *self.cells(1)):
            cell.reset_parameters()

    def cells(self, direction: int) -> list[Cell]:
        """Return the cells of all layers of one direction, the lowest first."""
        layers = (self.forward_layers, self.backward_layers)[direction]
        return [layer for layer in layers if isinstance(layer, Cell)]

    def encode_words(self, ids: Tensor) -> Tensor:
        """Encode words without their context; see `BiLMBase.encode_words`."""
        vectors: Tensor = self.words(ids)
        return vectors

    def layers_of(self, direction: int) -> Sequence[LayerFunction]:
        """Return the recurrent layers of one direction."""
        return [partial(run_packed, cell) for cell in self.cells(direction)]

    def forward(
        self, ids: Tensor, state: State | None = None, keep_boundaries: bool = False
    ) -> BiLMOutput:
        """Read a padded batch; see `run`."""
        return self.run(ids, state, keep_boundaries)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> BiLM:
        """Build the model around weights that were read from a file, without copying them."""
        with torch.device("meta"):
            model = cls(checkpoint.config, checkpoint.vocabulary, checkpoint.alphabet)
        model.load_state_dict(checkpoint.tensors, assign=True)
        model.boundaries = boundary_ids(model.config, model.vocabulary, model.alphabet)
        return model.eval()

    def to_checkpoint(self) -> Checkpoint:
        """Return the weights in the form that can be saved."""
        tensors = {name: t.detach().cpu().float() for name, t in self.state_dict().items()}
        return Checkpoint(
            config=self.config,
            tensors=tensors,
            vocabulary=self.vocabulary,
            alphabet=self.alphabet,
        )


def random_bilm(config: ElmoConfig, seed: int = 0, alphabet: Alphabet | None = None) -> BiLM:
    """Return an untrained model, always the same for the same sizes and seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BiLM(config, alphabet=alphabet).eval()


def parameter_shapes(config: ElmoConfig) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of `BiLM.state_dict()`; all layers are of one shape."""
    with torch.device("meta"):  # shapes without memory
        words = (CharacterEncoder if config.reads_characters else WordEncoder)(config)
        cell = cell_class(config.cell)(config)
    parameters = list(words.named_parameters("words"))
    for side in ("forward_layers", "backward_layers"):
        for layer in range(config.n_layers):
            parameters += cell.named_parameters(f"{side}.{layer}")
    return {name: tuple(parameter.shape) for name, parameter in parameters}


def _prefix_mask(lengths: Tensor, time: int) -> Tensor:
    """True at the first `lengths` places of each row, shape `(batch, time)`."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def _with_boundaries(places: Tensor, mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Put word 0 before and word 1 after every sentence.

    Args:
        places: Which word stands where, one sentence after another, `(n,)`.
        mask: True where there is a word, `(batch, time)`.
        lengths: Words of each sentence, `(batch,)`.

    Returns:
        The same with boundaries, `(n + 2 * batch,)`, and where the n words stand in it.
    """
    sentence = torch.repeat_interleave(torch.arange(len(lengths), device=mask.device), lengths)
    inside = torch.arange(len(places), device=mask.device) + 2 * sentence + 1
    tokens = places.new_zeros(len(places) + 2 * len(lengths))
    tokens[inside] = places
    tokens[torch.cumsum(lengths + 2, dim=0) - 1] = 1
    return tokens, inside


# --- batches without padding ----------------------------------------------------------------------


@dataclass(frozen=True)
class Packing:
    """A batch laid out time step by time step, so that no padding is computed.

    Sentences are sorted by length, longest first, and step t holds the t-th word of the
    `batch_sizes[t]` sentences that still have one, as in `torch.nn.utils.rnn.PackedSequence`.
    Lengths 3, 1 and 2 (sentences a, b, c) become

        step             0     1     2          batch_sizes = [3, 2, 1]
        forward reads    a0 c0 b0   a1 c1   a2
        backward reads   a2 c1 b0   a1 c0   a0

    The backward layers read each sentence from its own last word, so they need another order, not
    another layout.

    The n words of the batch stand one sentence after another in a flat list.
    """

    order: Tensor
    """Sentences from longest to shortest, int64 `(sentences,)`."""
    batch_sizes: list[int]
    """Sentences that still have a word at each time step."""
    forward: Tensor
    """Flat places in the order in which the forward layers read them, int64 `(n,)`."""
    backward: Tensor
    """The same for the backward layers, int64 `(n,)`."""


def pack(lengths: Sequence[int], device: torch.device | None = None) -> Packing:
    """Pack sentences of these lengths, each at least 1."""
    order, first, last, sizes = _sorted_by_length(lengths)
    step, row = ragged_positions(sizes)
    return Packing(
        order=torch.from_numpy(order).to(device),
        batch_sizes=sizes.tolist(),
        forward=torch.from_numpy(first[row] + step).to(device),
        backward=torch.from_numpy(last[row] - step).to(device),
    )


def pack_on(device: torch.device, lengths: Sequence[int]) -> Packing:
    """Pack sentences as `pack` does, expanding to words on the device without waiting for it."""
    order, first, last, sizes = _sorted_by_length(lengths)
    parts = (order, first, last, sizes, np.cumsum(sizes) - sizes)
    sent = torch.split(send(np.concatenate(parts), device), [len(part) for part in parts])
    on_order, on_first, on_last, on_sizes, before_step = sent
    n = int(sizes.sum())
    # With the size known beforehand, repeat_interleave need not ask the device for it.
    step = torch.repeat_interleave(on_sizes, output_size=n)
    row = torch.arange(n, device=device) - before_step[step]
    return Packing(
        order=on_order,
        batch_sizes=sizes.tolist(),
        forward=on_first[row] + step,
        backward=on_last[row] - step,
    )


def _sorted_by_length(lengths: Sequence[int]) -> tuple[Integers, Integers, Integers, Integers]:
    """Sort sentences, longest first.

    Returns:
        Their numbers, the flat places of their first and of their last words, all `(sentences,)`;
        and the batch sizes, `(steps,)`.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    descending = sizes[order]
    first = (np.cumsum(sizes) - sizes)[order]
    # The rows of a step are a prefix of the sorted sentences: count those longer than the step.
    steps = np.arange(descending[0] if len(descending) else 0)
    batch_sizes = np.searchsorted(-descending, -steps, side="left")
    return order, first, first + descending - 1, batch_sizes


def padded_places(sizes: Integers, steps: int) -> Integers:
    """Lay sentences out side by side, all as long as the longest may be.

    Args:
        sizes: Words of each sentence, at most `steps`, `(rows,)`; 0 for those that are not there.
        steps: Time steps.

    Returns:
        Which word stands at each place of each time step, reading forwards and backwards,
        `(2, steps * rows)`; 0 where there is none.
    """
    starts = np.cumsum(sizes) - sizes
    step = np.arange(steps)[:, None]
    both = np.stack([starts + step, starts + sizes - 1 - step])
    return np.where(step < sizes, both, 0).reshape(2, -1)


def inverse(permutation: Tensor) -> Tensor:
    """Invert a permutation of `(n,)`."""
    places = torch.empty_like(permutation)
    places[permutation] = torch.arange(len(permutation), device=permutation.device)
    return places


def step_runs(batch_sizes: Sequence[int], max_rows: int) -> Iterator[list[int]]:
    """Cut time steps into runs of at most `max_rows` rows, but at least one step."""
    for start, end in runs(np.asarray(batch_sizes, dtype=np.int64), max_rows, len(batch_sizes)):
        yield list(batch_sizes[start:end])


def runs(sizes: Integers, max_size: int, max_items: int) -> Iterator[tuple[int, int]]:
    """Cut consecutive items into runs, each as long as it may be.

    Args:
        sizes: Size of each item, `(n,)`.
        max_size: Total size of a run; a larger item makes a run of its own.
        max_items: Items in a run.

    Yields:
        Where a run begins, and where it ends.
    """
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(ends):
        within = int(np.searchsorted(ends, before + max_size, side="right"))
        end = max(start + 1, min(within, start + max_items))
        yield start, end
        start, before = end, int(ends[end - 1])


# --- state from batch to batch --------------------------------------------------------------------


class CarriedState:
    """State carried from batch to batch, row by row, exactly as AllenNLP's stateful biLM does.

    It grows by zero rows when a larger batch comes; rows beyond a smaller batch are kept for later.

    Args:
        config: Sizes.
    """

    def __init__(self, config: ElmoConfig) -> None:
        self._config = config
        self.state: State | None = None

    def first_rows(self, rows: int, device: torch.device) -> State:
        """Return what the first rows remember."""
        like = torch.empty(0, device=device)
        known = self.state or zero_state(self._config, 0, like)
        fresh = zero_state(self._config, max(0, rows - known.rows), like)
        self.state = State(*(torch.cat(pair, dim=2) for pair in zip(known, fresh, strict=True)))
        return self.state.take(slice(0, rows))

    def keep(self, final: State) -> None:
        """Store what the first rows remember after a batch."""
        assert self.state is not None
        for kept, new in zip(self.state, final, strict=True):
            kept[:, :, : final.rows] = new.detach()

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from elmo.config import ElmoConfig
from elmo.errors import ConfigError, InputError
from elmo.model.cells import Cell, LayerState, cell_class
from elmo.model.checkpoint import Checkpoint
from elmo.model.ids import boundary_ids, checked_ids
from elmo.model.layers import CharacterEncoder, WordEncoder, run_packed
from elmo.model.packing import Packing, inverse, pack
from elmo.model.state import State, zero_state
from elmo.text.alphabet import Alphabet, require_alphabet
from elmo.text.vocabulary import Vocabulary

LayerFunction = Callable[
    [Tensor, Tensor | None, Sequence[int], LayerState], tuple[Tensor, LayerState]
]
"""One direction of one recurrent layer; arguments and results are those of `run_packed`."""


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


class BiLM(nn.Module, BiLMBase):
    """The biLM in plain PyTorch, for training, fine-tuning and as the reference of all backends.

    Args:
        config: Sizes.
        vocabulary: The words of a model that reads words (`config.n_words`); it says which ids are
            the sentence boundaries. Without it they are the first two words.
        alphabet: The characters of a model that spells words as code points
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
        require_alphabet(config, alphabet)
        self.config = config
        self.vocabulary = vocabulary
        self.alphabet = alphabet
        self.words: CharacterEncoder | WordEncoder = (
            CharacterEncoder(config) if config.reads_characters else WordEncoder(config)
        )
        cell = cell_class(config.cell)
        self.forward_layers = nn.ModuleList(cell(config) for _ in range(config.n_layers))
        self.backward_layers = nn.ModuleList(cell(config) for _ in range(config.n_layers))
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

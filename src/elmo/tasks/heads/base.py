"""What a task is: the contract between the training loop and the heads.

A *task* knows the data: how examples are read, which of their sentences are embedded, how they
become tensors, how predictions are evaluated and rendered. Its *head* is the network: it receives
the vectors of words and returns a loss or predictions. Neither knows where vectors come from:
`WordVectors` holds them without padding, one row a word, the sentences of all examples of the batch
one after another; a `Layout` describes how rows become a padded batch.

A task is a frozen dataclass. Its fields (the labels, say) are what must be known of the training
data to use the head later; they are written to `config.json` with `dataclasses.asdict`, and
`Class(**fields)` restores the task, so they must be values that JSON can hold, or tuples of them.

Examples are frozen dataclasses. Each has a field `place: str`, file and line for messages
(`"train.txt, line 7"`), empty for examples made from raw text.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from elmo.errors import InputError
from elmo.tasks.readers.examples import Words
from elmo.tasks.settings import ReadOptions, Recipe

E = TypeVar("E")
"""An example."""
B = TypeVar("B")
"""A batch: a dataclass of tensors, layouts and plain values."""
P = TypeVar("P")
"""A prediction."""
T = TypeVar("T")


@dataclass(frozen=True)
class FeatureDims:
    """Widths of the vectors that a head receives."""

    input: int
    """Input of the encoder."""
    output: int = 0
    """Concatenated to the encoder's output; 0 for nothing."""


@dataclass(frozen=True)
class Layout:
    """How the rows of a batch become padded sentences."""

    index: Tensor
    """Rows, int64 `(sentences, time)`; 0 at padding."""
    mask: Tensor
    """True at words, `(sentences, time)`."""
    places: Tensor
    """Positions of the words in the flattened sentences, int64 `(words,)`."""
    sizes: tuple[int, ...]
    """Words of each sentence; known without synchronizing with a GPU."""

    @classmethod
    def of(cls, lengths: Sequence[int], chosen: Sequence[int] | None = None) -> Self:
        """Lay sentences out.

        Args:
            lengths: Words of every sentence of the batch, in order.
            chosen: Numbers of the sentences in the layout; all by default.
        """
        starts = [0, *accumulate(lengths)]
        numbers = range(len(lengths)) if chosen is None else chosen
        sizes = np.array([lengths[k] for k in numbers], dtype=np.int64).reshape(-1, 1)
        first = np.array([starts[k] for k in numbers], dtype=np.int64).reshape(-1, 1)
        steps = np.arange(max(1, int(sizes.max(initial=0))), dtype=np.int64).reshape(1, -1)
        mask = steps < sizes
        return cls(
            torch.from_numpy(np.where(mask, first + steps, 0)),
            torch.from_numpy(mask),
            torch.from_numpy(np.flatnonzero(mask)),
            tuple(lengths[k] for k in numbers),
        )

    @cached_property
    def reversal(self) -> Tensor:
        """Indices `(sentences, time)` that reverse each sentence and leave its padding."""
        steps = torch.arange(self.mask.shape[1], device=self.mask.device).expand(self.mask.shape)
        mirrored = self.mask.sum(dim=1, keepdim=True) - 1 - steps
        return torch.where(self.mask, mirrored, steps)

    @cached_property
    def reading_order(self) -> tuple[Tensor, Tensor]:
        """Indices to the order in which two directions read words, and back.

        Returns:
            Which row of `(sentences * time)` is read, `(2, time, sentences)`, and which row of
            `(2 * time * sentences)` is the output, `(sentences, time, 2)`; padding is read last.
        """
        sentences, time = self.mask.shape
        device = self.mask.device
        plain = torch.arange(time, device=device).expand(sentences, time)
        steps = torch.stack([plain, self.reversal])  # each is its own inverse
        sentence = torch.arange(sentences, device=device).unsqueeze(1)
        side = torch.arange(2, device=device).view(2, 1, 1)
        gather = (steps + sentence * time).transpose(1, 2)
        scatter = ((steps + side * time) * sentences + sentence).permute(1, 2, 0)
        return gather.contiguous(), scatter.contiguous()

    def pad(self, rows: Tensor) -> Tensor:
        """Pad rows `(n_words, dim)` to `(sentences, time, dim)`, zero at padding."""
        if not len(rows):
            return rows.new_zeros(*self.index.shape, rows.shape[1])
        # On a GPU, the backward pass of rows[index] would sort.
        padded = rows.index_select(0, self.index.flatten())
        return padded.view(*self.index.shape, rows.shape[1]) * self.mask.unsqueeze(-1)

    def unpad(self, padded: Tensor) -> Tensor:
        """Select the words of `(sentences, time, ...)`, sentence by sentence: `(words, ...)`."""
        return padded.flatten(0, 1).index_select(0, self.places)


@dataclass(frozen=True)
class PaddedWords:
    """Vectors of the words of sentences, padded."""

    input: Tensor
    """Input of the encoder, `(sentences, time, dims.input)`; zero at padding."""
    output: Tensor | None
    """For the encoder's output, `(sentences, time, dims.output)`."""
    layout: Layout

    @property
    def mask(self) -> Tensor:
        """True at words, `(sentences, time)`."""
        return self.layout.mask

    def join(self, encoded: Tensor) -> Tensor:
        """Concatenate `encoded (sentences, time, dim)` with the vectors for the output, if any.

        Returns:
            `(sentences, time, dim + dims.output)`.
        """
        return encoded if self.output is None else torch.cat([encoded, self.output], dim=-1)


@dataclass(frozen=True)
class WordVectors:
    """Vectors of all words of a batch, one row a word, sentence after sentence."""

    input: Tensor
    """Input of the encoder, `(n_words, dims.input)`."""
    output: Tensor | None = None
    """Concatenated to the encoder's output, `(n_words, dims.output)`; None for nothing."""

    def padded(self, layout: Layout) -> PaddedWords:
        """Return sentences as a padded batch."""
        output = None if self.output is None else layout.pad(self.output)
        return PaddedWords(layout.pad(self.input), output, layout)


class Head(nn.Module, ABC, Generic[B, P]):
    """The network of a task, from vectors of words to a loss or predictions.

    It is built from `dims`, the widths of the words' vectors, from the sizes in `recipe`, and from
    all labels or tags of the training data.
    """

    @abstractmethod
    def loss(self, words: WordVectors, batch: B) -> Tensor:
        """Return the mean loss of a batch of training examples, shape `()`."""

    @abstractmethod
    def predict(self, words: WordVectors, batch: B) -> list[P]:
        """Return one prediction per example, in order; called without gradients, in eval mode."""


@dataclass(frozen=True)
class Task(ABC, Generic[E, B, P]):
    """What is known about a task and its training data; subclasses are frozen dataclasses."""

    metric: ClassVar[str]
    """The key of `evaluate` by which the best model is selected; higher is better."""
    takes_pairs: ClassVar[bool] = False
    """Whether a raw text is two texts, see `text_pair`."""
    recipe: ClassVar[Recipe]
    """Sizes and training, unless flags change them."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # JSON has lists where tuples were
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))

    @property
    def name(self) -> str:
        """The task as `elmo.tasks.heads.TASKS` names it."""
        return type(self).__name__.lower()

    @staticmethod
    @abstractmethod
    def read(paths: Sequence[Path], options: ReadOptions, /) -> list[E]:
        """Read files of examples; errors name file and line."""

    @classmethod
    @abstractmethod
    def from_examples(cls, examples: Sequence[E]) -> Self:
        """Collect what must be known of the training data, such as its labels."""

    def sentences(self, example: E) -> list[Words]:
        """Return the sentences of an example that are embedded; by default its `words` alone."""
        return [example.words]  # type: ignore[attr-defined]

    @abstractmethod
    def build(self, dims: FeatureDims, recipe: Recipe) -> Head[B, P]:
        """Build the network, with random weights from PyTorch's generator."""

    @abstractmethod
    def collate(self, examples: Sequence[E]) -> B:
        """Return a batch on the CPU, without vectors of words.

        Row k of `WordVectors` is word k of `sentences(example)` of all examples in order. Examples
        may lack labels (raw text): then what only `loss` reads may be anything.
        """

    @abstractmethod
    def evaluate(self, examples: Sequence[E], predictions: Sequence[P]) -> dict[str, float]:
        """Return scores of predictions, from 0 to 1, the value of `metric` among them."""

    @abstractmethod
    def parse(self, text: str, options: ReadOptions) -> list[E]:
        """Return examples without labels from a raw text, one line of a file or of a call."""

    @abstractmethod
    def render(self, example: E, prediction: P) -> dict[str, Any]:
        """Return a prediction as a record for JSON lines, with the words or the text."""

    def check(self, examples: Sequence[E]) -> None:
        """Refuse examples that this task cannot evaluate, such as those with unknown labels.

        Raises `InputError` with the place, or warns with a count. By default all are accepted.
        """
        del examples


def shown_span(words: Words, start: int, stop: int) -> dict[str, Any]:
    """Return a span of words as a record for JSON."""
    return {"start": start, "stop": stop, "text": " ".join(words[start:stop])}


def text_pair(text: str, keys: tuple[str, str], names: str, max_tabs: int = -1) -> tuple[str, str]:
    """Split two texts that are given as one: with a tab between them, or as a JSON object.

    Args:
        text: A raw text.
        keys: Keys of the JSON object.
        names: What is expected, in a message: `a question, a tab and a text`.
        max_tabs: Further tabs belong to the second text; by default they are an error.
    """
    parts: Sequence[Any] = text.strip("\r\n").split("\t", max_tabs)
    if text.lstrip().startswith("{"):
        try:
            record = json.loads(text)
        except json.JSONDecodeError:
            record = {}
        parts = [record.get(key) for key in keys]
    if len(parts) != 2 or not all(isinstance(part, str) and part.strip() for part in parts):
        wanted = f"{names}, or a JSON object with {keys[0]} and {keys[1]}"
        raise InputError(f"received {text[:60]!r}, expected {wanted}")
    return parts[0], parts[1]


def send(batch: T, device: torch.device) -> T:
    """Copy the tensors of a batch, of its layouts and of its tuples to a device."""
    if isinstance(batch, Tensor):
        if device.type == "cuda":
            return batch.pin_memory().to(device, non_blocking=True)  # type: ignore[return-value]
        return batch.to(device)  # type: ignore[return-value]
    if isinstance(batch, tuple | list) and any(isinstance(part, Tensor) for part in batch):
        return type(batch)(send(part, device) for part in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        sent = {f.name: send(getattr(batch, f.name), device) for f in dataclasses.fields(batch)}
        return dataclasses.replace(batch, **sent)
    return batch

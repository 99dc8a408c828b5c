"""What a task is: the contract between the loop that trains and the six small models.

A *task* knows the data: how examples are read, which sentences of them are embedded, how they
become tensors, how predictions are measured and shown. Its *head* is the network: it gets the
vectors of words, and gives a loss or predictions. Neither knows where vectors come from:
`WordVectors` holds them without padding, one row a word, the sentences of all examples of the batch
one after another; a `Layout` says how rows become a padded batch.

A task is a frozen dataclass. Its fields (the labels, say) are what must be known of the training
data to use the head later; they are written to `config.json` with `dataclasses.asdict`, and
`Class(**fields)` makes the task again, so that they must be values that JSON can hold (lists come
back where tuples were: normalise in `__post_init__`).

Examples are frozen dataclasses of the reader's module. Each has a field `place: str`, which says
file and line for messages (`"train.txt, line 7"`), empty for examples made from raw text.
"""

from __future__ import annotations

import dataclasses
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

from elmo.tasks.recipe import ReadOptions, Recipe

Words = list[str]

E = TypeVar("E")
"""An example."""
B = TypeVar("B")
"""A batch: a dataclass of tensors, layouts and plain values."""
P = TypeVar("P")
"""A prediction."""
T = TypeVar("T")


@dataclass(frozen=True)
class FeatureDims:
    """Widths of the vectors that a head gets."""

    input: int
    """Of what goes into the encoder."""
    output: int = 0
    """Of what stands beside the encoder's output; 0 for nothing."""


@dataclass(frozen=True)
class Layout:
    """Where the words of sentences are among the rows of a batch, as padded sentences."""

    index: Tensor
    """Rows, int64 of shape `(sentences, time)`; 0 where there is no word."""
    mask: Tensor
    """True where there is a word, `(sentences, time)`."""
    places: Tensor
    """Where words are when sentences stand one after another, int64 `(words,)`."""
    sizes: tuple[int, ...]
    """Words of each sentence; known without waiting for a GPU."""

    @classmethod
    def of(cls, lengths: Sequence[int], chosen: Sequence[int] | None = None) -> Self:
        """Lay sentences out.

        Args:
            lengths: Words of every sentence of the batch, in their order.
            chosen: Numbers of the sentences that are wanted; all of them by default.
        """
        starts = [0, *accumulate(lengths)]
        numbers = range(len(lengths)) if chosen is None else chosen
        sizes = np.array([lengths[k] for k in numbers], dtype=np.int64).reshape(-1, 1)
        first = np.array([starts[k] for k in numbers], dtype=np.int64).reshape(-1, 1)
        steps = np.arange(max(1, int(sizes.max(initial=0))), dtype=np.int64).reshape(1, -1)
        mask = steps < sizes
        index = np.where(mask, first + steps, 0)
        places = np.flatnonzero(mask)
        return cls(
            torch.from_numpy(index),
            torch.from_numpy(mask),
            torch.from_numpy(places),
            tuple(lengths[k] for k in numbers),
        )

    @cached_property
    def turned(self) -> Tensor:
        """Places `(sentences, time)` that turn each sentence round and leave the padding."""
        steps = torch.arange(self.mask.shape[1], device=self.mask.device).expand(self.mask.shape)
        mirrored = self.mask.sum(dim=1, keepdim=True) - 1 - steps
        return torch.where(self.mask, mirrored, steps)

    @cached_property
    def reading_order(self) -> tuple[Tensor, Tensor]:
        """Say how words go to the order in which two directions read them, and how they come back.

        Returns:
            Which row of `(sentences * time)` is read, `(2, time, sentences)`, and which row of
            `(2 * time * sentences)` is the output, `(sentences, time, 2)`; padding is read last.
        """
        sentences, time = self.mask.shape
        device = self.mask.device
        plain = torch.arange(time, device=device).expand(sentences, time)
        steps = torch.stack([plain, self.turned])  # a way there that is also the way back
        sentence = torch.arange(sentences, device=device).unsqueeze(1)
        side = torch.arange(2, device=device).view(2, 1, 1)
        there = (steps + sentence * time).transpose(1, 2)
        back = ((steps + side * time) * sentences + sentence).permute(1, 2, 0)
        return there.contiguous(), back.contiguous()

    def pad(self, rows: Tensor) -> Tensor:
        """Take rows `(n_words, dim)` to their places: `(sentences, time, dim)`, zero elsewhere."""
        if not len(rows):
            return rows.new_zeros(*self.index.shape, rows.shape[1])
        # On a GPU, the way back through rows[index] would sort.
        padded = rows.index_select(0, self.index.flatten())
        return padded.view(*self.index.shape, rows.shape[1]) * self.mask.unsqueeze(-1)

    def unpad(self, padded: Tensor) -> Tensor:
        """Take words out of `(sentences, time, ...)`, sentence by sentence: `(words, ...)`."""
        return padded.flatten(0, 1).index_select(0, self.places)


@dataclass(frozen=True)
class PaddedWords:
    """Vectors of the words of sentences, padded."""

    input: Tensor
    """What goes into the encoder, `(sentences, time, dims.input)`; zero where there is no word."""
    output: Tensor | None
    """What stands beside the encoder's output, `(sentences, time, dims.output)`."""
    layout: Layout

    @property
    def mask(self) -> Tensor:
        """True where there is a word, `(sentences, time)`."""
        return self.layout.mask

    def beside(self, encoded: Tensor) -> Tensor:
        """Put the vectors for the output beside `encoded (sentences, time, dim)`, if there are any.

        Returns:
            `(sentences, time, dim + dims.output)`.
        """
        return encoded if self.output is None else torch.cat([encoded, self.output], dim=-1)


@dataclass(frozen=True)
class WordVectors:
    """Vectors of all words of a batch, one row a word, sentence after sentence."""

    input: Tensor
    """What goes into the encoder, `(n_words, dims.input)`."""
    output: Tensor | None = None
    """What stands beside the encoder's output, `(n_words, dims.output)`; None if there is none."""

    def padded(self, layout: Layout) -> PaddedWords:
        """Give sentences as a padded batch."""
        output = None if self.output is None else layout.pad(self.output)
        return PaddedWords(layout.pad(self.input), output, layout)


class Head(nn.Module, ABC, Generic[B, P]):
    """The network of a task, from vectors of words to a loss or predictions."""

    @abstractmethod
    def loss(self, words: WordVectors, batch: B) -> Tensor:
        """Give the mean loss of a batch of training examples, shape `()`."""

    @abstractmethod
    def predict(self, words: WordVectors, batch: B) -> list[P]:
        """Give a prediction for each example, in order; called without gradients, in eval mode."""


class Task(ABC, Generic[E, B, P]):
    """What is known about a task and its training data; subclasses are frozen dataclasses."""

    name: ClassVar[str]
    """As on the command line."""
    metric: ClassVar[str]
    """The key of `evaluate` that decides which model is best; higher is better."""
    recipe: ClassVar[Recipe]
    """Sizes and training, unless flags say otherwise."""

    @classmethod
    @abstractmethod
    def read(cls, paths: Sequence[Path], options: ReadOptions) -> list[E]:
        """Read files of examples; errors name file and line."""

    @classmethod
    @abstractmethod
    def from_examples(cls, examples: Sequence[E], options: ReadOptions) -> Self:
        """Learn what must be known of the training data, such as its labels."""

    @abstractmethod
    def sentences(self, example: E) -> list[Words]:
        """Give the sentences of an example that are embedded; as many as the task likes."""

    @abstractmethod
    def build(self, dims: FeatureDims, recipe: Recipe) -> Head[B, P]:
        """Make the network, with random weights from PyTorch's generator."""

    @abstractmethod
    def collate(self, examples: Sequence[E]) -> B:
        """Make a batch on the CPU, without vectors of words.

        Row k of `WordVectors` is word k of `sentences(example)` of all examples in their order.
        Examples may lack labels (raw text): then what only `loss` reads may be anything.
        """

    @abstractmethod
    def evaluate(self, examples: Sequence[E], predictions: Sequence[P]) -> dict[str, float]:
        """Measure predictions; shares are from 0 to 1, the value of `metric` among them."""

    @abstractmethod
    def parse(self, text: str, options: ReadOptions) -> list[E]:
        """Make examples without labels of a raw text, one line of a file or of a call."""

    @abstractmethod
    def render(self, example: E, prediction: P) -> dict[str, Any]:
        """Show a prediction as a record for JSON lines; the words or the text are part of it."""

    def check(self, examples: Sequence[E]) -> None:
        """Refuse examples for measuring that this task cannot know, such as unknown labels.

        Raises `InputError` with the place, or warns with a count. By default all are accepted.
        """
        del examples


def send(batch: T, device: torch.device) -> T:
    """Put the tensors of a batch, of its layouts and of its tuples on a device."""
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

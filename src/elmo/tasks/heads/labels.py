"""Labels: collected from training data, as numbers, unknown ones refused; tasks of one label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.errors import InputError
from elmo.tasks.heads.base import Head, Layout, Task, WordVectors
from elmo.tasks.metrics.scores import accuracy, macro_f1
from elmo.tasks.readers.files import listed, warn_of


@dataclass(frozen=True)
class LabelBatch:
    """Texts with one label each, as tensors."""

    layout: Layout
    labels: Tensor
    """Numbers of labels, `(examples,)`; 0 where there is none."""


@dataclass(frozen=True)
class LabelPrediction:
    """A label, and the probability of every label."""

    label: str
    probabilities: dict[str, float]


class LabelHead(Head[LabelBatch, LabelPrediction]):
    """A network that scores labels.

    Args:
        labels: All labels.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self.labels = labels

    @abstractmethod
    def forward(self, words: WordVectors, batch: LabelBatch) -> Tensor:
        """Return the scores of labels, `(examples, labels)`."""

    def loss(self, words: WordVectors, batch: LabelBatch) -> Tensor:
        """Return the mean cross-entropy of the labels, shape `()`."""
        return F.cross_entropy(self(words, batch).float(), batch.labels)

    def predict(self, words: WordVectors, batch: LabelBatch) -> list[LabelPrediction]:
        """Return the most probable label of each example."""
        shares = torch.softmax(self(words, batch).float(), dim=1)
        return [
            LabelPrediction(self.labels[number], dict(zip(self.labels, row, strict=True)))
            for number, row in zip(shares.argmax(dim=1).tolist(), shares.tolist(), strict=True)
        ]


class _Labeled(Protocol):
    @property
    def label(self) -> str | None: ...
    @property
    def place(self) -> str: ...


L = TypeVar("L", bound=_Labeled)


@dataclass(frozen=True)
class LabelTask(Task[L, LabelBatch, LabelPrediction]):
    """Examples with one label each."""

    labels: tuple[str, ...]

    @classmethod
    def from_examples(cls, examples: Sequence[L]) -> Self:
        """Collect the labels."""
        labels = require_labels(example.label for example in examples)
        if len(labels) < 2:
            raise InputError(
                f"all training examples have the label {labels[0]!r}: nothing to learn"
            )
        return cls(labels)

    def check(self, examples: Sequence[L]) -> None:
        """Refuse labels that the training data do not have."""
        known = set(self.labels)
        for example in examples:
            if example.label is not None and example.label not in known:
                raise InputError(
                    f"{example.place or 'an example'}: unknown label {example.label!r}; the "
                    f"training data have {listed(self.labels, 20)}"
                )

    def numbers(self, examples: Sequence[L]) -> Tensor:
        """Return labels as numbers, `(examples,)`; 0 where there is none or it is unknown."""
        numbers: dict[str | None, int] = {label: k for k, label in enumerate(self.labels)}
        return torch.tensor([numbers.get(e.label, 0) for e in examples], dtype=torch.long)

    def evaluate(
        self, examples: Sequence[L], predictions: Sequence[LabelPrediction]
    ) -> dict[str, float]:
        """Return accuracy and macro F1."""
        gold = [str(example.label) for example in examples]
        predicted = [prediction.label for prediction in predictions]
        return {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}

    def render(self, example: L, prediction: LabelPrediction) -> dict[str, Any]:
        """Return the text, its label, and the probability of every label."""
        shares = {label: round(share, 4) for label, share in prediction.probabilities.items()}
        return {**self.texts(example), "label": prediction.label, "probabilities": shares}

    @abstractmethod
    def texts(self, example: L) -> dict[str, str]:
        """Return the texts of an example by name."""


def require_labels(labels: Iterable[str | None]) -> tuple[str, ...]:
    """Return the distinct labels of training data, sorted; an example without one is an error."""
    found = set()
    for label in labels:
        if label is None:
            raise InputError("a training example has no label")
        found.add(label)
    if not found:
        raise InputError("no training examples: expected at least one")
    return tuple(sorted(found))


def warn_of_unknown_tags(tags: Iterable[tuple[str, str]], known: Sequence[str]) -> None:
    """Warn of unknown tags: they can only count as errors.

    Args:
        tags: Tags with their places.
        known: Those of the training data.
    """
    names = set(known)
    unknown = [(tag, place) for tag, place in tags if tag not in names]
    different = listed(sorted({tag for tag, _ in unknown}))
    warn_of(
        f"tags ({different}) are not in the training data and count as errors",
        [place for _, place in unknown],
    )


def tag_numbers(rows: Sequence[Sequence[str]], known: Sequence[str], length: int) -> Tensor:
    """Return rows of tags as numbers, `(rows, length)`; 0 at padding and for unknown tags."""
    numbers = {tag: number for number, tag in enumerate(known)}
    table = np.zeros((len(rows), length), dtype=np.int64)  # faster to fill than a tensor
    for row, tags in enumerate(rows):
        table[row, : len(tags)] = [numbers.get(tag, 0) for tag in tags]
    return torch.from_numpy(table)

"""Labels: collected from training data, as numbers, and refused where they are unknown."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elmo.errors import ElmoWarning, InputError


@dataclass(frozen=True)
class LabelPrediction:
    """A label and how probable each is."""

    label: str
    probabilities: dict[str, float]


def most_probable(labels: Sequence[str], scores: Tensor) -> list[LabelPrediction]:
    """Give the label with the highest of the scores `(n, len(labels))` for each row."""
    shares = torch.softmax(scores.float(), dim=1)
    return [
        LabelPrediction(labels[number], dict(zip(labels, row, strict=True)))
        for number, row in zip(shares.argmax(dim=1).tolist(), shares.tolist(), strict=True)
    ]


def require_labels(labels: Iterable[str | None]) -> tuple[str, ...]:
    """List the labels of training data, sorted; an example without one is an error."""
    found = set()
    for label in labels:
        if label is None:
            raise InputError("a training example has no label")
        found.add(label)
    if not found:
        raise InputError("no training examples: expected at least one")
    return tuple(sorted(found))


def require_known(labels: Iterable[tuple[str | None, str]], known: Sequence[str]) -> None:
    """Refuse labels that are not known.

    Args:
        labels: Labels and the places where they stand.
        known: Those of the training data.
    """
    names = set(known)
    for label, place in labels:
        if label is not None and label not in names:
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise InputError(
                f"{place or 'an example'}: unknown label {label!r}; the training data have {listed}"
            )


def label_numbers(labels: Iterable[str | None], known: Sequence[str]) -> Tensor:
    """Give labels as numbers, shape `(labels,)`; 0 where there is none or it is unknown."""
    numbers = {label: number for number, label in enumerate(known)}
    return torch.tensor(
        [numbers.get(label, 0) if label is not None else 0 for label in labels], dtype=torch.long
    )


def tell_of_unknown(tags: Iterable[tuple[str, str]], known: Sequence[str]) -> None:
    """Warn of tags that are not known: they can only be measured as errors.

    Args:
        tags: Tags and the places where they stand.
        known: Those of the training data.
    """
    names = set(known)
    unknown = [(tag, place) for tag, place in tags if tag not in names]
    if unknown:
        listed = ", ".join(sorted({tag for tag, _ in unknown})[:8])
        warnings.warn(
            f"{len(unknown)} tags ({listed}) are not in the training data and count as errors "
            f"(first: {unknown[0][1] or 'a sentence'})",
            ElmoWarning,
            stacklevel=3,
        )


def tag_numbers(rows: Sequence[Sequence[str]], known: Sequence[str], length: int) -> Tensor:
    """Give rows of tags as numbers, `(rows, length)`; 0 where there is none or it is unknown."""
    numbers = {tag: number for number, tag in enumerate(known)}
    table = np.zeros((len(rows), length), dtype=np.int64)  # rows are filled faster than a tensor's
    for row, tags in enumerate(rows):
        table[row, : len(tags)] = [numbers.get(tag, 0) for tag in tags]
    return torch.from_numpy(table)

"""Checks of weights when they are read; every message names the file and the tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import WeightsError
from elmo.model.checkpoint import is_adaptive
from elmo.text.vocabulary import Vocabulary
from elmo.weights.tensors import Shape, tensor_table


def require_same_names(
    path: Path, expected: set[str], found: set[str], kept: set[str] | None = None
) -> None:
    """Fail unless a file has the tensors that a configuration asks for, and no others.

    Args:
        path: The file.
        expected: Names that are asked for.
        found: Names that may only be there if they are asked for.
        kept: All names of the file, if `found` is but a part of them.
    """
    missing = sorted(expected - (kept or found))
    if missing:
        raise WeightsError(
            f"{path}: the configuration asks for {some_names(missing)}, "
            "which the file does not have"
        )
    extra = sorted(found - expected)
    if extra:
        raise WeightsError(
            f"{path}: the file has {some_names(extra)}, which the configuration does not describe "
            "(more layers, filters or highways than it says?)"
        )


def require_shape(path: Path, name: str, expected: Shape, found: Shape) -> None:
    """Fail unless a tensor has the shape that the configuration asks for."""
    if expected != found:
        raise WeightsError(
            f"{path}: tensor '{name}' has shape {found}, but the configuration asks for {expected}"
        )


def require_tensors(path: Path, expected: Mapping[str, Shape], found: Mapping[str, Tensor]) -> None:
    """Fail unless tensors have the names and shapes that the configuration asks for."""
    require_same_names(path, set(expected), set(found))
    for name, shape in expected.items():
        require_shape(path, name, shape, tuple(found[name].shape))


def require_model(path: Path, config: ElmoConfig, found: Mapping[str, Tensor]) -> None:
    """Fail unless tensors are all the weights of a biLM, in our names and shapes."""
    rows = tensor_table(config)
    require_tensors(path, {name: s for row in rows for name, s in row.ours.items()}, found)


def require_finite(path: Path, name: str, tensor: Tensor) -> None:
    """Fail if a tensor has a NaN or an infinity; one on the meta device has no values."""
    if tensor.is_meta:
        return
    if torch.isfinite(tensor.sum()):  # a sum is quick, and no NaN or infinity escapes it
        return
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise WeightsError(
            f"{path}: tensor '{name}' has {bad} values of {tensor.numel()} that are NaN or "
            "infinite; the file is damaged or the training diverged"
        )


def check_softmax(
    path: Path, softmax: Mapping[str, Tensor], config: ElmoConfig, vocabulary: Vocabulary | None
) -> None:
    """Check a language model's output layer against itself, the sizes and the vocabulary.

    Args:
        path: The file it was read from.
        softmax: See `Checkpoint.softmax`.
        config: Sizes.
        vocabulary: The words, if they are known.
    """
    for name, tensor in softmax.items():
        require_finite(path, f"softmax {name}", tensor)
    words = (
        _adaptive_words(softmax) if is_adaptive(softmax) else _linear_words(path, softmax, config)
    )
    if vocabulary is not None and len(vocabulary) != words:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in softmax.items())
        raise WeightsError(
            f"{path}: the softmax ({shapes}) is for {words} words, but the vocabulary beside it "
            f"lists {len(vocabulary)}, which ask for {(len(vocabulary), config.projection_dim)}; "
            "put the vocabulary there that the model was trained with, or move it away to use the "
            "vectors alone"
        )


def _linear_words(path: Path, softmax: Mapping[str, Tensor], config: ElmoConfig) -> int:
    """Check the shapes of a plain output layer; returns for how many words it is."""
    expected = {"weight", "bias"}
    if not config.reads_characters:
        expected &= set(softmax) | {"bias"}  # without a weight of its own: the table of words
    if set(softmax) != expected:
        raise WeightsError(
            f"{path}: the softmax has {some_names(sorted(softmax))}, expected weight and bias"
        )
    bias = softmax["bias"]
    words = bias.numel()
    require_shape(path, "softmax bias", (words,), tuple(bias.shape))
    if "weight" in softmax:
        found = tuple(softmax["weight"].shape)
        require_shape(path, "softmax weight", (words, config.projection_dim), found)
    return words


def _adaptive_words(softmax: Mapping[str, Tensor]) -> int:
    """Return for how many words an adaptive softmax is.

    Its head has a row for each frequent word and each cluster of others.
    """
    clusters = [t for name, t in softmax.items() if re.fullmatch(r"tail\.\d+\.1\.weight", name)]
    return len(softmax["head.weight"]) - len(clusters) + sum(map(len, clusters))


def some_names(names: list[str]) -> str:
    """List the first few names, for a message."""
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

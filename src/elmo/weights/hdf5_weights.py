"""The datasets of a published `weights.hdf5`: named, read and written by the table of tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo.errors import ConfigError
from elmo.weights.checks import require_same_names, require_shape
from elmo.weights.tensors import TensorRow, standard_name

_SOFTMAX = (("weight", "softmax/W"), ("bias", "softmax/b"))


def read_rows(
    path: Path, file: h5py.File, stored: Mapping[str, str], table: list[TensorRow]
) -> dict[str, Tensor]:
    """Read the weights that a table asks for, in our names and layout.

    Args:
        path: The file's, for messages.
        file: The open file.
        stored: What its datasets are called, by their standard names.
        table: Which tensors there should be.
    """
    require_same_names(
        path,
        {row.stored for row in table},
        {name for name in stored if re.match(r"(RNN_|CNN|char_embed$)(?!.*Adagrad)", name)},
        kept=set(stored),
    )
    tensors: dict[str, Tensor] = {}
    for row in table:
        dataset = file[stored[row.stored]]
        values = _read_dataset(dataset)
        if row.stored == "char_embed" and values.shape[0] == row.stored_shape[0] + 1:
            # Some exports carry the masked row already (262 rows); it must be zero.
            values = values[1:] if not values[0].any() else values
        require_shape(path, row.stored, row.stored_shape, tuple(values.shape))
        for name, part in zip(row.ours, row.read(values), strict=True):
            tensors[name] = part.contiguous()
    return tensors


def _read_dataset(dataset: h5py.Dataset) -> Tensor:
    return torch.from_numpy(np.asarray(dataset[...], dtype=np.float32))


def stored_names(file: h5py.File) -> dict[str, str]:
    """Map the standard name of each dataset to the name that the file uses."""
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return {standard_name(name): name for name in names}


def with_word_count(
    options: Mapping[str, Any], file: h5py.File, stored: Mapping[str, str]
) -> Mapping[str, Any]:
    """Fill in the vocabulary size of a word model, which not every options.json states."""
    if options.get("char_cnn") is not None or "n_tokens_vocab" in options:
        return options
    if "embedding" not in stored:
        raise ConfigError(
            "options.json has no 'char_cnn' and the weights have no 'embedding': "
            "the model reads neither characters nor words"
        )
    return {**options, "n_tokens_vocab": int(file[stored["embedding"]].shape[0])}


def read_softmax(file: h5py.File, stored: Mapping[str, str]) -> dict[str, Tensor]:
    """Read the output layer, if there is one: `weight` (words, projection_dim), `bias` (words,)."""
    return {
        ours: _read_dataset(file[stored[theirs]]) for ours, theirs in _SOFTMAX if theirs in stored
    }


def write_rows(
    file: h5py.File,
    table: list[TensorRow],
    tensors: Mapping[str, Tensor],
    softmax: Mapping[str, Tensor],
) -> None:
    """Write weights and output layer under their published names.

    Args:
        file: An open, empty file.
        table: Which tensors there are.
        tensors: Our weights.
        softmax: The output layer; what an adaptive one has is left out.
    """
    for row in table:
        stored = row.write(tuple(tensors[name] for name in row.ours))
        file.create_dataset(row.stored, data=stored.contiguous().numpy())
    for ours, theirs in _SOFTMAX:
        if ours in softmax:
            file.create_dataset(theirs, data=softmax[ours].contiguous().numpy())

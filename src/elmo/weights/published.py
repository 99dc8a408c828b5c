"""The format `hdf5`: `options.json` + `weights.hdf5` of bilm-tf, AllenNLP, simple_elmo and others.

The names of files vary: AllenNLP's `X_options.json` belongs to its `X_weights.hdf5`, the NLPL
repository has `model.hdf5`. So do the names of datasets, see `tensors.standard_name`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import ConfigError, ElmoWarning, MissingFileError
from elmo.model.bilm import Checkpoint
from elmo.runtime.files import write_text
from elmo.runtime.hdf5_files import dataset_of, reading_hdf5, writing_hdf5
from elmo.runtime.input_files import read_json, require_file
from elmo.settings import OutputDtype
from elmo.weights.files import (
    LIST_PATTERNS,
    is_adaptive,
    make_folder,
    read_alphabet,
    require_same_names,
    require_shape,
    softmax_words,
    write_lists,
)
from elmo.weights.formats import HDF5, ModelFiles
from elmo.weights.tensors import TensorRow, standard_name, tensor_table

PATTERNS = ("*options*.json", "*.hdf5", "*.h5", *LIST_PATTERNS)

_ENDINGS = (".hdf5", ".h5")
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SOFTMAX = (("weight", "softmax/W"), ("bias", "softmax/b"))


def find(path: Path) -> tuple[Path, Path] | None:
    """Find weights and description; see `FormatModule`."""
    weights = _find_weights(path) if path.is_dir() else path
    if weights is None or not _is_hdf5(weights):
        return None
    return weights, _find_options(weights)


def _is_hdf5(path: Path) -> bool:
    if path.suffix in _ENDINGS:
        return True
    require_file(path, "weights file")
    with path.open("rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE


def _find_weights(folder: Path) -> Path | None:
    for name in (HDF5.weights, "model.hdf5"):
        if (folder / name).exists():
            return folder / name
    found = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS)
    named = [path for path in found if "weights" in path.name]  # others may be vectors
    for candidates in (named, found):
        if len(candidates) == 1:
            return candidates[0]
    if found:
        listing = ", ".join(path.name for path in found)
        raise MissingFileError(
            f"{folder}: several weights files (found: {listing}); name one of them instead of the "
            "folder, or name options and weights one by one"
        )
    return None


def _find_options(weights: Path) -> Path:
    """Return the description of weights; if there is none, the first of its possible names."""
    folder = weights.parent
    expected = [folder / HDF5.options]
    if "weights" in weights.name:
        twin = weights.name.replace("weights", "options").rsplit(".", 1)[0] + ".json"
        expected.insert(0, folder / twin)
    others = sorted(folder.glob("*options*.json"))
    expected += others if len(others) == 1 else []
    return next((path for path in expected if path.exists()), expected[0])


# --- reading ------------------------------------------------------------------------------------


def read(files: ModelFiles) -> Checkpoint:
    """Read a model and, if the file has one, its output layer."""
    path = files.weights
    with reading_hdf5(path, "weights file") as file:
        stored = _stored_names(file)
        options = _with_word_count(read_json(files.options), path, file, stored)
        config = ElmoConfig.from_options(options, str(files.options))
        return Checkpoint(
            config=config,
            alphabet=read_alphabet(config, files),
            tensors=_read_rows(path, file, stored, tensor_table(config)),
            softmax=_read_softmax(path, file, stored, config),
        )


def _stored_names(file: h5py.File) -> dict[str, str]:
    """Map the standard name of each dataset to the name that the file uses."""
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return {standard_name(name): name for name in names}


def _with_word_count(
    options: Mapping[str, Any], path: Path, file: h5py.File, stored: Mapping[str, str]
) -> Mapping[str, Any]:
    """Fill in the vocabulary size of a word model, which not every description states."""
    if options.get("char_cnn") is not None or "n_tokens_vocab" in options:
        return options
    if "embedding" not in stored:
        raise ConfigError(
            f"{path}: the options have no 'char_cnn' and the weights no 'embedding': "
            "the model reads neither characters nor words"
        )
    shape = dataset_of(path, file, stored["embedding"]).shape
    return {**options, "n_tokens_vocab": int(shape[0]) if shape else 0}


def _read_rows(
    path: Path, file: h5py.File, stored: Mapping[str, str], table: list[TensorRow]
) -> dict[str, Tensor]:
    """Read the weights that a table asks for, in our names and layout.

    Args:
        path: Path of the file, for messages.
        file: The open file.
        stored: Names of its datasets by their standard names.
        table: Which tensors there should be.
    """
    require_same_names(
        path,
        {row.stored for row in table},
        {name for name in stored if re.match(r"(RNN_|CNN|char_embed$)(?!.*Adagrad)", name)},
        kept=set(stored),
    )
    # All shapes before the first value, so that nothing is read of a file that will be refused.
    datasets = {row.stored: dataset_of(path, file, stored[row.stored]) for row in table}
    for row in table:
        expected, found = row.stored_shape, datasets[row.stored].shape
        if not (row.stored == "char_embed" and found == (expected[0] + 1, *expected[1:])):
            require_shape(path, row.stored, expected, found)
    tensors: dict[str, Tensor] = {}
    for row in table:
        values = _values(datasets[row.stored])
        if row.stored == "char_embed" and values.shape[0] == row.stored_shape[0] + 1:
            # Some exports carry the masked row already (262 rows); it must be zero.
            values = values[1:] if not values[0].any() else values
            require_shape(path, row.stored, row.stored_shape, tuple(values.shape))
        for name, part in zip(row.ours, row.read(values), strict=True):
            tensors[name] = part.contiguous()
    return tensors


def _read_softmax(
    path: Path, file: h5py.File, stored: Mapping[str, str], config: ElmoConfig
) -> dict[str, Tensor]:
    """Read the output layer, if there is one; see `Checkpoint.softmax`."""
    datasets = {
        ours: dataset_of(path, file, stored[theirs])
        for ours, theirs in _SOFTMAX
        if theirs in stored
    }
    if datasets:
        shapes = {ours: tuple(dataset.shape) for ours, dataset in datasets.items()}
        softmax_words(path, shapes, config)
    return {ours: _values(dataset) for ours, dataset in datasets.items()}


def _values(dataset: h5py.Dataset) -> Tensor:
    return torch.from_numpy(np.asarray(dataset[...], dtype=np.float32))


# --- writing ------------------------------------------------------------------------------------


def write(checkpoint: Checkpoint, folder: Path, dtype: OutputDtype) -> None:
    """Write a model; mix weights, a warm state and an adaptive softmax have no place here."""
    if dtype != "float32":
        raise ConfigError(
            f"dtype is {dtype!r}, but other programs expect float32 in the format hdf5; "
            "choose the format elmo"
        )
    if checkpoint.lookup is not None:
        raise ConfigError(
            "the model has vectors of whole words beside its characters (ELMoForManyLangs), for "
            "which the format hdf5 has no place; choose the format elmo"
        )
    make_folder(folder)
    with writing_hdf5(folder / HDF5.weights) as (file, _):
        for row in tensor_table(checkpoint.config):
            values = row.write(tuple(checkpoint.tensors[name] for name in row.ours))
            file.create_dataset(row.stored, data=values.contiguous().numpy())
        for ours, theirs in _SOFTMAX:
            if ours in checkpoint.softmax:
                values = checkpoint.softmax[ours]
                file.create_dataset(theirs, data=values.contiguous().numpy())
    write_lists(checkpoint, folder)
    options = json.dumps(checkpoint.config.to_options(), indent=2) + "\n"
    write_text(folder / HDF5.options, options)
    for part, is_left_out in (
        ("a warm state", checkpoint.warm_state is not None),
        ("an adaptive softmax", is_adaptive(checkpoint.softmax)),
    ):
        if is_left_out:
            warnings.warn(
                f"the format hdf5 has no place for {part}; it was left out",
                ElmoWarning,
                stacklevel=2,
            )

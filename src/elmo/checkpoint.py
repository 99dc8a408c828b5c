"""Weights on disk: every published layout in, ours and the published one out, bit for bit.

Two layouts, with `tensors.tensor_table` between them:

* the published one, `options.json` + `weights.hdf5` (bilm-tf, AllenNLP, simple_elmo, ...);
* ours, a folder with `config.json` + `model.safetensors` + a model card.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import (
    ConfigError,
    ElmoError,
    MissingFileError,
    OutputError,
    OutputExistsError,
    WeightsError,
)
from elmo.modelcard import model_card
from elmo.settings import ModelFormat
from elmo.tensors import Shape, TensorRow, tensor_table
from elmo.vocabulary import Vocabulary

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SOFTMAX_FILE = "softmax.safetensors"
CARD_FILE = "README.md"
OPTIONS_FILE = "options.json"
HDF5_FILE = "weights.hdf5"
VOCABULARY_FILE = "vocab.txt"

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A biLM at rest."""

    config: ElmoConfig
    tensors: Tensors
    """The weights under the names of `BiLM.state_dict()`, float32."""
    vocabulary: Vocabulary | None = None
    """The words of a model that reads words."""
    warm_state: tuple[Tensor, Tensor] | None = None
    """Burned-in hidden `(layers, 2, projection_dim)` and memory `(layers, 2, dim)`, if saved."""
    layout: ModelFormat = "elmo"
    """In which layout it was read."""
    softmax: Tensors = field(default_factory=dict)
    """`weight` (words, projection_dim) and `bias` (words,) of the language model, if present."""

    def fingerprint(self) -> str:
        """Give a SHA-256 of what decides a word's vectors, the same in every file format.

        That is sizes and weights, and for a model that reads words its vocabulary.
        """
        digest = hashlib.sha256()
        digest.update(json.dumps(self.config.to_options(), sort_keys=True).encode())
        if self.vocabulary is not None and not self.config.reads_characters:
            digest.update(json.dumps(self.vocabulary.words).encode())
        for name in sorted(self.tensors):
            tensor = self.tensors[name].contiguous()
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().data)
        return digest.hexdigest()


# --- finding the files --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Where the parts of a model lie."""

    options: Path
    weights: Path
    vocabulary: Path | None

    @property
    def is_ours(self) -> bool:
        """Whether this is our own layout (else the published one)."""
        return self.weights.suffix == ".safetensors"


def find_model(path: Path | str) -> ModelFiles:
    """Find the files of a model in a folder, or beside its weights file."""
    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"no such model folder or file: {path}")
    folder = path if path.is_dir() else path.parent
    weights = path if path.is_file() else _find_weights(folder)
    options = _find_options(folder, weights)
    vocabularies = sorted(folder.glob("vocab*.txt*"))
    return ModelFiles(
        options=options, weights=weights, vocabulary=vocabularies[0] if vocabularies else None
    )


def _find_weights(folder: Path) -> Path:
    if (folder / WEIGHTS_FILE).exists():
        return folder / WEIGHTS_FILE
    for name in (HDF5_FILE, "model.hdf5"):  # the NLPL repository calls it model.hdf5
        if (folder / name).exists():
            return folder / name
    found = sorted(p for pattern in ("*.hdf5", "*.h5") for p in folder.glob(pattern))
    named = [p for p in found if "weights" in p.name]  # others may be vectors or token files
    for candidates in (named, found):
        if len(candidates) == 1:
            return candidates[0]
    listing = ", ".join(p.name for p in found or sorted(folder.iterdir())[:10]) or "nothing"
    reason = "several weights files" if found else "no weights file"
    raise MissingFileError(
        f"{folder}: {reason} (found: {listing}); expected {WEIGHTS_FILE} or {HDF5_FILE}, "
        "or name options and weights one by one"
    )


def _find_options(folder: Path, weights: Path) -> Path:
    if weights.suffix == ".safetensors":
        expected = [folder / CONFIG_FILE]
    else:
        # AllenNLP's names: X_weights.hdf5 goes with X_options.json.
        expected = [folder / OPTIONS_FILE]
        if "weights" in weights.name:
            twin = weights.name.replace("weights", "options").rsplit(".", 1)[0] + ".json"
            expected.insert(0, folder / twin)
        others = sorted(folder.glob("*options*.json"))
        expected += others if len(others) == 1 else []
    for candidate in expected:
        if candidate.exists():
            return candidate
    names = " or ".join(dict.fromkeys(candidate.name for candidate in expected))
    raise MissingFileError(f"{weights} is there, but not its {names} beside it")


# --- reading ------------------------------------------------------------------------------------


def load_checkpoint(files: ModelFiles) -> Checkpoint:
    """Read a model in either layout, checking every tensor against the configuration."""
    description = _read_json(files.options)
    read = _read_ours if files.is_ours else _read_published
    checkpoint = read(files.weights, description)
    for name, tensor in checkpoint.tensors.items():
        _require_finite(files.weights, name, tensor)
    # A model that reads characters has no use for a vocabulary but in its softmax.
    if files.vocabulary and (checkpoint.softmax or not checkpoint.config.reads_characters):
        vocabulary = Vocabulary.read(files.vocabulary)
        checkpoint = dataclasses.replace(checkpoint, vocabulary=vocabulary)
    if not checkpoint.config.reads_characters:
        _check_vocabulary(checkpoint, files)
    return checkpoint


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise MissingFileError(f"no such file: {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} holds a {type(content).__name__}, expected a JSON object")
    return content


def _read_ours(path: Path, description: Mapping[str, Any]) -> Checkpoint:
    config = ElmoConfig.from_dict(description)
    tensors = _read_safetensors(path)
    warm = [tensors.pop(f"warm.{part}", None) for part in ("hidden", "memory")]
    expected = {name: shape for row in tensor_table(config) for name, shape in row.ours.items()}
    _require_same_names(path, set(expected), set(tensors))
    for name, shape in expected.items():
        _require_shape(path, name, shape, tuple(tensors[name].shape))
    softmax = path.parent / SOFTMAX_FILE
    return Checkpoint(
        config=config,
        tensors={name: tensors[name].float() for name in expected},
        warm_state=_checked_warm_state(path, config, *warm),
        softmax=_read_safetensors(softmax) if softmax.exists() else {},
    )


def _checked_warm_state(
    path: Path, config: ElmoConfig, hidden: Tensor | None, memory: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    if hidden is None or memory is None:
        return None
    for name, part, width in (
        ("warm.hidden", hidden, config.projection_dim),
        ("warm.memory", memory, config.dim),
    ):
        _require_shape(path, name, (config.n_layers, 2, width), tuple(part.shape))
        _require_finite(path, name, part)
    return hidden.float(), memory.float()


def _read_safetensors(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a readable safetensors file: {error}") from None


def _read_published(path: Path, description: Mapping[str, Any]) -> Checkpoint:
    if not path.is_file():
        raise MissingFileError(f"no such weights file: {path}")
    try:
        with h5py.File(path, "r") as file:
            stored = _stored_names(file)
            config = ElmoConfig.from_options(_with_word_count(description, file, stored))
            tensors = _read_rows(path, file, stored, tensor_table(config))
            softmax = {
                ours: _read_dataset(file[stored[theirs]])
                for ours, theirs in (("weight", "softmax/W"), ("bias", "softmax/b"))
                if theirs in stored
            }
    except ElmoError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        # h5py raises any of these, depending on where in the file the damage is.
        raise WeightsError(
            f"{path} is not a readable HDF5 file (damaged or cut short?): {error}"
        ) from None
    return Checkpoint(config=config, tensors=tensors, layout="hdf5", softmax=softmax)


def _read_rows(
    path: Path, file: h5py.File, stored: Mapping[str, str], table: list[TensorRow]
) -> Tensors:
    _require_same_names(
        path,
        {row.stored for row in table},
        {name for name in stored if re.match(r"(RNN_|CNN|char_embed$)(?!.*Adagrad)", name)},
        kept=set(stored),
    )
    tensors: Tensors = {}
    for row in table:
        dataset = file[stored[row.stored]]
        values = _read_dataset(dataset)
        if row.stored == "char_embed" and values.shape[0] == row.stored_shape[0] + 1:
            # Some exports carry the masked row already (262 rows); it must be zero.
            values = values[1:] if not values[0].any() else values
        _require_shape(path, row.stored, row.stored_shape, tuple(values.shape))
        for name, part in zip(row.ours, row.read(values), strict=True):
            tensors[name] = part.contiguous()
    return tensors


def _read_dataset(dataset: h5py.Dataset) -> Tensor:
    return torch.from_numpy(np.asarray(dataset[...], dtype=np.float32))


def _stored_names(file: h5py.File) -> dict[str, str]:
    """Map the standard name of each dataset to the name that the file uses.

    Two dialects differ: bilm-tf leaves `MultiRNNCell/Cell0` out of the names of one-layer models,
    and tools that dump a TensorFlow checkpoint as it is keep TensorFlow's own names.
    """
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return {_standard_name(name): name for name in names}


def _standard_name(name: str) -> str:
    for theirs, standard in (
        (r"^(lm|bilm)/", ""),
        (r"/rnn/", "/RNN/"),
        (r"/multi_rnn_cell/", "/MultiRNNCell/"),
        (r"/cell_", "/Cell"),
        (r"/lstm_cell/", "/LSTMCell/"),
        (r"/projection/kernel$", "/W_P_0"),
        (r"(RNN_\d/.*)/kernel$", r"\1/W_0"),
        (r"(RNN_\d/.*)/bias$", r"\1/B"),
        (r"(RNN_\d/RNN)/(LSTMCell|GRUCell)/", r"\1/MultiRNNCell/Cell0/\2/"),
    ):
        name = re.sub(theirs, standard, name)
    return name


def _with_word_count(
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


# --- checking -----------------------------------------------------------------------------------


def _require_same_names(
    path: Path, expected: set[str], found: set[str], kept: set[str] | None = None
) -> None:
    missing = sorted(expected - (kept or found))
    if missing:
        raise WeightsError(
            f"{path}: the configuration asks for {_some(missing)}, which the file does not have"
        )
    extra = sorted(found - expected)
    if extra:
        raise WeightsError(
            f"{path}: the file has {_some(extra)}, which the configuration does not describe "
            "(more layers, filters or highways than it says?)"
        )


def _require_shape(path: Path, name: str, expected: Shape, found: Shape) -> None:
    if expected != found:
        raise WeightsError(
            f"{path}: tensor '{name}' has shape {found}, but the configuration asks for {expected}"
        )


def _require_finite(path: Path, name: str, tensor: Tensor) -> None:
    if torch.isfinite(tensor.sum()):  # a sum is quick, and no NaN or infinity escapes it
        return
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise WeightsError(
            f"{path}: tensor '{name}' has {bad} values of {tensor.numel()} that are NaN or "
            "infinite; the file is damaged or the training diverged"
        )


def _check_vocabulary(checkpoint: Checkpoint, files: ModelFiles) -> None:
    if checkpoint.vocabulary is None:
        raise MissingFileError(
            f"{files.weights} reads words, so it needs its {VOCABULARY_FILE} beside it"
        )
    if len(checkpoint.vocabulary) != checkpoint.config.n_words:
        raise WeightsError(
            f"{files.vocabulary} lists {len(checkpoint.vocabulary)} words, "
            f"but {files.weights} has vectors for {checkpoint.config.n_words}"
        )
    checkpoint.vocabulary.require_specials(str(files.vocabulary))


def _some(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


# --- writing ------------------------------------------------------------------------------------


def save_checkpoint(checkpoint: Checkpoint, folder: Path | str, format: ModelFormat) -> None:
    """Write a model in either layout.

    Args:
        checkpoint: The model.
        folder: Where to.
        format: `elmo` for ours, `hdf5` for the published one.
    """
    if format not in get_args(ModelFormat):
        raise ConfigError(f"format is {format!r}, expected one of {get_args(ModelFormat)}")
    (save_folder if format == "elmo" else save_published)(checkpoint, folder)


def save_folder(checkpoint: Checkpoint, folder: Path | str) -> None:
    """Write our own layout: `config.json`, `model.safetensors` and a model card.

    A card that is there already is kept, but for the fingerprint in it.
    """
    folder = _made_folder(folder)
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
    if checkpoint.warm_state is not None:
        hidden, memory = checkpoint.warm_state
        tensors |= {"warm.hidden": hidden.contiguous(), "warm.memory": memory.contiguous()}
    with _replacing(folder / WEIGHTS_FILE) as path:
        save_file(tensors, path, metadata={"format": "pt"})
    if checkpoint.softmax:
        with _replacing(folder / SOFTMAX_FILE) as path:
            save_file(checkpoint.softmax, path, metadata={"format": "pt"})
    else:  # one that belongs to what was here before
        (folder / SOFTMAX_FILE).unlink(missing_ok=True)
    if checkpoint.vocabulary is not None:
        checkpoint.vocabulary.write(folder / VOCABULARY_FILE)
    (folder / CONFIG_FILE).write_text(checkpoint.config.to_json(), encoding="utf-8")
    _write_card(checkpoint, folder / CARD_FILE)


def save_published(checkpoint: Checkpoint, folder: Path | str) -> None:
    """Write the published layout: `options.json` and `weights.hdf5`.

    A warm state and mix weights have no place there and are left out.
    """
    folder = _made_folder(folder)
    if (folder / WEIGHTS_FILE).exists():
        raise OutputExistsError(
            f"{folder} holds {WEIGHTS_FILE}, which would be loaded in the place of {HDF5_FILE}; "
            "choose another folder"
        )
    with _replacing(folder / HDF5_FILE) as path, h5py.File(path, "w") as file:
        for row in tensor_table(checkpoint.config):
            stored = row.write(tuple(checkpoint.tensors[name] for name in row.ours))
            file.create_dataset(row.stored, data=stored.contiguous().numpy())
        for ours, theirs in (("weight", "softmax/W"), ("bias", "softmax/b")):
            if ours in checkpoint.softmax:
                file.create_dataset(theirs, data=checkpoint.softmax[ours].contiguous().numpy())
    if checkpoint.vocabulary is not None:
        checkpoint.vocabulary.write(folder / VOCABULARY_FILE)
    options = json.dumps(checkpoint.config.to_options(), indent=2) + "\n"
    (folder / OPTIONS_FILE).write_text(options, encoding="utf-8")


def _made_folder(folder: Path | str) -> Path:
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error}") from None
    return folder


def _write_card(checkpoint: Checkpoint, path: Path) -> None:
    fingerprint = checkpoint.fingerprint()
    if path.exists():  # a person may have written on it
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"(\| fingerprint \| `)[0-9a-f]{64}", rf"\g<1>{fingerprint}", text)
    else:
        n_parameters = sum(tensor.numel() for tensor in checkpoint.tensors.values())
        text = model_card(checkpoint.config, n_parameters, fingerprint)
    path.write_text(text, encoding="utf-8")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Write beside a file and put it in its place when complete, so that nobody sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)

"""Weights on disk: every published layout in, ours and the published one out, bit for bit.

Two layouts, with `tensors.tensor_table` between them, and a third that is only read (`manylangs`):

* the published one, `options.json` + `weights.hdf5` (bilm-tf, AllenNLP, simple_elmo, ...);
* ours, a folder with `config.json` + `model.safetensors` + a model card.

Models with an alphabet have their `characters.txt` beside the weights in both.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import h5py
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from elmo.config import N_BYTE_CHARACTERS, ElmoConfig
from elmo.errors import (
    ConfigError,
    ElmoError,
    InputError,
    MissingFileError,
    OutputError,
    OutputExistsError,
    WeightsError,
    reason_of,
)
from elmo.model.checkpoint import Checkpoint
from elmo.model.word_lookup import WordLookup
from elmo.settings import ModelFormat, OutputDtype
from elmo.text.alphabet import Alphabet, require_alphabet
from elmo.text.vocabulary import Vocabulary
from elmo.weights.card import model_card
from elmo.weights.checks import (
    check_softmax,
    require_finite,
    require_same_names,
    require_shape,
)
from elmo.weights.hdf5_weights import (
    read_rows,
    read_softmax,
    stored_names,
    with_word_count,
    write_rows,
)
from elmo.weights.manylangs import read_manylangs
from elmo.weights.model_files import (
    CARD_FILE,
    CHARACTERS_FILE,
    CONFIG_FILE,
    HDF5_FILE,
    LOOKUP_FILE,
    LOOKUP_WORDS,
    OPTIONS_FILE,
    SOFTMAX_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    ModelFiles,
)
from elmo.weights.tensors import tensor_table
from elmo.weights.tensors_on_disk import StoredTensors, read_tensors, rounded

# --- reading ------------------------------------------------------------------------------------


def load_checkpoint(files: ModelFiles, *, lazily: bool = False) -> Checkpoint:
    """Read a model in either layout, checking every tensor against the configuration.

    Args:
        files: Where it is.
        lazily: Leave the output layer in its file until somebody looks at it; vectors need none.
            Its shapes are checked all the same. Only our own layout has a file for it.
    """
    description = _read_json(files.options)
    if files.is_manylangs:
        read = _read_manylangs
    else:
        read = _read_ours if files.is_ours else _read_published
    checkpoint = read(files, description)
    for name, tensor in checkpoint.tensors.items():
        require_finite(files.weights, name, tensor)
    # A model that reads characters has no use for a vocabulary but in its softmax.
    if files.vocabulary and (checkpoint.softmax or not checkpoint.config.reads_characters):
        vocabulary = Vocabulary.read(files.vocabulary)
        checkpoint = dataclasses.replace(checkpoint, vocabulary=vocabulary)
    if not checkpoint.config.reads_characters:
        _check_vocabulary(checkpoint, files)
    _check_output_layer(checkpoint, files, lazily)
    return checkpoint


def _check_output_layer(checkpoint: Checkpoint, files: ModelFiles, lazily: bool) -> None:
    softmax, path = checkpoint.softmax, files.weights
    if isinstance(softmax, StoredTensors):
        path = softmax.path
        softmax = softmax.outline() if lazily else dict(softmax)
    if softmax:
        check_softmax(path, softmax, checkpoint.config, checkpoint.vocabulary)


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


def _read_alphabet(config: ElmoConfig, files: ModelFiles) -> Alphabet | None:
    """Read the characters of a model that has an alphabet, before its tensors are looked at."""
    if not config.has_alphabet:
        return None
    if files.characters is None:
        raise MissingFileError(
            f"{files.options}: n_characters is {config.n_characters}, neither of the "
            f"{N_BYTE_CHARACTERS - 1} and {N_BYTE_CHARACTERS} of a model that spells words as "
            f"UTF-8 bytes, and there is no {CHARACTERS_FILE} with an alphabet beside "
            f"{files.weights}; put it there, or correct the number"
        )
    alphabet = Alphabet.read(files.characters)
    if alphabet.n_characters != config.n_characters:
        raise WeightsError(
            f"{files.characters} lists {len(alphabet)} characters, which need n_characters="
            f"{alphabet.n_characters}, but {files.options} has {config.n_characters}; "
            "does the list belong to another model, or is it cut short?"
        )
    return alphabet


def _read_ours(files: ModelFiles, description: Mapping[str, Any]) -> Checkpoint:
    path = files.weights
    config = ElmoConfig.from_dict(description)
    alphabet = _read_alphabet(config, files)
    tensors = read_tensors(path)
    warm = [tensors.pop(f"warm.{part}", None) for part in ("hidden", "memory")]
    expected = {name: shape for row in tensor_table(config) for name, shape in row.ours.items()}
    require_same_names(path, set(expected), set(tensors))
    for name, shape in expected.items():
        require_shape(path, name, shape, tuple(tensors[name].shape))
    softmax = path.parent / SOFTMAX_FILE
    return Checkpoint(
        config=config,
        tensors={name: tensors[name].float() for name in expected},
        alphabet=alphabet,
        warm_state=_checked_warm_state(path, config, *warm),
        softmax=StoredTensors(softmax, "softmax") if softmax.exists() else {},
        lookup=_read_lookup(path.parent, config),
    )


def _read_lookup(folder: Path, config: ElmoConfig) -> WordLookup | None:
    """Read the vectors of whole words of our layout, if the folder has any."""
    path, listed = folder / LOOKUP_FILE, folder / LOOKUP_WORDS
    if not path.exists():
        return None
    if not listed.exists():
        raise MissingFileError(f"{path} is there, but not its {LOOKUP_WORDS} beside it")
    tensors = {name: tensor.float() for name, tensor in read_tensors(path).items()}
    if set(tensors) != {"vectors", "projection"}:
        raise WeightsError(f"{path} has {sorted(tensors)}, expected vectors and projection")
    words = listed.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    width = tensors["vectors"].shape[-1]
    require_shape(path, "vectors", (len(words), width), tuple(tensors["vectors"].shape))
    expected = (config.projection_dim, width)
    require_shape(path, "projection", expected, tuple(tensors["projection"].shape))
    for name, tensor in tensors.items():
        require_finite(path, name, tensor)
    return WordLookup(words, tensors["vectors"], tensors["projection"], config.max_characters - 2)


def _read_manylangs(files: ModelFiles, description: Mapping[str, Any]) -> Checkpoint:
    found = read_manylangs(files.weights.parent, description)
    return Checkpoint(
        config=found.config,
        tensors=found.tensors,
        alphabet=found.alphabet,
        lookup=found.lookup,
        format="manylangs",
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
        require_shape(path, name, (config.n_layers, 2, width), tuple(part.shape))
        require_finite(path, name, part)
    return hidden.float(), memory.float()


def _read_published(files: ModelFiles, description: Mapping[str, Any]) -> Checkpoint:
    path = files.weights
    if not path.is_file():
        raise MissingFileError(f"no such weights file: {path}")
    try:
        with h5py.File(path, "r") as file:
            stored = stored_names(file)
            config = ElmoConfig.from_options(with_word_count(description, file, stored))
            alphabet = _read_alphabet(config, files)
            tensors = read_rows(path, file, stored, tensor_table(config))
            softmax = read_softmax(file, stored)
    except ElmoError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        # h5py raises any of these, depending on where in the file the damage is.
        raise WeightsError(
            f"{path} is not a readable HDF5 file (damaged or cut short?): {error}"
        ) from None
    return Checkpoint(
        config=config, tensors=tensors, alphabet=alphabet, format="hdf5", softmax=softmax
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


# --- writing ------------------------------------------------------------------------------------


def save_checkpoint(
    checkpoint: Checkpoint,
    folder: Path | str,
    format: ModelFormat = "elmo",
    dtype: OutputDtype = "float32",
) -> None:
    """Write a model in either layout.

    Args:
        checkpoint: The model.
        folder: Where to.
        format: `elmo` for ours, `hdf5` for the published one.
        dtype: In which numbers: `float16` halves the files of our own layout and keeps about
            three decimal digits of each weight. The published one is always float32.
    """
    for name, value, choices in (("format", format, ModelFormat), ("dtype", dtype, OutputDtype)):
        if value not in get_args(choices):
            raise ConfigError(f"{name} is {value!r}, expected one of {get_args(choices)}")
    if format == "elmo":
        save_folder(checkpoint, folder, dtype)
    elif dtype == "float32":
        save_published(checkpoint, folder)
    else:
        raise ConfigError(
            f"dtype is {dtype!r}, but other programs expect float32 in the layout hdf5; "
            "choose the layout elmo"
        )


def save_folder(checkpoint: Checkpoint, folder: Path | str, dtype: OutputDtype = "float32") -> None:
    """Write our own layout: `config.json`, `model.safetensors` and a model card.

    The output layer goes to a file of its own, so that those who want vectors need not read it.
    A card that is there already is kept, but for the fingerprint in it.

    Args:
        checkpoint: The model.
        folder: Where to.
        dtype: In which numbers; a warm state, which is small, is always float32.
    """
    require_alphabet(checkpoint.config, checkpoint.alphabet)
    folder = _made_folder(folder)
    tensors = rounded(checkpoint.tensors, dtype, folder)
    softmax = rounded(checkpoint.softmax, dtype, folder)
    if checkpoint.warm_state is not None:
        hidden, memory = checkpoint.warm_state
        tensors |= {"warm.hidden": hidden.contiguous(), "warm.memory": memory.contiguous()}
    with _replacing(folder / WEIGHTS_FILE) as path:
        save_file(tensors, path, metadata={"format": "pt"})
    if softmax:
        with _replacing(folder / SOFTMAX_FILE) as path:
            save_file(softmax, path, metadata={"format": "pt"})
    else:  # one that belongs to what was here before
        (folder / SOFTMAX_FILE).unlink(missing_ok=True)
    _write_lookup(checkpoint.lookup, folder, dtype)
    _write_lists(checkpoint, folder)
    (folder / CONFIG_FILE).write_text(checkpoint.config.to_json(), encoding="utf-8")
    _write_card(in_numbers_of(checkpoint, dtype), folder / CARD_FILE)


def _write_lookup(lookup: WordLookup | None, folder: Path, dtype: OutputDtype) -> None:
    if lookup is None:
        for name in (LOOKUP_FILE, LOOKUP_WORDS):
            (folder / name).unlink(missing_ok=True)
        return
    if any("\n" in word for word in lookup.words):
        raise InputError("a known word has a line break in it: the list cannot be written")
    with _replacing(folder / LOOKUP_WORDS) as path:
        path.write_bytes("".join(f"{word}\n" for word in lookup.words).encode("utf-8"))
    with _replacing(folder / LOOKUP_FILE) as path:
        save_file(rounded(lookup.tensors(), dtype, folder), path, metadata={"format": "pt"})


def in_numbers_of(checkpoint: Checkpoint, dtype: OutputDtype) -> Checkpoint:
    """Give the model that a file in these numbers holds: its weights are rounded."""
    if dtype == "float32":
        return checkpoint
    tensors = rounded(checkpoint.tensors, dtype, "the model")
    softmax = rounded(checkpoint.softmax, dtype, "the model")
    lookup = checkpoint.lookup
    if lookup is not None:
        lookup = lookup.rounded_to(rounded(lookup.tensors(), dtype, "the model"))
    return dataclasses.replace(
        checkpoint,
        lookup=lookup,
        tensors={name: tensor.float() for name, tensor in tensors.items()},
        softmax={name: tensor.float() for name, tensor in softmax.items()},
    )


def save_published(checkpoint: Checkpoint, folder: Path | str) -> None:
    """Write the published layout: `options.json` and `weights.hdf5`.

    A warm state, mix weights and an adaptive softmax have no place there and are left out.
    """
    if checkpoint.lookup is not None:
        raise ConfigError(
            "the model has vectors of whole words beside its characters (ELMoForManyLangs), for "
            "which the layout hdf5 has no place; choose the layout elmo"
        )
    require_alphabet(checkpoint.config, checkpoint.alphabet)
    folder = _made_folder(folder)
    if (folder / WEIGHTS_FILE).exists():
        raise OutputExistsError(
            f"{folder} holds {WEIGHTS_FILE}, which would be loaded in the place of {HDF5_FILE}; "
            "choose another folder"
        )
    with _replacing(folder / HDF5_FILE) as path, h5py.File(path, "w") as file:
        write_rows(file, tensor_table(checkpoint.config), checkpoint.tensors, checkpoint.softmax)
    _write_lists(checkpoint, folder)
    options = json.dumps(checkpoint.config.to_options(), indent=2) + "\n"
    (folder / OPTIONS_FILE).write_text(options, encoding="utf-8")


def _made_folder(folder: Path | str) -> Path:
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {reason_of(error)}") from None
    return folder


def _write_lists(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the words and the characters that ids stand for, where there are any."""
    if checkpoint.vocabulary is not None:
        with _replacing(folder / VOCABULARY_FILE) as path:
            checkpoint.vocabulary.write(path)
    if checkpoint.alphabet is not None:
        with _replacing(folder / CHARACTERS_FILE) as path:
            checkpoint.alphabet.write(path)


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
    except (OSError, SafetensorError) as error:
        raise OutputError(f"cannot write {path}: {reason_of(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)

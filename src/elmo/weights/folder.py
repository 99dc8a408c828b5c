"""The format `elmo`, our own: a folder with a configuration, safetensors and a model card.

config.json           `ElmoConfig`
model.safetensors     the tensors of `BiLM.state_dict()`, and a warm state
softmax.safetensors   the output layer of a language model: vectors do without
lookup.safetensors    vectors of whole words, of models from ELMoForManyLangs,
lookup.txt            and the words, one a line
vocab.txt             the words of the softmax, or of a model that reads words
characters.txt        the alphabet of a model that encodes words as code points
README.md, card.json  see `elmo.weights.card`
SHA256SUMS            of all these but the cards; see `elmo.weights.integrity`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import InputError, MissingFileError
from elmo.model.bilm import Checkpoint, parameter_shapes
from elmo.model.cells import cell_class
from elmo.model.word_lookup import WordLookup
from elmo.runtime.files import replacing, write_text
from elmo.runtime.input_files import read_json, read_text, split_lines
from elmo.settings import OutputDtype
from elmo.weights.card import CARD_JSON, README, model_card
from elmo.weights.files import (
    LIST_PATTERNS,
    Shape,
    StoredTensors,
    make_folder,
    read_alphabet,
    read_tensors,
    require_finite,
    require_shape,
    require_shapes,
    stored_shapes,
    write_lists,
)
from elmo.weights.formats import OURS, ModelFiles
from elmo.weights.integrity import SUMS_FILE, forget_sums, record_sums

SOFTMAX_FILE = "softmax.safetensors"
LOOKUP_FILE = "lookup.safetensors"
LOOKUP_WORDS = "lookup.txt"
_WARM = ("warm.hidden", "warm.memory")
PATTERNS = (OURS.options, "*.safetensors", LOOKUP_WORDS, CARD_JSON, SUMS_FILE, *LIST_PATTERNS)


# --- reading ------------------------------------------------------------------------------------


def read(files: ModelFiles) -> Checkpoint:
    """Read a model; its output layer stays in its file until it is used."""
    path = files.weights
    config = ElmoConfig.from_dict(read_json(files.options), str(files.options))
    alphabet = read_alphabet(config, files)
    stored = stored_shapes(path)
    warm_shapes = _warm_shapes(config) if all(name in stored for name in _WARM) else {}
    weights = {name: shape for name, shape in stored.items() if name not in _WARM}
    require_shapes(path, parameter_shapes(config), weights)
    for name, shape in warm_shapes.items():
        require_shape(path, name, shape, stored[name])
    tensors = {name: tensor.float() for name, tensor in read_tensors(path).items()}
    warm = [tensors.pop(name) for name in _WARM if name in tensors]
    for name, tensor in zip(warm_shapes, warm, strict=False):
        require_finite(path, name, tensor)
    softmax, lookup = path.with_name(SOFTMAX_FILE), path.with_name(LOOKUP_FILE)
    return Checkpoint(
        config=config,
        tensors=tensors,
        alphabet=alphabet,
        warm_state=(warm[0], warm[1]) if warm_shapes else None,
        softmax=StoredTensors(softmax, "softmax") if softmax.exists() else {},
        lookup=_read_lookup(lookup, config) if lookup.exists() else None,
    )


def _warm_shapes(config: ElmoConfig) -> dict[str, Shape]:
    widths = (config.projection_dim, cell_class(config.cell).memory_dim(config))
    return {name: (config.n_layers, 2, width) for name, width in zip(_WARM, widths, strict=True)}


def _read_lookup(path: Path, config: ElmoConfig) -> WordLookup:
    listed = path.with_name(LOOKUP_WORDS)
    if not listed.exists():
        raise MissingFileError(f"{path} is there, but not its {LOOKUP_WORDS} beside it")
    words = split_lines(listed, read_text(listed, what="list of words"))
    stored = stored_shapes(path)
    width = stored["vectors"][-1] if stored.get("vectors") else 0
    expected = {"vectors": (len(words), width), "projection": (config.projection_dim, width)}
    require_shapes(path, expected, stored)
    tensors = {name: tensor.float() for name, tensor in read_tensors(path).items()}
    for name, tensor in tensors.items():
        require_finite(path, name, tensor)
    return WordLookup(words, tensors["vectors"], tensors["projection"], config.max_characters - 2)


# --- writing ------------------------------------------------------------------------------------


def write(checkpoint: Checkpoint, folder: Path, dtype: OutputDtype) -> None:
    """Write a model; a card that is there already is kept, but for the fingerprint in it.

    A warm state, which is small, is always float32.
    """
    make_folder(folder)
    forget_sums(folder)
    number = torch.float16 if dtype == "float16" else torch.float32
    warm = dict(zip(_WARM, checkpoint.warm_state or (), strict=False))
    tensors = {name: tensor.to(number) for name, tensor in checkpoint.tensors.items()}
    _write_tensors(folder / OURS.weights, tensors | warm)
    softmax = {name: tensor.to(number) for name, tensor in checkpoint.softmax.items()}
    _write_tensors(folder / SOFTMAX_FILE, softmax)
    _write_lookup(checkpoint.lookup, folder, number)
    write_lists(checkpoint, folder)
    write_text(folder / OURS.options, checkpoint.config.to_json())
    _write_card(checkpoint, folder / README)
    record_sums(folder)


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file of tensors; without any, delete the file of the model that was here before."""
    if not tensors:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as temporary:
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, temporary, metadata={"format": "pt"})


def _write_lookup(lookup: WordLookup | None, folder: Path, number: torch.dtype) -> None:
    tensors = {} if lookup is None else lookup.tensors()
    _write_tensors(folder / LOOKUP_FILE, {name: t.to(number) for name, t in tensors.items()})
    if lookup is None:
        (folder / LOOKUP_WORDS).unlink(missing_ok=True)
        return
    if any("\n" in word for word in lookup.words):
        raise InputError("a known word has a line break in it: the list cannot be written")
    write_text(folder / LOOKUP_WORDS, "".join(f"{word}\n" for word in lookup.words))


def _write_card(checkpoint: Checkpoint, path: Path) -> None:
    fingerprint = checkpoint.fingerprint()
    if path.exists():  # its owner may have added to it
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"(\| fingerprint \| `)[0-9a-f]{64}", rf"\g<1>{fingerprint}", text)
    else:
        text = model_card(checkpoint.config, checkpoint.n_parameters, fingerprint)
    write_text(path, text)

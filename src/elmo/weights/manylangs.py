"""The format `manylangs`: models of ELMoForManyLangs (Che et al. 2018), which are only read.

A folder of theirs has `config.json`, `char.dic`, `word.dic`, `encoder.pkl` and
`token_embedder.pkl`. What is different there, and what becomes of it:

* words are encoded as code points: an alphabet, its rows in our order. The ids of begin and end of
  a word are exchanged in their code, and so they are here;
* a highway's gate keeps the input where ours keeps the transform: weights change their sign;
* the forget gate's bias has its 1 inside: it is subtracted, as ours adds it;
* the vector of each known word is projected together with the filters: see `word_lookup`. That
  of an unknown word becomes part of the bias. Those of the two boundaries become two filters that
  respond to nothing but the boundaries' own characters, pass the highways untouched, and carry the
  rest of the boundaries' terms through the projection.

Files are read with PyTorch's restricted unpickler, which builds tensors and nothing else.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor

from elmo.config import MOST_CELLS, WIDEST_CHARACTER, ElmoConfig
from elmo.errors import ConfigError, InputError, WeightsError
from elmo.model.bilm import Checkpoint
from elmo.model.word_lookup import WordLookup
from elmo.runtime.input_files import (
    damage_errors,
    read_json,
    read_text,
    require_file,
    split_lines,
)
from elmo.settings import require
from elmo.text.alphabet import FIRST_CHARACTER, Alphabet
from elmo.weights.files import Shape, require_model, require_shape
from elmo.weights.formats import MANYLANGS, ModelFiles

_NEEDED_SIZES = (
    "projection_dim",
    "dim",
    "n_layers",
    "activation",
    "filters",
    "n_highway",
    "max_characters_per_token",
)
_EMBEDDER = "token_embedder.pkl"
_CHARACTERS = "char.dic"
_WORDS = "word.dic"
PATTERNS = ("*.json", MANYLANGS.weights, _EMBEDDER, _CHARACTERS, _WORDS)

_SIZES_FILE = "cnn_50_100_512_4096_sample.json"
# Not every folder has it: these are the sizes of all models that were published.
_PUBLISHED_SIZES: dict[str, Any] = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}
_CHARACTER_TABLE = "char_emb_layer.embedding.weight"
_WORD_TABLE = "word_emb_layer.embedding.weight"
_BOUNDARIES = ("<bos>", "<eos>")
_UNKNOWN = "<oov>"
# Which of their characters stand in our rows 1 to 6; begin and end of a word exchanged.
_SPECIAL_ROWS = (*_BOUNDARIES, "<eow>", "<bow>", "<pad>", _UNKNOWN)
_BLANK = "\u3000"  # the word of a line that has none
_ROW = re.compile(r"[0-9]{1,9}")
_NEVER = -1e4  # a gate that no float opens


def read(files: ModelFiles) -> Checkpoint:
    """Read a model."""
    folder = files.weights.parent
    sizes = _read_sizes(folder, read_json(files.options))
    embedder = _read_pickle(folder / _EMBEDDER)
    encoder = _read_pickle(files.weights)
    characters = _read_dictionary(folder / _CHARACTERS)
    words = _read_dictionary(folder / _WORDS) if sizes["word_dim"] else None
    alphabet = Alphabet(_single_characters(folder / _CHARACTERS, characters))
    config = _config(sizes, alphabet, with_words=words is not None)
    word_dim = sizes["word_dim"] if words is not None else 0
    _require_their_shapes(files.weights, encoder, _encoder_shapes(config))
    _require_their_shapes(
        folder / _EMBEDDER, embedder, _embedder_shapes(embedder, config, word_dim)
    )
    _require_rows(folder / _CHARACTERS, characters, embedder[_CHARACTER_TABLE])
    tensors = _layers(encoder, config)
    lookup = None
    if words is not None:
        _require_rows(folder / _WORDS, words, embedder[_WORD_TABLE])
        lookup = _lookup(embedder, config, words)
    tensors |= _character_tensors(embedder, config, characters, alphabet, words)
    require_model(folder, config, tensors)
    return Checkpoint(config=config, tensors=tensors, alphabet=alphabet, lookup=lookup)


# --- files ----------------------------------------------------------------------------------------


def _read_sizes(folder: Path, description: Mapping[str, Any]) -> dict[str, Any]:
    """Find the sizes of a model; only the last part of the path that its author used matters."""
    named = PurePath(str(description.get("config_path", ""))).name
    there = {path.name for path in folder.iterdir()}
    found = next((name for name in (named, _SIZES_FILE) if name in there), None)
    content: Any = _PUBLISHED_SIZES if found is None else read_json(folder / found)
    where = folder / (found or MANYLANGS.options)
    try:
        encoder, embedder = content["encoder"], content["token_embedder"]
        kinds = encoder["name"].lower(), embedder["name"].lower()
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where}: the sizes of the model are not understood: {error}") from None
    if kinds != ("elmo", "cnn") or not embedder.get("char_dim"):
        raise ConfigError(
            f"{where}: encoder {kinds[0]!r} and token embedder {kinds[1]!r} with char_dim "
            f"{embedder.get('char_dim')!r}; only 'elmo' and 'cnn' over characters are read"
        )
    sizes = {**encoder, **embedder}
    for name, most in (("char_dim", WIDEST_CHARACTER - len(_BOUNDARIES)), ("word_dim", MOST_CELLS)):
        value = sizes.get(name, 0)
        in_range = isinstance(value, int) and 0 <= value <= most
        require(f"{where}: {name}", value, f"a whole number from 0 to {most:,}", in_range)
        sizes[name] = value
    for name in _NEEDED_SIZES:
        if name not in sizes:
            raise ConfigError(f"{where}: {name!r} is missing; it is needed to load the weights")
    filters = sizes["filters"]
    require(f"{where}: filters", filters, "a list", isinstance(filters, list))
    return sizes


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """Read named tensors, whose values are all in the file: no larger than it, and no views."""
    require_file(path)
    with damage_errors(path, "file of tensors", WeightsError):
        _require_plain_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and _is_plain(tensor) for name, tensor in content.items()
    ):
        raise WeightsError(f"{path} holds something other than named tensors")
    return {name: tensor.float() for name, tensor in content.items()}


def _require_plain_archive(path: Path) -> None:
    """Raise an error if a file of new PyTorch is compressed, which PyTorch never does."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise WeightsError(
                f"{path} is compressed inside, expected a file that torch.save wrote"
            )


def _is_plain(tensor: object) -> bool:
    """Return whether something is a tensor of floating-point numbers, each with its own memory."""
    return (
        isinstance(tensor, Tensor)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        and tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()
    )


def _read_dictionary(path: Path) -> dict[str, int]:
    """Read lines of a word or character, a tab and its row."""
    rows: dict[str, int] = {}
    for number, line in enumerate(split_lines(path, read_text(path)), start=1):
        parts = line.strip().split("\t")
        if parts == [""]:
            continue
        entry, row = (_BLANK, parts[0]) if len(parts) == 1 else (parts[0], parts[-1])
        if not _ROW.fullmatch(row):
            raise InputError(f"{path}, line {number}: {line[:40]!r} has no number at its end")
        rows[entry] = int(row)
    return rows


def _single_characters(path: Path, characters: Mapping[str, int]) -> list[str]:
    missing = [name for name in _SPECIAL_ROWS if name not in characters]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; does it belong to this model?")
    ordered = sorted(characters, key=lambda character: characters[character])
    return [
        character
        for character in ordered
        if len(character) == 1 and not "\ud800" <= character <= "\udfff"
    ]


# --- weights --------------------------------------------------------------------------------------


def _config(sizes: Mapping[str, Any], alphabet: Alphabet, *, with_words: bool) -> ElmoConfig:
    extra = len(_BOUNDARIES) if with_words else 0
    return ElmoConfig(
        dim=sizes["dim"],
        projection_dim=sizes["projection_dim"],
        n_layers=sizes["n_layers"],
        cell_clip=sizes.get("cell_clip"),
        proj_clip=sizes.get("proj_clip"),
        char_dim=sizes["char_dim"] + extra,
        filters=tuple([*sizes["filters"], *([(1, extra)] if extra else [])]),
        activation=sizes["activation"],
        n_highway=sizes["n_highway"],
        max_characters=sizes["max_characters_per_token"],
        n_characters=alphabet.n_characters,
    )


def _require_their_shapes(
    path: Path, found: Mapping[str, Tensor], expected: Mapping[str, Shape]
) -> None:
    """Raise an error unless a file has all tensors that the sizes ask for; others do no harm."""
    for name, shape in expected.items():
        if name not in found:
            raise WeightsError(
                f"{path}: the weights have no {name!r}; expected those of ELMoForManyLangs"
            )
        require_shape(path, name, shape, tuple(found[name].shape))


def _encoder_shapes(config: ElmoConfig) -> dict[str, Shape]:
    """Return the shapes of the layers, under their names."""
    gates, width = 4 * config.dim, config.projection_dim
    return {
        f"{direction}_layer_{layer}.{name}": shape
        for direction in ("forward", "backward")
        for layer in range(config.n_layers)
        for name, shape in (
            ("input_linearity.weight", (gates, width)),
            ("state_linearity.weight", (gates, width)),
            ("state_linearity.bias", (gates,)),
            ("state_projection.weight", (width, config.dim)),
        )
    }


def _embedder_shapes(
    embedder: Mapping[str, Tensor], config: ElmoConfig, word_dim: int
) -> dict[str, Shape]:
    """Return the shapes of the character encoder, under their names; tables have any length."""
    extra = len(_BOUNDARIES) if word_dim else 0
    char_dim, n_filters = config.char_dim - extra, config.n_filters - extra

    def length(name: str) -> int:
        return len(embedder[name]) if name in embedder and embedder[name].dim() else 0

    shapes: dict[str, Shape] = {_CHARACTER_TABLE: (length(_CHARACTER_TABLE), char_dim)}
    if word_dim:
        shapes[_WORD_TABLE] = (length(_WORD_TABLE), word_dim)
    for i, (width, number) in enumerate(config.filters[: len(config.filters) - bool(extra)]):
        shapes[f"convolutions.{i}.weight"] = (number, char_dim, width)
        shapes[f"convolutions.{i}.bias"] = (number,)
    for k in range(config.n_highway):
        shapes[f"highways._layers.{k}.weight"] = (2 * n_filters, n_filters)
        shapes[f"highways._layers.{k}.bias"] = (2 * n_filters,)
    shapes["projection.weight"] = (config.projection_dim, word_dim + n_filters)
    shapes["projection.bias"] = (config.projection_dim,)
    return shapes


def _layers(encoder: Mapping[str, Tensor], config: ElmoConfig) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for direction in ("forward", "backward"):
        for layer in range(config.n_layers):
            theirs, ours = f"{direction}_layer_{layer}", f"{direction}_layers.{layer}"
            bias = encoder[f"{theirs}.state_linearity.bias"].clone()
            bias[config.dim : 2 * config.dim] -= 1
            tensors |= {
                f"{ours}.input_weight": encoder[f"{theirs}.input_linearity.weight"],
                f"{ours}.recurrent_weight": encoder[f"{theirs}.state_linearity.weight"],
                f"{ours}.bias": bias,
                f"{ours}.projection_weight": encoder[f"{theirs}.state_projection.weight"],
            }
    return tensors


def _character_tensors(
    embedder: Mapping[str, Tensor],
    config: ElmoConfig,
    characters: Mapping[str, int],
    alphabet: Alphabet,
    words: Mapping[str, int] | None,
) -> dict[str, Tensor]:
    extra = 0 if words is None else len(_BOUNDARIES)
    table = _table(embedder[_CHARACTER_TABLE], config, characters, alphabet)
    for place in range(extra):  # a feature that only this boundary's character has
        table[1 + place, config.char_dim - extra + place] = 1
    tensors = {"words.embedding.weight": table}
    n_groups = len(config.filters) - bool(extra)
    for i in range(n_groups):
        weight = embedder[f"convolutions.{i}.weight"]
        tensors[f"words.convolutions.{i}.weight"] = torch.nn.functional.pad(
            weight, (0, 0, 0, extra)
        )
        tensors[f"words.convolutions.{i}.bias"] = embedder[f"convolutions.{i}.bias"]
    if extra:
        detectors = torch.zeros(extra, config.char_dim, 1)
        detectors[:, -extra:, 0] = torch.eye(extra)
        tensors[f"words.convolutions.{n_groups}.weight"] = detectors
        tensors[f"words.convolutions.{n_groups}.bias"] = torch.zeros(extra)
    for k in range(config.n_highway):
        tensors |= _highway(embedder, k, extra)
    weight, bias = embedder["projection.weight"], embedder["projection.bias"]
    if words is not None:
        weight, bias = _projection_with_boundaries(embedder, config, words)
    return tensors | {"words.projection.weight": weight, "words.projection.bias": bias}


def _table(
    theirs: Tensor, config: ElmoConfig, characters: Mapping[str, int], alphabet: Alphabet
) -> Tensor:
    """Put the vectors of characters in the order of our ids, `(n_characters, char_dim)`."""
    table = torch.zeros(config.n_characters, config.char_dim)
    rows = [characters[name] for name in (*_SPECIAL_ROWS, *alphabet.characters)]
    assert len(_SPECIAL_ROWS) == FIRST_CHARACTER - 1
    table[1 : 1 + len(rows), : theirs.shape[1]] = theirs[rows]
    return table


def _require_rows(path: Path, dictionary: Mapping[str, int], vectors: Tensor) -> None:
    """Raise an error unless there is a vector for each entry, unknown ones among them."""
    if _UNKNOWN not in dictionary:
        raise InputError(f"{path} lacks {_UNKNOWN}; does it belong to this model?")
    highest = max(dictionary.values())
    if highest >= len(vectors):
        raise WeightsError(
            f"{path} has a row {highest}, but there are only {len(vectors)} vectors; does it "
            "belong to this model?"
        )


def _highway(embedder: Mapping[str, Tensor], k: int, extra: int) -> dict[str, Tensor]:
    """Split a highway into transform and gate; further features pass it as they are."""
    weight, bias = (embedder[f"highways._layers.{k}.{name}"] for name in ("weight", "bias"))
    transform, gate = weight.chunk(2)
    transform_bias, gate_bias = bias.chunk(2)
    pad = torch.nn.functional.pad
    return {
        f"words.highways.{k}.transform.weight": pad(transform, (0, extra, 0, extra)),
        f"words.highways.{k}.transform.bias": pad(transform_bias, (0, extra)),
        f"words.highways.{k}.gate.weight": pad(-gate, (0, extra, 0, extra)),
        f"words.highways.{k}.gate.bias": pad(-gate_bias, (0, extra), value=_NEVER),
    }


def _projection_with_boundaries(
    embedder: Mapping[str, Tensor], config: ElmoConfig, words: Mapping[str, int]
) -> tuple[Tensor, Tensor]:
    """Return weights over filters and detectors, and the bias of an unknown word."""
    vectors = embedder[_WORD_TABLE]
    weight = embedder["projection.weight"]
    width = vectors.shape[1]
    of_words, of_characters = weight[:, :width], weight[:, width:]
    unknown = vectors[words[_UNKNOWN]]
    response = 1.0 if config.activation == "relu" else math.tanh(1.0)
    terms = [
        of_words @ (vectors[words.get(name, words[_UNKNOWN])] - unknown) / response
        for name in _BOUNDARIES
    ]
    bias = embedder["projection.bias"] + of_words @ unknown
    return torch.cat([of_characters, torch.stack(terms, dim=1)], dim=1), bias


def _lookup(
    embedder: Mapping[str, Tensor], config: ElmoConfig, words: Mapping[str, int]
) -> WordLookup:
    vectors = embedder[_WORD_TABLE]
    known = [word for word in words if word not in (_UNKNOWN, *_BOUNDARIES)]
    differences = vectors[[words[word] for word in known]] - vectors[words[_UNKNOWN]]
    projection = embedder["projection.weight"][:, : vectors.shape[1]].contiguous()
    return WordLookup(known, differences, projection, config.max_characters - 2)

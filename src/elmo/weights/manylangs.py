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
import pickle
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor

from elmo.config import ElmoConfig
from elmo.errors import ConfigError, InputError, MissingFileError, WeightsError
from elmo.model.bilm import Checkpoint
from elmo.model.word_lookup import WordLookup
from elmo.runtime.files import read_json
from elmo.text.alphabet import FIRST_CHARACTER, Alphabet
from elmo.weights.files import require_model
from elmo.weights.formats import MANYLANGS, ModelFiles

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
_BOUNDARIES = ("<bos>", "<eos>")
# Which of their characters stand in our rows 1 to 6; begin and end of a word exchanged.
_SPECIAL_ROWS = (*_BOUNDARIES, "<eow>", "<bow>", "<pad>", "<oov>")
_BLANK = "\u3000"  # the word of a line that has none
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
    try:
        tensors = _layers(encoder, config)
        tensors |= _character_tensors(embedder, config, characters, alphabet, words)
        lookup = None if words is None else _lookup(embedder, config, words)
    except KeyError as error:
        raise WeightsError(
            f"{folder}: the weights have no {error.args[0]!r}; expected those of ELMoForManyLangs"
        ) from None
    require_model(folder, config, tensors)
    return Checkpoint(config=config, tensors=tensors, alphabet=alphabet, lookup=lookup)


# --- files ----------------------------------------------------------------------------------------


def _read_sizes(folder: Path, description: Mapping[str, Any]) -> dict[str, Any]:
    """Find the sizes of a model; only the last part of the path that its author used matters."""
    named = PurePath(str(description.get("config_path", ""))).name
    content: Any = _PUBLISHED_SIZES
    for name in (named, _SIZES_FILE):
        if name and (folder / name).is_file():
            content = read_json(folder / name)
            break
    try:
        encoder, embedder = content["encoder"], content["token_embedder"]
        kinds = encoder["name"].lower(), embedder["name"].lower()
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{folder}: the sizes of the model are not understood: {error}") from None
    if kinds != ("elmo", "cnn") or not embedder.get("char_dim"):
        raise ConfigError(
            f"{folder}: encoder {kinds[0]!r} and token embedder {kinds[1]!r} with char_dim "
            f"{embedder.get('char_dim')!r}; only 'elmo' and 'cnn' over characters are read"
        )
    return {**encoder, **embedder}


def _read_pickle(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise MissingFileError(f"no such file: {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(f"{path} is not a readable file of tensors: {reason}") from None
    if not isinstance(content, dict) or not all(
        isinstance(tensor, Tensor) for tensor in content.values()
    ):
        raise WeightsError(f"{path} holds something other than named tensors")
    return {name: tensor.float() for name, tensor in content.items()}


def _read_dictionary(path: Path) -> dict[str, int]:
    """Read lines of a word or character, a tab and its row."""
    if not path.is_file():
        raise MissingFileError(f"no such file: {path}")
    rows: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        parts = line.strip().split("\t")
        if parts == [""]:
            continue
        entry, row = (_BLANK, parts[0]) if len(parts) == 1 else (parts[0], parts[-1])
        if not row.isdigit():
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
    filters = [tuple(pair) for pair in sizes["filters"]]
    return ElmoConfig(
        dim=sizes["dim"],
        projection_dim=sizes["projection_dim"],
        n_layers=sizes["n_layers"],
        cell_clip=sizes.get("cell_clip"),
        proj_clip=sizes.get("proj_clip"),
        char_dim=sizes["char_dim"] + extra,
        filters=tuple(filters + ([(1, extra)] if extra else [])),
        activation=sizes["activation"],
        n_highway=sizes["n_highway"],
        max_characters=sizes["max_characters_per_token"],
        n_characters=alphabet.n_characters,
    )


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
    table = _table(embedder["char_emb_layer.embedding.weight"], config, characters, alphabet)
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
    _require_rows(_CHARACTERS, characters, theirs)
    table = torch.zeros(config.n_characters, config.char_dim)
    rows = [characters[name] for name in (*_SPECIAL_ROWS, *alphabet.characters)]
    assert len(_SPECIAL_ROWS) == FIRST_CHARACTER - 1
    table[1 : 1 + len(rows), : theirs.shape[1]] = theirs[rows]
    return table


def _require_rows(name: str, dictionary: Mapping[str, int], vectors: Tensor) -> None:
    highest = max(dictionary.values())
    if highest >= len(vectors):
        raise WeightsError(
            f"{name} has a row {highest}, but there are only {len(vectors)} vectors; does it "
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
    vectors = embedder["word_emb_layer.embedding.weight"]
    _require_rows(_WORDS, words, vectors)
    weight = embedder["projection.weight"]
    width = vectors.shape[1]
    of_words, of_characters = weight[:, :width], weight[:, width:]
    unknown = vectors[words["<oov>"]]
    response = 1.0 if config.activation == "relu" else math.tanh(1.0)
    terms = [
        of_words @ (vectors[words.get(name, words["<oov>"])] - unknown) / response
        for name in _BOUNDARIES
    ]
    bias = embedder["projection.bias"] + of_words @ unknown
    return torch.cat([of_characters, torch.stack(terms, dim=1)], dim=1), bias


def _lookup(
    embedder: Mapping[str, Tensor], config: ElmoConfig, words: Mapping[str, int]
) -> WordLookup:
    vectors = embedder["word_emb_layer.embedding.weight"]
    known = [word for word in words if word not in ("<oov>", *_BOUNDARIES)]
    differences = vectors[[words[word] for word in known]] - vectors[words["<oov>"]]
    projection = embedder["projection.weight"][:, : vectors.shape[1]].contiguous()
    return WordLookup(known, differences, projection, config.max_characters - 2)

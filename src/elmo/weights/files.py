"""What weight formats share: lists beside the weights, safetensors files, checks of tensors.

Every message names the file and the tensor.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from elmo.config import MOST_WORDS, N_BYTE_CHARACTERS, ElmoConfig
from elmo.errors import MissingFileError, WeightsError
from elmo.model.bilm import Checkpoint, parameter_shapes
from elmo.runtime.files import output_errors, replacing
from elmo.runtime.input_files import damage_errors, require_file
from elmo.settings import OutputDtype
from elmo.text.alphabet import Alphabet
from elmo.text.vocabulary import Vocabulary
from elmo.weights.formats import CHARACTERS_FILE, VOCABULARY_FILE, ModelFiles

LIST_PATTERNS = ("vocab*.txt*", CHARACTERS_FILE)

Shape = tuple[int, ...]

_SAFETENSORS = "safetensors file"
_LONGEST_HEADER = 2**24
"""Bytes of names and shapes in a safetensors file; the largest model has a few thousand."""
_CLUSTER = re.compile(r"tail\.\d+\.1\.weight")
_NUMBERS = ("F16", "BF16", "F32", "F64")
"""Types of stored weights, as safetensors names them."""


# --- reading --------------------------------------------------------------------------------------


def read_alphabet(config: ElmoConfig, files: ModelFiles) -> Alphabet | None:
    """Read the characters of a model that has an alphabet, and check that they are its own."""
    if not config.has_alphabet:
        return None
    if files.characters is None:
        raise MissingFileError(
            f"{files.options}: n_characters is {config.n_characters}, neither of the "
            f"{N_BYTE_CHARACTERS - 1} and {N_BYTE_CHARACTERS} of a model that encodes words as "
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


def stored_shapes(path: Path) -> dict[str, Shape]:
    """Return the names and shapes of the tensors in a safetensors file; no values are read."""
    require_file(path, _SAFETENSORS)
    with damage_errors(path, _SAFETENSORS, WeightsError):
        _require_header(path)
        shapes: dict[str, Shape] = {}
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                stored = file.get_slice(name)
                if stored.get_dtype() not in _NUMBERS:
                    raise WeightsError(
                        f"{path}: tensor '{name}' has the type {stored.get_dtype()}, expected one "
                        f"of {', '.join(_NUMBERS)}"
                    )
                shapes[name] = tuple(stored.get_shape())
        return shapes


def _require_header(path: Path) -> None:
    """Raise an error if the names and shapes alone would take much memory."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > _LONGEST_HEADER:
        raise WeightsError(
            f"{path} is not a readable {_SAFETENSORS}: its header has {length:,} bytes, expected "
            f"at most {_LONGEST_HEADER:,}"
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a file, as it is stored; see `stored_shapes` for what to check before.

    Its tensors are no larger than the file.
    """
    with damage_errors(path, _SAFETENSORS, WeightsError), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a file, in float32, read when one of them is first used.

    Names and shapes are known before. Copies and pickles hold the tensors themselves, since the
    file may be gone when they are used.

    Args:
        path: A safetensors file.
        what: What its tensors belong to, for messages.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        self._tensors: dict[str, Tensor] | None = None
        self.shapes = stored_shapes(path)

    @property
    def is_read(self) -> bool:
        """Whether the tensors are in memory."""
        return self._tensors is not None

    def __getitem__(self, name: str) -> Tensor:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # the default would read the file

    def __reduce__(self) -> tuple[type[dict[str, Tensor]], tuple[dict[str, Tensor]]]:
        return dict, (self.read(),)

    def read(self) -> dict[str, Tensor]:
        """Read the tensors, unless they are in memory, and check their values."""
        if self._tensors is None:
            tensors = {name: tensor.float() for name, tensor in read_tensors(self.path).items()}
            for name, tensor in tensors.items():
                require_finite(self.path, f"{self._what} {name}", tensor)
            self._tensors = tensors
        return self._tensors


def completed(checkpoint: Checkpoint, files: ModelFiles, lazily: bool) -> Checkpoint:
    """Check what a format has read, whatever the format, and add the vocabulary.

    Args:
        checkpoint: What was read.
        files: Where it was read.
        lazily: Leave an output layer that has a file of its own there; only its shapes are checked.
    """
    config, softmax, path = checkpoint.config, checkpoint.softmax, files.weights
    for name, tensor in checkpoint.tensors.items():
        require_finite(path, name, tensor)
    if isinstance(softmax, StoredTensors):
        path, shapes = softmax.path, softmax.shapes
    else:
        shapes = {name: tuple(tensor.shape) for name, tensor in softmax.items()}
        for name, tensor in softmax.items():
            require_finite(path, f"softmax {name}", tensor)
    n_words = softmax_words(path, shapes, config) if softmax else None
    vocabulary = None
    # A model that reads characters has no use for a vocabulary but in its softmax.
    if files.vocabulary and (softmax or not config.reads_characters):
        vocabulary = Vocabulary.read(files.vocabulary)
    if not config.reads_characters:
        _require_words(config, vocabulary, files)
    if vocabulary is not None and n_words not in (None, len(vocabulary)):
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise WeightsError(
            f"{path}: the softmax ({listed}) is for {n_words} words, but the vocabulary beside it "
            f"lists {len(vocabulary)}, which ask for {(len(vocabulary), config.projection_dim)}; "
            "put the vocabulary there that the model was trained with, or move it away to use the "
            "vectors alone"
        )
    if isinstance(softmax, StoredTensors) and not lazily:
        softmax.read()  # now that its shapes are known to be right
    return dataclasses.replace(checkpoint, vocabulary=vocabulary)


def _require_words(config: ElmoConfig, vocabulary: Vocabulary | None, files: ModelFiles) -> None:
    """Raise an error unless a model that reads words has the vocabulary for it."""
    if vocabulary is None:
        raise MissingFileError(
            f"{files.weights} reads words, so it needs its {VOCABULARY_FILE} beside it"
        )
    if len(vocabulary) != config.n_words:
        raise WeightsError(
            f"{files.vocabulary} lists {len(vocabulary)} words, "
            f"but {files.weights} has vectors for {config.n_words}"
        )
    vocabulary.require_specials(str(files.vocabulary))


# --- checks ---------------------------------------------------------------------------------------


def require_shapes(path: Path, expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Raise an error unless tensors have the names and shapes that the configuration asks for."""
    require_same_names(path, set(expected), set(found))
    for name, shape in expected.items():
        require_shape(path, name, shape, found[name])


def require_model(path: Path, config: ElmoConfig, found: Mapping[str, Tensor]) -> None:
    """Raise an error unless tensors are all the weights of a biLM, in our names and shapes."""
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    require_shapes(path, parameter_shapes(config), shapes)


def require_same_names(
    path: Path, expected: set[str], found: set[str], kept: set[str] | None = None
) -> None:
    """Raise an error unless a file has the tensors that a configuration asks for, and no others.

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
    """Raise an error unless a tensor has the shape that the configuration asks for."""
    if expected != found:
        raise WeightsError(
            f"{path}: tensor '{name}' has shape {found}, but the configuration asks for {expected}"
        )


def require_finite(path: Path, name: str, tensor: Tensor) -> None:
    """Raise an error if a tensor has a NaN or an infinity."""
    if torch.isfinite(tensor.sum()):  # a sum is quick, and no NaN or infinity escapes it
        return
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise WeightsError(
            f"{path}: tensor '{name}' has {bad} values of {tensor.numel()} that are NaN or "
            "infinite; the file is damaged or the training diverged"
        )


def softmax_words(path: Path, shapes: Mapping[str, Shape], config: ElmoConfig) -> int:
    """Check the shapes of a language model's output layer; return for how many words it is.

    Args:
        path: The file it is in.
        shapes: Of the tensors of `Checkpoint.softmax`.
        config: Sizes.
    """
    words = _adaptive_words(path, shapes) if is_adaptive(shapes) else None
    words = _linear_words(path, shapes, config) if words is None else words
    if not 0 < words <= MOST_WORDS:
        raise WeightsError(
            f"{path}: the softmax is for {words:,} words, expected 1 to {MOST_WORDS:,}; the file "
            "is damaged"
        )
    return words


def _linear_words(path: Path, shapes: Mapping[str, Shape], config: ElmoConfig) -> int:
    """Check the shapes of a plain output layer; return for how many words it is."""
    expected = {"weight", "bias"}
    if not config.reads_characters:
        expected &= set(shapes) | {"bias"}  # without a weight of its own: the table of words
    if set(shapes) != expected:
        raise WeightsError(
            f"{path}: the softmax has {some_names(sorted(shapes))}, expected weight and bias"
        )
    words = math.prod(shapes["bias"])
    require_shape(path, "softmax bias", (words,), shapes["bias"])
    if "weight" in shapes:
        require_shape(path, "softmax weight", (words, config.projection_dim), shapes["weight"])
    return words


def _adaptive_words(path: Path, shapes: Mapping[str, Shape]) -> int:
    """Return for how many words an adaptive softmax is.

    Its head has a row for each frequent word and each cluster of others.
    """
    for name, shape in shapes.items():
        if len(shape) != (1 if name.endswith("bias") else 2):
            raise WeightsError(
                f"{path}: tensor 'softmax {name}' has shape {shape}, expected "
                f"{'one axis' if name.endswith('bias') else 'two axes'}; the file is damaged"
            )
    clusters = [shape for name, shape in shapes.items() if _CLUSTER.fullmatch(name)]
    return shapes["head.weight"][0] - len(clusters) + sum(shape[0] for shape in clusters)


def some_names(names: list[str]) -> str:
    """List the first few names, for a message."""
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def is_adaptive(softmax: Mapping[str, object]) -> bool:
    """Return whether the tensors of an output layer are those of an adaptive softmax."""
    return "head.weight" in softmax


# --- writing --------------------------------------------------------------------------------------


def make_folder(folder: Path) -> None:
    """Make the folder of a model, unless it is there."""
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_lists(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the words and the characters that ids stand for, where there are any."""
    lists: Mapping[str, Any] = {
        VOCABULARY_FILE: checkpoint.vocabulary,
        CHARACTERS_FILE: checkpoint.alphabet,
    }
    for name, entries in lists.items():
        if entries is not None:
            with replacing(folder / name) as path:
                entries.write(path)


def rounded_checkpoint(checkpoint: Checkpoint, dtype: OutputDtype) -> Checkpoint:
    """Return a model, float32 as ever, with its weights rounded to what a type can represent."""
    if dtype == "float32":
        return checkpoint
    lookup = checkpoint.lookup
    return dataclasses.replace(
        checkpoint,
        lookup=None if lookup is None else lookup.rounded_to(_rounded(lookup.tensors())),
        tensors=_rounded(checkpoint.tensors),
        softmax=_rounded(checkpoint.softmax),
    )


def _rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 tensors rounded to what float16 can represent, 11 significant bits."""
    found = {name: tensor.half().float() for name, tensor in tensors.items()}
    lost = [
        name
        for name, tensor in found.items()
        if not torch.isfinite(tensor).all() and torch.isfinite(tensors[name]).all()
    ]
    if lost:
        raise WeightsError(
            f"{some_names(lost)} have values beyond 65,504, the largest number of float16; save "
            "the model in float32"
        )
    return found

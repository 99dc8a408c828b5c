"""The one description of a biLM: its sizes, as `config.json`, `options.json` and Python object.

`ElmoConfig` is frozen, checks itself, and translates to and from the `options.json` that bilm-tf
wrote and that AllenNLP, simple_elmo and others read.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from elmo.errors import ConfigError
from elmo.settings import Check, Settings, TokenizerName, require

Activation = Literal["relu", "tanh"]
Preset = Literal["tiny", "novel", "tutorial", "small", "medium", "original"]

STANDARD_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
"""(width, number) of the character filters of every model that AllenNLP published."""

N_BYTE_CHARACTERS = 262
"""Rows of the character table of a model that encodes words as UTF-8 bytes, as published."""

# --- limits of a model --------------------------------------------------------------------------
# A configuration is read from files that may be damaged or hostile, and memory and time follow from
# it. Each limit is far above every model that was published, and low enough that a small file
# cannot claim much.

MOST_LAYERS = 64
"""Recurrent layers, and highway layers. Published: 2 of each. Each is a set of tensors with names,
in two directions, even before one is read."""
MOST_CELLS = 2**15
"""Cells of a layer, and with them the width of words and outputs. Published: 4,096. A matrix of
that size squared has 4 GB."""
MOST_FILTERS = 2**15
"""Filters of all widths together. Published: 2,048. Each word in memory has a value for each."""
MOST_FILTER_GROUPS = 64
"""Widths of filters. Published: 7. Each is a convolution of its own."""
MOST_CHARACTERS_A_WORD = 512
"""Published: 50. Every word takes as many vectors, however short it is, and no tensor shows it."""
WIDEST_CHARACTER = 2**11
"""Values of a character's vector. Published: 16, 50 and 128."""
MOST_ALPHABET = 0x110000 + 16
"""Rows of the character table: every code point of Unicode, and the special rows."""
MOST_WORDS = 2**22
"""Words of a vocabulary or an output layer. Published: 793,471; word vectors of up to 3 million."""

# ------------------------------------------------------------------------------------------------

_MODEL_TYPE = "elmo"
_LEAST_CHARACTERS = 8  # the masked row, six special characters, one character: see alphabet.py


def _between(least: int, most: int) -> Check:
    return Check(f"at least {least:,}, at most {most:,}", lambda value: least <= value <= most)


_BOUND = Check("a positive number or null", lambda bound: 0 <= bound < math.inf)
_FINITE = Check("finite", lambda values: all(map(math.isfinite, values)))
_PAIRS = Check(
    "pairs of (width, number), both at least 1",
    lambda pairs: all(len(pair) == 2 and min(pair) >= 1 for pair in pairs),
)


@dataclass(frozen=True, kw_only=True)
class ElmoConfig(Settings):
    """The architecture of a biLM (Peters et al. 2018, section 3).

    The defaults are those of the original 93.6 M parameter model.
    """

    dim: Annotated[int, _between(1, MOST_CELLS)] = 4096
    """Cells of each recurrent layer, per direction."""
    projection_dim: Annotated[int, _between(1, MOST_CELLS)] = 512
    """Width of a direction's output and of a word vector. Equal to `dim`: no projection."""
    n_layers: Annotated[int, _between(1, MOST_LAYERS)] = 2
    """Recurrent layers per direction."""
    cell: str = "lstm"
    """Kind of recurrent cell, a name in `elmo.model.cells.CELLS`; checked when it is looked up."""
    cell_clip: Annotated[float | None, _BOUND] = 3.0
    """Bound on the absolute value of memory cells; None for no bound."""
    proj_clip: Annotated[float | None, _BOUND] = 3.0
    """Bound on the absolute value of projected states; None for no bound."""
    skip_connections: bool = True
    """Whether layers above the first add their input to their output."""
    char_dim: Annotated[int, _between(1, WIDEST_CHARACTER)] = 16
    """Width of a character vector."""
    filters: Annotated[tuple[tuple[int, int], ...], _PAIRS] = STANDARD_FILTERS
    """(width, number) of each group of character filters."""
    activation: Activation = "relu"
    """What follows the maximum over character positions."""
    n_highway: Annotated[int, _between(0, MOST_LAYERS)] = 2
    """Highway layers between the filters and the projection."""
    max_characters: Annotated[int, _between(3, MOST_CHARACTERS_A_WORD)] = 50
    """Bytes of a word that are read (with an alphabet: characters), its two marks included."""
    n_words: Annotated[int, _between(0, MOST_WORDS)] = 0
    """Words of the vocabulary of a model that reads words; 0 for one that reads characters."""
    n_characters: Annotated[int, _between(_LEAST_CHARACTERS, MOST_ALPHABET)] = N_BYTE_CHARACTERS
    """Rows of the character table, the masked row included. 262: words are UTF-8 bytes; any other
    number: they are code points of an alphabet (`Alphabet.n_characters`)."""
    mix_weights: Annotated[tuple[float, ...], _FINITE] = ()
    """Layer weights before the softmax for `layers="mix"`; empty for equal weights."""
    mix_gamma: Annotated[float, Check("finite", math.isfinite)] = 1.0
    """Scale of the mix."""
    tokenizer: TokenizerName | None = None
    """What split the text that the model was trained on; None where it is not known. It is not
    part of the model's fingerprint."""

    _are_flags = False

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        self._check()
        # Equal models have equal configurations, and equal files.
        values: dict[str, Any] = {
            "mix_weights": tuple(map(float, self.mix_weights)),
            "mix_gamma": float(self.mix_gamma),
        }
        for name in ("cell_clip", "proj_clip"):
            # AllenNLP takes a clip of 0 as "no clip" (`if self.memory_cell_clip_value:`).
            values[name] = float(getattr(self, name)) if getattr(self, name) else None
        if not self.reads_characters:  # fields without a meaning there
            known = self.__dataclass_fields__
            values |= {name: known[name].default for name in _CHARACTER_FIELDS} | {"filters": ()}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        """Check what depends on several fields."""
        widest = max((width for width, _ in self.filters), default=0)
        for name, holds, expected in (
            (
                "filters",
                0 < widest <= self.max_characters or not self.reads_characters,
                f"at least one (width, number), no wider than max_characters={self.max_characters}",
            ),
            (
                "filters",
                len(self.filters) <= MOST_FILTER_GROUPS and self.n_filters <= MOST_FILTERS,
                f"at most {MOST_FILTER_GROUPS} widths and {MOST_FILTERS:,} filters in all",
            ),
            (
                "n_characters",
                self.n_characters != N_BYTE_CHARACTERS - 1 or not self.reads_characters,
                f"{N_BYTE_CHARACTERS} for UTF-8 bytes (261 and the masked row), or the "
                "n_characters of an alphabet, which is never 261",
            ),
            (
                "projection_dim",
                self.projection_dim <= self.dim,
                f"at most dim={self.dim}: layers of different widths cannot be mixed",
            ),
            (
                "mix_weights",
                len(self.mix_weights) in (0, self.n_layers + 1),
                f"one weight for each of the {self.n_layers + 1} layers",
            ),
        ):
            require(name, getattr(self, name), expected, holds)

    @property
    def reads_characters(self) -> bool:
        """Whether words are read as characters (else as entries of a vocabulary)."""
        return self.n_words == 0

    @property
    def has_alphabet(self) -> bool:
        """Whether words are encoded as code points of an alphabet (else as UTF-8 bytes)."""
        return self.reads_characters and self.n_characters != N_BYTE_CHARACTERS

    @property
    def n_filters(self) -> int:
        """Character filters of all widths together."""
        return sum(number for _, number in self.filters)

    @property
    def has_projection(self) -> bool:
        """Whether cells are projected.

        bilm-tf projects only when `projection_dim < dim`; without a projection TensorFlow's
        LSTMCell does not apply `proj_clip` either.
        """
        return self.projection_dim < self.dim

    @property
    def has_word_projection(self) -> bool:
        """Whether the character encoder ends in a projection.

        bilm-tf leaves it out when the filters are as many as `projection_dim`.
        """
        return self.reads_characters and self.n_filters != self.projection_dim

    @property
    def output_dim(self) -> int:
        """Width of a layer: forward and backward side by side."""
        return 2 * self.projection_dim

    @classmethod
    def preset(cls, name: Preset, **changes: Any) -> ElmoConfig:
        """Return the configuration of a known size, with changes by keyword.

        Args:
            name: `tiny` (for tests); a size that AllenNLP published: `small` (13.6 M parameters),
                `medium` (28.0 M) or `original` (93.6 M); `tutorial`, the size of a well-known
                Chinese tutorial; or `novel`, for one book and a CPU. The last two are made for
                models with an alphabet: give its `n_characters`.
            changes: Fields that differ.

        Example:
            >>> from elmo import Alphabet
            >>> alphabet = Alphabet.build(["石头", "记"])
            >>> ElmoConfig.preset("novel", n_characters=alphabet.n_characters).has_alphabet
            True
        """
        sizes: dict[str, dict[str, Any]] = {
            "tiny": {
                "dim": 64,
                "projection_dim": 16,
                "char_dim": 4,
                "n_highway": 1,
                "filters": ((1, 4), (2, 8), (3, 16), (4, 32), (5, 64)),
            },
            "novel": {
                "dim": 256,
                "projection_dim": 128,
                "char_dim": 32,
                "n_highway": 1,
                "filters": ((1, 64), (2, 64), (3, 64)),
                "max_characters": 10,
            },
            "tutorial": {"dim": 512, "projection_dim": 256, "char_dim": 128, "max_characters": 10},
            "small": {"dim": 1024, "projection_dim": 128, "n_highway": 1},
            "medium": {"dim": 2048, "projection_dim": 256, "n_highway": 1},
            "original": {},
        }
        if name not in sizes:
            raise ConfigError(f"no preset {name!r}: expected one of {', '.join(sizes)}")
        return cls(**(sizes[name] | changes))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `config.json`; a tokenizer that is not known is left out."""
        values = {"model_type": _MODEL_TYPE, **dataclasses.asdict(self)}
        if self.tokenizer is None:
            del values["tokenizer"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "config.json") -> Self:
        """Read the content of a `config.json`; an unknown key is an error."""
        given = dict(values)
        model_type = given.pop("model_type", _MODEL_TYPE)
        if model_type != _MODEL_TYPE:
            raise ConfigError(f"{source}: model_type is {model_type!r}, expected {_MODEL_TYPE!r}")
        with _named(source):
            return super().from_dict(given, source)

    def to_json(self) -> str:
        """Return the text of `config.json`."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_options(cls, options: Mapping[str, Any], source: str = "the options") -> ElmoConfig:
        """Read the content of a bilm-tf `options.json`.

        Keys that only matter to bilm-tf's training are ignored. `n_characters` may be 261 (as
        written while training) or 262 (as bilm-tf asks for inference): both mean the same table
        of bytes. Any other number is that of an alphabet, the masked row included.
        Missing keys get bilm-tf's own defaults: one layer, no clips, no skip connections.
        """
        with _named(source):
            return cls(**_option_values(options))

    def to_options(self) -> dict[str, Any]:
        """Return the content of an `options.json` that bilm-tf, AllenNLP and simple_elmo read."""
        lstm: dict[str, Any] = {
            "dim": self.dim,
            "projection_dim": self.projection_dim,
            "n_layers": self.n_layers,
            "cell_clip": self.cell_clip,
            "proj_clip": self.proj_clip,
            "use_skip_connections": self.skip_connections,
        }
        if self.cell != "lstm":  # no published reader knows another cell
            lstm["cell"] = self.cell
        if not self.reads_characters:
            return {"lstm": lstm, "n_tokens_vocab": self.n_words}
        char_cnn = {
            "activation": self.activation,
            "embedding": {"dim": self.char_dim},
            "filters": [list(pair) for pair in self.filters],
            "n_highway": self.n_highway,
            # For bytes 262, not 261: bilm-tf and simple_elmo refuse 261 when embedding.
            "n_characters": self.n_characters,
            "max_characters_per_token": self.max_characters,
        }
        return {"lstm": lstm, "char_cnn": char_cnn}


_CHARACTER_FIELDS = ("char_dim", "activation", "n_highway", "max_characters", "n_characters")


@contextmanager
def _named(source: str) -> Iterator[None]:
    """Name the file in errors about its values."""
    try:
        yield
    except ConfigError as error:
        message = str(error)
        known = message if message.startswith(source) else f"{source}: {message}"
        raise ConfigError(known) from None


def _option_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration that an `options.json` describes."""
    lstm = _section(options, "lstm")
    values: dict[str, Any] = {
        "dim": _option(lstm, "lstm.dim"),
        "projection_dim": _option(lstm, "lstm.projection_dim"),
        "n_layers": lstm.get("n_layers", 1),
        "cell": lstm.get("cell", "lstm"),
        "cell_clip": lstm.get("cell_clip"),
        "proj_clip": lstm.get("proj_clip"),
        "skip_connections": bool(lstm.get("use_skip_connections", False)),
    }
    if options.get("char_cnn") is None:
        values |= {"n_words": _option(options, "n_tokens_vocab"), "filters": ()}
    else:
        values |= _character_values(_section(options, "char_cnn"))
    return values


def _character_values(char_cnn: Mapping[str, Any]) -> dict[str, Any]:
    n_characters = char_cnn.get("n_characters", N_BYTE_CHARACTERS)
    if n_characters == N_BYTE_CHARACTERS - 1:
        n_characters = N_BYTE_CHARACTERS
    return {
        "char_dim": _option(_section(char_cnn, "embedding"), "char_cnn.embedding.dim"),
        "filters": _option(char_cnn, "char_cnn.filters"),
        "activation": _option(char_cnn, "char_cnn.activation"),
        "n_highway": char_cnn.get("n_highway") or 0,
        "max_characters": char_cnn.get("max_characters_per_token", 50),
        "n_characters": n_characters,
    }


def _section(options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = options.get(key)
    if not isinstance(section, Mapping):
        raise ConfigError(f"section '{key}' is {section!r}, expected an object")
    return section


def _option(section: Mapping[str, Any], path: str) -> Any:
    key = path.rsplit(".", 1)[-1]
    if key not in section:
        raise ConfigError(f"'{path}' is missing; it is needed to load the weights")
    return section[key]

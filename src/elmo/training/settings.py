"""What users choose when they train, as one frozen record: flags, TOML file and `run.json`.

Nothing here imports PyTorch, so that help texts come at once.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from elmo.config import Preset
from elmo.errors import ConfigError, MissingFileError
from elmo.settings import SoftmaxKind

Reads = Literal["characters", "codepoints", "words"]
"""What a model reads of a word: its UTF-8 bytes, its code points, or its place in a list."""
Optimizer = Literal["adamw", "adagrad"]
Shuffle = Literal["sentences", "documents", "none"]
TrainPrecision = Literal["fp32", "bf16"]
Kernels = Literal["auto", "plain"]

LENGTHS = ("steps", "tokens", "epochs", "minutes")
"""The four ways to say how long a run is."""
_CHANGED_ON_RESUME = (*LENGTHS, "device", "resume", "quiet", "kernels", "no_graphs")
_PATHS = ("data", "out", "resume", "word_vectors")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a biLM is trained."""

    data: Path | None = None
    """Folder that elmo prepare wrote."""
    out: Path | None = None
    """Folder for the run: snapshots, metrics and the trained model."""
    resume: Path | None = None
    """Go on with the run in this folder; needs no other flag. A new length is allowed."""

    preset: Preset = "small"
    """Size of the model. novel and tutorial are meant for one book on a CPU."""
    reads: Reads | None = None
    """characters: UTF-8 bytes, as published; codepoints: with a dictionary made from the
    vocabulary; words: a table of vectors. By default what the preset says."""
    cell: str | None = None
    """Kind of recurrent cell, if not the preset's: lstm or gru."""
    layers: int | None = None
    """Recurrent layers, if not the preset's."""
    dim: int | None = None
    """Cells of a layer in one direction, if not the preset's."""
    projection: int | None = None
    """Width of a direction's output, if not the preset's."""

    steps: int | None = None
    """Length of the run in optimizer steps."""
    tokens: int | None = None
    """Length of the run in words (each sentence counts one more for its boundary)."""
    epochs: float | None = None
    """Length of the run in passes over the corpus; 10 if no length is given."""
    minutes: float | None = None
    """Length of the run in minutes."""

    batch: int | None = None
    """Streams of text read side by side, on all processes together; by default by preset."""
    unroll: int = 20
    """Words of each stream in a step: gradients reach back so far, state further."""
    accumulate: int = 1
    """Batches whose gradients are summed in a step."""
    shuffle: Shuffle = "documents"
    """What is put into a new order in each epoch; sentences of a document stay together."""
    restarts: float = 0.1
    """Share of sentences that are read from a zero state, as --state zero does when embedding."""

    softmax: SoftmaxKind | None = None
    """full; sampled: log-uniform candidates; adaptive. By default full up to 5,000 words, then
    sampled."""
    samples: int | None = None
    """Candidates of the sampled softmax; by default an eighth of the words, 8192 at most."""
    tie: bool = False
    """Share word vectors and softmax weights (only with --reads words)."""
    word_vectors: Path | None = None
    """GloVe or word2vec file to start from (only with --reads words)."""
    freeze_words: bool = False
    """Keep the word vectors as they are (only with --reads words)."""

    optimizer: Optimizer = "adamw"
    """adamw: with warm-up and cosine decay; adagrad: as published, with a constant rate."""
    rate: float | None = None
    """Learning rate; by default 0.2 for adagrad, and for adamw 0.001, more for large batches."""
    warmup: int = 500
    """Steps of rising rate (adamw), at most a tenth of the run."""
    weight_decay: float = 0.0
    """Weight decay (adamw)."""
    clip: float | None = None
    """Bound on the global norm of the gradient; by default 1, for adagrad 10 as published."""
    dropout: float = 0.1
    """Dropout on every layer's input and on the top output."""
    precision: TrainPrecision = "fp32"
    """bf16: products in bfloat16, weights and state in float32; for GPUs."""
    compile: bool = False
    """Compile the character encoder with torch.compile; pays on GPUs."""

    kernels: Kernels = "auto"
    """auto: fused kernels on a GPU that can run them; plain: PyTorch's own operators instead,
    slower, to compare with."""
    no_graphs: bool = False
    """Let the CPU start every kernel of a step on a GPU, instead of recording a step as a CUDA
    graph and playing it again; slower, to look for faults."""

    start_from: str | None = None
    """Model to go on from instead of random weights: folder, weights file or Hub repository."""
    head_share: float | None = None
    """Share of the run, at its begin, in which only the output layer learns; by default 0.3 where
    --start-from has no output layer, else 0."""
    layer_decay: float = 1.0
    """Factor of the learning rate for each layer further from the output."""

    validate_every: int = 1000
    """Steps between measurements of held-out perplexity."""
    validate_tokens: int | None = None
    """Held-out words that are read each time, at most; by default 200,000, on a CPU 20,000."""
    patience: int = 0
    """Stop after so many measurements without a better one; 0: never."""
    checkpoint_every: int = 1000
    """Steps between snapshots from which a run can go on."""
    keep: int = 2
    """Snapshots that are kept."""
    log_every: int = 100
    """Steps between rows of metrics.jsonl."""
    hdf5: bool = False
    """Write the best model in the published layout, too (options.json + weights.hdf5)."""
    tensorboard: bool = False
    """Write TensorBoard events, too; needs the extra tensorboard."""
    seed: int = 0
    """Decides weights, order, dropout and candidates."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ...; under torchrun each process takes its own."""
    quiet: bool = False
    """No progress line."""

    def __post_init__(self) -> None:
        for name in _PATHS:
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        self._check()

    def _check(self) -> None:
        for field in fields(self):
            _check_choice(field.name, getattr(self, field.name))
        for name in (*LENGTHS, "batch", "rate", "clip", "layers", "samples", "validate_tokens"):
            value = getattr(self, name)
            _require(name, value, "more than 0", value is None or value > 0)
        for name in ("unroll", "accumulate", "validate_every"):
            _require(name, getattr(self, name), "at least 1", getattr(self, name) >= 1)
        for name in ("checkpoint_every", "keep", "log_every"):
            _require(name, getattr(self, name), "at least 1", getattr(self, name) >= 1)
        for name in ("warmup", "weight_decay", "patience", "seed"):
            _require(name, getattr(self, name), "at least 0", getattr(self, name) >= 0)
        _require("dropout", self.dropout, "from 0 up to, not including, 1", 0 <= self.dropout < 1)
        _require("restarts", self.restarts, "a share from 0 to 1", 0 <= self.restarts <= 1)
        share = self.head_share
        _require("head_share", share, "a share from 0 to 1", share is None or 0 <= share <= 1)
        _require("layer_decay", self.layer_decay, "above 0, up to 1", 0 < self.layer_decay <= 1)
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) > 1:
            flags = " and ".join(f"--{name}" for name in given)
            raise ConfigError(f"{flags} are given: a run has one length, choose one of them")

    @property
    def length(self) -> tuple[str, float]:
        """How long the run is: one of `LENGTHS`, and how many of it."""
        for name in LENGTHS:
            if getattr(self, name) is not None:
                return name, getattr(self, name)
        return "epochs", 10

    def replace(self, **changes: Any) -> TrainSettings:
        """Give a copy with other values for some fields."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Give the text of `run.json`."""
        values = {
            key: str(value) if isinstance(value, Path) else value
            for key, value in dataclasses.asdict(self).items()
        }
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> TrainSettings:
        """Read settings; keys may have dashes as flags do, an unknown one is an error."""
        known = {field.name for field in fields(cls)}
        given = {key.replace("-", "_"): value for key, value in values.items()}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ConfigError(
                f"{source}: unknown settings {', '.join(unknown)}; known are "
                f"{', '.join(sorted(known))}"
            )
        return cls(**given)

    @classmethod
    def from_toml(cls, path: Path) -> TrainSettings:
        """Read a TOML file whose keys are the names of the flags."""
        if not path.is_file():
            raise MissingFileError(f"no such file: {path}")
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not a TOML file: {error}") from None
        return cls.from_dict(values, str(path))

    def over(self, below: TrainSettings) -> TrainSettings:
        """Lay these settings over others: what differs from the default here wins."""
        changes = self.changes()
        if any(name in LENGTHS for name in changes):
            changes = {name: None for name in LENGTHS} | changes
        return below.replace(**changes)

    def changes(self) -> dict[str, Any]:
        """Give the settings that are not the default."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }

    def resumed(self, saved: TrainSettings) -> TrainSettings:
        """Give the settings of a run that goes on; only its length may differ."""
        for name, value in self.changes().items():
            if name not in _CHANGED_ON_RESUME and value != getattr(saved, name):
                raise ConfigError(
                    f"--{name.replace('_', '-')} is {value}, but the run in {self.resume} was "
                    f"started with {getattr(saved, name)}; a resumed run keeps its settings, only "
                    f"{', '.join('--' + n for n in LENGTHS)} may change"
                )
        return self.over(saved)


def _check_choice(name: str, value: Any) -> None:
    """Refuse a value of another type than the field's: a file may hold anything."""
    hint = _hints()[name]
    allowed = get_args(hint) if get_origin(hint) is not Literal else (hint,)
    kinds = allowed or (hint,)
    for kind in kinds:
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return
        elif kind is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return
        elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return
    choices = [choice for kind in kinds for choice in get_args(kind)]
    names = [kind.__name__ for kind in kinds if hasattr(kind, "__name__") and kind is not Path]
    expected = f"one of {', '.join(choices)}" if choices else " or ".join(names)
    raise ConfigError(f"{name} is {value!r}, expected {expected}")


@cache
def _hints() -> dict[str, Any]:
    """Give the types of the fields; finding them takes a while."""
    return get_type_hints(TrainSettings)


def _require(name: str, value: object, expected: str, holds: bool) -> None:
    if not holds:
        raise ConfigError(f"{name} is {value!r}, expected {expected}")

"""The user's choices for training a task, and the defaults of tasks.

`TaskSettings` is the flags, the TOML file and `run.json`; a `Recipe` is what a task chooses itself.
Nothing here imports PyTorch, so help texts are printed at once.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from elmo.errors import ConfigError, MissingFileError
from elmo.settings import (
    DEFAULT_VECTORS,
    PART,
    POSITIVE,
    POSITIVE_SHARE,
    Group,
    Settings,
    TokenizerName,
    at_least,
    flag_of,
    require,
)
from elmo.tasks.heads import TASKS

if TYPE_CHECKING:
    TaskName = str
else:  # the table of tasks names them once
    TaskName = Literal[tuple(TASKS)]
SplitName = Literal["snli", "squad", "litbank_coref", "agnews", "trec"]
"""Data sets that `elmo task split` cuts into parts."""
Features = Literal["glove", "elmo", "glove+elmo", "random", "random+elmo"]
"""What the vector of a word consists of."""
ElmoPlace = Literal["input", "output", "both"]
MixChoice = Literal["learned", "top", "average"] | int
TaskPrecision = Literal["fp32", "bf16"]

CONFIG_FILE = "config.json"
"""What a trained head is: its task, its settings, its biLM."""
HEAD_KIND = "elmo-task"
"""The `kind` of that file."""

_Several = Parameter(consume_multiple=True, show_default=False)
_READING, _FEATURES = Group("Reading files"), Group("Features of words")
_HEAD, _OPTIMIZATION, _RUN = Group("Head"), Group("Optimization"), Group("Run")
_CHANGED_ON_RESUME = ("device", "resume", "overwrite", "quiet", "cache_dir", "out", "data")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Default sizes and training of a task; see the fields of the same names in `TaskSettings`."""

    hidden_size: int
    layers: int = 1
    dropout: float = 0.3
    batch_size: int = 32
    epochs: int = 20
    min_steps: int = 500
    patience: int = 5
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    grad_clip: float = 5.0
    elmo_dropout: float = 0.5
    mix_l2: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Settings):
    """How files of examples are read; each task uses what concerns it."""

    format: Annotated[str | None, _READING] = None
    """Format of the files; by default detected from their names and content."""
    tokenizer: Annotated[TokenizerName | None, _READING] = None
    """Tokenizer of raw texts; by default that of the model, else english. Files of words are left
    as they are."""
    encoding: Annotated[str, _READING] = "utf-8"
    """Encoding of the files."""
    text_column: Annotated[str | None, _READING] = None
    """csv, tsv, jsonl: name or number (from 0) of the column of texts, or several, separated by
    commas."""
    label_column: Annotated[str | None, _READING] = None
    """csv, tsv, jsonl, CoNLL: name or number of the column of labels or tags."""
    phrases: Annotated[bool, _READING] = False
    """Train on the phrases within sentences, too (SST trees)."""
    max_words: Annotated[int, at_least(1), _READING] = 1000
    """Words of a sentence or text, at most."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings(ReadOptions):
    """How a task is trained."""

    data: Annotated[tuple[Path, ...], _Several] = ()
    """Training files."""
    dev: Annotated[tuple[Path, ...], _Several] = ()
    """Files by which the best model is selected; without them, a part of --data is held out."""
    test: Annotated[tuple[Path, ...], _Several] = ()
    """Files on which the best model is evaluated at the end."""
    out: Path | None = None
    """Folder for the trained head, its metrics and the snapshot for --resume."""
    features: Features = "glove+elmo"
    """Vector of a word: static vectors, ELMo, or both concatenated; random: randomly initialized
    vectors."""
    model: str | None = None
    """The biLM: folder, weights file, or repository of the Hugging Face Hub; else the default."""
    epochs: Annotated[int | None, POSITIVE] = None
    """Epochs, at most; unless given, small training sets are read more often, see --min-steps."""
    learning_rate: Annotated[float | None, POSITIVE] = None
    """Highest learning rate, after a linear warm-up and before a linear decay; its default and
    those of the flags for head and optimization depend on the task."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    resume: bool = False
    """Continue the run in --out; start one if there is none."""
    overwrite: bool = False
    """Replace a trained head in --out."""

    train_share: Annotated[float, POSITIVE_SHARE, _READING] = 1.0
    """Share of the training examples that are used, sampled by --seed."""
    dev_share: Annotated[float, PART, _READING] = 0.1
    """Share of --data that is held out to select the best model, without --dev."""

    elmo_at: Annotated[ElmoPlace, _FEATURES] = "input"
    """Where ELMo enters: before the encoder, after it, or both, each with its own mix."""
    mix: Annotated[MixChoice, _FEATURES] = "learned"
    """How layers become one vector: learned weights, the top layer, the average, or one layer by
    its number."""
    mix_l2: Annotated[float | None, at_least(0), _FEATURES] = None
    """L2 penalty that pulls the learned mix towards the average; by default by task."""
    elmo_dropout: Annotated[float | None, PART, _FEATURES] = None
    """Dropout on ELMo's vectors; the default depends on the task."""
    finetune_elmo: Annotated[bool, _FEATURES] = False
    """Fine-tune the biLM, too: slower, nothing is cached."""
    elmo_learning_rate: Annotated[float, POSITIVE, _FEATURES] = 1e-4
    """Learning rate of the biLM with --finetune-elmo."""
    vectors: Annotated[str, _FEATURES] = DEFAULT_VECTORS
    """Static vectors: a GloVe or word2vec file (text, .gz, .zip, .bin), or a package's name."""
    finetune_vectors: Annotated[bool, _FEATURES] = False
    """Fine-tune the static vectors of training words, too."""
    random_dim: Annotated[int, POSITIVE, _FEATURES] = 50
    """Width of random vectors."""

    hidden_size: Annotated[int | None, POSITIVE, _HEAD] = None
    """Width of the encoder in one direction."""
    layers: Annotated[int | None, POSITIVE, _HEAD] = None
    """Recurrent layers of the encoder."""
    dropout: Annotated[float | None, PART, _HEAD] = None
    """Dropout on the input of every part of the head."""

    batch_size: Annotated[int | None, POSITIVE, _OPTIMIZATION] = None
    """Examples in a batch."""
    min_steps: Annotated[int | None, at_least(0), _OPTIMIZATION] = None
    """Small training sets are read more often, up to this many steps; with --epochs, only if this
    is given, too."""
    patience: Annotated[int | None, at_least(0), _OPTIMIZATION] = None
    """Stop after this many evaluations without an improvement; 0: never."""
    weight_decay: Annotated[float | None, at_least(0), _OPTIMIZATION] = None
    """Weight decay of AdamW."""
    grad_clip: Annotated[float | None, POSITIVE, _OPTIMIZATION] = None
    """Bound on the global norm of the gradient."""
    precision: Annotated[TaskPrecision, _OPTIMIZATION] = "fp32"
    """bf16: products of the head in bfloat16; for GPUs."""

    seed: Annotated[int, at_least(0), _RUN] = 0
    """Determines weights, order, dropout and what is held out."""
    cache_dir: Annotated[Path | None, _RUN] = None
    """Folder for the layers of embedded sentences; by default the user's cache folder."""
    quiet: Annotated[bool, _RUN] = False
    """No progress."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require("--dev-share", self.dev_share, "between 0 and 1", self.dev_share > 0)
        self._check_features()

    def _check_features(self) -> None:
        if not self.reads_elmo:
            asked = [n for n in ("elmo_at", "mix", "finetune_elmo") if n in self.changes()]
            if asked:
                raise ConfigError(
                    f"{flag_of(asked[0])} is about ELMo, but --features {self.features} has none "
                    "in it; choose elmo or glove+elmo"
                )
        if self.elmo_at == "output" and self.features == "elmo":
            raise ConfigError(
                "--elmo-at output leaves nothing for the input with --features elmo; choose "
                "glove+elmo, or --elmo-at both"
            )
        if self.finetune_vectors and "glove" not in self.features:
            raise ConfigError(f"--finetune-vectors needs static vectors; got {self.features}")

    @property
    def reads_elmo(self) -> bool:
        """Whether ELMo is among the features."""
        return "elmo" in self.features

    @property
    def static(self) -> Literal["glove", "random"] | None:
        """Which vectors without context are among the features."""
        if self.features == "elmo":
            return None
        return "glove" if "glove" in self.features else "random"

    def recipe(self, default: Recipe) -> Recipe:
        """Return sizes and training of a task: its defaults, except what the user gave."""
        given = {f.name: getattr(self, f.name) for f in fields(Recipe)}
        chosen = {name: value for name, value in given.items() if value is not None}
        if "epochs" in chosen:
            chosen.setdefault("min_steps", 0)  # exactly as many epochs as asked for
        return dataclasses.replace(default, **chosen)

    def require_same(self, saved: TaskSettings) -> None:
        """Refuse to resume a run with other settings than it was started with."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(saved, field.name)
            if field.name not in _CHANGED_ON_RESUME and mine != theirs:
                raise ConfigError(
                    f"{flag_of(field.name)} is {mine}, but the run in {self.out} was "
                    f"started with {theirs}; give the same flags, or another --out"
                )


def read_config(folder: Path) -> dict[str, Any]:
    """Read the `config.json` of a trained head; other folders are refused."""
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise MissingFileError(
            f"no trained head in {folder}: expected the folder that elmo task train --out wrote"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None
    if not isinstance(config, dict) or config.get("kind") != HEAD_KIND:
        raise ConfigError(
            f"{path} is not that of a trained head; expected the folder that elmo task train wrote"
        )
    return config

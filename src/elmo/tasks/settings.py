"""The user's choices for training a task, one frozen dataclass: flags, TOML file, `run.json`.

Nothing here imports PyTorch, so help texts are printed at once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from elmo.errors import ConfigError
from elmo.runtime.settings_files import changes, check_types, require
from elmo.settings import DEFAULT_VECTORS, TokenizerName
from elmo.tasks.kinds import TASKS
from elmo.tasks.recipe import ReadOptions, Recipe

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

_Several = Parameter(consume_multiple=True, show_default=False)
_PATHS = ("data", "dev", "test")
_CHANGED_ON_RESUME = ("device", "resume", "quiet", "cache", "out", "data")


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """How a task is trained."""

    data: Annotated[tuple[Path, ...], _Several] = ()
    """Training files."""
    dev: Annotated[tuple[Path, ...], _Several] = ()
    """Files by which the best model is selected; without them, a part of --data is held out."""
    test: Annotated[tuple[Path, ...], _Several] = ()
    """Files on which the best model is evaluated at the end."""
    out: Path | None = None
    """Folder for the trained head, its metrics and the snapshot for --resume."""
    resume: bool = False
    """Continue the run in --out; start one if there is none."""
    overwrite: bool = False
    """Replace a trained head in --out."""

    format: str | None = None
    """Format of the files; by default detected from their names and content."""
    tokenizer: TokenizerName = "english"
    """Tokenizer of raw texts; files of words are left as they are."""
    encoding: str = "utf-8"
    """Encoding of the files."""
    text_column: str | None = None
    """csv, tsv, jsonl: name or number (from 0) of the column of texts, or several, separated by
    commas."""
    label_column: str | None = None
    """csv, tsv, jsonl, CoNLL: name or number of the column of labels or tags."""
    phrases: bool = False
    """Train on the phrases within sentences, too (SST trees)."""
    max_words: int = 1000
    """Words of a sentence or text, at most."""
    share: float = 1.0
    """Share of the training examples that are used, sampled by --seed."""
    holdout: float = 0.1
    """Share of --data that is held out to select the best model, without --dev."""

    features: Features = "glove+elmo"
    """Vector of a word: static vectors, ELMo, or both concatenated; random: randomly initialized
    vectors."""
    elmo_at: ElmoPlace = "input"
    """Where ELMo enters: before the encoder, after it, or both, each with its own mix."""
    mix: MixChoice = "learned"
    """How layers become one vector: learned weights, the top layer, the average, or one layer by
    its number."""
    mix_l2: float | None = None
    """L2 penalty that pulls the learned mix towards the average; by default by task."""
    elmo_dropout: float | None = None
    """Dropout on ELMo's vectors; the default depends on the task."""
    finetune_elmo: bool = False
    """Fine-tune the biLM, too: slower, nothing is cached."""
    elmo_rate: float = 1e-4
    """Learning rate of the biLM with --finetune-elmo."""
    model: str | None = None
    """The biLM: folder, weights file, or repository of the Hugging Face Hub; else the default."""
    vectors: str = DEFAULT_VECTORS
    """Static vectors: a GloVe or word2vec file (text, .gz, .zip, .bin), or a package's name."""
    tune_vectors: bool = False
    """Fine-tune the static vectors of training words, too."""
    random_dim: int | None = None
    """Width of random vectors; by default that of --vectors."""

    hidden: int | None = None
    """Width of the encoder in one direction; its default and those of the next flags depend on the
    task."""
    layers: int | None = None
    """Recurrent layers of the encoder."""
    dropout: float | None = None
    """Dropout within the head."""
    batch: int | None = None
    """Examples in a batch."""
    epochs: int | None = None
    """Epochs, at most; unless given, small training sets are read more often, see --min-steps."""
    min_steps: int | None = None
    """Small training sets are read more often, up to this many steps; with --epochs, only if this
    is given, too."""
    patience: int | None = None
    """Stop after this many evaluations without an improvement; 0: never."""
    rate: float | None = None
    """Highest learning rate."""
    weight_decay: float | None = None
    """Weight decay."""
    clip: float | None = None
    """Bound on the norm of the gradient."""

    seed: int = 0
    """Determines weights, order, dropout and what is held out."""
    precision: TaskPrecision = "fp32"
    """bf16: products of the head in bfloat16; for GPUs."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    cache: Path | None = None
    """Folder for the layers of embedded sentences; by default the user's cache folder."""
    quiet: bool = False
    """No progress."""

    def __post_init__(self) -> None:
        for name in _PATHS:
            value = getattr(self, name)
            parts = (value,) if isinstance(value, str | Path) else value
            object.__setattr__(self, name, tuple(Path(part) for part in parts))
        for name in ("out", "cache"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        check_types(self)
        self._check_numbers()
        self._check_features()

    def _check_numbers(self) -> None:
        for name in ("hidden", "layers", "batch", "epochs", "rate", "clip", "random_dim"):
            value = getattr(self, name)
            require(name, value, "more than 0", value is None or value > 0)
        for name in ("mix_l2", "patience", "weight_decay", "seed", "min_steps"):
            value = getattr(self, name)
            require(name, value, "at least 0", value is None or value >= 0)
        for name in ("dropout", "elmo_dropout"):
            value = getattr(self, name)
            require(name, value, "from 0 up to, not including, 1", value is None or 0 <= value < 1)
        require("share", self.share, "above 0, up to 1", 0 < self.share <= 1)
        require("holdout", self.holdout, "between 0 and 1", 0 < self.holdout < 1)
        require("max_words", self.max_words, "at least 1", self.max_words >= 1)
        require("elmo_rate", self.elmo_rate, "more than 0", self.elmo_rate > 0)

    def _check_features(self) -> None:
        if not self.reads_elmo:
            asked = [n for n in ("elmo_at", "mix", "finetune_elmo") if n in changes(self)]
            if asked:
                flag = asked[0].replace("_", "-")
                raise ConfigError(
                    f"--{flag} is about ELMo, but --features {self.features} has none in it; "
                    "choose elmo or glove+elmo"
                )
        if self.elmo_at == "output" and self.features == "elmo":
            raise ConfigError(
                "--elmo-at output leaves nothing for the input with --features elmo; choose "
                "glove+elmo, or --elmo-at both"
            )
        if self.tune_vectors and "glove" not in self.features:
            raise ConfigError(f"--tune-vectors needs static vectors; got {self.features}")

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

    def read_options(self) -> ReadOptions:
        """Return what concerns the reading of files."""
        return ReadOptions(**{f.name: getattr(self, f.name) for f in fields(ReadOptions)})

    def recipe(self, default: Recipe) -> Recipe:
        """Return sizes and training of a task: its defaults, except what the user gave."""
        given = {f.name: getattr(self, f.name) for f in fields(Recipe)}
        chosen = {name: value for name, value in given.items() if value is not None}
        if "epochs" in chosen:
            chosen.setdefault("min_steps", 0)  # exactly as many epochs as asked for
        return dataclasses.replace(default, **chosen)

    def replace(self, **values: Any) -> TaskSettings:
        """Return a copy with other values for some fields."""
        return dataclasses.replace(self, **values)

    def require_same(self, saved: TaskSettings) -> None:
        """Refuse to resume a run with other settings than it was started with."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(saved, field.name)
            if field.name not in (*_CHANGED_ON_RESUME, "overwrite") and mine != theirs:
                raise ConfigError(
                    f"--{field.name.replace('_', '-')} is {mine}, but the run in {self.out} was "
                    f"started with {theirs}; give the same flags, or another --out"
                )

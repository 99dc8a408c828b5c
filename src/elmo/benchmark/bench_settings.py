"""What users choose when they measure, as frozen records: the flags of `elmo bench`.

Nothing here imports PyTorch, so that help texts come at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmo.config import Preset
from elmo.errors import ConfigError
from elmo.settings import Layers, Precision, TokenizerName

_Several = Parameter(consume_multiple=True, show_default=False)
_THREADS_A_CORE = 4
_PICTURES = (".png", ".svg", ".pdf")
_AT_LEAST_ONE = ("threads", "repeats", "sentences", "words", "train_words", "test_words")


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What every measurement lets users choose."""

    precision: Annotated[tuple[Precision, ...], _Several] = ()
    """In which numbers products are computed; by default in turn all that this machine has
    instructions for."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto: the CPU and, where there is one, the GPU."""
    threads: int | None = None
    """Threads on a CPU, for all systems; by default one for each core."""
    json: Path | None = None
    """Write everything that was measured to this file."""
    quiet: bool = False
    """No progress."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _AT_LEAST_ONE and value is not None and value < 1:
                raise ConfigError(f"{_flag(field.name)} is {value}, expected at least 1")
            if isinstance(value, tuple):  # what is named twice is measured once
                object.__setattr__(self, field.name, tuple(dict.fromkeys(value)))
        self._check_threads()

    def _check_threads(self) -> None:
        """Refuse more threads than a process can start: PyTorch would crash."""
        cores = os.cpu_count() or 1
        if self.threads is not None and self.threads > _THREADS_A_CORE * cores:
            raise ConfigError(
                f"--threads is {self.threads}, expected at most {_THREADS_A_CORE * cores}: "
                f"{_THREADS_A_CORE} for each of the {cores} cores of this machine"
            )


@dataclass(frozen=True, kw_only=True)
class _SizeSettings(BenchSettings):
    """What measurements of random weights let users choose, too."""

    sizes: Annotated[tuple[Preset, ...], _Several] = ()
    """Sizes of models with random weights; by default original and small, for scaling small."""
    model: str | None = None
    """Instead of sizes: a folder, a weights file, or a repository of the Hugging Face Hub."""
    repeats: int | None = None
    """Rounds of each measurement, in which all that is compared takes turns; by default 5, for
    scaling 3."""
    data: Path | None = None
    """Where random weights are kept for the next time; by default the cache folder of the user."""
    quick: bool = False
    """Only see whether it runs: a tiny model, little text, few rounds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is not None and self.sizes:
            raise ConfigError(
                f"--model {self.model} and --sizes {' '.join(self.sizes)} are given: choose one"
            )


@dataclass(frozen=True, kw_only=True)
class SpeedSettings(_SizeSettings):
    """How the speed of embedding is measured."""

    sentences: int | None = None
    """Sentences of the corpus; by default 256 on a CPU and 100,000 on a GPU."""
    layers: Layers = "all"
    """What is asked of our models for each word: every layer, or top, average, mix, a number."""
    skip_peers: bool = False
    """Measure ours alone, even where AllenNLP is installed."""
    skip_memory: bool = False
    """Do not measure memory: it takes a fresh process for each system."""


@dataclass(frozen=True, kw_only=True)
class ScalingSettings(_SizeSettings):
    """How it is measured what grows with the text."""

    plot: Path | None = None
    """Draw the figures to this file (.png, .svg or .pdf); needs the extra plots or analysis."""
    batches: Annotated[tuple[int, ...], _Several] = ()
    """Sentences in a batch, several numbers; by default up to 256, on a GPU 4096."""
    lengths: Annotated[tuple[int, ...], _Several] = ()
    """Words of a sentence, several numbers; by default up to 640."""
    corpora: Annotated[tuple[int, ...], _Several] = ()
    """Sentences of a corpus, several numbers; by default up to 4096, on a GPU 100,000."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plot is not None and self.plot.suffix.lower() not in _PICTURES:
            raise ConfigError(
                f"--plot is {self.plot}, expected a file whose name ends with "
                f"{', '.join(_PICTURES)}"
            )
        for name in ("batches", "lengths", "corpora"):
            values = getattr(self, name)
            if any(value < 1 for value in values):
                given = " ".join(map(str, values))
                raise ConfigError(f"{_flag(name)} is {given}, expected numbers of at least 1")


@dataclass(frozen=True, kw_only=True)
class PrecisionSettings(BenchSettings):
    """How the errors of precisions are measured."""

    text: Path | None = None
    """Text of the model's language, one sentence a line (or raw text, see --tokenizer); may be
    compressed. By default the test sentences of the treebank."""
    tokenizer: TokenizerName = "whitespace"
    """How the text is split into words."""
    words: int = 5000
    """Words of the text that are read."""
    treebank: Path | None = None
    """Folder with a treebank of Universal Dependencies, two files named ...train.conllu and
    ...test.conllu (may be compressed): probes learn its parts of speech from each layer."""
    train_words: int = 50_000
    """Words of the treebank that probes learn from."""
    test_words: int = 30_000
    """Words of the treebank that probes are judged by."""
    markdown: Path | None = None
    """Write the tables to this file, too."""


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

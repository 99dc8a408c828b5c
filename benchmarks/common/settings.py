"""What all measurements let their users choose, as frozen records that become flags.

Nothing here imports PyTorch, so that help texts come at once. Neither this module nor those of
its subclasses postpone annotations: cyclopts would look for the names of inherited ones in theirs.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmo.config import Preset
from elmo.errors import ConfigError
from elmo.settings import Precision

Several = Parameter(consume_multiple=True, show_default=False)
_THREADS_A_CORE = 4
_AT_LEAST_ONE = ("threads", "repeats", "sentences", "words", "train_words", "test_words")


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What every measurement lets users choose."""

    precision: Annotated[tuple[Precision, ...], Several] = ()
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
                raise ConfigError(f"{flag_of(field.name)} is {value}, expected at least 1")
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
class SizeSettings(BenchSettings):
    """What measurements of random weights let users choose, too."""

    sizes: Annotated[tuple[Preset, ...], Several] = ()
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


def flag_of(name: str) -> str:
    """Return the flag of a field."""
    return "--" + name.replace("_", "-")

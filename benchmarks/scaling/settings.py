"""What is chosen when growth is measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from benchmarks.common.settings import Several, SizeSettings, flag_of
from elmo.errors import ConfigError

_PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class ScalingSettings(SizeSettings):
    """How it is measured what grows with the text."""

    plot: Path | None = None
    """Draw the figures to this file (.png, .svg or .pdf); needs the extra plots or analysis."""
    batches: Annotated[tuple[int, ...], Several] = ()
    """Sentences in a batch, several numbers; by default up to 256, on a GPU 4096."""
    lengths: Annotated[tuple[int, ...], Several] = ()
    """Words of a sentence, several numbers; by default up to 640."""
    corpora: Annotated[tuple[int, ...], Several] = ()
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
                raise ConfigError(f"{flag_of(name)} is {given}, expected numbers of at least 1")

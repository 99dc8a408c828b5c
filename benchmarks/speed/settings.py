"""What is chosen when speed is measured."""

from dataclasses import dataclass

from benchmarks.common.settings import SizeSettings
from elmo.settings import Layers


@dataclass(frozen=True, kw_only=True)
class SpeedSettings(SizeSettings):
    """How the speed of embedding is measured."""

    sentences: int | None = None
    """Sentences of the corpus; by default 256 on a CPU and 100,000 on a GPU."""
    layers: Layers = "all"
    """What is asked of our models for each word: every layer, or top, average, mix, a number."""
    skip_peers: bool = False
    """Measure ours alone, even where AllenNLP is installed."""
    skip_memory: bool = False
    """Do not measure memory: it takes a fresh process for each system."""

"""What was measured, as records that JSON can hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.common.machine import Machine
from benchmarks.common.timing import Rounds, Spread
from benchmarks.speed.costs import Costs
from benchmarks.speed.memory import MemoryRow
from benchmarks.speed.peaks import Peaks


@dataclass(frozen=True)
class Agreement:
    """How far one of our precisions is from another computation on the same weights."""

    name: str
    other: str
    """What it is compared with."""
    largest_difference: float
    largest_value: float
    """Of the other computation, for scale."""
    standard_deviation: float
    """Of the other computation's values, for scale."""


@dataclass(frozen=True)
class CorpusRow:
    """One way to embed the corpus."""

    name: str
    words: int
    """Words that a run embeds."""
    seconds: Rounds
    words_per_second: Spread
    times_given: Spread | None
    """How many times as fast as AllenNLP in the order given."""
    times_sorted: Spread | None
    """How many times as fast as AllenNLP on sorted sentences."""
    share_of_peak: float | None
    """Operations that cannot be avoided, a second, as a part of the machine's peak."""


@dataclass(frozen=True)
class LatencyRow:
    """One way to embed a single sentence."""

    name: str
    seconds: Rounds
    milliseconds: Spread
    times_peer: Spread | None
    """How many times as fast as AllenNLP."""
    share_of_roof: float | None
    """The least time that the machine needs by the roofline model, as a part of the time."""


@dataclass(frozen=True)
class SizeReport:
    """All that was measured of one model on one device."""

    size: str
    device: str
    parameters: int
    sentences: int
    words: int
    distinct_words: int
    costs: Costs
    peaks: Peaks
    agreement: list[Agreement]
    corpus: list[CorpusRow]
    latency: list[LatencyRow]
    memory: list[MemoryRow]


@dataclass
class Report:
    """All that was measured in one run of the benchmark."""

    command: str
    version: str
    """Of elmo-torch."""
    machine: Machine
    notes: list[str] = field(default_factory=list)
    sizes: list[SizeReport] = field(default_factory=list)

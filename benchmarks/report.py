"""What was measured, and how it reads as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from machine import Machine
from memory import MemoryRow
from timing import Rounds, Spread

NOTHING = "-"


@dataclass(frozen=True)
class Agreement:
    """How far one of our precisions is from AllenNLP on the same weights."""

    name: str
    largest_difference: float
    largest_value: float
    """Of AllenNLP, for scale."""
    standard_deviation: float
    """Of AllenNLP's values, for scale."""


@dataclass(frozen=True)
class BatchRow:
    """One way to embed the corpus."""

    name: str
    seconds: Rounds
    tokens_per_second: Spread
    times_given: Spread | None
    """How many times as fast as AllenNLP in the order given."""
    times_sorted: Spread | None
    """How many times as fast as AllenNLP on sorted sentences."""


@dataclass(frozen=True)
class LatencyRow:
    """One way to embed a single sentence."""

    name: str
    seconds: Rounds
    milliseconds: Spread
    times_peer: Spread | None
    """How many times as fast as AllenNLP."""


@dataclass(frozen=True)
class LinearityRow:
    """Time for some amount of text."""

    name: str
    tokens: int
    seconds: Rounds
    seconds_per_1000: Spread


@dataclass(frozen=True)
class SizeReport:
    """All that was measured at one size of the model."""

    size: str
    parameters: int
    sentences: int
    tokens: int
    distinct_words: int
    agreement: list[Agreement]
    batch: list[BatchRow]
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
    linearity_size: str = ""
    linearity: list[LinearityRow] = field(default_factory=list)


def render(report: Report) -> str:
    """Give the report as plain text."""
    parts = [_render_head(report)]
    parts += [_render_size(size) for size in report.sizes]
    if report.linearity:
        parts.append(_render_linearity(report))
    return "\n\n".join(parts)


def _render_head(report: Report) -> str:
    machine = report.machine
    lines = [
        f"elmo-torch {report.version}, {machine.date}",
        f"command  {report.command}",
        f"machine  {machine.cpu}, {machine.cores} cores usable, {machine.threads} threads, "
        f"{machine.memory_gb} GB, {machine.system}, load {machine.load} at the start",
        f"         {machine.instructions}; {' '.join(machine.flags) or 'flags unknown'}",
        f"software Python {machine.python}, torch {machine.torch}, NumPy {machine.numpy}",
    ]
    return "\n".join(lines + [f"note     {note}" for note in report.notes])


def _render_size(size: SizeReport) -> str:
    lines = [
        f"== {size.size}: {size.parameters / 1e6:.1f} M parameters; {size.sentences} sentences, "
        f"{size.tokens} words, {size.distinct_words} distinct =="
    ]
    lines += [
        f"{row.name} differs from AllenNLP by {row.largest_difference:.1e} at most "
        f"(values up to {row.largest_value:.1f}, standard deviation {row.standard_deviation:.2f})"
        for row in size.agreement
    ]
    batch = _table(
        ("corpus", "tokens/s", "x AllenNLP given", "x AllenNLP sorted"),
        (
            (
                row.name,
                f"{row.tokens_per_second.median:.0f}",
                _times(row.times_given),
                _times(row.times_sorted),
            )
            for row in size.batch
        ),
    )
    latency = _table(
        ("one sentence", "ms", "ms lowest..highest", "x AllenNLP"),
        (
            (
                row.name,
                f"{row.milliseconds.median:.1f}",
                f"{row.milliseconds.low:.1f}..{row.milliseconds.high:.1f}",
                _times(row.times_peer),
            )
            for row in size.latency
        ),
    )
    memory = _table(
        ("memory", "peak MB", "MB when loaded", "load s"),
        (
            (row.name, f"{row.peak_mb:.0f}", f"{row.loaded_mb:.0f}", f"{row.load_seconds:.1f}")
            for row in size.memory
        ),
    )
    return "\n".join(lines) + "".join(f"\n\n{table}" for table in (batch, latency, memory))


def _render_linearity(report: Report) -> str:
    table = _table(
        ("ours fp32", "words", "s per 1000 words", "lowest..highest"),
        (
            (
                row.name,
                str(row.tokens),
                f"{row.seconds_per_1000.median:.3f}",
                f"{row.seconds_per_1000.low:.3f}..{row.seconds_per_1000.high:.3f}",
            )
            for row in report.linearity
        ),
    )
    return f"== {report.linearity_size}: does time grow with the text and no faster? ==\n\n{table}"


def _times(spread: Spread | None) -> str:
    """Write a ratio: its median, and the lowest and highest of all rounds."""
    if spread is None:
        return NOTHING
    return f"{spread.median:.2f} ({spread.low:.2f}..{spread.high:.2f})"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns: names on the left, numbers on the right."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        )
        for line in lines
    )

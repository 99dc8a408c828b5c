"""What happens as batches, sentences and corpora grow: speed, and peak memory.

Time should grow in step with the words. Memory should do so where all vectors are kept, and stay
where they are handed on one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch

import elmo
from benchmarks.common.machine import Machine, this_machine
from benchmarks.common.memory import gpu_peak_mb, peak_mb, restart_peaks
from benchmarks.common.models import Subject, subject_of_model, subject_of_size
from benchmarks.common.output import require_writable
from benchmarks.common.systems import (
    Ours,
    Sentences,
    batch_size,
    devices,
    gpu_memory_is_enough,
    set_threads,
    usable_precisions,
)
from benchmarks.common.timing import Contender, Rounds, Spread, interleave, rates
from benchmarks.scaling.settings import ScalingSettings
from elmo.config import Preset
from elmo.text.made_up import LONGEST, count_words, make_sentence, make_sentences

Sweep = Literal["batch", "length", "corpus"]
"""What grows: sentences in a batch, words of a sentence, or sentences of a corpus."""
KEPT, STREAMED = "encode_tokens", "stream_tokens"
"""The two ways to embed a corpus: all vectors at once, or one sentence after another."""

_LEAST_SENTENCES = 64
"""Small batches are measured on so many sentences."""
_REPEATS = 3


@dataclass(frozen=True)
class Amounts:
    """How far things grow."""

    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    corpora: tuple[int, ...]


_CPU = Amounts(
    batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    lengths=(5, 10, 20, 40, 80, 160, 320, 640),
    corpora=(64, 256, 1024, 4096),
)
_GPU = Amounts(
    batches=(1, 4, 16, 64, 256, 1024, 4096),
    lengths=(5, 10, 20, 40, 80, 160, 320, 640),
    corpora=(1000, 3000, 10_000, 30_000, 100_000),
)
_QUICK = Amounts(batches=(1, 8), lengths=(5, 20), corpora=(16, 64))


@dataclass(frozen=True)
class ScalingRow:
    """One point of a curve."""

    curve: str
    """Which model, where, in which precision."""
    sweep: Sweep
    way: str
    """Which method of `ELMo` was called."""
    size: int
    """How large the thing that grows is here."""
    words: int
    seconds: Rounds
    words_per_second: Spread
    peak_mb: float | None
    """Peak resident memory of the process; None where the system does not report it."""
    gpu_mb: float | None
    """Peak of what PyTorch took of the memory of a GPU; None on a CPU."""


@dataclass(frozen=True)
class Growth:
    """How a curve grows: time as words to the power of this; 1 is in step."""

    curve: str
    sweep: Sweep
    way: str
    exponent: float


@dataclass
class ScalingReport:
    """All curves."""

    command: str
    version: str
    machine: Machine
    notes: list[str] = field(default_factory=list)
    rows: list[ScalingRow] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    """One point before it is measured."""

    sweep: Sweep
    way: str
    size: int
    sentences: Sentences
    run: Callable[[Ours, Sentences], object]


def measure_scaling(
    settings: ScalingSettings, command: str, tell: Callable[[str], None]
) -> ScalingReport:
    """Measure all curves that the settings ask for.

    Args:
        settings: What is measured.
        command: The command line, for the record.
        tell: Called with lines of progress.
    """
    require_writable(settings.json)
    require_writable(settings.plot)
    set_threads(settings.threads)
    places = devices(settings.device)
    gpu = next((place for place in places if place.type == "cuda"), None)
    report = ScalingReport(command, elmo.__version__, this_machine(gpu))
    if not restart_peaks(places[0]):
        report.notes.append("this system cannot restart peaks of memory: they are left out")
    precisions = {
        place: usable_precisions(settings.precision, place, report.notes) for place in places
    }
    for subject in _subjects(settings):
        for place in places:
            for precision in precisions[place]:
                curve = f"{subject.name}, {precision} on {place}"
                tell(curve)
                with gpu_memory_is_enough():
                    ours = Ours(subject.source, precision, place, layers="top")
                    report.rows += _measure(curve, ours, settings)
                del ours
    report.growth = list(growths(report.rows))
    return report


def _subjects(settings: ScalingSettings) -> Iterator[Subject]:
    if settings.model is not None:
        yield subject_of_model(settings.model)
        return
    default: tuple[Preset, ...] = ("tiny",) if settings.quick else ("small",)
    for size in settings.sizes or default:
        yield subject_of_size(size, settings.data)


def _measure(curve: str, ours: Ours, settings: ScalingSettings) -> Iterator[ScalingRow]:
    """Measure all points of one model on one device in one precision."""
    device = ours.model.device
    rounds = settings.repeats or (1 if settings.quick else _REPEATS)
    for sweep in get_args(Sweep):
        tasks = [task for task in plan(settings, device) if task.sweep == sweep]
        # Memory first, from the smallest to the largest: it is also the warm-up.
        memory = [_peaks(ours, task) for task in tasks]
        contenders = [
            Contender(
                f"{task.way} {task.size}",
                partial(task.run, ours, task.sentences),
                ours.forget,
                count_words(task.sentences),
            )
            for task in tasks
        ]
        seconds = interleave(contenders, rounds, f"{curve}, {sweep}", not settings.quiet)
        for task, contender, (resident, on_gpu) in zip(tasks, contenders, memory, strict=True):
            own = seconds[contender.name]
            yield ScalingRow(
                curve=curve,
                sweep=task.sweep,
                way=task.way,
                size=task.size,
                words=contender.words,
                seconds=own,
                words_per_second=Spread.of(rates(contender.words, own)),
                peak_mb=resident,
                gpu_mb=on_gpu,
            )


def plan(settings: ScalingSettings, device: torch.device) -> Iterator[Task]:
    """Yield all points, each with its text."""
    amounts = _GPU if device.type == "cuda" else _CPU
    if settings.quick:
        amounts = _QUICK
    for size in sorted(settings.batches or amounts.batches):
        sentences = make_sentences(max(size, _LEAST_SENTENCES))
        yield Task("batch", KEPT, size, sentences, partial(_in_batches, rows=size))
    rows = batch_size(device)
    for size in sorted(settings.lengths or amounts.lengths):
        sentences = [make_sentence(size, seed) for seed in range(rows)]
        yield Task("length", KEPT, size, sentences, _in_one_batch)
    corpora = sorted(settings.corpora or amounts.corpora)
    for size in corpora:
        yield Task("corpus", STREAMED, size, make_sentences(size), _streamed)
    for size in corpora:
        yield Task("corpus", KEPT, size, make_sentences(size), _kept)


def _in_batches(ours: Ours, sentences: Sentences, rows: int) -> list[Any]:
    return ours.model.encode_tokens(
        sentences, layers="top", batch_size=rows, batch_tokens=rows * LONGEST
    )


def _in_one_batch(ours: Ours, sentences: Sentences) -> list[Any]:
    return ours.model.encode_tokens(
        sentences, layers="top", batch_size=len(sentences), batch_tokens=count_words(sentences)
    )


def _kept(ours: Ours, sentences: Sentences) -> list[Any]:
    return ours.in_one_call(sentences)


def _streamed(ours: Ours, sentences: Sentences) -> int:
    return sum(len(vectors) for vectors in ours.model.stream_tokens(sentences, layers="top"))


def _peaks(ours: Ours, task: Task) -> tuple[float | None, float | None]:
    """Run once and give the peaks of memory: resident, and of the GPU."""
    ours.forget()
    begun = restart_peaks(ours.model.device)
    result = task.run(ours, task.sentences)
    peaks = peak_mb() if begun else None, gpu_peak_mb(ours.model.device)
    del result  # what the caller keeps counts
    return peaks


def growths(rows: Sequence[ScalingRow]) -> Iterator[Growth]:
    """Yield how time grows with the words, for each curve of lengths and corpora."""
    keys = dict.fromkeys((row.curve, row.sweep, row.way) for row in rows if row.sweep != "batch")
    for curve, sweep, way in keys:
        points = [row for row in rows if (row.curve, row.sweep, row.way) == (curve, sweep, way)]
        if len({row.words for row in points}) > 1:
            words = [row.words for row in points]
            seconds = [Spread.of(row.seconds).median for row in points]
            yield Growth(curve, sweep, way, exponent(words, seconds))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the power of the sizes that fits the values best: a line on two logarithmic scales."""
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)

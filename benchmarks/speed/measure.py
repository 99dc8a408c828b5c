"""How fast we embed text beside AllenNLP, in one process and on the same weights."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

import elmo
from benchmarks.common.allennlp import PEER, AllenNLP, MissingPeerError, load_elmo_class, why_not
from benchmarks.common.float64 import float64_layers
from benchmarks.common.machine import this_machine
from benchmarks.common.models import Subject, published_folder, subject_of_model, subject_of_size
from benchmarks.common.output import require_writable, write_json
from benchmarks.common.systems import (
    Ours,
    devices,
    gpu_memory_is_enough,
    set_threads,
    usable_precisions,
)
from benchmarks.speed.contest import PEER_SENTENCES, Contest, Roof
from benchmarks.speed.costs import count_costs
from benchmarks.speed.memory import PEER_SYSTEM, MemoryRow, MemoryTask, measure_memory
from benchmarks.speed.peaks import Peaks, measure_peaks
from benchmarks.speed.records import Report, SizeReport
from benchmarks.speed.settings import SpeedSettings
from elmo.config import Preset
from elmo.settings import Precision
from elmo.text.made_up import count_words, make_sentences

Tell = Callable[[str], None]
"""Called with lines of progress."""

_SIZES: tuple[Preset, ...] = ("original", "small")
_QUICK_SIZES: tuple[Preset, ...] = ("tiny",)
_REPEATS, _QUICK_REPEATS = 5, 2
_CPU_SENTENCES, _GPU_SENTENCES, _QUICK_SENTENCES = 256, 100_000, 64
_MEMORY_SENTENCES = 8192
"""At most so many sentences where memory is measured: all vectors are kept."""
_CHECKED_SENTENCES = 8
_HARD_WORDS = ["naïve", "日本語", "x" * 48, "."]


def measure_speed(settings: SpeedSettings, command: str, tell: Tell) -> Iterator[Report]:
    """Measure what the settings ask for, and write the JSON if they name a file.

    It takes minutes, so that a run that is stopped should leave behind what it had.

    Args:
        settings: What is measured.
        command: The command line, for the record.
        tell: Called with lines of progress.

    Yields:
        The report, each time that something was added to it.
    """
    require_writable(settings.json)
    set_threads(settings.threads)
    places = devices(settings.device)
    gpu = next((place for place in places if place.type == "cuda"), None)
    report = Report(command=command, version=elmo.__version__, machine=this_machine(gpu))
    with_peers = not settings.skip_peers and _peer_is_there(report.notes, tell)
    precisions = {
        place: usable_precisions(settings.precision, place, report.notes) for place in places
    }
    subjects = list(_subjects(settings))
    reasons = [why_not(subject.config) for subject in subjects]
    if with_peers:
        report.notes.extend(
            f"{subject.name} was measured without {PEER}: {reason}"
            for subject, reason in zip(subjects, reasons, strict=True)
            if reason is not None
        )
    for subject, reason in zip(subjects, reasons, strict=True):
        for place in places:
            bench = _Bench(
                subject=subject,
                device=place,
                precisions=precisions[place],
                with_peer=with_peers and reason is None,
                settings=settings,
                tell=tell,
            )
            with gpu_memory_is_enough():
                report.sizes.append(bench.measure())
            write_json(report, settings.json)
            yield report


def _subjects(settings: SpeedSettings) -> Iterator[Subject]:
    if settings.model is not None:
        yield subject_of_model(settings.model)
        return
    default = _QUICK_SIZES if settings.quick else _SIZES
    for size in settings.sizes or default:
        yield subject_of_size(size, settings.data)


def _peer_is_there(notes: list[str], tell: Tell) -> bool:
    try:
        load_elmo_class()
    except MissingPeerError as error:
        notes.append(f"{error}. Ours was measured alone.")
        tell(str(error))
        return False
    return True


@dataclass(frozen=True)
class _Bench:
    """The measurement of one model on one device."""

    subject: Subject
    device: torch.device
    precisions: tuple[Precision, ...]
    with_peer: bool
    settings: SpeedSettings
    tell: Tell

    def measure(self) -> SizeReport:
        """Measure all there is to measure."""
        sentences = make_sentences(self._n_sentences())
        checked = [*sentences[:_CHECKED_SENTENCES], _HARD_WORDS]
        with ExitStack() as stack:
            peer_folder = None
            if self.with_peer:
                peer_folder = stack.enter_context(published_folder(self.subject))
            # Before the models are in memory here, so that the machine has its memory for itself.
            memory = self._memory(peer_folder)
            peaks = self._peaks()
            self._say("loading, and comparing results")
            contest = self._contest(peer_folder)
        agreement = list(contest.check(checked, float64_layers(self.subject.read(), checked)))
        self._say("a corpus")
        corpus_seconds = contest.time_corpus(sentences, self._rounds())
        self._say("one sentence")
        sentence_seconds = contest.time_sentence(self._rounds())
        roof = Roof(count_costs(self.subject.config), peaks.best_of(self._peaks()))
        return SizeReport(
            size=self.subject.name,
            device=str(self.device),
            parameters=self.subject.parameters,
            sentences=len(sentences),
            words=count_words(sentences),
            distinct_words=len({word for sentence in sentences for word in sentence}),
            costs=roof.costs,
            peaks=roof.peaks,
            agreement=agreement,
            corpus=contest.judge_corpus(sentences, corpus_seconds, roof),
            latency=contest.judge_sentence(sentence_seconds, roof),
            memory=memory,
        )

    def _peaks(self) -> Peaks:
        self._say("what the machine can do")
        return measure_peaks(self.precisions, self.device, self.settings.quick)

    def _contest(self, peer_folder: Path | None) -> Contest:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of AllenNLP, under newer libraries
            peer = None if peer_folder is None else AllenNLP(peer_folder, self.device)
        layers = self.settings.layers
        return Contest(
            name=f"{self.subject.name} on {self.device}",
            device=self.device,
            ours=[Ours(self.subject.source, p, self.device, layers) for p in self.precisions],
            peer=peer,
            show_progress=not self.settings.quiet,
        )

    def _memory(self, peer_folder: Path | None) -> list[MemoryRow]:
        """Measure each system in a process of its own, if that is wanted."""
        if self.settings.skip_memory:
            return []
        self._say("memory")
        task = MemoryTask(
            system=PEER_SYSTEM,
            source=self.subject.source,
            sentences=min(self._n_sentences(), _MEMORY_SENTENCES),
            threads=torch.get_num_threads(),
            device=str(self.device),
        )
        rows = [
            measure_memory(f"ours {own}, one call", dataclasses.replace(task, system=own))
            for own in self.precisions
        ]
        if peer_folder is not None:
            fewer = min(task.sentences, PEER_SENTENCES)
            peer = dataclasses.replace(task, source=str(peer_folder), sentences=fewer)
            rows.append(measure_memory(f"{PEER}, given order", peer))
        return rows

    def _n_sentences(self) -> int:
        if self.settings.sentences is not None:
            return self.settings.sentences
        if self.settings.quick:
            return _QUICK_SENTENCES
        return _GPU_SENTENCES if self.device.type == "cuda" else _CPU_SENTENCES

    def _rounds(self) -> int:
        return self.settings.repeats or (_QUICK_REPEATS if self.settings.quick else _REPEATS)

    def _say(self, what: str) -> None:
        self.tell(f"{self.subject.name} on {self.device}: {what}")

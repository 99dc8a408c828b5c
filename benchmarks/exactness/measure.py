"""How exact each precision is, and what its errors do to a task.

Errors are differences to the same weights computed in float64. Whether they matter is asked of a
linear probe that reads parts of speech off each layer: one that learned from fp32 vectors and then
meets those of another precision, and one that learned from the other precision itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import elmo
from benchmarks.common.float64 import float64_layers
from benchmarks.common.machine import Machine, this_machine
from benchmarks.common.output import require_writable
from benchmarks.common.systems import (
    Sentences,
    devices,
    gpu_memory_is_enough,
    set_threads,
    usable_precisions,
)
from benchmarks.exactness.settings import PrecisionSettings
from elmo.analysis.probing.tagging import LinearProbe, TagTask, read_tag_task
from elmo.backends.cpu.products import runs_natively
from elmo.embedder import ELMo
from elmo.errors import ElmoWarning, InputError
from elmo.hub.names import is_untrained, open_model
from elmo.settings import Precision
from elmo.text.files import TextFile, get_tokenizer, read_sentences


@dataclass(frozen=True)
class Mode:
    """One way to compute."""

    precision: Precision
    device: str

    def __str__(self) -> str:
        return self.precision if self.device == "cpu" else f"{self.precision} on {self.device}"


@dataclass(frozen=True)
class LayerError:
    """How far the vectors of one layer are from float64."""

    mode: Mode
    layer: int
    """0 is the context-free one."""
    largest: float
    """Largest absolute difference of a value."""
    mean: float
    """Mean absolute difference."""
    relative: float
    """Norm of all differences by the norm of all values."""
    least_cosine: float
    """Smallest cosine between a word's vector and the same in float64."""


@dataclass(frozen=True)
class ProbeScore:
    """What a probe makes of the vectors of one layer."""

    mode: Mode
    layer: int
    accuracy_of_fp32_probe: float
    """Share of test words that the probe that learned from fp32 vectors tags rightly here."""
    accuracy_of_own_probe: float
    """The same for a probe that learned from vectors of this mode."""
    changed: float
    """Share of test words to which the fp32 probe gives another tag than on fp32 vectors."""


@dataclass
class ExactnessReport:
    """All that was measured of one model."""

    command: str
    version: str
    machine: Machine
    model: str
    n_sentences: int = 0
    n_words: int = 0
    """Words whose vectors were compared."""
    value_spread: float = 0.0
    """Standard deviation of the values in float64, for scale."""
    train_words: int = 0
    test_words: int = 0
    n_tags: int = 0
    notes: list[str] = field(default_factory=list)
    errors: list[LayerError] = field(default_factory=list)
    probes: list[ProbeScore] = field(default_factory=list)


def measure_exactness(
    model: str, settings: PrecisionSettings, command: str, tell: Callable[[str], None]
) -> ExactnessReport:
    """Measure the errors of all modes, and probes where there is a treebank.

    Args:
        model: Folder, weights file or Hub repository.
        settings: What is measured, and on which text.
        command: The command line, for the record.
        tell: Called with lines of progress.
    """
    if settings.text is None and settings.treebank is None:
        raise InputError("real sentences are needed: give --text FILE, or --treebank FOLDER")
    require_writable(settings.json)
    require_writable(settings.markdown)
    set_threads(settings.threads)
    places = devices(settings.device)
    gpu = next((place for place in places if place.type == "cuda"), None)
    report = ExactnessReport(command, elmo.__version__, this_machine(gpu), model)
    modes = list(_modes(settings, places, report.notes))
    task = None
    if settings.treebank is not None:
        task = read_tag_task(settings.treebank, settings.train_words, settings.test_words)
    sentences = _read_text(settings, task)
    if is_untrained(model):
        report.notes.append("the weights are random: trained ones have other errors")
    report.n_sentences, report.n_words = len(sentences), sum(map(len, sentences))
    tell(f"float64: {report.n_words:,} words")
    expected = float64_layers(open_model(model), sentences, not settings.quiet)
    report.value_spread = float(np.concatenate(expected, axis=1).std())
    prober = None if task is None else _Prober(task)
    for mode in modes:
        tell(f"{mode}: errors" + (", probes" if prober is not None else ""))
        with gpu_memory_is_enough(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ElmoWarning)  # what matters is in the notes
            embedder = ELMo.from_pretrained(model, precision=mode.precision, device=mode.device)
            report.errors += layer_errors(mode, embedder.encode_tokens(sentences), expected)
            if prober is not None:
                report.probes += prober.scores(mode, embedder)
    if task is not None:
        report.train_words, report.test_words = len(task.train_labels), len(task.test_labels)
        report.n_tags = task.n_labels
    return report


def _modes(
    settings: PrecisionSettings, places: Sequence[torch.device], notes: list[str]
) -> Iterator[Mode]:
    """Yield what is measured; fp32 on the first device first: probes are compared to it."""
    yield Mode("fp32", str(places[0]))
    for place in places:
        for precision in usable_precisions(settings.precision, place, notes, emulate=True):
            if place.type == "cpu" and not runs_natively(precision):
                notes.append(
                    f"this CPU has no instructions for {precision}: its weights were rounded, and "
                    "products computed in float32"
                )
            if (precision, place) != ("fp32", places[0]):
                yield Mode(precision, str(place))


# --- text -----------------------------------------------------------------------------------------


def _read_text(settings: PrecisionSettings, task: TagTask | None) -> Sentences:
    if settings.text is None:
        assert task is not None  # `measure_exactness` has checked it
        return _first(task.test, settings.words)
    with TextFile(settings.text) as file:
        filled = filter(None, read_sentences(file, get_tokenizer(settings.tokenizer)))
        sentences = _first(filled, settings.words)
    if not sentences:
        raise InputError(f"{settings.text} has no words: give a text with at least one sentence")
    return sentences


def _first(sentences: Iterator[list[str]] | Sentences, words: int) -> Sentences:
    """Take sentences until they have so many words."""
    read = 0

    def wanted(sentence: list[str]) -> bool:
        nonlocal read
        before, read = read, read + len(sentence)
        return before < words

    return list(takewhile(wanted, sentences))


# --- errors ---------------------------------------------------------------------------------------


def layer_errors(
    mode: Mode,
    found: Sequence[npt.NDArray[np.float32]],
    expected: Sequence[npt.NDArray[np.float64]],
) -> Iterator[LayerError]:
    """Compare vectors with those in float64.

    Args:
        mode: How they were computed.
        found: For each sentence `(layers, n, dim)`.
        expected: The same in float64.
    """
    ours = np.concatenate([vectors.astype(np.float64) for vectors in found], axis=1)
    theirs = np.concatenate(expected, axis=1)
    for layer, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        difference = np.abs(left - right)
        yield LayerError(
            mode=mode,
            layer=layer,
            largest=float(difference.max()),
            mean=float(difference.mean()),
            relative=float(np.linalg.norm(difference) / np.linalg.norm(right)),
            least_cosine=float(_cosines(left, right).min()),
        )


def _cosines(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the cosines of rows `(n, dim)` with rows `(n, dim)`, `(n,)`."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines: npt.NDArray[np.float64] = (left * right).sum(axis=1) / lengths
    return cosines


# --- probes ---------------------------------------------------------------------------------------


class _Prober:
    """Trains and tests probes; the first mode that it sees is the one others are compared to.

    Args:
        task: What is learned.
    """

    def __init__(self, task: TagTask) -> None:
        self._task = task
        self._first_probes: list[LinearProbe] = []
        self._first_answers: list[Tensor] = []

    def scores(self, mode: Mode, embedder: ELMo) -> Iterator[ProbeScore]:
        """Judge every layer of a model."""
        train, test = (
            _vectors(embedder, sentences) for sentences in (self._task.train, self._task.test)
        )
        for layer in range(embedder.n_layers):
            own = LinearProbe(train[layer], self._task.train_labels, self._task.n_labels)
            if len(self._first_probes) == layer:
                self._first_probes.append(own)
                self._first_answers.append(own.predict(test[layer]))
            answers = self._first_probes[layer].predict(test[layer])
            yield ProbeScore(
                mode=mode,
                layer=layer,
                accuracy_of_fp32_probe=_share(answers == self._task.test_labels),
                accuracy_of_own_probe=_share(own.predict(test[layer]) == self._task.test_labels),
                changed=_share(answers != self._first_answers[layer]),
            )


def _vectors(embedder: ELMo, sentences: Sentences) -> Tensor:
    """Embed sentences into one tensor on the CPU: `(layers, words, dim)`."""
    return torch.from_numpy(np.concatenate(embedder.encode_tokens(sentences), axis=1))


def _share(holds: Tensor) -> float:
    return float(holds.double().mean())

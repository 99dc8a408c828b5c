"""What each layer knows: parts of speech, senses of words, and whether two senses are the same.

As in the ELMo paper, tables 5 and 6: a linear probe for parts of speech, and the nearest mean of
SemCor's senses for word sense disambiguation; and word in context by a threshold on cosines. Static
vectors, which know words without context, can be asked beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from elmo.analysis.contextuality.geometry import Floats, Vectors, unit_rows
from elmo.analysis.layers.probe import LinearProbe
from elmo.analysis.layers.static_targets import STATIC_NAMES, static_targets
from elmo.analysis.layers.task_data import (
    PairData,
    SenseData,
    read_evaluation,
    read_pairs,
    read_semcor,
)
from elmo.analysis.layers.treebank import TagTask, read_tag_task
from elmo.analysis.layers.wordnet import WordNet
from elmo.analysis.settings import LayerSettings, LayerTask
from elmo.analysis.targets import all_targets, every_word, layer_names, target_vectors
from elmo.embedder import ELMo
from elmo.errors import ConfigError
from elmo.text.files import get_tokenizer
from elmo.text.vector_sources import VectorSource, open_vectors

_FOLDERS: dict[LayerTask, str] = {"pos": "pos_ewt", "wsd": "wsd", "wic": "wic"}
"""Where the data of each task is inside of `--data`."""
_FLAGS: dict[LayerTask, str] = {"pos": "treebank", "wsd": "wsd", "wic": "wic"}
"""What else can name its folder."""
_SOURCES: dict[LayerTask, str] = {
    "pos": "a treebank of universaldependencies.org",
    "wsd": "SemCor, and the evaluation framework of lcl.uniroma1.it/wsdeval",
    "wic": "MCL-WiC, github.com/SapienzaNLP/mcl-wic",
}
_WIC_TRAIN, _WIC_TEST = "training.en-en", "dev.en-en"


@dataclass(frozen=True)
class TagScore:
    """Parts of speech by a linear probe."""

    layer: str
    accuracy: float


@dataclass(frozen=True)
class SenseScore:
    """Senses of words by the nearest mean."""

    layer: str
    f1: float
    """On all instances, of which every one is answered: precision, recall and F1 are the same."""
    by_set: dict[str, float]
    """On each data set."""
    f1_seen: float | None
    """On instances whose word SemCor has; None if there are none."""


@dataclass(frozen=True)
class PairScore:
    """Same sense or not, by a threshold."""

    layer: str
    accuracy: float
    train_accuracy: float
    threshold: float
    """Cosines above it mean: the same; chosen on the training pairs."""


@dataclass
class LayerReport:
    """What all layers of one model know."""

    model: str = ""
    model_sha256: str = ""
    tag_words: int = 0
    """Words that the probes learned from."""
    tag_test_words: int = 0
    sense_means: int = 0
    """Senses with a mean from SemCor."""
    sense_instances: int = 0
    sense_unseen: int = 0
    """Instances whose word SemCor does not have: the first sense of WordNet is taken."""
    first_sense_f1: float | None = None
    """What WordNet's first sense alone achieves."""
    first_sense_by_set: dict[str, float] = field(default_factory=dict)
    pairs: int = 0
    pairs_most_frequent: float | None = None
    """Accuracy of the more frequent answer."""
    notes: list[str] = field(default_factory=list)
    pos: list[TagScore] = field(default_factory=list)
    wsd: list[SenseScore] = field(default_factory=list)
    wic: list[PairScore] = field(default_factory=list)


@dataclass(frozen=True)
class LayerData:
    """The data of all tasks that were asked for, read before anything is computed."""

    tags: TagTask | None = None
    semcor: SenseData | None = None
    evaluation: SenseData | None = None
    wordnet: WordNet | None = None
    train_pairs: PairData | None = None
    test_pairs: PairData | None = None
    static: VectorSource | None = None
    """Vectors without context, to compare with."""


def read_layer_data(settings: LayerSettings, tell: Callable[[str], None]) -> LayerData:
    """Read what the tasks need; anything that is missing is told here."""
    tags = semcor = evaluation = wordnet = train_pairs = test_pairs = None
    folders = _data_folders(settings)
    if "pos" in folders:
        tags = read_tag_task(folders["pos"], settings.train_words, settings.test_words)
    if "wsd" in folders:
        wordnet = WordNet(settings.wordnet)
        semcor = read_semcor(folders["wsd"], settings.sentences)
        evaluation = read_evaluation(folders["wsd"])
    if "wic" in folders:
        tokenizer = get_tokenizer("english")
        train_pairs = read_pairs(folders["wic"], _WIC_TRAIN, tokenizer, settings.sentences)
        test_pairs = read_pairs(folders["wic"], _WIC_TEST, tokenizer)
    tell(f"read: {', '.join(settings.tasks)}")
    static = None if settings.static is None else open_vectors(settings.static)
    return LayerData(tags, semcor, evaluation, wordnet, train_pairs, test_pairs, static)


def _data_folders(settings: LayerSettings) -> dict[LayerTask, Path]:
    """Find the folder of each task, or say what is missing and where such data comes from."""
    folders: dict[LayerTask, Path] = {}
    for task in settings.tasks:
        named = getattr(settings, _FLAGS[task])
        if named is not None:
            folders[task] = named
        elif settings.data is not None:
            folders[task] = settings.data / _FOLDERS[task]
    missing = [task for task in settings.tasks if task not in folders]
    if missing:
        wanted = "; ".join(f"{_FOLDERS[task]} ({_SOURCES[task]})" for task in missing)
        flags = ", ".join(f"--{_FLAGS[task]}" for task in missing)
        raise ConfigError(
            f"there is no data for {', '.join(missing)}: give --data FOLDER, expected in it: "
            f"{wanted}; or name a folder by {flags}, or ask less with --tasks. docs/analysis.md "
            "says which files are read"
        )
    return folders


def measure_layers(
    model: ELMo, data: LayerData, tell: Callable[[str], None], show_progress: bool = False
) -> LayerReport:
    """Ask every layer, and the mix, all tasks.

    Args:
        model: Whose layers.
        data: The tasks.
        tell: Hears what is going on.
        show_progress: Whether to show progress bars.
    """
    report = LayerReport()
    if data.static is not None:
        report.notes.append(
            f"static: {data.static.name}; of the word alone, or its sentence's mean"
        )
    if data.tags is not None:
        _measure_tags(model, data.tags, data.static, report, tell, show_progress)
    if data.semcor is not None and data.evaluation is not None and data.wordnet is not None:
        _measure_senses(model, data, report, show_progress)
    if data.train_pairs is not None and data.test_pairs is not None:
        _measure_pairs(model, data, report, show_progress)
    return report


# --- parts of speech ------------------------------------------------------------------------------


def _measure_tags(
    model: ELMo,
    task: TagTask,
    static: VectorSource | None,
    report: LayerReport,
    tell: Callable[[str], None],
    show: bool,
) -> None:
    report.tag_words, report.tag_test_words = len(task.train_labels), len(task.test_labels)
    if static is not None:
        train, test = (
            static_targets(static, part, every_word(part))[0] for part in (task.train, task.test)
        )
        _probe_tags(STATIC_NAMES[0], train, test, task, report, tell)
    layers_train, layers_test = (
        all_targets(model, part, every_word(part), f"pos, {name}", show)
        for part, name in ((task.train, "training"), (task.test, "test"))
    )
    for name, train, test in zip(layer_names(model), layers_train, layers_test, strict=True):
        _probe_tags(name, train, test, task, report, tell)


def _probe_tags(
    name: str,
    train: Vectors,
    test: Vectors,
    task: TagTask,
    report: LayerReport,
    tell: Callable[[str], None],
) -> None:
    """Learn tags from vectors `(n, dim)`, and measure on others."""
    probe = LinearProbe(torch.from_numpy(train), task.train_labels, task.n_labels)
    right = probe.predict(torch.from_numpy(test)) == task.test_labels
    report.pos.append(TagScore(name, float(right.double().mean())))
    tell(f"pos, {name}: {report.pos[-1].accuracy:.4f}")


# --- senses ---------------------------------------------------------------------------------------


class SenseMeans:
    """Mean vectors of the senses of words, in every layer.

    Args:
        data: Words with senses.
        n_layers: Layers of vectors, the mix among them.
        dim: Width of a vector.
    """

    def __init__(self, data: SenseData, n_layers: int, dim: int) -> None:
        self._numbers: dict[str, int] = {}
        self._of_lemma: dict[tuple[str, str], set[int]] = {}
        for lemma, keys in zip(data.lemmas, data.keys, strict=True):
            for key in keys:
                number = self._numbers.setdefault(key, len(self._numbers))
                self._of_lemma.setdefault(lemma, set()).add(number)
        self.keys = list(self._numbers)
        self._sums = np.zeros((n_layers, len(self.keys), dim), np.float32)
        self._data = data

    def add(self, numbers: npt.NDArray[np.int64], vectors: Vectors) -> None:
        """Count some words in: their numbers `(k,)` and vectors `(n_layers, k, dim)`."""
        pairs = [
            (place, self._numbers[key])
            for place, number in enumerate(numbers.tolist())
            for key in self._data.keys[number]
        ]
        places, senses = np.array(pairs, np.int64).T
        order = np.argsort(senses, kind="stable")
        present, starts = np.unique(senses[order], return_index=True)
        added = np.add.reduceat(vectors[:, places[order]], starts, axis=1)
        self._sums[:, present] += added

    def senses(self, lemma: tuple[str, str]) -> list[int]:
        """Give the numbers of the senses of a lemma with its part of speech."""
        return sorted(self._of_lemma.get(lemma, ()))

    def nearest(self, layer: int, vector: Floats, senses: Sequence[int]) -> str:
        """Give the key of the sense whose mean has the highest cosine with a vector `(dim,)`."""
        means = unit_rows(self._sums[layer, senses])
        return self.keys[senses[int((means @ vector).argmax())]]


def _measure_senses(model: ELMo, data: LayerData, report: LayerReport, show: bool) -> None:
    semcor, evaluation, wordnet = data.semcor, data.evaluation, data.wordnet
    assert semcor is not None
    assert evaluation is not None
    assert wordnet is not None
    names = layer_names(model)
    means = SenseMeans(semcor, len(names), model.dim)
    for numbers, some in target_vectors(model, semcor.sentences, semcor.spans, "wsd, SemCor", show):
        means.add(numbers, some)
    vectors = all_targets(model, evaluation.sentences, evaluation.spans, "wsd, test", show)
    first = [wordnet.first_sense(*lemma) for lemma in evaluation.lemmas]
    candidates = [means.senses(lemma) for lemma in evaluation.lemmas]
    report.sense_means, report.sense_instances = len(means.keys), len(first)
    report.sense_unseen = sum(not senses for senses in candidates)
    baseline = [answer in keys for answer, keys in zip(first, evaluation.keys, strict=True)]
    report.first_sense_f1 = float(np.mean(baseline))
    report.first_sense_by_set = _by_set(baseline, evaluation.groups)
    seen = np.array([bool(senses) for senses in candidates])
    for layer, name in enumerate(names):
        rows = unit_rows(vectors[layer])
        answers = [
            means.nearest(layer, row, senses) if senses else fallback
            for row, senses, fallback in zip(rows, candidates, first, strict=True)
        ]
        right = [answer in keys for answer, keys in zip(answers, evaluation.keys, strict=True)]
        f1_seen = float(np.mean(np.array(right)[seen])) if seen.any() else None
        by_set = _by_set(right, evaluation.groups)
        report.wsd.append(SenseScore(name, float(np.mean(right)), by_set, f1_seen))


def _by_set(right: Sequence[bool], groups: Sequence[str]) -> dict[str, float]:
    return {
        group: float(np.mean([r for r, g in zip(right, groups, strict=True) if g == group]))
        for group in dict.fromkeys(groups)
    }


# --- pairs ----------------------------------------------------------------------------------------


def best_threshold(values: Floats, same: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Find the threshold above which most values mean "the same" rightly.

    Args:
        values: Cosines, `(n,)`.
        same: What is right, bool `(n,)`.

    Returns:
        The threshold, and the share of right answers; it lies between two of the values.
    """
    order = np.argsort(values, kind="stable")
    ordered, right = values[order], same[order].astype(np.int64)
    # With the threshold before place k: "different" is right below it, "the same" from it on.
    scores = np.concatenate([[0], np.cumsum(1 - right)])
    scores = scores + right.sum() - np.concatenate([[0], np.cumsum(right)])
    allowed = np.concatenate([[True], np.diff(ordered) > 0, [True]])
    best = int(np.where(allowed, scores, -1).argmax())
    edges = np.concatenate([[ordered[0] - 1e-6], ordered, [ordered[-1] + 1e-6]])
    return float((edges[best] + edges[best + 1]) / 2), float(scores[best] / len(values))


def _measure_pairs(model: ELMo, data: LayerData, report: LayerReport, show: bool) -> None:
    train, test = data.train_pairs, data.test_pairs
    assert train is not None
    assert test is not None
    report.pairs = len(test.same)
    share = float(test.same.mean())
    report.pairs_most_frequent = max(share, 1 - share)
    if data.static is not None:
        found = [
            _pair_cosines(static_targets(data.static, part.sentences, part.spans))
            for part in (train, test)
        ]
        _judge_pairs(STATIC_NAMES, (found[0], found[1]), train, test, report)
    found = [
        _pair_cosines(all_targets(model, part.sentences, part.spans, f"wic, {name}", show))
        for part, name in ((train, "training"), (test, "test"))
    ]
    _judge_pairs(layer_names(model), (found[0], found[1]), train, test, report)


def _judge_pairs(
    names: Sequence[str],
    cosines: tuple[Floats, Floats],
    train: PairData,
    test: PairData,
    report: LayerReport,
) -> None:
    """Choose thresholds on cosines `(n_layers, n)` of training, and measure on those of test."""
    for name, known, asked in zip(names, *cosines, strict=True):
        threshold, train_accuracy = best_threshold(known, train.same)
        right = (asked > threshold) == test.same
        report.wic.append(PairScore(name, float(right.mean()), train_accuracy, threshold))


def _pair_cosines(vectors: Vectors) -> Floats:
    """Give the cosines `(n_layers, n)` of pairs of rows of `(n_layers, 2 n, dim)`."""
    by_layer = []
    for layer in vectors:
        rows = unit_rows(layer)
        by_layer.append((rows[::2] * rows[1::2]).sum(axis=1))
    return np.stack(by_layer)

"""What each layer knows: parts of speech, senses of words, and whether two senses are the same.

As in the ELMo paper, tables 5 and 6: a linear probe for parts of speech, and the nearest mean of
SemCor's senses for word sense disambiguation; and word in context by a threshold on cosines. Static
vectors are a baseline without context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from elmo.analysis.geometry import Floats, Vectors, group_sums, unit_rows
from elmo.analysis.inputs import divided, load, prepare, saved
from elmo.analysis.probing.report import (
    LayerReport,
    PairResults,
    PairScore,
    SenseResults,
    SenseScore,
    TagResults,
    TagScore,
)
from elmo.analysis.probing.sense_data import (
    PairData,
    SenseData,
    read_evaluation,
    read_pairs,
    read_semcor,
)
from elmo.analysis.probing.tagging import LinearProbe, TagTask, read_tag_task
from elmo.analysis.probing.wordnet import WordNet
from elmo.analysis.settings import LayerSettings, LayerTask
from elmo.analysis.span_vectors import (
    STATIC_NAMES,
    all_span_vectors,
    every_word,
    layer_names,
    span_vectors,
    static_span_vectors,
)
from elmo.embedder import ELMo
from elmo.errors import ConfigError
from elmo.text.files import get_tokenizer
from elmo.text.static_vectors import VectorSource, open_vectors

if TYPE_CHECKING:
    from elmo.analysis.inputs import Model

_WIC_TRAIN, _WIC_TEST = "training.en-en", "dev.en-en"


class _Source(NamedTuple):
    """Where the data of a task is, and where it comes from."""

    folder: str
    """Inside of --data."""
    flag: str
    """The setting that names another folder."""
    origin: str


_SOURCES: dict[LayerTask, _Source] = {
    "pos": _Source(
        "pos_ewt",
        "treebank",
        "a treebank as CoNLL-U, *train.conllu and *test.conllu: universaldependencies.org "
        "(English EWT: github.com/UniversalDependencies/UD_English-EWT)",
    ),
    "wsd": _Source(
        "wsd",
        "wsd",
        "SemCor as semcor.jsonl, and ALL/ALL.data.xml with ALL/ALL.gold.key.txt of the evaluation "
        "framework of Raganato et al.: lcl.uniroma1.it/wsdeval; and WordNet 3.0 (--wordnet, "
        "Debian: wordnet-base)",
    ),
    "wic": _Source(
        "wic",
        "wic",
        "MCL-WiC, training and dev .data and .gold: github.com/SapienzaNLP/mcl-wic",
    ),
}


@dataclass(frozen=True)
class LayerData:
    """The data of the tasks, read before anything is computed."""

    tags: TagTask | None = None
    senses: tuple[SenseData, SenseData, WordNet] | None = None
    """SemCor, the evaluation data, and first senses."""
    pairs: tuple[PairData, PairData] | None = None
    """Training and test."""
    static: VectorSource | None = None
    notes: tuple[str, ...] = ()


def layers(
    *,
    model: Model = None,
    settings: LayerSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> LayerReport:
    """Run probing tasks on every layer and on the mix, as `elmo analyze layers` does.

    Args:
        model: A model, or its name or folder.
        settings: Which tasks, and their data.
        show_progress: Whether to show progress.
        fields: Fields of `LayerSettings`, instead of these.
    """
    settings, _ = divided(LayerSettings, settings, (), fields)
    prepare(settings, LayerReport, LayerReport.stem)
    data = read_layer_data(settings)
    elmo, facts = load(model)
    pos = wsd = wic = None
    if data.tags is not None:
        pos = _measure_tags(elmo, data.tags, data.static, show_progress)
    if data.senses is not None:
        wsd = _measure_senses(elmo, *data.senses, show_progress)
    if data.pairs is not None:
        wic = _measure_pairs(elmo, *data.pairs, data.static, show_progress)
    report = LayerReport(notes=list(data.notes), pos=pos, wsd=wsd, wic=wic)
    return saved(report, settings, **facts)


def read_layer_data(settings: LayerSettings) -> LayerData:
    """Read the data of the tasks; a file that is missing is reported here."""
    tags = senses = pairs = None
    folders, notes = _find_folders(settings)
    limit = settings.max_sentences
    if "pos" in folders:
        words = settings.max_train_words, settings.max_test_words
        tags = read_tag_task(folders["pos"], *words)
    if "wsd" in folders:
        wordnet, folder = WordNet(settings.wordnet), folders["wsd"]
        senses = (read_semcor(folder, limit), read_evaluation(folder), wordnet)
    if "wic" in folders:
        english, folder = get_tokenizer("english"), folders["wic"]
        train = read_pairs(folder, _WIC_TRAIN, english, limit)
        pairs = (train, read_pairs(folder, _WIC_TEST, english))
    static = settings.static_vectors
    source = None if static is None else open_vectors(static)
    if limit is not None:
        notes.append(f"SemCor and WiC's training were cut to {limit:,}")
    if source is not None:
        notes.append(f"static: {source.name}; of the word alone, or the mean of its sentence")
    return LayerData(tags, senses, pairs, source, tuple(notes))


def _find_folders(settings: LayerSettings) -> tuple[dict[LayerTask, Path], list[str]]:
    """Return the folder of each task, and notes on tasks that are left out.

    A task that is not asked for by name is left out if its data is not there.
    """
    folders: dict[LayerTask, Path] = {}
    missing: list[LayerTask] = []
    for task in settings.tasks or tuple(_SOURCES):
        source = _SOURCES[task]
        named: Path | None = getattr(settings, source.flag)
        inside = None if settings.data is None else settings.data / source.folder
        if named is not None or (inside is not None and (settings.tasks or inside.is_dir())):
            folders[task] = named or inside  # type: ignore[assignment]
        else:
            missing.append(task)
    if not folders or (missing and settings.tasks):
        lines = [f"  {task}  {_SOURCES[task].origin}" for task in missing]
        flags = ", ".join(f"--{_SOURCES[task].flag}" for task in missing)
        names = ", ".join(_SOURCES[task].folder for task in missing)
        where = "" if settings.data is None else f" in {settings.data}"
        raise ConfigError(
            f"no data{where} for {', '.join(missing)}; wanted:\n"
            + "\n".join(lines)
            + f"\ngive --data FOLDER with {names} in it, or a folder by {flags}; docs/analysis.md "
            "describes the files"
        )
    return folders, [f"{task} was left out: no data is given for it" for task in missing]


# --- parts of speech ------------------------------------------------------------------------------


def _measure_tags(
    model: ELMo, task: TagTask, static: VectorSource | None, show: bool
) -> TagResults:
    found = TagResults(len(task.train_labels), len(task.test_labels))

    def add(name: str, train: Vectors, test: Vectors) -> None:
        """Train a probe on vectors `(n, dim)`, and test it on others."""
        probe = LinearProbe(torch.from_numpy(train), task.train_labels, task.n_labels)
        right = probe.predict(torch.from_numpy(test)) == task.test_labels
        found.scores.append(TagScore(name, float(right.double().mean())))

    if static is not None:
        parts = (static_span_vectors(static, p, every_word(p))[0] for p in (task.train, task.test))
        add(STATIC_NAMES[0], *parts)
    train, test = (
        all_span_vectors(model, part, every_word(part), f"pos, {name}", show)
        for part, name in ((task.train, "training"), (task.test, "test"))
    )
    for name, of_train, of_test in zip(layer_names(model), train, test, strict=True):
        add(name, of_train, of_test)
    return found


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
        """Add words: their numbers `(k,)` in the data and vectors `(n_layers, k, dim)`."""
        pairs = [
            (place, self._numbers[key])
            for place, number in enumerate(numbers.tolist())
            for key in self._data.keys[number]
        ]
        places, senses = np.array(pairs, np.int64).T
        present, added = group_sums(vectors[:, places], senses, axis=1)
        self._sums[:, present] += added

    def senses(self, lemma: tuple[str, str]) -> list[int]:
        """Return the numbers of the senses of a lemma with its part of speech."""
        return sorted(self._of_lemma.get(lemma, ()))

    def nearest(self, layer: int, vector: Floats, senses: Sequence[int]) -> str:
        """Return the key of the sense whose mean has the highest cosine with a vector `(dim,)`."""
        means = unit_rows(self._sums[layer, senses])
        return self.keys[senses[int((means @ vector).argmax())]]


def _measure_senses(
    model: ELMo, semcor: SenseData, evaluation: SenseData, wordnet: WordNet, show: bool
) -> SenseResults:
    names = layer_names(model)
    means = SenseMeans(semcor, len(names), model.dim)
    for numbers, some in span_vectors(model, semcor.sentences, semcor.spans, "wsd, SemCor", show):
        means.add(numbers, some)
    vectors = all_span_vectors(model, evaluation.sentences, evaluation.spans, "wsd, test", show)
    first = [wordnet.first_sense(*lemma) for lemma in evaluation.lemmas]
    candidates = [means.senses(lemma) for lemma in evaluation.lemmas]
    seen = np.array([bool(senses) for senses in candidates])

    def score(answers: Sequence[str | None]) -> tuple[float, dict[str, float], float | None]:
        """Return F1 on all instances, on each data set, and on the seen ones."""
        pairs = zip(answers, evaluation.keys, strict=True)
        right = np.array([answer in keys for answer, keys in pairs])
        groups = np.array(evaluation.groups)
        sets = dict.fromkeys(evaluation.groups)
        by_set = {name: float(right[groups == name].mean()) for name in sets}
        return float(right.mean()), by_set, float(right[seen].mean()) if seen.any() else None

    f1, by_set, _ = score(first)
    found = SenseResults(len(means.keys), len(first), int((~seen).sum()), f1, by_set)
    for layer, name in enumerate(names):
        rows = unit_rows(vectors[layer])
        answers = [
            means.nearest(layer, row, senses) if senses else fallback
            for row, senses, fallback in zip(rows, candidates, first, strict=True)
        ]
        found.scores.append(SenseScore(name, *score(answers)))
    return found


# --- pairs ----------------------------------------------------------------------------------------


def best_threshold(values: Floats, same: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Find the threshold on cosines that separates "the same" from "different" best.

    Args:
        values: Cosines, `(n,)`.
        same: The correct answers, bool `(n,)`.

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


def _measure_pairs(
    model: ELMo, train: PairData, test: PairData, static: VectorSource | None, show: bool
) -> PairResults:
    share = float(test.same.mean())
    found = PairResults(len(test.same), max(share, 1 - share))

    def add(names: Sequence[str], of_train: Vectors, of_test: Vectors) -> None:
        """Choose thresholds on the pairs of training, and test them."""
        cosines = zip(names, _pair_cosines(of_train), _pair_cosines(of_test), strict=True)
        for name, known, asked in cosines:
            threshold, train_accuracy = best_threshold(known, train.same)
            right = (asked > threshold) == test.same
            found.scores.append(PairScore(name, float(right.mean()), train_accuracy, threshold))

    if static is not None:
        vectors = (static_span_vectors(static, p.sentences, p.spans) for p in (train, test))
        add(STATIC_NAMES, *vectors)
    vectors = (
        all_span_vectors(model, part.sentences, part.spans, f"wic, {name}", show)
        for part, name in ((train, "training"), (test, "test"))
    )
    add(layer_names(model), *vectors)
    return found


def _pair_cosines(vectors: Vectors) -> Floats:
    """Return the cosines `(n_layers, n)` of pairs of rows of `(n_layers, 2 n, dim)`."""
    rows = [unit_rows(layer) for layer in vectors]
    return np.stack([(layer[::2] * layer[1::2]).sum(axis=1) for layer in rows])

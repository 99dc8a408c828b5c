"""Similarity of words beside the judgement of people: Spearman's rank correlation.

*In isolation* a word is a sentence of its own; *in context* its vector is the mean over its
occurrences in a corpus.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from elmo.analysis.contextuality.geometry import Floats, Integers, Vectors, unit_rows
from elmo.analysis.intervals import Estimate, estimate
from elmo.analysis.passages import Corpus
from elmo.analysis.settings import CorrelationSettings
from elmo.analysis.targets import layer_names
from elmo.analysis.words.word_means import mean_vectors
from elmo.embed.selection import mix_layers
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.runtime.tables import counted
from elmo.text.files import TextFile

_COLUMNS = re.compile(r"[\t,;]|\s+")
_FEWEST = 3
"""Pairs below which a correlation says nothing."""


@dataclass(frozen=True)
class JudgedPairs:
    """Pairs of words with scores that people gave."""

    name: str
    left: list[str]
    right: list[str]
    scores: Floats
    """Shape `(n,)`."""

    @property
    def words(self) -> list[str]:
        """All different words."""
        return list(dict.fromkeys([*self.left, *self.right]))


@dataclass(frozen=True)
class CorrelationRow:
    """One way to compare the words of one file."""

    file: str
    way: str
    """`isolation` or `context`."""
    layer: str
    spearman: Estimate
    n_pairs: int
    """Pairs that were compared."""


@dataclass
class CorrelationReport:
    """All that was compared."""

    model: str = ""
    model_sha256: str = ""
    corpus: str = ""
    notes: list[str] = field(default_factory=list)
    rows: list[CorrelationRow] = field(default_factory=list)
    figures: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """For each file, score and cosine of every pair in the way that agrees best."""


def read_judged_pairs(path: Path) -> JudgedPairs:
    """Read a file with two words and a score a line, between tabs, commas or spaces.

    Lines that begin with `#` are left out, and so is a first line without a score.
    """
    left: list[str] = []
    right: list[str] = []
    scores: list[float] = []
    header = ""
    with TextFile(path) as lines:
        for number, line in enumerate(lines, start=1):
            columns = [part for part in _COLUMNS.split(line.strip()) if part]
            if not columns or line.lstrip().startswith("#"):
                continue
            score = _number(columns[2]) if len(columns) >= 3 else None
            if score is None:
                if number == 1 and len(columns) >= 3:
                    header = f" (line 1, {line.strip()[:60]!r}, has no score: taken for a header)"
                    continue
                raise InputError(
                    f"{path}, line {number}: {line.strip()[:60]!r}, expected two words and a score"
                )
            left.append(columns[0])
            right.append(columns[1])
            scores.append(score)
    if len(scores) < _FEWEST:
        raise InputError(
            f"{path} has {counted(len(scores), 'pair')}{header}; a correlation needs {_FEWEST} "
            "at the least"
        )
    return JudgedPairs(path.name, left, right, np.array(scores))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def ranks(values: Floats) -> Floats:
    """Give the ranks of values `(n,)` from 0 on; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = ((last - counts) + (last - 1)) / 2
    return means[inverse]


def spearman(first: Floats, second: Floats) -> float | None:
    """Give the rank correlation of two lists `(n,)`; None where a list is all the same."""
    if len(first) < _FEWEST:
        return None
    centred = [r - r.mean() for r in (ranks(first), ranks(second))]
    size = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return float(np.clip((centred[0] * centred[1]).sum() / size, -1.0, 1.0)) if size > 0 else None


def spearman_estimate(first: Floats, second: Floats, resamples: int, seed: int) -> Estimate:
    """Give the rank correlation with an interval from resampled pairs."""
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(0, len(first), len(first)) for _ in range(resamples))
    values = [spearman(first[some], second[some]) for some in drawn]
    known = np.array([value for value in values if value is not None])
    return estimate(spearman(first, second), known)


def compare_with_people(
    model: ELMo, files: Sequence[JudgedPairs], corpus: Corpus | None, settings: CorrelationSettings
) -> CorrelationReport:
    """Compare similarities in every layer, and in the mix, with those of people.

    Args:
        model: What embeds.
        files: What people said.
        corpus: Where words occur; without it they are compared in isolation only.
        settings: How.
    """
    report = CorrelationReport(corpus="" if corpus is None else corpus.title)
    words = list(dict.fromkeys(word for file in files for word in file.words))
    rows = {word: row for row, word in enumerate(words)}
    alone = model.encode_tokens([[word] for word in words], layers="all", show_progress_bar=False)
    isolated = np.concatenate(alone, axis=1)
    for file in files:
        everything = np.arange(len(file.scores))
        _compare(report, model, file, rows, isolated, "isolation", everything, settings)
    if corpus is None:
        return report
    forms = [corpus.word(word) for word in words]
    distinct = list(dict.fromkeys(forms))
    means, counts = mean_vectors(model, corpus, distinct, "all")
    places = {form: place for place, form in enumerate(distinct)}
    at = np.array([places[form] for form in forms])
    enough = counts[at] >= max(1, settings.min_count)
    for file in files:
        known = np.array([enough[rows[a]] and enough[rows[b]] for a, b in _pairs(file)], np.bool_)
        some = np.flatnonzero(known)
        if len(some) < len(file.scores):
            report.notes.append(_missing(file, words, enough, len(some), settings))
        if len(some) >= _FEWEST:
            _compare(report, model, file, rows, means[:, at], "context", some, settings)
    return report


def _pairs(file: JudgedPairs) -> list[tuple[str, str]]:
    return list(zip(file.left, file.right, strict=True))


def _missing(
    file: JudgedPairs,
    words: list[str],
    enough: Vectors,
    n_known: int,
    settings: CorrelationSettings,
) -> str:
    own = set(file.words)
    lost = [word for word, known in zip(words, enough, strict=True) if not known and word in own]
    shown = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
    least = max(1, settings.min_count)
    often = "never occur" if least == 1 else f"occur fewer than {least} times"
    told = "" if n_known >= _FEWEST else "; too few to compare in context"
    return (
        f"{file.name}: {n_known:,} of {len(file.scores):,} pairs are compared in context, because "
        f"{len(lost):,} words {often} in the corpus ({shown}){told}"
    )


def _compare(
    report: CorrelationReport,
    model: ELMo,
    file: JudgedPairs,
    rows: dict[str, int],
    vectors: Vectors,
    way: str,
    some: Integers,
    settings: CorrelationSettings,
) -> None:
    """Compare some pairs of a file; `vectors` are `(n_layers, len(rows), dim)`."""
    import torch

    mixed = mix_layers([torch.from_numpy(np.ascontiguousarray(v)) for v in vectors], model.config)
    pairs = np.array([(rows[a], rows[b]) for a, b in _pairs(file)])[some]
    used = np.unique(pairs)
    scores = file.scores[some]
    for name, layer in zip(layer_names(model), [*vectors, mixed.numpy()], strict=True):
        shift = layer[used].mean(axis=0) if settings.remove_mean else 0.0
        unit = unit_rows(layer - shift)
        cosines = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(axis=1)
        found = spearman_estimate(scores, cosines, settings.resamples, settings.seed)
        row = CorrelationRow(file.name, way, name, found, len(some))
        before = [r.spearman.value for r in report.rows if r.file == file.name]
        best = max((value for value in before if value is not None), default=-2.0)
        if found.value is not None and found.value > best:
            report.figures[file.name] = list(zip(scores.tolist(), cosines.tolist(), strict=True))
        report.rows.append(row)

"""Similarity of words beside human judgments: Spearman's rank correlation.

*In isolation* a word is a sentence of its own; *in context* its vector is the mean over its
occurrences in a corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from elmo.analysis.corpus import Corpus, require_corpus
from elmo.analysis.geometry import Floats, Integers, Vectors, unit_rows
from elmo.analysis.inputs import divided, load, prepare, saved
from elmo.analysis.intervals import Estimate, bootstrap, estimate
from elmo.analysis.reports import TITLE, CorpusReport, Table, add_grid, figure_text, new_figure
from elmo.analysis.settings import CorrelationSettings
from elmo.analysis.span_vectors import layer_names, with_mix
from elmo.analysis.words.word_means import mean_vectors
from elmo.embedder import ELMo
from elmo.errors import InputError, MissingExtraError
from elmo.runtime.tables import counted
from elmo.text.files import TextFile

if TYPE_CHECKING:
    from elmo.analysis.inputs import Model, Text

_COLUMNS = re.compile(r"[\t,;]|\s+")
_FEWEST = 3
"""Pairs below which a correlation says nothing."""

Condition = Literal["isolation", "context"]
"""Whether a word is a sentence of its own, or its vectors in a corpus are averaged."""


@dataclass(frozen=True)
class JudgedPairs:
    """Pairs of words with human scores."""

    name: str
    left: list[str]
    right: list[str]
    scores: Floats
    """Shape `(n,)`."""

    @property
    def words(self) -> list[str]:
        """All distinct words."""
        return list(dict.fromkeys([*self.left, *self.right]))


@dataclass(frozen=True)
class CorrelationRow:
    """The correlation of one file with one layer."""

    file: str
    condition: Condition
    layer: str
    spearman: Estimate
    n_pairs: int
    """Pairs that were compared."""


@dataclass(frozen=True, kw_only=True)
class CorrelationReport(CorpusReport):
    """The correlations of all files, layers and conditions."""

    stem = "correlation"
    rows: list[CorrelationRow] = field(default_factory=list)
    pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """For each file, score and cosine of every pair where the correlation is highest."""

    @property
    def head(self) -> list[str]:
        """Model and corpus."""
        corpus = "none: words are compared in isolation only"
        if self.corpus:
            corpus = f"{self.corpus} (tokenizer {self.tokenizer})"
        return [*super().head, f"corpus   {corpus}"]

    def tables(self) -> Iterator[Table]:
        """Yield one table."""
        rows = [
            (
                row.file,
                f"in {row.condition}",
                row.layer,
                figure_text(row.spearman.value),
                str(row.spearman),
                f"{row.n_pairs:,}",
            )
            for row in self.rows
        ]
        yield Table(("file", "words", "layer", "Spearman", "95 %", "pairs"), rows)

    def figure(self) -> Any:
        """Draw scores and cosines, a panel for each file, where the correlation is highest."""
        width = max(1, len(self.pairs))
        figure = new_figure(5 * width, 4.4, f"elmo analyze correlation: {self.model}")
        panels = figure.subplots(1, width, squeeze=False)[0]
        for axes, (name, points) in zip(panels, self.pairs.items(), strict=False):
            known = [r for r in self.rows if r.file == name and r.spearman.value is not None]
            best = max(known, key=lambda row: row.spearman.value or 0.0)
            axes.scatter(*zip(*points, strict=True), s=14, alpha=0.6, color="C0")
            how = f"in {best.condition}, layer {best.layer}"
            axes.set_title(f"{name}: Spearman {best.spearman.value:.2f}, {how}", **TITLE)
            axes.set_xlabel("human score")
            axes.set_ylabel("cosine")
            add_grid(axes)
        return figure


def read_judged_pairs(path: Path) -> JudgedPairs:
    """Read a file with two words and a score a line, between tabs, commas or spaces.

    Lines that begin with `#` are skipped, and so is a first line without a score.
    """
    rows: list[tuple[str, str, float]] = []
    header = ""
    with TextFile(path) as lines:
        for number, line in enumerate(lines, start=1):
            columns = [part for part in _COLUMNS.split(line.strip()) if part]
            if not columns or line.lstrip().startswith("#"):
                continue
            shown = repr(line.strip()[:60])
            score = _number(columns[2]) if len(columns) >= 3 else None
            if score is not None:
                rows.append((columns[0], columns[1], score))
            elif number == 1 and len(columns) >= 3:
                header = f" (line 1, {shown}, has no score: taken for a header)"
            else:
                raise InputError(f"{path}, line {number}: {shown}, expected two words and a score")
    if len(rows) < _FEWEST:
        raise InputError(
            f"{path} has {counted(len(rows), 'pair')}{header}; a correlation needs at least "
            f"{_FEWEST}"
        )
    left, right, scores = zip(*rows, strict=True)
    return JudgedPairs(path.name, list(left), list(right), np.array(scores))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def spearman(first: Floats, second: Floats, axis: int = -1) -> Any:
    """Return the rank correlation along an axis; NaN where all values are the same."""
    try:
        from scipy.stats import rankdata
    except ImportError:
        raise MissingExtraError("elmo analyze correlation", "analysis") from None
    a, b = (rankdata(values, axis=axis) for values in (first, second))
    a, b = a - a.mean(axis=axis, keepdims=True), b - b.mean(axis=axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        sizes = np.sqrt((a**2).sum(axis=axis) * (b**2).sum(axis=axis))
        return np.clip((a * b).sum(axis=axis) / sizes, -1.0, 1.0)


def spearman_estimate(first: Floats, second: Floats, resamples: int, seed: int) -> Estimate:
    """Return the rank correlation of `(n,)` values with an interval from resampled pairs."""
    found = float(spearman(first, second))
    draws = bootstrap(spearman, first, second, resamples=resamples, seed=seed)
    return estimate(None if np.isnan(found) else found, draws)


def correlation(
    *paths: str | Path,
    model: Model = None,
    corpus: Text = (),
    settings: CorrelationSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> CorrelationReport:
    """Correlate similarities with human judgments, as `elmo analyze correlation` does.

    Args:
        paths: Files with two words and a score a line.
        model: A model, or its name or folder.
        corpus: Text files in which the words occur; without them, words are compared in isolation.
        settings: How.
        show_progress: Whether to show progress bars.
        fields: Fields of `CorrelationSettings` and `CorpusSettings`, instead of these.
    """
    if not paths:
        raise InputError("correlation needs a FILE with two words and a score a line")
    settings, text = divided(CorrelationSettings, settings, corpus, fields)
    prepare(settings, CorrelationReport, CorrelationReport.stem)
    files = [read_judged_pairs(Path(path)) for path in paths]
    if text.corpus:
        require_corpus(text)
    elmo, facts = load(model)
    read = Corpus(text, elmo, show_progress) if text.corpus else None
    report = _correlate(elmo, files, read, settings)
    return saved(report, settings, **facts, **(read.facts if read else {}))


def _correlate(
    model: ELMo, files: list[JudgedPairs], corpus: Corpus | None, settings: CorrelationSettings
) -> CorrelationReport:
    """Compare words in isolation, and in the context of a corpus if there is one."""
    report = CorrelationReport()
    words = list(dict.fromkeys(word for file in files for word in file.words))
    rows = {word: row for row, word in enumerate(words)}
    alone = model.encode_tokens([[word] for word in words], layers="all", show_progress_bar=False)
    isolated = with_mix(np.concatenate(alone, axis=1), model)
    names = layer_names(model)
    for file in files:
        every = np.arange(len(file.scores))
        _compare(report, file, "isolation", names, isolated, _places(file, rows), every, settings)
    if corpus is None:
        return report
    forms = [corpus.word(word) for word in words]
    distinct = list(dict.fromkeys(forms))
    means, counts = mean_vectors(model, corpus, distinct, "all")
    places = {form: place for place, form in enumerate(distinct)}
    at = np.array([places[form] for form in forms])
    vectors, enough = with_mix(means[:, at], model), counts[at] >= max(1, settings.min_count)
    for file in files:
        pairs = _places(file, rows)
        some = np.flatnonzero(enough[pairs].all(axis=1))
        if len(some) < len(file.scores):
            missing = [word for word in file.words if not enough[rows[word]]]
            report.notes.append(_missing(file, missing, len(some), settings.min_count))
        if len(some) >= _FEWEST:
            _compare(report, file, "context", names, vectors, pairs, some, settings)
    return report


def _places(file: JudgedPairs, rows: dict[str, int]) -> Integers:
    """Return the rows of both words of each pair, int64 `(n, 2)`."""
    return np.array([[rows[word] for word in side] for side in (file.left, file.right)]).T


def _missing(file: JudgedPairs, words: list[str], n_known: int, least: int) -> str:
    shown = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
    often = "never occur" if least <= 1 else f"occur fewer than {least} times"
    few = "" if n_known >= _FEWEST else "; too few to compare in context"
    return (
        f"{file.name}: {n_known:,} of {len(file.scores):,} pairs are compared in context, because "
        f"{len(words):,} words {often} in the corpus ({shown}){few}"
    )


def _compare(
    report: CorrelationReport,
    file: JudgedPairs,
    condition: Condition,
    names: Sequence[str],
    vectors: Vectors,
    pairs: Integers,
    some: Integers,
    settings: CorrelationSettings,
) -> None:
    """Add the correlations of some pairs of a file to a report.

    Args:
        report: Changed in place.
        file: Human judgments of n pairs.
        condition: What the vectors are.
        names: Of the layers.
        vectors: Of all words, in each layer, `(len(names), n_words, dim)`.
        pairs: Rows of both words of each pair, `(n, 2)`.
        some: Which pairs are compared.
        settings: How.
    """
    pairs, scores = pairs[some], file.scores[some]
    for name, layer in zip(names, vectors, strict=True):
        shift = layer[np.unique(pairs)].mean(axis=0) if settings.remove_mean else 0.0
        unit = unit_rows(layer - shift)
        cosines = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(axis=1)
        found = spearman_estimate(scores, cosines, settings.resamples, settings.seed)
        before = [r.spearman.value for r in report.rows if r.file == file.name]
        best = max((value for value in before if value is not None), default=-2.0)
        if found.value is not None and found.value > best:
            report.pairs[file.name] = list(zip(scores.tolist(), cosines.tolist(), strict=True))
        report.rows.append(CorrelationRow(file.name, condition, name, found, len(some)))

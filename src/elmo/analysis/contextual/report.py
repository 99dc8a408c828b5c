"""How contextual vectors are, as tables and as a figure, beside published results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elmo.analysis.intervals import Estimate
from elmo.analysis.reports import TITLE, CorpusReport, Table, add_grid, figure_text, new_figure
from elmo.runtime.tables import NOTHING

_EXTREMES = 12
"""Words shown at either end."""
_RAW, _BASELINE, _CORRECTED, _PUBLISHED = "C0", "0.6", "C3", "0.25"


@dataclass(frozen=True)
class Measure:
    """A figure of a layer, its value for unrelated words (the baseline), and the difference."""

    raw: Estimate
    baseline: Estimate
    corrected: Estimate


@dataclass(frozen=True)
class LayerContextuality:
    """All measures of one layer."""

    layer: int
    self_similarity: Measure
    intra_sentence_similarity: Measure
    explained_variance: Measure
    """Share of the first singular value, as in the paper's formula: vectors are not centered."""
    centered_explained_variance: Measure
    """The same without the mean: what the first principal component explains."""
    mean_cosine: Estimate
    """Of random words from different sentences."""
    partition_ratio: Estimate
    effective_dimension: Estimate
    mean_norm: Estimate
    """Length of the vectors of random words."""


@dataclass(frozen=True)
class WordContextuality:
    """The measures of one word."""

    word: str
    contexts: int
    """Distinct sentences in the sample."""
    self_similarity: list[float | None]
    """For each layer."""
    explained_variance: list[float | None]
    """For each layer."""


class _Published(NamedTuple):
    """Figures of the original ELMo, layers 0, 1, 2, from the files of the paper's author."""

    raw: tuple[float, ...]
    baseline: tuple[float, ...]

    def corrected(self, layer: int) -> float:
        return self.raw[layer] - self.baseline[layer]


_COSINE = (0.008, 0.157, 0.136)
_MEASURES = {
    "self_similarity": "self-similarity",
    "intra_sentence_similarity": "intra-sentence similarity",
    "explained_variance": "maximum explainable variance",
    "centered_explained_variance": "the same, centered",
}
_MEASURES_HEADER = ("measure", "layer", "raw", "baseline", "corrected", "95 %", "original ELMo")
_ISOTROPY_HEADER = (
    "isotropy", "mean cosine", "95 %", "partition ratio", "effective dimension", "norm",
)  # fmt: skip
_FROM_PAPER = {
    "self_similarity": _Published((1.000, 0.744, 0.642), _COSINE),
    "intra_sentence_similarity": _Published((0.318, 0.582, 0.621), _COSINE),
}


@dataclass(frozen=True, kw_only=True)
class ContextualityReport(CorpusReport):
    """How contextual the vectors of a model are on a corpus."""

    stem = "contextuality"
    n_sentences: int = 0
    n_words: int = 0
    """Words of the corpus."""
    sampled_words: int = 0
    """Distinct words in the sample."""
    sampled_occurrences: int = 0
    """Their occurrences."""
    sampled_sentences: int = 0
    baseline_words: int = 0
    """Occurrences of any words, for the baseline."""
    interrupted: bool = False
    """Whether it covers only a part of the corpus, because it was interrupted."""
    layers: list[LayerContextuality] = field(default_factory=list)
    words: list[WordContextuality] = field(default_factory=list)
    """From the least self-similar at the top layer to the most."""

    @property
    def head(self) -> list[str]:
        """Model, corpus and samples."""
        return [
            *super().head,
            f"corpus   {self.corpus}: {self.n_sentences:,} sentences, {self.n_words:,} words "
            f"(tokenizer {self.tokenizer})",
            f"sample   {self.sampled_words:,} words ({self.sampled_occurrences:,} occurrences), "
            f"{self.sampled_sentences:,} sentences, {self.baseline_words:,} random words",
        ]

    def tables(self) -> Iterator[str | Table]:
        """Yield the measures, isotropy, and the most extreme words."""
        rows = [self._row(name, layer) for name in _MEASURES for layer in self.layers]
        yield Table(_MEASURES_HEADER, rows)
        yield Table(_ISOTROPY_HEADER, [_isotropy_row(layer) for layer in self.layers])
        header = ("word", "contexts", *(f"layer {layer.layer}" for layer in self.layers))
        low, high = self.words[:_EXTREMES], self.words[_EXTREMES:][-_EXTREMES:]
        yield "Least self-similar at the top layer:"
        yield Table(header, [_word_row(word) for word in low])
        if high:
            yield "Most self-similar at the top layer:"
            yield Table(header, [_word_row(word) for word in reversed(high)])

    def _row(self, name: str, layer: LayerContextuality) -> tuple[str, ...]:
        measure: Measure = getattr(layer, name)
        return (
            _MEASURES[name],
            str(layer.layer),
            figure_text(measure.raw.value),
            figure_text(measure.baseline.value),
            figure_text(measure.corrected.value),
            str(measure.corrected),
            figure_text(self._published(name, layer.layer)),
        )

    def _published(self, name: str, layer: int) -> float | None:
        """Return the corrected figure of the original ELMo for a model of as many layers."""
        comparable = name in _FROM_PAPER and len(self.layers) == len(_COSINE)
        return _FROM_PAPER[name].corrected(layer) if comparable else None

    def figure(self) -> Any:
        """Draw a panel for each measure over the layers."""
        title = (
            f"elmo analyze contextuality: {self.model}; {self.n_sentences:,} sentences, "
            f"{self.sampled_words:,} sampled words; bars: 95 %"
        )
        figure = new_figure(11, 7.4, title)
        panels = figure.subplots(2, 2)
        for axes, name in zip(panels.flat, list(_MEASURES)[:3], strict=False):
            self._draw_measure(axes, name)
        _draw_isotropy(panels[1, 1], self.layers)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return figure

    def _draw_measure(self, axes: Any, name: str) -> None:
        measures: list[Measure] = [getattr(layer, name) for layer in self.layers]
        published = [Estimate(self._published(name, layer.layer)) for layer in self.layers]
        _line(axes, [m.raw for m in measures], "raw", _RAW, "o-")
        _line(axes, [m.baseline for m in measures], "random words (baseline)", _BASELINE, "s--")
        _line(axes, [m.corrected for m in measures], "corrected for anisotropy", _CORRECTED, "o-")
        _line(axes, published, "corrected, original ELMo (published)", _PUBLISHED, "x:")
        ends = [measures[end].corrected.value for end in (0, -1)]
        title = _MEASURES[name][0].upper() + _MEASURES[name][1:]
        if None not in ends:
            title += f": {ends[0]:.2f} to {ends[1]:.2f}"
        axes.set_title(title, **TITLE)
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), max(1.02, axes.get_ylim()[1]))
        _finish(axes, len(measures))


def _isotropy_row(layer: LayerContextuality) -> tuple[str, ...]:
    return (
        f"layer {layer.layer}",
        figure_text(layer.mean_cosine.value),
        str(layer.mean_cosine),
        _short(layer.partition_ratio.value, 2),
        figure_text(layer.effective_dimension.value, 1),
        figure_text(layer.mean_norm.value, 2),
    )


def _word_row(word: WordContextuality) -> tuple[str, ...]:
    name = word.word if len(word.word) <= 30 else word.word[:27] + "..."
    figures = map(figure_text, word.self_similarity)
    return (name.replace("|", "\\|"), f"{word.contexts:,}", *figures)


def _short(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}g}"


def _draw_isotropy(axes: Any, layers: Sequence[LayerContextuality]) -> None:
    values = [layer.effective_dimension for layer in layers]
    places, heights, spread = _bars(values)
    axes.bar(places, heights, color="C2", alpha=0.7, width=0.5, yerr=spread, capsize=3)
    axes.set_ylabel("effective dimension")
    for layer in layers:
        note = (
            f"mean cosine {figure_text(layer.mean_cosine.value)}\n"
            f"I(W) {_short(layer.partition_ratio.value, 1)}"
        )
        top = max(layer.effective_dimension.value or 0.0, layer.effective_dimension.high or 0.0)
        at = (layer.layer, top)
        axes.annotate(note, at, (0, 5), "data", "offset points", ha="center", fontsize=8)
    axes.set_ylim(0, max([*heights, 1.0]) * 1.35)
    axes.set_title("Isotropy of random words", **TITLE)
    _finish(axes, len(layers))


def _line(axes: Any, values: Sequence[Estimate], label: str, color: str, style: str) -> None:
    places, heights, spread = _bars(values)
    if places:
        axes.errorbar(places, heights, spread, fmt=style, color=color, label=label, capsize=3, ms=5)


def _bars(values: Sequence[Estimate]) -> tuple[list[int], list[float], list[list[float]]]:
    """Return the layers that have a figure, the figures, and how far intervals reach below them.

    The spread is two lists, below and above.
    """
    known = [(k, e.value, e.low, e.high) for k, e in enumerate(values) if e.value is not None]
    below = [0.0 if low is None else max(0.0, value - low) for _, value, low, _ in known]
    above = [0.0 if high is None else max(0.0, high - value) for _, value, _, high in known]
    return [k for k, *_ in known], [value for _, value, *_ in known], [below, above]


def _finish(axes: Any, n_layers: int) -> None:
    axes.set_xticks(range(n_layers), [f"layer {k}" for k in range(n_layers)])
    axes.set_xlim(-0.4, n_layers - 0.6)
    add_grid(axes)

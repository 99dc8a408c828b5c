"""How contextual vectors are, as tables and as a picture, beside the published figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmo.analysis.contextuality.measure import (
    ContextualityReport,
    LayerContextuality,
    Measure,
    WordContextuality,
)
from elmo.analysis.intervals import Estimate
from elmo.analysis.report_files import TITLE, frame, save_figure
from elmo.runtime.tables import NOTHING, markdown_table, text_table

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

_EXTREMES = 12
"""Words shown at either end."""
_RAW, _BASELINE, _CORRECTED, _PUBLISHED = "C0", "0.6", "C3", "0.25"


class _Published(NamedTuple):
    """Figures of the original ELMo, layers 0, 1, 2, from the files of the paper's author."""

    raw: tuple[float, ...] | None = None
    baseline: tuple[float, ...] | None = None

    def corrected(self, layer: int) -> float | None:
        if self.raw is None or self.baseline is None:
            return None
        return self.raw[layer] - self.baseline[layer]


_MEASURES: dict[str, tuple[str, _Published]] = {
    "self_similarity": (
        "self-similarity",
        _Published((1.000, 0.744, 0.642), (0.008, 0.157, 0.136)),
    ),
    "intra_sentence_similarity": (
        "intra-sentence similarity",
        _Published((0.318, 0.582, 0.621), (0.008, 0.157, 0.136)),
    ),
    "explained_variance": ("maximum explainable variance", _Published()),
    # The author's program takes the variance of each direction around the mean.
    "centred_explained_variance": (
        "the same, centred",
        _Published(None, (0.087, 0.003, 0.004)),
    ),
}
_PUBLISHED_COSINE = (0.008, 0.157, 0.136)
_PUBLISHED_NORM = (13.643, 15.035, 29.897)


def render_contextuality(report: ContextualityReport, markdown: bool = False) -> str:
    """Give the report as text, or as Markdown."""
    table = markdown_table if markdown else text_table
    head = [
        f"model    {report.model} ({report.model_sha256[:12]})",
        f"corpus   {report.corpus}: {report.n_sentences:,} sentences, {report.n_words:,} words",
        f"drawn    {report.sampled_words:,} words ({report.sampled_occurrences:,} occurrences), "
        f"{report.sampled_sentences:,} sentences, {report.random_words:,} random words",
        *(f"note     {note}" for note in report.notes),
    ]
    rows = [cells for layer in report.layers for cells in _measure_rows(layer, report)]
    header = ("measure", "layer", "raw", "baseline", "corrected", "95 %", "original ELMo")
    isotropy = table(
        ("isotropy", "mean cosine", "95 %", "partition ratio", "effective dimension", "norm"),
        [_isotropy_row(layer) for layer in report.layers],
    )
    parts = [
        "\n".join(f"    {line}" if markdown else line for line in head),
        table(header, sorted(rows, key=lambda row: _order(row[0]))),
        isotropy,
        _extremes(report, table),
    ]
    return "\n\n".join(parts)


def _order(name: str) -> int:
    return [title for title, _ in _MEASURES.values()].index(name)


def _measure_rows(
    layer: LayerContextuality, report: ContextualityReport
) -> Iterator[tuple[str, ...]]:
    comparable = len(report.layers) == len(_PUBLISHED_COSINE)
    for attribute, (title, published) in _MEASURES.items():
        measure: Measure = getattr(layer, attribute)
        theirs = published.corrected(layer.layer) if comparable else None
        yield (
            title,
            str(layer.layer),
            _figure(measure.raw.value),
            _figure(measure.baseline.value),
            _figure(measure.corrected.value),
            _interval(measure.corrected),
            _figure(theirs),
        )


def _isotropy_row(layer: LayerContextuality) -> tuple[str, ...]:
    ratio = layer.partition_ratio.value
    return (
        f"layer {layer.layer}",
        _figure(layer.mean_cosine.value),
        _interval(layer.mean_cosine),
        NOTHING if ratio is None else f"{ratio:.2g}",
        _figure(layer.effective_dimension.value, 1),
        _figure(layer.mean_norm.value, 2),
    )


def _extremes(report: ContextualityReport, table: Table) -> str:
    header = ("word", "contexts", *(f"layer {layer.layer}" for layer in report.layers))
    words = report.words
    low, high = words[:_EXTREMES], words[_EXTREMES:][-_EXTREMES:]
    parts = [
        "Least self-similar at the top layer:\n\n" + table(header, [_word_row(w) for w in low])
    ]
    if high:
        listed = [_word_row(word) for word in reversed(high)]
        parts.append("Most self-similar at the top layer:\n\n" + table(header, listed))
    return "\n\n".join(parts)


def _word_row(word: WordContextuality) -> tuple[str, ...]:
    name = word.word if len(word.word) <= 30 else word.word[:27] + "..."
    figures = map(_figure, word.self_similarity)
    return (name.replace("|", "\\|"), f"{word.contexts:,}", *figures)


def _figure(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return NOTHING
    return f"{estimate.low:.3f}..{estimate.high:.3f}"


# --- the picture ----------------------------------------------------------------------------------


def draw_contextuality(report: ContextualityReport, stem: Path) -> None:
    """Draw a panel for each measure over the layers.

    Args:
        report: What was measured.
        stem: Path of the picture without its suffix.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.4), layout="constrained")
    panels = figure.subplots(2, 2)
    for axes, attribute in zip(panels.flat, list(_MEASURES)[:3], strict=False):
        _draw_measure(axes, report, attribute)
    _draw_isotropy(panels[1, 1], report)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    title = (
        f"elmo analyze contextuality: {report.model}; {report.n_sentences:,} sentences, "
        f"{report.sampled_words:,} words drawn; bars: 95 %"
    )
    figure.suptitle(title, fontsize=10)
    save_figure(figure, stem)


def _draw_measure(axes: Any, report: ContextualityReport, attribute: str) -> None:
    title, published = _MEASURES[attribute]
    measures = [getattr(layer, attribute) for layer in report.layers]
    _line(axes, [m.raw for m in measures], "raw", _RAW, "o-")
    _line(axes, [m.baseline for m in measures], "random words (baseline)", _BASELINE, "s--")
    _line(axes, [m.corrected for m in measures], "corrected for anisotropy", _CORRECTED, "o-")
    if published.raw is not None and len(measures) == len(published.raw):
        theirs = [Estimate(published.corrected(k)) for k in range(len(measures))]
        _line(axes, theirs, "corrected, original ELMo (published)", _PUBLISHED, "x:")
    axes.set_title(_message(title, measures), **TITLE)
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), max(1.02, axes.get_ylim()[1]))
    _layer_axis(axes, len(measures))
    frame(axes)


def _message(title: str, measures: Sequence[Measure]) -> str:
    first, last = measures[0].corrected.value, measures[-1].corrected.value
    name = title[0].upper() + title[1:]
    if first is None or last is None:
        return name
    return f"{name}: {first:.2f} to {last:.2f}"


def _draw_isotropy(axes: Any, report: ContextualityReport) -> None:
    values = [layer.effective_dimension for layer in report.layers]
    heights = [estimate.value or 0.0 for estimate in values]
    errors = [
        [h - (e.low if e.low is not None else h) for h, e in zip(heights, values, strict=True)]
    ]
    errors += [
        [(e.high if e.high is not None else h) - h for h, e in zip(heights, values, strict=True)]
    ]
    axes.bar(range(len(heights)), heights, color="C2", alpha=0.7, width=0.5, yerr=errors, capsize=3)
    axes.set_ylabel("effective dimension")
    for layer, height in zip(report.layers, heights, strict=True):
        cosine, ratio = layer.mean_cosine.value, layer.partition_ratio.value
        told = f"mean cosine {_figure(cosine)}\nI(W) " + (
            NOTHING if ratio is None else f"{ratio:.1g}"
        )
        place = layer.layer, max(height, layer.effective_dimension.high or 0.0)
        axes.annotate(told, place, (0, 5), "data", "offset points", ha="center", fontsize=8)
    axes.set_ylim(0, max([*heights, 1.0]) * 1.35)
    axes.set_title("Isotropy of random words", **TITLE)
    _layer_axis(axes, len(heights))
    frame(axes)


def _line(axes: Any, values: Sequence[Estimate], label: str, color: str, style: str) -> None:
    known = [(k, e) for k, e in enumerate(values) if e.value is not None]
    if not known:
        return
    places = [k for k, _ in known]
    heights = [e.value for _, e in known]
    low = [e.value - e.low if e.low is not None else 0.0 for _, e in known]  # type: ignore[operator]
    high = [e.high - e.value if e.high is not None else 0.0 for _, e in known]  # type: ignore[operator]
    spread = [[max(0.0, error) for error in errors] for errors in (low, high)]
    axes.errorbar(places, heights, spread, fmt=style, color=color, label=label, capsize=3, ms=5)


def _layer_axis(axes: Any, n_layers: int) -> None:
    axes.set_xticks(range(n_layers), [f"layer {k}" for k in range(n_layers)])
    axes.set_xlim(-0.4, n_layers - 0.6)

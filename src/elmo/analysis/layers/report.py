"""What each layer knows, as tables and as a picture, beside the published figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elmo.analysis.layers.tasks import LayerReport
from elmo.analysis.report_files import TITLE, frame, save_figure
from elmo.runtime.tables import NOTHING, markdown_table, text_table

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]

# ELMo paper (NAACL 2018), tables 5 and 6, both for the recurrent layers; POS is on the Penn
# Treebank, whose 45 tags are harder than our 17, and whose text is not ours.
_PUBLISHED_WSD = {"1": 0.674, "2": 0.690}
_PUBLISHED_POS = {"1": 0.973, "2": 0.968}
_SETS = {
    "senseval2": "SE2",
    "senseval3": "SE3",
    "semeval2007": "SE07",
    "semeval2013": "SE13",
    "semeval2015": "SE15",
}


def render_layers(report: LayerReport, markdown: bool = False) -> str:
    """Give the report as text, or as Markdown."""
    table = markdown_table if markdown else text_table
    head = [f"model    {report.model} ({report.model_sha256[:12]})"]
    head += [f"note     {note}" for note in report.notes]
    parts = ["\n".join(f"    {line}" if markdown else line for line in head)]
    if report.pos:
        parts.append(_pos_table(report, table))
    if report.wsd:
        parts.append(_wsd_table(report, table))
    if report.wic:
        parts.append(_wic_table(report, table))
    return "\n\n".join(parts)


def _pos_table(report: LayerReport, table: Table) -> str:
    title = (
        f"Parts of speech, linear probe: {report.tag_words:,} words of training, "
        f"{report.tag_test_words:,} of test\n\n"
    )
    rows = [
        (_name(s.layer), _percent(s.accuracy), _percent(_PUBLISHED_POS.get(s.layer)))
        for s in report.pos
    ]
    return title + table(("parts of speech", "accuracy", "original ELMo, Penn Treebank"), rows)


def _wsd_table(report: LayerReport, table: Table) -> str:
    title = (
        f"Senses, nearest of {report.sense_means:,} means of SemCor: {report.sense_instances:,} "
        f"instances, {report.sense_unseen:,} of them by WordNet's first sense\n\n"
    )
    sets = list(report.wsd[0].by_set)
    header = ("senses", "F1", *(_SETS.get(name, name) for name in sets), "seen", "original ELMo")
    baseline = (
        "first sense",
        _percent(report.first_sense_f1),
        *(_percent(report.first_sense_by_set.get(name)) for name in sets),
        NOTHING,
        _percent(0.659),
    )
    rows = [
        (
            _name(s.layer),
            _percent(s.f1),
            *(_percent(s.by_set.get(name)) for name in sets),
            _percent(s.f1_seen),
            _percent(_PUBLISHED_WSD.get(s.layer)),
        )
        for s in report.wsd
    ]
    return title + table(header, [baseline, *rows])


def _wic_table(report: LayerReport, table: Table) -> str:
    title = (
        f"Same sense or not, threshold on cosines: {report.pairs:,} pairs; the more frequent "
        f"answer is right for {_percent(report.pairs_most_frequent)}\n\n"
    )
    rows = [
        (_name(s.layer), _percent(s.accuracy), _percent(s.train_accuracy), f"{s.threshold:.3f}")
        for s in report.wic
    ]
    return title + table(("word in context", "accuracy", "training", "threshold"), rows)


def _name(layer: str) -> str:
    return f"layer {layer}" if layer.isdigit() else layer


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"


# --- the picture ----------------------------------------------------------------------------------


def draw_layers(report: LayerReport, stem: Path) -> None:
    """Draw a panel for each task.

    Args:
        report: What was measured.
        stem: Path of the picture without its suffix.
    """
    from matplotlib.figure import Figure

    panels = list(_panels(report))
    figure = Figure(figsize=(4.2 * max(1, len(panels)), 4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel)
    figure.suptitle(f"elmo analyze layers: {report.model}", fontsize=10)
    save_figure(figure, stem)


class _Panel(NamedTuple):
    title: str
    names: list[str]
    values: list[float]
    base: float | None = None
    """What is achieved without a model."""
    base_name: str = ""


def _panels(report: LayerReport) -> Iterator[_Panel]:
    if report.pos:
        values = [score.accuracy for score in report.pos]
        yield _Panel("Parts of speech, accuracy", [s.layer for s in report.pos], values)
    if report.wsd:
        values = [score.f1 for score in report.wsd]
        base = report.first_sense_f1
        yield _Panel("Senses, F1", [s.layer for s in report.wsd], values, base, "first sense")
    if report.wic:
        values, names = [s.accuracy for s in report.wic], [s.layer for s in report.wic]
        base = report.pairs_most_frequent
        yield _Panel("Word in context, accuracy", names, values, base, "most frequent answer")


def _draw_panel(axes: Any, panel: _Panel) -> None:
    """Draw dots, not bars: the axis does not begin at 0."""
    shares = [100 * value for value in panel.values]
    places = range(len(shares))
    axes.plot(places, shares, "o", color="C0", ms=9)
    axes.vlines(places, 0, shares, color="C0", alpha=0.25)
    readable = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for place, share in zip(places, shares, strict=True):
        told, at = f"{share:.1f}", (place, share)
        axes.annotate(told, at, (0, 9), "data", "offset points", ha="center", bbox=readable)
    base = [] if panel.base is None else [100 * panel.base]
    lowest, highest = min(shares + base), max(shares + base)
    margin = max(1.0, highest - lowest)
    axes.set_ylim(max(0.0, lowest - 0.4 * margin), highest + 0.3 * margin)
    for share in base:
        axes.axhline(share, color="0.4", linestyle="--", linewidth=1)
        where = axes.get_yaxis_transform()
        axes.text(
            0.99, share, panel.base_name, transform=where, ha="right", va="bottom", fontsize=8
        )
    axes.set_xticks(places, [_name(name).replace(", ", ",\n") for name in panel.names])
    axes.set_xlim(-0.5, len(shares) - 0.5)
    axes.set_ylabel("%")
    axes.set_title(panel.title, **TITLE)
    frame(axes)

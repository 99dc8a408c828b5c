"""What each layer knows, as tables and as a picture, beside the published figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from elmo.analysis.layer_tasks import LayerReport
from elmo.analysis.report_files import TITLE, frame, save_figure
from elmo.benchmark.tables import NOTHING, markdown_table, text_table

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
        (f"layer {s.layer}", _percent(s.accuracy), _percent(_PUBLISHED_POS.get(s.layer)))
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
            f"layer {s.layer}",
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
        (f"layer {s.layer}", _percent(s.accuracy), _percent(s.train_accuracy), f"{s.threshold:.3f}")
        for s in report.wic
    ]
    return title + table(("word in context", "accuracy", "training", "threshold"), rows)


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:.1f}"


# --- the picture ----------------------------------------------------------------------------------


def draw_layers(report: LayerReport, stem: Path) -> None:
    """Draw a panel of bars for each task.

    Args:
        report: What was measured.
        stem: Path of the picture without its suffix.
    """
    from matplotlib.figure import Figure

    panels: list[tuple[str, list[str], list[float], float | None, str]] = []
    if report.pos:
        names, values = [s.layer for s in report.pos], [s.accuracy for s in report.pos]
        panels.append(("Parts of speech, accuracy", names, values, None, ""))
    if report.wsd:
        names, values = [s.layer for s in report.wsd], [s.f1 for s in report.wsd]
        panels.append(("Senses, F1", names, values, report.first_sense_f1, "first sense"))
    if report.wic:
        names, values = [s.layer for s in report.wic], [s.accuracy for s in report.wic]
        often = report.pairs_most_frequent
        panels.append(("Word in context, accuracy", names, values, often, "most frequent answer"))
    figure = Figure(figsize=(4.2 * max(1, len(panels)), 4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_bars(axes, *panel)
    figure.suptitle(f"elmo analyze layers: {report.model}", fontsize=10)
    save_figure(figure, stem)


def _draw_bars(
    axes: Any, title: str, names: list[str], values: list[float], base: float | None, told: str
) -> None:
    best = max(range(len(values)), key=values.__getitem__)
    colors = ["C0" if place == best else "#9ecae1" for place in range(len(values))]
    shares = [100 * value for value in values]
    bars = axes.bar(range(len(values)), shares, color=colors, width=0.6)
    axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
    lowest = min([*shares, *([] if base is None else [100 * base])])
    axes.set_ylim(max(0.0, lowest - 8), min(104.0, max(shares) + 5))
    if base is not None:
        axes.axhline(100 * base, color="0.4", linestyle="--", linewidth=1)
        axes.annotate(told, (len(values) - 0.5, 100 * base), (0, 3), "data", "offset points",
                      ha="right", fontsize=8, color="0.3")  # fmt: skip
    labels = [name if name == "mix" else f"layer {name}" for name in names]
    axes.set_xticks(range(len(values)), labels)
    axes.set_ylabel("% (the axis does not begin at 0)", fontsize=8)
    axes.set_title(title, **TITLE)
    frame(axes)

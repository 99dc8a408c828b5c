"""Similarity of words beside the judgement of people, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path

from elmo.analysis.report_files import TITLE, frame, save_figure
from elmo.analysis.words.correlation import CorrelationReport, CorrelationRow
from elmo.runtime.tables import NOTHING, markdown_table, text_table


def render_correlation(report: CorrelationReport, markdown: bool = False) -> str:
    """Give the report as text, or as Markdown."""
    table = markdown_table if markdown else text_table
    head = [
        f"model    {report.model} ({report.model_sha256[:12]})",
        f"corpus   {report.corpus or 'none: words are compared in isolation only'}",
        *(f"note     {note}" for note in report.notes),
    ]
    header = ("file", "words", "layer", "Spearman", "95 %", "pairs")
    return "\n\n".join(
        [
            "\n".join(f"    {line}" if markdown else line for line in head),
            table(header, [_cells(row) for row in report.rows]),
        ]
    )


def _cells(row: CorrelationRow) -> tuple[str, ...]:
    found = row.spearman
    known = found.low is not None and found.high is not None
    return (
        row.file,
        f"in {row.way}",
        row.layer,
        NOTHING if found.value is None else f"{found.value:.3f}",
        f"{found.low:.3f}..{found.high:.3f}" if known else NOTHING,
        f"{row.n_pairs:,}",
    )


def draw_correlation(report: CorrelationReport, stem: Path) -> None:
    """Draw people's scores and cosines, a panel for each file, in the way that agrees best.

    Args:
        report: What was compared.
        stem: Path of the picture without its suffix.
    """
    from matplotlib.figure import Figure

    width = max(1, len(report.figures))
    figure = Figure(figsize=(5 * width, 4.4), layout="constrained")
    panels = figure.subplots(1, width, squeeze=False)[0]
    for axes, (name, points) in zip(panels, report.figures.items(), strict=False):
        known = [r for r in report.rows if r.file == name and r.spearman.value is not None]
        best = max(known, key=lambda row: row.spearman.value or 0.0)
        axes.scatter(*zip(*points, strict=True), s=14, alpha=0.6, color="C0")
        title = f"{name}: Spearman {best.spearman.value:.2f}, in {best.way}, layer {best.layer}"
        axes.set_title(title, **TITLE)
        axes.set_xlabel("score of people")
        axes.set_ylabel("cosine")
        frame(axes)
    figure.suptitle(f"elmo analyze correlation: {report.model}", fontsize=10)
    save_figure(figure, stem)

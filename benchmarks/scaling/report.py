"""What grows with the text, as tables and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.common.machine import render_head
from benchmarks.scaling.measure import KEPT, STREAMED, ScalingReport, ScalingRow, Sweep
from elmo.errors import MissingExtraError, OutputError
from elmo.runtime.tables import NOTHING, text_table

_AXES: dict[Sweep, str] = {
    "batch": "sentences in a batch",
    "length": "words of a sentence",
    "corpus": "sentences of a corpus",
}
_STYLES = {KEPT: "-", STREAMED: "--"}
_DIGIT = 0.022
"""Width of a digit below a panel, as a part of the panel's width."""
_TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10, "fontweight": "bold"}


# --- tables ---------------------------------------------------------------------------------------


def render_scaling(report: ScalingReport) -> str:
    """Return the report as plain text: a table for each thing that grows."""
    parts = [render_head(report.version, report.command, report.machine, report.notes)]
    parts += [_table(report, sweep) for sweep in get_args(Sweep)]
    lines = [
        f"{growth.curve}, {growth.way}, by {_AXES[growth.sweep]}: "
        f"time grows as words^{growth.exponent:.2f}"
        for growth in report.growth
    ]
    return "\n\n".join([*parts, "\n".join(lines)] if lines else parts)


def _table(report: ScalingReport, sweep: Sweep) -> str:
    header = (_AXES[sweep], "how", "words", "words/s", "lowest..highest", "peak MB", "GPU MB")
    tables = []
    for curve in _curves(report.rows):
        rows = [row for row in report.rows if (row.curve, row.sweep) == (curve, sweep)]
        table = text_table(header, (_cells(row) for row in rows))
        tables.append(f"== {curve} ==\n{table}")
    return "\n\n".join(tables)


def _cells(row: ScalingRow) -> tuple[str, ...]:
    speed = row.words_per_second
    memory = (NOTHING if mb is None else f"{mb:,.0f}" for mb in (row.peak_mb, row.gpu_mb))
    return (
        f"{row.size:,}",
        row.way,
        f"{row.words:,}",
        f"{speed.median:,.0f}",
        f"{speed.low:,.0f}..{speed.high:,.0f}",
        *memory,
    )


def _curves(rows: Sequence[ScalingRow]) -> list[str]:
    return list(dict.fromkeys(row.curve for row in rows))


# --- the picture ----------------------------------------------------------------------------------


def require_plots() -> None:
    """Fail unless pictures can be drawn, before anything is measured for them."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError("--plot", "plots") from None


def draw_scaling(report: ScalingReport, path: Path) -> None:
    """Draw speed above and memory below, a column for each thing that grows.

    Args:
        report: What was measured.
        path: File to write; its ending says what kind of picture.
    """
    figure = scaling_figure(report)
    try:
        figure.savefig(path, dpi=150, format=path.suffix[1:].lower())
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None


def scaling_figure(report: ScalingReport) -> Any:
    """Draw what `draw_scaling` writes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.2), layout="constrained")
    panels = figure.subplots(2, 3, sharey="row")
    for column, sweep in enumerate(get_args(Sweep)):
        rows = [row for row in report.rows if row.sweep == sweep]
        top, bottom = panels[0, column], panels[1, column]
        _draw_speed(top, rows)
        _draw_memory(bottom, rows)
        top.set_title(_speed_message(rows, sweep), **_TITLE)
        bottom.set_title(_memory_message(rows), **_TITLE)
        sizes = sorted({row.size for row in rows})
        for axes, scale in ((top, "log"), (bottom, "linear")):
            axes.set_xlabel(_AXES[sweep])
            _frame(axes, sizes, scale)
    _set_limits(panels[0, 0], panels[1, 0], report.rows)
    panels[0, 0].set_ylabel("words a second")
    of_gpu = " of the GPU" if all(row.gpu_mb is not None for row in report.rows) else ""
    panels[1, 0].set_ylabel(f"peak memory{of_gpu}, MB")
    _add_legend(figure, panels[0, 2])
    machine = report.machine
    where = machine.cpu if machine.gpu is None else f"{machine.cpu}, {machine.gpu}"
    title = f"benchmarks.scaling: {where}; threads: {machine.threads}; bands: all rounds"
    figure.suptitle(title, fontsize=10)
    return figure


def _draw_speed(axes: Any, rows: Sequence[ScalingRow]) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator

    for color, label, style, points in _lines(rows):
        sizes = [row.size for row in points]
        speeds = [row.words_per_second for row in points]
        axes.plot(sizes, [s.median for s in speeds], style, color=color, label=label, marker="o")
        axes.fill_between(
            sizes, [s.low for s in speeds], [s.high for s in speeds], color=color, alpha=0.15
        )
    axes.set_yscale("log")
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted(EngFormatter(sep=""))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.grid(visible=True, which="both", axis="y", alpha=0.3)


def _draw_memory(axes: Any, rows: Sequence[ScalingRow]) -> None:
    """Draw memory on plain scales: what does not grow is flat, what grows in step a slope."""
    for color, _, style, points in _lines(rows):
        known = [(row.size, _megabytes(row)) for row in points if _megabytes(row) is not None]
        if known:
            axes.plot(*zip(*known, strict=True), style, color=color, marker="o")
    axes.grid(visible=True, axis="y", alpha=0.3)


def _frame(axes: Any, sizes: Sequence[int], scale: str) -> None:
    """Let a panel have numbers below where something was measured."""
    axes.set_xscale(scale)
    shown = readable(sizes, scale)
    axes.set_xticks(shown, [f"{size:,}" for size in shown])
    axes.set_xticks([], minor=True)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def readable(sizes: Sequence[int], scale: str) -> list[int]:
    """Choose numbers that do not touch each other below an axis.

    Args:
        sizes: All numbers, the smallest first; the first and the last are always chosen.
        scale: That of the axis, `log` or `linear`.
    """
    place = math.log if scale == "log" else float
    first, *between = sizes
    if not between:
        return [first]
    last = between.pop()
    room = _DIGIT * (len(f"{last:,}") + 1) * (place(last) - place(first))
    chosen = [first]
    for size in between:
        if place(size) - place(chosen[-1]) >= room and place(last) - place(size) >= room:
            chosen.append(size)
    return [*chosen, last]


def _set_limits(speed: Any, memory: Any, rows: Sequence[ScalingRow]) -> None:
    """Choose the scales of both rows, when all of their panels are drawn."""
    lowest, highest = speed.get_ylim()
    speed.set_ylim(bottom=min(lowest, highest / 12))  # a flat curve should look flat
    known = [mb for row in rows if (mb := _megabytes(row)) is not None]
    if known:
        memory.set_ylim(0, 1.1 * max(known))


def _lines(
    rows: Sequence[ScalingRow],
) -> Iterator[tuple[str, str, str, list[ScalingRow]]]:
    """Yield color, label, style and points of each line."""
    for number, curve in enumerate(_curves(rows)):
        for way, style in _STYLES.items():
            points = [row for row in rows if (row.curve, row.way) == (curve, way)]
            if points:
                yield f"C{number}", f"{curve}, {way}", style, points


def _add_legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def _speed_message(rows: Sequence[ScalingRow], sweep: Sweep) -> str:
    """Return a title: how the speed of the first curve changes."""
    points = _first_curve(rows)
    speeds = [row.words_per_second.median for row in points]
    if sweep == "batch":
        return f"Batches: {max(speeds) / speeds[0]:.1f} times as fast as one by one"
    ratio = speeds[-1] / speeds[0]
    if sweep == "length":
        return f"Long sentences: {ratio:.1f} times as fast as short"
    return f"Large corpora: {ratio:.1f} times as fast as small"


def _memory_message(rows: Sequence[ScalingRow]) -> str:
    """Return a title: how the memory of the first curve changes."""
    known = [mb for row in _first_curve(rows) if (mb := _megabytes(row)) is not None]
    if not known:
        return "Memory: not reported by this system"
    message = f"Memory: {known[0]:,.0f} to {known[-1]:,.0f} MB"
    streamed = [row for row in rows if row.curve == rows[0].curve and row.way == STREAMED]
    if not streamed:
        return message
    return f"{message}, {_megabytes(streamed[-1]):,.0f} streamed"


def _first_curve(rows: Sequence[ScalingRow]) -> list[ScalingRow]:
    return [row for row in rows if row.curve == rows[0].curve and row.way == KEPT]


def _megabytes(row: ScalingRow) -> float | None:
    return row.gpu_mb if row.gpu_mb is not None else row.peak_mb

"""Metrics of a run as a plot: training loss and the main figure on held-out data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def draw_curve(rows: Sequence[dict[str, Any]], metric: str, path: Path) -> None:
    """Plot the rows of `metrics.jsonl`; skip it if matplotlib is missing or the file unwritable.

    Args:
        rows: Those of all rounds.
        metric: Name of the main figure.
        path: File to write.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    train = [row for row in rows if row["split"] == "train"]
    dev = [row for row in rows if row["split"] == "dev"]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([r["step"] for r in train], [r["loss"] for r in train], color="0.6", marker=".")
    axes.set_xlabel("steps")
    axes.set_ylabel("training loss", color="0.4")
    axes.set_ylim(bottom=0)
    right = axes.twinx()
    values = [100 * row[metric] for row in dev]
    right.plot([r["step"] for r in dev], values, color="#1f6f8b", marker="o", markersize=4)
    right.set_ylabel(f"dev {metric}, %", color="#1f6f8b")
    if values:
        best = max(range(len(values)), key=values.__getitem__)
        place = (dev[best]["step"], values[best])
        right.annotate(
            f"{values[best]:.2f}", place, (0, 6), textcoords="offset points", ha="center"
        )
    right.margins(y=0.15)
    axes.spines["top"].set_visible(False)
    right.spines["top"].set_visible(False)
    with suppress(OSError):  # a full disk: everything that matters has been saved
        figure.savefig(path, dpi=150)

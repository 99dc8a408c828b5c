"""The plots of the report; they need matplotlib (extra plots)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.task_report.settings import DATASETS, DatasetName
from benchmarks.task_report.tables import BOTH, GLOVE, Cells, at_share, figure, layer_weights
from elmo.errors import MissingExtraError

_BEFORE, _AFTER = "#9aa5b1", "#1f6f8b"
MAIN_PICTURE, WEIGHTS_PICTURE, SHARES_PICTURE = "gain.png", "layer-weights.png", "shares.png"


def draw_report(found: Cells, folder: Path, shares: Sequence[float]) -> list[str]:
    """Draw what there are runs for; return the names of the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, picture in (
        (MAIN_PICTURE, draw_gain(found)),
        (WEIGHTS_PICTURE, draw_weights(found)),
        (SHARES_PICTURE, draw_shares(found, shares)),
    ):
        if picture is not None:
            picture.savefig(folder / name, dpi=150)
            drawn.append(name)
    return drawn


def draw_gain(found: Cells) -> Any:
    """Draw bars: GloVe and GloVe + ELMo for each data set, deviations as lines on top."""
    names = [name for name in DATASETS if figure(found, name, GLOVE) and figure(found, name, BOTH)]
    if not names:
        return None
    picture = _figure(1.2 + 1.05 * len(names), 4.0)
    axes = picture.subplots()
    for offset, (title, changes, color) in enumerate(
        (("GloVe", GLOVE, _BEFORE), ("GloVe + ELMo", BOTH, _AFTER))
    ):
        values = [figure(found, name, changes) for name in names]
        places = [k + 0.38 * (offset - 0.5) for k in range(len(names))]
        heights = [value.mean for value in values if value]
        spreads = [value.deviation or 0.0 for value in values if value]
        bars = axes.bar(places, heights, 0.36, color=color, label=title, yerr=spreads, capsize=2)
        axes.bar_label(bars, [f"{height:.1f}" for height in heights], fontsize=7, padding=2)
    axes.set_xticks(range(len(names)), [_title(name) for name in names], fontsize=8)
    axes.set_ylabel("test, %")
    axes.set_ylim(0, 109)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", ncols=2, fontsize=8)
    return picture


def draw_weights(found: Cells) -> Any:
    """Draw the learned weights of layers as a heat map, as figure 2 of the paper."""
    places = {place: _rows(found, place) for place in ("input", "output")}
    panels = {place: rows for place, rows in places.items() if rows}
    names = [name for name in DATASETS if any(name in rows for rows in panels.values())]
    if not names:
        return None
    n_layers = len(next(row for rows in panels.values() for row in rows.values()))
    picture = _figure(2.2 + 2.6 * len(panels), 1.2 + 0.36 * len(names))
    axes_of = picture.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    nothing = [math.nan] * n_layers  # left white
    for axes, (place, rows) in zip(axes_of, panels.items(), strict=True):
        table = [rows.get(name, nothing) for name in names]
        image = axes.imshow(table, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
        layers = ["context-\nfree", *(f"layer {k}" for k in range(1, n_layers))]
        axes.set_xticks(range(n_layers), layers, fontsize=8)
        axes.set_yticks(range(len(names)), [DATASETS[name].title for name in names], fontsize=8)
        axes.set_title(f"ELMo at the {place}", fontsize=9)
        for row, weights in enumerate(table):
            for column, weight in enumerate(weights):
                shade = "white" if weight > 0.55 else "black"
                text = "" if math.isnan(weight) else f"{weight:.2f}"
                axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=8)
        axes.tick_params(length=0)
    picture.colorbar(image, ax=list(axes_of), label="weight after the softmax", shrink=0.8)
    return picture


def _rows(found: Cells, place: str) -> dict[DatasetName, list[float]]:
    rows = {name: layer_weights(found, name, place) for name in DATASETS}
    return {name: row for name, row in rows.items() if row is not None}


def draw_shares(found: Cells, shares: Sequence[float]) -> Any:
    """Draw test figures over the share of the training data, with and without ELMo."""
    names = [name for name in DATASETS if figure(found, name, at_share(BOTH, shares[0]))]
    if not names:
        return None
    picture = _figure(2.6 * len(names), 2.9)
    axes_of = picture.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(axes_of, names, strict=True):
        for title, changes, color in (("GloVe", GLOVE, _BEFORE), ("GloVe + ELMo", BOTH, _AFTER)):
            points = [(s, figure(found, name, at_share(changes, s))) for s in shares]
            known = [(100 * share, value) for share, value in points if value]
            axes.errorbar(
                [share for share, _ in known],
                [value.mean for _, value in known],
                yerr=[value.deviation or 0.0 for _, value in known],
                color=color,
                marker="o",
                markersize=4,
                capsize=2,
                label=title,
            )
        axes.set_xscale("log")
        axes.set_xticks([100 * share for share in shares], [f"{100 * s:g} %" for s in shares])
        axes.minorticks_off()
        axes.set_title(f"{DATASETS[name].title}, {DATASETS[name].metric}", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    axes_of[0].legend(frameon=False, fontsize=8)
    axes_of[0].set_ylabel("test, %", fontsize=8)
    picture.supxlabel("training data", fontsize=8)
    return picture


def _title(name: Any) -> str:
    dataset = DATASETS[name]
    return f"{dataset.title.replace(' ', chr(10), 1)}\n{dataset.metric}"


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("pictures of the report", "plots") from None
    return Figure(figsize=(width, height), layout="constrained")

"""Reports as files: JSON without NaN, text, and pictures as PNG and SVG."""

from __future__ import annotations

import dataclasses
import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from elmo.errors import OutputExistsError
from elmo.runtime.files import output_errors

TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10, "fontweight": "bold"}
"""Titles of panels say what is to be seen."""
_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)
# The same picture, the same bytes: without a date, and without random names inside.
_SVG: Any = {"svg.hashsalt": "elmo", "svg.fonttype": "none", "font.family": "sans-serif"}


def as_json(report: Any) -> str:
    """Give a record as JSON; a figure that is no number is an error of ours, not NaN."""
    facts = report
    if dataclasses.is_dataclass(report) and not isinstance(report, type):
        facts = dataclasses.asdict(report)
    return json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False, default=str)


def can_draw() -> bool:
    """Tell whether pictures can be drawn: they need the extra plots or analysis."""
    return find_spec("matplotlib") is not None


def prepare_outputs(folder: Path, names: list[str], overwrite: bool) -> None:
    """Create a folder; refuse one with a report that must not be replaced."""
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise OutputExistsError(
            f"{folder / there[0]} exists already; give --overwrite to replace it"
        )


def save_figure(figure: Any, stem: Path) -> None:
    """Save a picture as PNG and as SVG.

    Args:
        figure: Of matplotlib.
        stem: Path without the suffix.
    """
    from matplotlib import rc_context

    with output_errors(stem), rc_context(_SVG), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands there instead
        figure.savefig(stem.with_name(stem.name + ".png"), dpi=150, format="png")
        figure.savefig(stem.with_name(stem.name + ".svg"), format="svg", metadata={"Date": None})


def word_fonts() -> list[str]:
    """Give fonts for words of any language, as far as they are installed."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return ["DejaVu Sans", *(name for name in _CHINESE_FONTS if name in installed)]


def frame(axes: Any) -> None:
    """Give a panel its grid, and no box."""
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)

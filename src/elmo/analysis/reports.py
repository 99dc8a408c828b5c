"""Reports: their text, HTML for notebooks, JSON without NaN, and pictures as PNG and SVG."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from elmo.analysis.settings import TableFormat
from elmo.runtime.files import output_errors, write_text
from elmo.runtime.tables import NOTHING, markdown_table, text_table

TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10, "fontweight": "bold"}
"""Style of the titles of panels."""
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


class Table(NamedTuple):
    """A table of a report: names in the first column, numbers in the others."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Shown:
    """Base of results: text for terminals, HTML for notebooks, JSON for programs."""

    def parts(self) -> Iterator[str | Table]:
        """Yield paragraphs and tables."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the result as plain text."""
        return "\n\n".join(
            part if isinstance(part, str) else text_table(*part) for part in self.parts()
        )

    def json(self) -> str:
        """Return all fields as JSON."""
        return as_json(self)

    def _repr_html_(self) -> str:
        return "".join(
            f"<pre>{escape(part)}</pre>" if isinstance(part, str) else _html_table(part)
            for part in self.parts()
        )


class Listing(Shown):
    """Base of lists, which are also written as CSV."""

    def csv_rows(self) -> Iterator[Sequence[object]]:
        """Yield the header, then the rows."""
        raise NotImplementedError

    def render(self, format: TableFormat) -> str:
        """Return the list in a format of `--format`."""
        if format != "csv":
            return self.json() if format == "json" else self.text()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.csv_rows())
        return text.getvalue().rstrip("\n")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report(Shown):
    """Base of reports on a model, which have notes, a figure, and files."""

    model: str = ""
    model_sha256: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)
    stem: ClassVar[str] = "report"
    """Name of its files without their endings."""

    @property
    def head(self) -> list[str]:
        """The first lines: what was measured."""
        return [f"model    {self.model} ({self.model_sha256[:12]})"]

    def tables(self) -> Iterator[str | Table]:
        """Yield what follows the head: paragraphs and tables."""
        raise NotImplementedError

    def figure(self) -> Any:
        """Draw a figure of matplotlib."""
        raise NotImplementedError

    def parts(self) -> Iterator[str | Table]:
        """Yield the head with the notes, then the rest."""
        yield "\n".join([*self.head, *(f"note     {note}" for note in self.notes)])
        yield from self.tables()

    def markdown(self) -> str:
        """Return the report as Markdown."""
        head, *rest = self.parts()
        lines = [f"    {line}" for line in str(head).splitlines()]
        shown = (part if isinstance(part, str) else markdown_table(*part) for part in rest)
        return "\n\n".join(["\n".join(lines), *shown])

    @classmethod
    def endings(cls) -> list[str]:
        """Return the endings of the files that `save` writes."""
        return [".json", ".md", *((".png", ".svg") if can_draw() else ())]

    def save(self, folder: Path) -> None:
        """Write the report to a folder: the same report, the same bytes."""
        write_text(folder / f"{self.stem}.json", self.json() + "\n")
        write_text(folder / f"{self.stem}.md", self.markdown() + "\n")
        if can_draw():
            with output_errors(folder / self.stem), _drawing():
                figure = self.figure()
                figure.savefig(folder / f"{self.stem}.png", dpi=150, format="png")
                # Without a date.
                figure.savefig(folder / f"{self.stem}.svg", format="svg", metadata={"Date": None})

    def _repr_html_(self) -> str:
        picture = io.StringIO()
        if can_draw():
            with _drawing():
                self.figure().savefig(picture, format="svg", metadata={"Date": None})
        # HTML takes the element alone, without the declarations of an XML file.
        return super()._repr_html_() + "".join(picture.getvalue().partition("<svg")[1:])


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusReport(Report):
    """Base of reports on a model and a corpus."""

    corpus: str = ""
    tokenizer: str = ""
    """What split the corpus."""


def can_draw() -> bool:
    """Return whether figures can be drawn: they need the extra plots or analysis."""
    return find_spec("matplotlib") is not None


@contextmanager
def _drawing() -> Iterator[None]:
    """Set matplotlib up so that the same report gives the same bytes."""
    from matplotlib import rc_context

    with rc_context(_SVG), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box is drawn instead
        yield


def _html_table(table: Table) -> str:
    lines = [("th", table.header), *(("td", row) for row in table.rows)]
    rows = (
        "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
        for kind, cells in lines
    )
    return f"<table>{''.join(rows)}</table>"


def as_json(report: Any) -> str:
    """Return a report, or a list of them, as JSON; NaN in it raises an error."""
    return json.dumps(
        report, indent=2, ensure_ascii=False, allow_nan=False, default=dataclasses.asdict
    )


def figure_text(value: float | None, digits: int = 3) -> str:
    """Return a number as tables show it."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """Return a share as percent, as tables show it."""
    return figure_text(None if value is None else 100 * value, 1)


def layer_name(layer: str) -> str:
    """Return the name of a layer, or of another way to get vectors, as tables show it."""
    return f"layer {layer}" if layer.isdigit() else layer


def new_figure(width: float, height: float, title: str, **settings: Any) -> Any:
    """Return an empty figure of a size in inches, with a title."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=10, **settings)
    return figure


def word_fonts() -> list[str]:
    """Return the installed fonts for words of any language."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return ["DejaVu Sans", *(name for name in _CHINESE_FONTS if name in installed)]


def add_grid(axes: Any) -> None:
    """Add horizontal lines to a panel, and remove its box."""
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)

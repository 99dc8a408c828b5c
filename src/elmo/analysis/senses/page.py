"""The occurrences of a word as text, as one HTML page without network, and as a picture."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from elmo.analysis.report_files import TITLE, save_figure, word_fonts
from elmo.analysis.senses.occurrences import Occurrence, SenseReport
from elmo.runtime.tables import counted

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000")
"""Colours that those who see few colours can tell apart; groups beyond these share the last."""

_WIDTH, _HEIGHT, _MARGIN = 760, 460, 24
_CONTEXT = 12
"""Words shown on either side."""
_NAMES = {"pca": "PCA", "tsne": "t-SNE"}

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em;
  color: #222; background: #fff; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.1em; margin-bottom: .2em; }}
p.facts {{ color: #555; margin: .2em 0; }}
svg {{ border: 1px solid #ddd; width: 100%; height: auto; display: block; }}
svg[hidden] {{ display: none; }}
circle {{ opacity: .75; cursor: pointer; }} circle:focus, circle:hover {{ stroke: #000;
  stroke-width: 2; opacity: 1; outline: none; }}
circle.off {{ opacity: .06; }}
#told {{ min-height: 3.2em; background: #f6f6f6; padding: .5em .8em; margin: .4em 0; }}
button {{ font: inherit; margin-right: .4em; cursor: pointer; }}
button[aria-pressed=false] {{ opacity: .4; }}
.dot {{ display: inline-block; width: .7em; height: .7em; border-radius: 50%; }}
table {{ border-collapse: collapse; width: 100%; }}
td {{ padding: .1em .3em; vertical-align: top; }}
td.left, td.right {{ width: 48%; color: #444; }} td.left {{ text-align: right; }}
td b {{ white-space: nowrap; }}
</style></head><body>
<h1>{heading}</h1>
{facts}
<div>{switches}</div>
{drawings}
<div id="told" aria-live="polite">Point at a dot, or reach it by the tab key, to read its sentence.
</div>
<div>{legend}</div>
{lists}
<script type="application/json" id="data">{data}</script>
<script>
const occurrences = JSON.parse(document.getElementById("data").textContent);
const told = document.getElementById("told");
function tell(event) {{
  const found = occurrences[event.target.dataset.number];
  if (!found) return;
  told.replaceChildren();
  const word = document.createElement("b");
  word.textContent = found.word;
  told.append(found.left + " ", word, " " + found.right);
}}
for (const circle of document.querySelectorAll("circle")) {{
  circle.addEventListener("mouseenter", tell);
  circle.addEventListener("focus", tell);
}}
for (const button of document.querySelectorAll("button[data-drawing]"))
  button.addEventListener("click", () => {{
    for (const other of document.querySelectorAll("button[data-drawing]"))
      other.setAttribute("aria-pressed", other === button);
    for (const drawing of document.querySelectorAll("svg"))
      drawing.toggleAttribute("hidden", drawing.id !== button.dataset.drawing);
  }});
for (const button of document.querySelectorAll("button[data-group]"))
  button.addEventListener("click", () => {{
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    for (const circle of document.querySelectorAll("circle"))
      if (circle.dataset.group === button.dataset.group) circle.classList.toggle("off", !shown);
  }});
</script></body></html>
"""


def render_senses(report: SenseReport) -> str:
    """Give the groups with their examples as text."""
    silhouette = "-" if report.silhouette is None else f"{report.silhouette:.3f}"
    lines = [
        f"{report.word}: {counted(report.n_occurrences, 'occurrence')} in {report.corpus}, layer "
        f"{report.layer}; {_groups(report)}, silhouette {silhouette}",
        *report.notes,
    ]
    for number, group in enumerate(report.clusters, start=1):
        size = counted(group.size, "occurrence")
        lines.append(f"\ngroup {number}: {size}{_alike(group.self_similarity)}")
        for place in group.examples:
            left, word, right = context_of(report.occurrences[place])
            lines.append(f"  {left} [{word}] {right}".rstrip())
    return "\n".join(lines)


def _groups(report: SenseReport) -> str:
    return counted(len(report.clusters), "group")


def context_of(occurrence: Occurrence) -> tuple[str, str, str]:
    """Give the words before, the word, and the words after, none too many."""
    words, at = occurrence.words, occurrence.position
    left, right = words[max(0, at - _CONTEXT) : at], words[at + 1 : at + 1 + _CONTEXT]
    before = "... " if at > _CONTEXT else ""
    after = " ..." if len(words) > at + 1 + _CONTEXT else ""
    return before + " ".join(left), words[at], " ".join(right) + after


def senses_page(report: SenseReport) -> str:
    """Give the report as one HTML page that needs nothing else."""
    first = report.projections[0]
    occurrences = [
        dict(zip(("left", "word", "right"), context_of(o), strict=True)) for o in report.occurrences
    ]
    # "<" inside a script could end it.
    data = json.dumps(occurrences, ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.format(
        title=escape(f"Senses of {report.word}"),
        heading=escape(f"“{report.word}” in {_groups(report)}"),
        facts="\n".join(f'<p class="facts">{escape(line)}</p>' for line in _facts(report)),
        switches="".join(
            f'<button data-drawing="{kind}" aria-pressed="{str(kind == first).lower()}">'
            f"{_NAMES[kind]}</button>"
            for kind in report.projections
        ),
        drawings="\n".join(_drawing(report, kind, kind != first) for kind in report.projections),
        legend="".join(_legend(report)),
        lists="\n".join(_list(report, number) for number in range(len(report.clusters))),
        data=data,
    )


def draw_senses(report: SenseReport, stem: Path) -> None:
    """Draw the occurrences, a panel for each projection.

    Args:
        report: What was found.
        stem: Path of the picture without its suffix.
    """
    from matplotlib.figure import Figure

    width = len(report.projections)
    figure = Figure(figsize=(6.2 * width, 5.6), layout="constrained")
    for axes, kind in zip(
        figure.subplots(1, width, squeeze=False)[0], report.projections, strict=True
    ):
        for number, group in enumerate(report.clusters):
            members = [o.points[kind] for o in report.occurrences if o.cluster == number]
            label = f"group {number + 1}: {group.size:,}"
            color = _color(number)
            axes.scatter(*zip(*members, strict=True), s=18, color=color, alpha=0.75, label=label)
        axes.set_title(_NAMES[kind], **TITLE)
        axes.set_xticks([])
        axes.set_yticks([])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    title = (
        f"“{_plain(report.word)}”, layer {report.layer}: "
        f"{counted(len(report.occurrences), 'occurrence')} in {_groups(report)}"
    )
    figure.suptitle(title, fontsize=10, fontfamily=word_fonts())
    save_figure(figure, stem)


def _plain(text: str) -> str:
    """Keep matplotlib from reading a formula in a word."""
    return text.replace("$", r"\$")


def _facts(report: SenseReport) -> list[str]:
    silhouette = "" if report.silhouette is None else f"; silhouette {report.silhouette:.3f}"
    return [
        f"{counted(report.n_occurrences, 'occurrence')} in {report.corpus}; model {report.model}, "
        f"layer {report.layer}{silhouette}",
        *report.notes,
    ]


def _color(number: int) -> str:
    return COLORS[min(number, len(COLORS) - 1)]


def _alike(similarity: float | None) -> str:
    return "" if similarity is None else f", mean cosine {similarity:.3f}"


def _drawing(report: SenseReport, kind: Any, hidden: bool) -> str:
    """Give a projection as SVG."""
    points = [o.points[kind] for o in report.occurrences]
    across, down = (_scale([point[axis] for point in points], axis) for axis in (0, 1))
    circles = "".join(
        f'<circle tabindex="0" data-number="{number}" data-group="{o.cluster}" cx="{x:.1f}" '
        f'cy="{y:.1f}" r="5" fill="{_color(o.cluster)}"></circle>'
        for number, (o, x, y) in enumerate(zip(report.occurrences, across, down, strict=True))
    )
    name = escape(f"{_NAMES[kind]} of the occurrences of {report.word}")
    return (
        f'<svg id="{kind}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{name}"'
        f"{' hidden' if hidden else ''}>{circles}</svg>"
    )


def _scale(values: list[float], axis: int) -> list[float]:
    """Fit coordinates into the drawing; the second axis points down."""
    size = (_WIDTH, _HEIGHT)[axis] - 2 * _MARGIN
    low, high = min(values), max(values)
    spread = high - low or 1.0
    shares = [(value - low) / spread for value in values]
    return [_MARGIN + size * (1 - share if axis else share) for share in shares]


def _legend(report: SenseReport) -> list[str]:
    return [
        f'<button data-group="{number}" aria-pressed="true"><span class="dot" '
        f'style="background:{_color(number)}"></span> group {number + 1}: {group.size:,}</button>'
        for number, group in enumerate(report.clusters)
    ]


def _list(report: SenseReport, number: int) -> str:
    group = report.clusters[number]
    rows = []
    for place in group.examples:
        left, word, right = map(escape, context_of(report.occurrences[place]))
        rows.append(
            f'<tr><td class="left">{left}</td><td><b>{word}</b></td>'
            f'<td class="right">{right}</td></tr>'
        )
    size = counted(group.size, "occurrence")
    heading = f"Group {number + 1}: {size}{_alike(group.self_similarity)}"
    dot = f'<span class="dot" style="background:{_color(number)}"></span>'
    return f"<h2>{dot} {escape(heading)}</h2><table>{''.join(rows)}</table>"

"""The clusters of a word as text, as one HTML page without network, and as a figure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from elmo.analysis.reports import TITLE, CorpusReport, new_figure, word_fonts
from elmo.analysis.settings import Projection
from elmo.runtime.files import write_text
from elmo.runtime.tables import counted
from elmo.text.sentences import Words

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000")
"""Colors for the color-blind, too; clusters beyond these share the last one."""

_WIDTH, _HEIGHT, _MARGIN = 760, 460, 24
_CONTEXT = 12
"""Words shown on either side."""
_NAMES = {"pca": "PCA", "tsne": "t-SNE"}


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of the word."""

    words: Words
    position: int
    cluster: int
    """Its cluster, from 0 on."""
    cosine_to_center: float
    points: dict[str, list[float]]
    """Its coordinates in each projection."""

    def context(self) -> tuple[str, str, str]:
        """Return the words before, the word, and the words after, up to 12."""
        words, at = self.words, self.position
        left, right = words[max(0, at - _CONTEXT) : at], words[at + 1 : at + 1 + _CONTEXT]
        before = "... " if at > _CONTEXT else ""
        after = " ..." if len(words) > at + 1 + _CONTEXT else ""
        return before + " ".join(left), words[at], " ".join(right) + after


@dataclass(frozen=True)
class SenseCluster:
    """A cluster of occurrences."""

    size: int
    self_similarity: float | None
    """Mean cosine of its occurrences; None if there is one."""
    examples: list[int]
    """Numbers of the occurrences nearest to its center."""

    @property
    def summary(self) -> str:
        """Its size and how similar its occurrences are."""
        similarity = self.self_similarity
        mean = "" if similarity is None else f", mean cosine {similarity:.3f}"
        return counted(self.size, "occurrence") + mean


@dataclass(frozen=True, kw_only=True)
class SenseReport(CorpusReport):
    """The clusters of one word."""

    word: str
    layer: str = ""
    n_occurrences: int = 0
    """Occurrences in the corpus."""
    silhouette: float | None = None
    projections: list[Projection] = field(default_factory=list)
    clusters: list[SenseCluster] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)

    @property
    def n_clusters(self) -> str:
        """The number of clusters, in words."""
        return counted(len(self.clusters), "cluster")

    @property
    def head(self) -> list[str]:
        """Word, model and corpus."""
        silhouette = "" if self.silhouette is None else f", silhouette {self.silhouette:.3f}"
        return [
            *super().head,
            f"corpus   {self.corpus}: {counted(self.n_occurrences, 'occurrence')} of {self.word} "
            f"(tokenizer {self.tokenizer})",
            f"layer    {self.layer}: {self.n_clusters}{silhouette}",
        ]

    def tables(self) -> Iterator[str]:
        """Yield each cluster with its examples."""
        for number, group in enumerate(self.clusters, start=1):
            lines = [f"cluster {number}: {group.summary}"]
            for left, word, right in self._examples(group):
                lines.append(f"  {left} [{word}] {right}".rstrip())
            yield "\n".join(lines)

    def _examples(self, group: SenseCluster) -> Iterator[tuple[str, str, str]]:
        return (self.occurrences[number].context() for number in group.examples)

    @property
    def stem(self) -> str:  # type: ignore[override]
        """Name of its files without their endings."""
        return "senses-" + (re.sub(r"[^\w-]+", "_", self.word) or "_")

    @classmethod
    def endings(cls) -> list[str]:
        """Return the endings of the files that `save` writes."""
        return [".html", *super().endings()]

    def save(self, folder: Path) -> None:
        """Write the report, and the page."""
        super().save(folder)
        write_text(folder / f"{self.stem}.html", self.page())

    def page(self) -> str:
        """Return the report as one HTML page that needs nothing else."""
        first = self.projections[0]
        names = ("left", "word", "right")
        occurrences = [dict(zip(names, o.context(), strict=True)) for o in self.occurrences]
        facts = self.head + self.notes
        template = files("elmo.analysis.occurrences").joinpath("page.html").read_text("utf-8")
        return Template(template).substitute(
            title=escape(f"Senses of {self.word}"),
            heading=escape(f"“{self.word}” in {self.n_clusters}"),
            facts="\n".join(f'<p class="facts">{escape(line)}</p>' for line in facts),
            switches="".join(
                f'<button data-drawing="{kind}" aria-pressed="{str(kind == first).lower()}">'
                f"{_NAMES[kind]}</button>"
                for kind in self.projections
            ),
            drawings="\n".join(self._drawing(kind, kind != first) for kind in self.projections),
            legend="".join(
                f'<button data-cluster="{number}" aria-pressed="true">{_dot(number)} cluster '
                f"{number + 1}: {group.size:,}</button>"
                for number, group in enumerate(self.clusters)
            ),
            lists="\n".join(self._list(number) for number in range(len(self.clusters))),
            # "<" inside a script could end it.
            data=json.dumps(occurrences, ensure_ascii=False).replace("<", "\\u003c"),
        )

    def _drawing(self, kind: Projection, hidden: bool) -> str:
        """Return a projection as SVG."""
        points = [o.points[kind] for o in self.occurrences]
        across, down = (_scale([point[axis] for point in points], axis) for axis in (0, 1))
        circles = "".join(
            f'<circle tabindex="0" data-number="{number}" data-cluster="{o.cluster}" '
            f'cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_color(o.cluster)}"></circle>'
            for number, (o, x, y) in enumerate(zip(self.occurrences, across, down, strict=True))
        )
        name = escape(f"{_NAMES[kind]} of the occurrences of {self.word}")
        return (
            f'<svg id="{kind}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{name}"'
            f"{' hidden' if hidden else ''}>{circles}</svg>"
        )

    def _list(self, number: int) -> str:
        group = self.clusters[number]
        rows = [
            f'<tr><td class="left">{left}</td><td><b>{word}</b></td>'
            f'<td class="right">{right}</td></tr>'
            for left, word, right in (map(escape, parts) for parts in self._examples(group))
        ]
        heading = escape(f"Cluster {number + 1}: {group.summary}")
        return f"<h2>{_dot(number)} {heading}</h2><table>{''.join(rows)}</table>"

    def figure(self) -> Any:
        """Draw the occurrences, a panel for each projection."""
        width = len(self.projections)
        # Without its dollar signs, matplotlib reads no formula in a word.
        word = self.word.replace("$", r"\$")
        shown = counted(len(self.occurrences), "occurrence")
        title = f"“{word}”, layer {self.layer}: {shown} in {self.n_clusters}"
        figure = new_figure(6.2 * width, 5.6, title, fontfamily=word_fonts())
        panels = figure.subplots(1, width, squeeze=False)[0]
        for axes, kind in zip(panels, self.projections, strict=True):
            for number, group in enumerate(self.clusters):
                members = [o.points[kind] for o in self.occurrences if o.cluster == number]
                style = {"color": _color(number), "label": f"cluster {number + 1}: {group.size:,}"}
                axes.scatter(*zip(*members, strict=True), s=18, alpha=0.75, **style)
            axes.set_title(_NAMES[kind], **TITLE)
            axes.set_xticks([])
            axes.set_yticks([])
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        return figure


def _color(number: int) -> str:
    return COLORS[min(number, len(COLORS) - 1)]


def _dot(number: int) -> str:
    return f'<span class="dot" style="background:{_color(number)}"></span>'


def _scale(values: list[float], axis: int) -> list[float]:
    """Scale coordinates to the drawing; the second axis points down."""
    size = (_WIDTH, _HEIGHT)[axis] - 2 * _MARGIN
    low, high = min(values), max(values)
    spread = high - low or 1.0
    shares = [(value - low) / spread for value in values]
    return [_MARGIN + size * (1 - share if axis else share) for share in shares]

"""What each layer knows, as tables and as a figure, beside published results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elmo.analysis.reports import TITLE, Report, Table, add_grid, layer_name, new_figure, percent
from elmo.runtime.tables import NOTHING

# ELMo paper (NAACL 2018), tables 5 and 6, both for the recurrent layers; POS is on the Penn
# Treebank, whose 45 tags are harder than the 17 of Universal Dependencies, and on other text.
_PUBLISHED_WSD = {"1": 0.674, "2": 0.690}
_PUBLISHED_FIRST_SENSE = 0.659
_PUBLISHED_POS = {"1": 0.973, "2": 0.968}
_SETS = {
    "senseval2": "SE2",
    "senseval3": "SE3",
    "semeval2007": "SE07",
    "semeval2013": "SE13",
    "semeval2015": "SE15",
}


@dataclass(frozen=True)
class TagScore:
    """Parts of speech by a linear probe."""

    layer: str
    accuracy: float


@dataclass(frozen=True)
class TagResults:
    """Parts of speech."""

    train_words: int
    test_words: int
    scores: list[TagScore] = field(default_factory=list)


@dataclass(frozen=True)
class SenseScore:
    """Senses of words by the nearest mean."""

    layer: str
    f1: float
    """On all instances. Every one is answered, so precision, recall and F1 are the same."""
    by_set: dict[str, float]
    """On each data set."""
    f1_seen: float | None
    """On instances whose lemma is in SemCor; None if there are none."""


@dataclass(frozen=True)
class SenseResults:
    """Word sense disambiguation."""

    n_means: int
    """Senses with a mean vector from SemCor."""
    n_instances: int
    n_unseen: int
    """Instances whose lemma is not in SemCor: they get WordNet's first sense."""
    first_sense_f1: float
    """Of WordNet's first sense alone."""
    first_sense_by_set: dict[str, float]
    scores: list[SenseScore] = field(default_factory=list)


@dataclass(frozen=True)
class PairScore:
    """Word in context, by a threshold."""

    layer: str
    accuracy: float
    train_accuracy: float
    threshold: float
    """Cosines above it mean the same sense; chosen on the training pairs."""


@dataclass(frozen=True)
class PairResults:
    """Word in context."""

    n_pairs: int
    majority_accuracy: float
    """Accuracy of the more frequent answer."""
    scores: list[PairScore] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LayerReport(Report):
    """The results of all layers of a model; None for tasks that were not run."""

    stem = "layers"
    pos: TagResults | None = None
    wsd: SenseResults | None = None
    wic: PairResults | None = None

    def tables(self) -> Iterator[str | Table]:
        """Yield a title and a table for each task."""
        if self.pos is not None:
            yield (
                f"Parts of speech, linear probe: {self.pos.train_words:,} words of training, "
                f"{self.pos.test_words:,} of test"
            )
            rows = [
                (layer_name(s.layer), percent(s.accuracy), percent(_PUBLISHED_POS.get(s.layer)))
                for s in self.pos.scores
            ]
            yield Table(("parts of speech", "accuracy", "original ELMo, Penn Treebank"), rows)
        if self.wsd is not None:
            yield (
                f"Senses, nearest of {self.wsd.n_means:,} means of SemCor: "
                f"{self.wsd.n_instances:,} instances, {self.wsd.n_unseen:,} of them by WordNet's "
                "first sense"
            )
            yield _sense_table(self.wsd)
        if self.wic is not None:
            yield (
                f"Same sense or not, threshold on cosines: {self.wic.n_pairs:,} pairs; the more "
                f"frequent answer is right for {percent(self.wic.majority_accuracy)}"
            )
            header = ("word in context", "accuracy", "training", "threshold")
            yield Table(header, [_pair_row(score) for score in self.wic.scores])

    def figure(self) -> Any:
        """Draw a panel for each task."""
        panels = list(self._panels())
        width = 4.2 * max(1, len(panels))
        figure = new_figure(width, 4, f"elmo analyze layers: {self.model}")
        grid = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(axes, panel)
        return figure

    def _panels(self) -> Iterator[_Panel]:
        if self.pos is not None:
            shares = {s.layer: s.accuracy for s in self.pos.scores}
            yield _Panel("Parts of speech, accuracy", shares)
        if self.wsd is not None:
            shares = {s.layer: s.f1 for s in self.wsd.scores}
            yield _Panel("Senses, F1", shares, self.wsd.first_sense_f1, "first sense")
        if self.wic is not None:
            shares = {s.layer: s.accuracy for s in self.wic.scores}
            base = self.wic.majority_accuracy
            yield _Panel("Word in context, accuracy", shares, base, "most frequent answer")


def _pair_row(score: PairScore) -> tuple[str, ...]:
    shares = percent(score.accuracy), percent(score.train_accuracy)
    return (layer_name(score.layer), *shares, f"{score.threshold:.3f}")


def _sense_table(found: SenseResults) -> Table:
    sets = list(found.first_sense_by_set)

    def row(name: str, f1: float, by_set: dict[str, float], *rest: str) -> Sequence[str]:
        return (name, percent(f1), *(percent(by_set.get(name)) for name in sets), *rest)

    baseline = row(
        "first sense",
        found.first_sense_f1,
        found.first_sense_by_set,
        NOTHING,
        percent(_PUBLISHED_FIRST_SENSE),
    )
    rows = [
        row(
            layer_name(s.layer),
            s.f1,
            s.by_set,
            percent(s.f1_seen),
            percent(_PUBLISHED_WSD.get(s.layer)),
        )
        for s in found.scores
    ]
    header = ("senses", "F1", *(_SETS.get(name, name) for name in sets), "seen", "original ELMo")
    return Table(header, [baseline, *rows])


class _Panel(NamedTuple):
    title: str
    shares: dict[str, float]
    """The score of each layer."""
    base: float | None = None
    """The score without a model."""
    base_name: str = ""


def _draw_panel(axes: Any, panel: _Panel) -> None:
    """Draw points, not bars: the axis does not begin at 0."""
    shares = [100 * value for value in panel.shares.values()]
    places = range(len(shares))
    axes.plot(places, shares, "o", color="C0", ms=9)
    axes.vlines(places, 0, shares, color="C0", alpha=0.25)
    readable = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for at in zip(places, shares, strict=True):
        label = f"{at[1]:.1f}"
        axes.annotate(label, at, (0, 9), "data", "offset points", ha="center", bbox=readable)
    base = [] if panel.base is None else [100 * panel.base]
    lowest, highest = min(shares + base), max(shares + base)
    margin = max(1.0, highest - lowest)
    axes.set_ylim(max(0.0, lowest - 0.4 * margin), highest + 0.3 * margin)
    for share in base:
        axes.axhline(share, color="0.4", linestyle="--", linewidth=1)
        right = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "bottom"}
        axes.text(0.99, share, panel.base_name, fontsize=8, **right)
    axes.set_xticks(places, [layer_name(name).replace(", ", ",\n") for name in panel.shares])
    axes.set_xlim(-0.5, len(shares) - 0.5)
    axes.set_ylabel("%")
    axes.set_title(panel.title, **TITLE)
    add_grid(axes)

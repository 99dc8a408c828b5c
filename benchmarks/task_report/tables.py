"""The tables of the report: figures of runs side by side, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.task_report.runs import values_of
from benchmarks.task_report.settings import DATASETS, Dataset
from elmo.runtime.tables import NOTHING, markdown_table

Cells = Sequence[Mapping[str, Any]]
GLOVE = {"features": "glove"}
BOTH: dict[str, Any] = {}
"""GloVe + ELMo at the input with a learned mix: what runs are unless something is changed."""


@dataclass(frozen=True)
class Figure:
    """Mean and standard deviation of runs with several seeds, in percent."""

    mean: float
    deviation: float | None
    """None for a single run."""
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Summarize runs; None if there are none."""
        if not values:
            return None
        spread = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), spread, len(values))

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}"


def figure(found: Cells, dataset: str, changes: Mapping[str, Any]) -> Figure | None:
    """Return the main figure of runs of one kind."""
    return Figure.of(values_of(list(map(dict, found)), dataset, dict(changes)))


def error_reduction(before: float, after: float) -> float:
    """Return the relative error reduction in percent; values are in percent."""
    return 100 * (after - before) / (100 - before)


def main_table(found: Cells) -> str:
    """Compare GloVe with GloVe + ELMo, next to what the paper reports."""
    header = ["data set", "metric", "GloVe", "GloVe + ELMo", "gain", "error reduction"]
    header += ["beyond one deviation", "in the paper", "error reduction there"]
    rows = [row for name, dataset in DATASETS.items() if (row := _main_row(found, name, dataset))]
    return markdown_table(header, rows)


def _main_row(found: Cells, name: str, dataset: Dataset) -> list[str] | None:
    before, after = figure(found, name, GLOVE), figure(found, name, BOTH)
    if before is None and after is None:
        return None
    row = [dataset.title, dataset.metric, _shown(before), _shown(after)]
    if before is None or after is None:
        row += [NOTHING] * 3
    else:
        gain = after.mean - before.mean
        spread = max(before.deviation or 0.0, after.deviation or 0.0)
        beyond = "yes" if gain > spread else "no"
        row += [
            f"{gain:+.2f}",
            f"{error_reduction(before.mean, after.mean):.1f} %",
            beyond if min(before.n, after.n) > 1 else "one run",
        ]
    if dataset.paper is None:
        return [*row, NOTHING, NOTHING]
    return [
        *row,
        f"{dataset.paper[0]} → {dataset.paper[1]}",
        f"{error_reduction(*dataset.paper):.1f} %",
    ]


def variants_table(found: Cells, variants: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Put variants side by side, a data set on each line; None if none of them was run."""
    rows = []
    for name, dataset in DATASETS.items():
        figures = [figure(found, name, changes) for changes in variants.values()]
        # What every data set has, with GloVe and with both, is no comparison of variants.
        own = [f for f, v in zip(figures, variants.values(), strict=True) if v not in (GLOVE, BOTH)]
        if any(own) and sum(value is not None for value in figures) > 1:
            rows.append([f"{dataset.title}, {dataset.metric}", *map(_shown, figures)])
    return markdown_table(["data set", *variants], rows) if rows else None


def share_table(found: Cells, shares: Sequence[float]) -> str | None:
    """Compare shares of the training data, with and without ELMo."""
    rows = []
    for name, dataset in DATASETS.items():
        for title, changes in (("GloVe", GLOVE), ("GloVe + ELMo", BOTH)):
            figures = [figure(found, name, at_share(changes, share)) for share in shares]
            if any(value is not None for value in figures[:-1]):
                rows.append([f"{dataset.title}, {title}", *map(_shown, figures)])
    header = ["training data", *(f"{100 * share:g} %" for share in shares)]
    return markdown_table(header, rows) if rows else None


def at_share(changes: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Add a share of the training data to what is varied."""
    return {**changes, "train_share": share} if share != 1.0 else dict(changes)


def layer_weights(found: Cells, dataset: str, place: str) -> list[float] | None:
    """Return the mean learned weights of ELMo's layers, where it enters at a place."""
    changes = BOTH if place == "input" else {"elmo_at": "output"}
    rows = [
        cell["report"]["mix"][place]
        for cell in found
        if cell["dataset"] == dataset and cell["changes"] == changes
    ]
    return [statistics.fmean(column) for column in zip(*rows, strict=True)] if rows else None


def weights_table(found: Cells) -> str | None:
    """Show the learned weights of layers."""
    rows = []
    for place in ("input", "output"):
        for name, dataset in DATASETS.items():
            weights = layer_weights(found, name, place)
            if weights is not None:
                rows.append([f"{dataset.title}, {place}", *(f"{w:.3f}" for w in weights)])
    if not rows:
        return None
    names = ["context-free", *(f"layer {k}" for k in range(1, len(rows[0]) - 1))]
    return markdown_table(["ELMo at", *names], rows)


def times_table(found: Cells) -> str:
    """Show how large and how fast the runs with ELMo and all training data are."""
    rows = []
    for name, dataset in DATASETS.items():
        reports = [
            cell["report"] for cell in found if cell["dataset"] == name and not cell["changes"]
        ]
        if reports:
            sizes = " / ".join(f"{reports[0][f'n_{part}']:,}" for part in ("train", "dev", "test"))
            times = [
                f"{statistics.fmean(report[key] for report in reports):,.0f}"
                for key in ("seconds_preparing", "seconds_training", "epochs", "steps")
            ]
            rows.append([dataset.title, sizes, *times])
    header = ["data set", "examples", "s preparing", "s training", "epochs", "steps"]
    return markdown_table(header, rows)


def _shown(value: Figure | None) -> str:
    return NOTHING if value is None else str(value)

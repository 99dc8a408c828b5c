"""The errors of precisions as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable

from benchmarks.exactness.measure import ExactnessReport
from elmo.runtime.tables import markdown_table


def render_exactness(report: ExactnessReport) -> str:
    """Return the report as Markdown."""
    machine = report.machine
    where = machine.cpu if machine.gpu is None else f"{machine.cpu}, {machine.gpu}"
    head = [
        f"{report.model}, elmo-torch {report.version}, {machine.date}, {where} "
        f"({machine.instructions}), torch {machine.torch}",
        f"`{report.command}`",
        *(f"Note: {note}." for note in report.notes),
    ]
    parts = ["\n\n".join(head), _errors(report)]
    if report.probes:
        parts.append(_probes(report))
    return "\n\n".join(parts)


def _errors(report: ExactnessReport) -> str:
    rows = (
        (
            str(error.mode),
            str(error.layer),
            f"{error.largest:.1e}",
            f"{error.mean:.1e}",
            f"{error.relative:.1e}",
            f"{error.least_cosine:.6f}",
        )
        for error in report.errors
    )
    header = ("precision", "layer", "largest error", "mean error", "relative", "least cosine")
    return (
        f"Errors against float64 on {report.n_sentences:,} sentences, {report.n_words:,} words "
        f"(values have a standard deviation of {report.value_spread:.2f}):\n\n"
        f"{markdown_table(header, rows)}"
    )


def _probes(report: ExactnessReport) -> str:
    rows = (
        (
            str(score.mode),
            str(score.layer),
            f"{score.accuracy_of_fp32_probe:.2%}",
            f"{score.accuracy_of_own_probe:.2%}",
            f"{score.changed:.2%}",
        )
        for score in report.probes
    )
    header = ("precision", "layer", "fp32 probe", "own probe", "tags changed")
    error = _largest_deviation(score.accuracy_of_fp32_probe for score in report.probes)
    error /= math.sqrt(report.test_words)
    return (
        f"Parts of speech ({report.n_tags} tags) by a linear probe, learned from "
        f"{report.train_words:,} words, judged by {report.test_words:,}; the standard error of an "
        f"accuracy is {error:.2%}. *fp32 probe*: learned from fp32 vectors; *own probe*: learned "
        "from vectors of the same precision; *tags changed*: words that the fp32 probe tags "
        "differently than on fp32 vectors.\n\n"
        f"{markdown_table(header, rows)}"
    )


def _largest_deviation(accuracies: Iterable[float]) -> float:
    """Return the largest standard deviation of one answer."""
    return max(math.sqrt(share * (1 - share)) for share in accuracies)

"""Reports of speed as plain text."""

from __future__ import annotations

from benchmarks.common.machine import render_head
from benchmarks.common.timing import Spread
from benchmarks.speed.records import Report, SizeReport
from elmo.runtime.tables import NOTHING, text_table


def render_latest(report: Report) -> str:
    """Return what was measured last as plain text, after the head if it is the first."""
    latest = _render_size(report.sizes[-1])
    if len(report.sizes) > 1:
        return f"\n{latest}"
    head = render_head(report.version, report.command, report.machine, report.notes)
    return f"{head}\n\n{latest}"


def _render_size(size: SizeReport) -> str:
    tables = [_corpus(size), _latency(size), *([_memory(size)] if size.memory else [])]
    return "\n\n".join(["\n".join(_size_lines(size)), *tables])


def _size_lines(size: SizeReport) -> list[str]:
    costs, peaks = size.costs, size.peaks
    lines = [
        f"== {size.size} on {size.device}: {size.parameters / 1e6:.1f} M parameters; "
        f"{size.sentences} sentences, {size.words} words, {size.distinct_words} distinct ==",
        f"work     {costs.per_word / 1e6:.1f} MFLOP a word by the book: recurrent layers "
        f"{(costs.first_input + costs.recurrent) / 1e6:.1f}, highways and projection "
        f"{costs.dense / 1e6:.1f}, convolution {costs.convolution / 1e6:.1f}",
        f"roof     {_peak_text(peaks.flops)}; memory is read at {peaks.bandwidth / 1e9:,.1f} GB/s",
    ]
    return lines + [
        f"{row.name} differs from {row.other} by {row.largest_difference:.1e} at most "
        f"(values up to {row.largest_value:.1f}, standard deviation {row.standard_deviation:.2f})"
        for row in size.agreement
    ]


def _peak_text(flops: dict[str, float]) -> str:
    return ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in flops.items())


def _corpus(size: SizeReport) -> str:
    return text_table(
        ("corpus", "words/s", "x AllenNLP given", "x AllenNLP sorted", "of peak"),
        (
            (
                row.name,
                f"{row.words_per_second.median:,.0f}",
                times_text(row.times_given),
                times_text(row.times_sorted),
                share_text(row.share_of_peak),
            )
            for row in size.corpus
        ),
    )


def _latency(size: SizeReport) -> str:
    return text_table(
        ("one sentence of 20 words", "ms", "ms lowest..highest", "x AllenNLP", "of roof"),
        (
            (
                row.name,
                f"{row.milliseconds.median:.1f}",
                f"{row.milliseconds.low:.1f}..{row.milliseconds.high:.1f}",
                times_text(row.times_peer),
                share_text(row.share_of_roof),
            )
            for row in size.latency
        ),
    )


def _memory(size: SizeReport) -> str:
    return text_table(
        ("memory", "peak MB", "MB when loaded", "GPU MB", "load s"),
        (
            (
                row.name,
                f"{row.peak_mb:.0f}",
                f"{row.loaded_mb:.0f}",
                NOTHING if row.gpu_mb is None else f"{row.gpu_mb:.0f}",
                f"{row.load_seconds:.1f}",
            )
            for row in size.memory
        ),
    )


def times_text(spread: Spread | None) -> str:
    """Write a ratio: its median, and the lowest and highest of all rounds."""
    if spread is None:
        return NOTHING
    return f"{spread.median:.2f} ({spread.low:.2f}..{spread.high:.2f})"


def share_text(share: float | None) -> str:
    """Write a part of a whole."""
    return NOTHING if not share else f"{share:.0%}"

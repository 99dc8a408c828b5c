"""The commands that measure: bench, bench scaling, bench precision."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated

from cyclopts import App, Parameter

from elmo.benchmark.bench_settings import (
    BenchSettings,
    PrecisionSettings,
    ScalingSettings,
    SpeedSettings,
)
from elmo.cli.base import DONE, Flags, app, say, show

_SPEED = SpeedSettings()
_SCALING = ScalingSettings()
_PRECISION = PrecisionSettings()

bench = App(name="bench")
app.command(bench)


@bench.default
def speed(*, settings: Annotated[SpeedSettings, Flags] = _SPEED) -> int:
    """Measure how fast this machine embeds text, beside AllenNLP 2.10.1 where it is installed.

    For each precision: words a second for a corpus, milliseconds for one sentence, how much of the
    machine's own peak that is, and memory. Results are compared before anything is timed.

    Parameters
    ----------
    settings
        What is measured.
    """
    from elmo.benchmark.render import render_latest
    from elmo.benchmark.speed import measure_speed

    for report in measure_speed(settings, _command_line(), _teller(settings)):
        show(render_latest(report))
    return DONE


@bench.command
def scaling(*, settings: Annotated[ScalingSettings, Flags] = _SCALING) -> int:
    """Measure speed and peak memory as batches, sentences and corpora grow.

    Time should grow in step with the words; memory, too, where all vectors are kept, and not at
    all where they are streamed.

    Parameters
    ----------
    settings
        What is measured.
    """
    from elmo.benchmark.report import write_json
    from elmo.benchmark.scaling import measure_scaling
    from elmo.benchmark.scaling_report import draw_scaling, render_scaling, require_plots

    if settings.plot is not None:
        require_plots()
    report = measure_scaling(settings, _command_line(), _teller(settings))
    show(render_scaling(report))
    write_json(report, settings.json)
    if settings.plot is not None:
        draw_scaling(report, settings.plot)
        say(f"{settings.plot}: drawn")
    return DONE


@bench.command
def precision(
    model: Annotated[str, Parameter(name="MODEL")],
    /,
    *,
    settings: Annotated[PrecisionSettings, Flags] = _PRECISION,
) -> int:
    """Measure how exact each precision is, against float64, and what its errors do to a task.

    Precisions for which a CPU has no instructions are measured, too: weights are then rounded and
    products computed in float32.

    Parameters
    ----------
    model
        Folder, weights file, or repository of the Hugging Face Hub.
    settings
        What is measured; --text or --treebank are needed.
    """
    from elmo.benchmark.exactness import measure_exactness
    from elmo.benchmark.exactness_report import render_exactness
    from elmo.benchmark.report import write_json, write_text

    report = measure_exactness(model, settings, _command_line(), _teller(settings))
    text = render_exactness(report)
    show(text)
    write_json(report, settings.json)
    write_text(text + "\n", settings.markdown)
    return DONE


def _teller(settings: BenchSettings) -> Callable[[str], None]:
    return (lambda text: None) if settings.quiet else say


def _command_line() -> str:
    """Give the command as it was typed, for the record."""
    return shlex.join(["elmo", *sys.argv[1:]])

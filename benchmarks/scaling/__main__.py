"""`python -m benchmarks.scaling`."""

from __future__ import annotations

import sys
from typing import Annotated

from benchmarks.common.command import command_line, run, teller
from benchmarks.scaling.settings import ScalingSettings
from elmo.cli.main import Flags, say, show

_DEFAULT = ScalingSettings()


def scaling(*, settings: Annotated[ScalingSettings, Flags] = _DEFAULT) -> None:
    """Measure speed and peak memory as batches, sentences and corpora grow.

    Time should grow in step with the words; memory, too, where all vectors are kept, and not at
    all where they are streamed.

    Parameters
    ----------
    settings
        What is measured.
    """
    from benchmarks.common.output import write_json
    from benchmarks.scaling.measure import measure_scaling
    from benchmarks.scaling.report import draw_scaling, render_scaling, require_plots

    if settings.plot is not None:
        require_plots()
    report = measure_scaling(settings, command_line(scaling), teller(settings))
    show(render_scaling(report))
    write_json(report, settings.json)
    if settings.plot is not None:
        draw_scaling(report, settings.plot)
        say(f"{settings.plot}: drawn")


if __name__ == "__main__":
    sys.exit(run(scaling))

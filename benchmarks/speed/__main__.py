"""`python -m benchmarks.speed`."""

from __future__ import annotations

import sys
from typing import Annotated

from benchmarks.common.command import command_line, run, teller
from benchmarks.speed.settings import SpeedSettings
from elmo.cli.main import Flags, show

_DEFAULT = SpeedSettings()


def speed(*, settings: Annotated[SpeedSettings, Flags] = _DEFAULT) -> None:
    """Measure how fast this machine embeds text, beside AllenNLP 2.10.1 where it is installed.

    For each precision: words a second for a corpus, milliseconds for one sentence, how much of the
    machine's own peak that is, and memory. Results are compared before anything is timed.

    Parameters
    ----------
    settings
        What is measured.
    """
    from benchmarks.speed.measure import measure_speed
    from benchmarks.speed.tables import render_latest

    for report in measure_speed(settings, command_line(speed), teller(settings)):
        show(render_latest(report))


if __name__ == "__main__":
    sys.exit(run(speed))

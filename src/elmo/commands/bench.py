"""The commands that measure: bench, bench scaling, bench precision."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated

from cyclopts import App

from elmo.benchmark.bench_settings import (
    BenchSettings,
    ScalingSettings,
    SpeedSettings,
)
from elmo.commands.base import DONE, Flags, app, say, show

_SPEED = SpeedSettings()
_SCALING = ScalingSettings()

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
    from elmo.benchmark.render import render
    from elmo.benchmark.speed import measure_speed

    show(render(measure_speed(settings, _command_line(), _teller(settings))))
    return DONE


def _teller(settings: BenchSettings) -> Callable[[str], None]:
    return (lambda text: None) if settings.quiet else say


def _command_line() -> str:
    """Give the command as it was typed, for the record."""
    return shlex.join(["elmo", *sys.argv[1:]])

"""`python -m benchmarks.exactness MODEL`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from benchmarks.common.command import command_line, run, teller
from benchmarks.exactness.settings import PrecisionSettings
from elmo.cli.main import Flags, show

_DEFAULT = PrecisionSettings()


def exactness(
    model: Annotated[str, Parameter(name="MODEL")],
    /,
    *,
    settings: Annotated[PrecisionSettings, Flags] = _DEFAULT,
) -> None:
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
    from benchmarks.common.output import write_json, write_text
    from benchmarks.exactness.measure import measure_exactness
    from benchmarks.exactness.report import render_exactness

    report = measure_exactness(model, settings, command_line(exactness), teller(settings))
    text = render_exactness(report)
    show(text)
    write_json(report, settings.json)
    write_text(text + "\n", settings.markdown)


if __name__ == "__main__":
    sys.exit(run(exactness))

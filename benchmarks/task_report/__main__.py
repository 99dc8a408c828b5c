"""The command line of the report."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.task_report.page import write_report
from benchmarks.task_report.runs import WORKER, run_in_processes, run_report
from benchmarks.task_report.settings import ReportSettings
from elmo.cli.main import DONE, REFUSED, STOPPED, Flags, print_panel, say
from elmo.errors import ElmoError

_DEFAULT = ReportSettings()
app = App(
    name="benchmarks.task_report",
    help_formatter=print_panel,
    default_parameter=Parameter(negative=()),
    help_format="plaintext",
)


@app.default
def report(*, settings: Annotated[ReportSettings, Flags] = _DEFAULT) -> int:
    """Run all tasks with and without ELMo, and write tables and plots of the difference.

    Every run is recorded when it is done, and not repeated: the command may be stopped at any time,
    split by --tasks and --studies, and given again to continue.

    Parameters
    ----------
    settings
        Which runs, and where to write.
    """
    if settings.only_write:
        complete = True
    elif settings.workers > 1:
        complete = run_in_processes(settings, dataclasses.replace(settings, workers=1, quiet=True))
    else:
        complete = run_report(settings, say)
    if WORKER not in os.environ:
        for line in write_report(settings.folder, settings.write):
            say(line)
    return DONE if complete else STOPPED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        code: int = app(arguments, result_action="return_value")
    except ElmoError as error:
        say(f"error: {error}")
        return REFUSED
    return code


if __name__ == "__main__":
    sys.exit(main())

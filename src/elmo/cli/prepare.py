"""The command that makes a corpus for training: prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmo.cli.main import DONE, STOPPED, Flags, app, say, show
from elmo.errors import ElmoError
from elmo.training.corpus.settings import PrepareSettings

_SETTINGS = PrepareSettings()


@app.command(usage="Usage: elmo prepare CORPUS... OUT [OPTIONS]")
def prepare(
    paths: Annotated[list[str], Parameter(name="CORPUS... OUT", negative=())],
    /,
    *,
    settings: Annotated[PrepareSettings, Flags] = _SETTINGS,
    quiet: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Turn text files into a vocabulary and memory-mapped shards, for elmo train.

    Parameters
    ----------
    paths
        Text files, folders or globs (plain, .gz, .xz, .bz2 or .zst; one paragraph or sentence a
        line, a blank line ends a document), and last the folder to make.
    quiet
        No progress, no report.
    as_json
        The report as JSON on standard output, for programs.
    """
    from elmo.training.corpus.prepare import prepare as prepare_corpus

    if len(paths) < 2:
        raise ElmoError(
            f"elmo prepare needs CORPUS and OUT, received only {paths[0]!r}; see elmo prepare "
            "--help"
        )
    *inputs, last = paths
    out = Path(last)
    try:
        report = prepare_corpus(inputs, out, settings, show_progress=not quiet)
    except KeyboardInterrupt:
        say(f"interrupted; what was done in {out} is kept: run the same with --resume")
        return STOPPED
    if report.was_complete:
        if not quiet:
            say(f"{out} is complete: nothing to do")
        return DONE
    for note in report.notes:
        say(f"note: {note}")
    if as_json:
        show(report.to_json().rstrip())
    elif not quiet:
        show(report.table())
    return DONE

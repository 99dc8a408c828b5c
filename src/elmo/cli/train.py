"""Commands that train: train, finetune."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, ArgumentCollection, Parameter

from elmo.cli.main import DONE, STOPPED, Flags, app, print_panel, read_config, say
from elmo.runtime.tables import counted
from elmo.settings import TokenizerName
from elmo.training.settings import LENGTHS, TrainSettings

if TYPE_CHECKING:
    from elmo.training.trainer import TrainReport

_TRAIN = TrainSettings()
_KNOWN_OF_THE_MODEL = (
    *("--data", "--resume", "--start-from"),
    *("--preset", "--reads", "--cell", "--layers", "--dim", "--projection"),
)
"""Flags of `train` that mean nothing where a model and a text are given."""


def _read_config(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Read `--config`; a length on the command line replaces the one in the file."""
    lengths = [arguments.get(f"--{name}") for name in LENGTHS]
    given = [length for length in lengths if length.tokens]
    read_config(app, commands, arguments)
    for length in lengths if given else ():
        if length not in given:
            length.tokens.clear()


@app.command(config=_read_config)
def train(
    *,
    config: Path | None = None,
    settings: Annotated[TrainSettings, Flags] = _TRAIN,
) -> int:
    """Train a biLM on a prepared corpus, or go on with a run that was stopped.

    Under torchrun, every process runs this command; see the README.

    Parameters
    ----------
    config
        TOML file whose keys are the names of these flags; a flag that is given wins.
    settings
        How.
    """
    from elmo.training.trainer import train

    del config  # read by `_read_config`
    return _tell(train(settings))


@app.command(config=_read_config, help_formatter=partial(print_panel, without=_KNOWN_OF_THE_MODEL))
def finetune(
    model: Annotated[str, Parameter(name="MODEL")],
    corpus: Annotated[list[Path] | None, Parameter(name="CORPUS")] = None,
    /,
    *,
    config: Path | None = None,
    tokenizer: TokenizerName = "whitespace",
    vocab_size: int | None = None,
    settings: Annotated[TrainSettings, Flags] = _TRAIN,
) -> int:
    """Go on training a model on text of a domain; needs --out.

    Published weights have no output layer: a new one is learned first, with the layers below it
    frozen, then all of them, the lower the more slowly.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file or Hub repository. A single argument is
        the corpus, and the model the default one.
    corpus
        A folder that elmo prepare wrote, or text files.
    config
        TOML file whose keys are the names of these flags; a flag that is given wins.
    tokenizer
        How text files are split into words.
    vocab_size
        Words that a new output layer knows, if text files are given.
    settings
        How. One pass over the text if no length is given, two if the output layer is new.
    """
    from elmo.hub.names import default_model
    from elmo.training.finetune import finetune

    del config  # read by `_read_config`
    if corpus is None:
        model, corpus = default_model(), [Path(model)]
    return _tell(finetune(model, corpus, settings, tokenizer, vocab_size))


def _tell(report: TrainReport) -> int:
    if not report.is_first:
        return DONE if report.finished else STOPPED
    progress = report.progress
    # Nothing was trained where a run that is finished was resumed.
    loss = "" if math.isnan(report.loss) else f", training loss {report.loss:.3f}"
    say(
        f"{report.out}: step {progress.step:,}, {counted(progress.tokens, 'word')} in "
        f"{progress.seconds:,.0f} s, {report.words_per_second:,.0f} words/s{loss}"
    )
    if not report.finished:
        say(f"interrupted and saved: elmo train --resume {report.out} goes on")
        return STOPPED
    if progress.best_perplexity is not None:
        say(
            f"best held-out perplexity {progress.best_perplexity:,.2f} (of both directions) at "
            f"step {progress.best_step:,}: {report.out / 'best'}"
        )
    if report.curve is None:
        say("no picture of the run; it needs matplotlib: pip install matplotlib")
    return DONE

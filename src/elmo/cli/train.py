"""Commands that train: train, finetune."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import ArgumentCollection, Parameter

from elmo.cli.main import DONE, STOPPED, App, Flags, app, print_panel, read_config, say
from elmo.settings import TokenizerName
from elmo.training.settings import LENGTHS, TrainSettings

if TYPE_CHECKING:
    from elmo.training.trainer import TrainReport

_TRAIN = TrainSettings()
_KNOWN_OF_THE_MODEL = (
    *("--data", "--resume", "--init-from"),
    *("--preset", "--input", "--cell", "--layers", "--dim", "--projection-dim"),
)
"""Flags of `train` that the model decides."""


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
    """Train a biLM on a prepared corpus, or resume a run.

    Under torchrun, every process runs this command; see docs/training.md.

    Parameters
    ----------
    config
        TOML file whose keys are the names of these flags; a flag that is given wins.
    settings
        How.
    """
    from elmo.training.trainer import train

    del config  # read by `_read_config`
    return _show(train(settings))


@app.command(
    usage="Usage: elmo finetune [MODEL] CORPUS... --out FOLDER [OPTIONS]",
    config=_read_config,
    help_formatter=partial(print_panel, without=_KNOWN_OF_THE_MODEL),
)
def finetune(
    model: Annotated[str, Parameter(name="MODEL")],
    corpus: Annotated[list[Path] | None, Parameter(name="CORPUS")] = None,
    /,
    *,
    config: Path | None = None,
    tokenizer: TokenizerName | None = None,
    vocab_size: int | None = None,
    settings: Annotated[TrainSettings, Flags] = _TRAIN,
) -> int:
    """Train a model further on text of a domain; needs --out.

    Published weights have no output layer: a new one is learned first, with the
    layers below frozen, then all, with discriminative learning rates.

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
        How text files are split into words; by default as the model's own texts were, else at
        white space.
    vocab_size
        Words that a new output layer knows, if text files are given.
    settings
        How. One epoch if no length is given, two if the output layer is new.
    """
    from elmo.hub.names import default_model
    from elmo.training.finetune import finetune

    del config  # read by `_read_config`
    if corpus is None:
        model, corpus = default_model(), [Path(model)]
    return _show(finetune(model, corpus, settings, tokenizer=tokenizer, vocab_size=vocab_size))


def _show(report: TrainReport) -> int:
    if report.is_first:
        say(str(report))
        if report.finished and report.curve is None:
            say("no picture of the loss curve: pip install matplotlib draws it")
    return DONE if report.finished else STOPPED

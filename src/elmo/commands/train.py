"""Commands that train: train, finetune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmo.commands.base import DONE, STOPPED, Flags, app, say
from elmo.errors import ConfigError
from elmo.settings import TokenizerName
from elmo.training.train_settings import LENGTHS, TrainSettings

if TYPE_CHECKING:
    from elmo.training.trainer import TrainReport

_TRAIN = TrainSettings()


@app.command
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

    del config  # its values are among the flags already, see `with_config`
    return _tell(train(settings))


@app.command
def finetune(
    model: Annotated[str, Parameter(name="MODEL")],
    corpus: Annotated[list[Path], Parameter(name="CORPUS")],
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
        Folder, weights file or Hub repository.
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
    from elmo.training.finetune import finetune

    del config
    return _tell(finetune(model, corpus, settings, tokenizer, vocab_size))


def _tell(report: TrainReport) -> int:
    progress = report.progress
    say(
        f"{report.out}: step {progress.step:,}, {progress.tokens:,} words in "
        f"{progress.seconds:,.0f} s, {report.words_per_second:,.0f} words/s, "
        f"training loss {report.loss:.3f}"
    )
    if not report.finished:
        say(f"interrupted and saved: elmo train --resume {report.out} goes on")
        return STOPPED
    if progress.best_ppl is not None:
        say(
            f"best held-out perplexity {progress.best_ppl:,.2f} (mean of both directions) at step "
            f"{progress.best_step:,}: {report.out / 'best'}"
        )
    if report.curve is None:
        say('no picture of the run; it needs the extra plots: pip install "elmo-torch[plots]"')
    return DONE


def with_config(arguments: list[str]) -> list[str]:
    """Put the values of `--config FILE` among the flags, except those that are given.

    Args:
        arguments: The command line, the command first.
    """
    if not arguments or arguments[0] not in ("train", "finetune"):
        return arguments
    path = _value(arguments, "--config")
    if path is None:
        return arguments
    changes = TrainSettings.from_toml(Path(path)).changes()
    if any(_is_given(arguments, name) for name in LENGTHS):
        changes = {name: value for name, value in changes.items() if name not in LENGTHS}
    flags = [
        flag
        for name, value in changes.items()
        if not _is_given(arguments, name)
        for flag in _flag(name, value)
    ]
    return [*arguments, *flags]


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def _is_given(arguments: list[str], name: str) -> bool:
    flag = f"--{name.replace('_', '-')}"
    return any(a == flag or a.startswith(f"{flag}=") for a in arguments)


def _value(arguments: list[str], flag: str) -> str | None:
    for place, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.split("=", 1)[1]
        if argument == flag:
            if place + 1 == len(arguments):
                raise ConfigError(f"{flag} needs a file")
            return arguments[place + 1]
    return None

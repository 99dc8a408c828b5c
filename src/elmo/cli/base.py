"""What all commands share: the application, exit codes, output, and the loading of a model."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import cyclopts
from cyclopts import ArgumentCollection, CycloptsError, Parameter

from elmo import __version__
from elmo.errors import ConfigError, MissingFileError
from elmo.runtime.files import output_errors
from elmo.settings import EmbedSettings, Group, ModelChoice

if TYPE_CHECKING:
    from elmo.embedder import ELMo

DONE, STOPPED, REFUSED = 0, 1, 2
"""Exit codes: done; stopped early (interrupted, disk full, a bug); input that cannot be used."""


def print_panel(console: Any, options: Any, panel: Any, without: Collection[str] = ()) -> None:
    """Print a table of flags, with the line breaks of docstrings removed from their texts.

    Args:
        console: The console.
        options: Of the console.
        panel: The table.
        without: Flags to leave out.
    """
    from cyclopts.help.formatters import DefaultFormatter
    from rich.text import Text

    panel.entries = [e for e in panel.entries if not set(e.names).intersection(without)]
    for entry in panel.entries:
        text = getattr(entry.description, "primary_renderable", None)
        if isinstance(text, Text):
            entry.description.primary_renderable = Text(" ".join(text.plain.split()), end=text.end)
    DefaultFormatter()(console, options, panel)


class App(cyclopts.App):
    """An application whose help shows flags under the `Group` that their fields are annotated with.

    Commands are applications of the same class, so that this one reaches them all.
    """

    def assemble_argument_collection(self, **settings: Any) -> ArgumentCollection:
        """Return the flags of a command, each in its group; groups in the order of the fields."""
        found = super().assemble_argument_collection(**settings)
        panels: dict[str, cyclopts.Group] = {}
        for argument in found:
            for group in get_args(argument.field_info.annotation)[1:]:
                if isinstance(group, Group):
                    panel = cyclopts.Group(group.name, sort_key=1 + len(panels))
                    shown = Parameter(group=panels.setdefault(group.name, panel))
                    argument.parameter = Parameter.combine(argument.parameter, shown)
        return found


app = App(
    name="elmo",
    help_formatter=print_panel,
    default_parameter=Parameter(negative=()),
    help_format="plaintext",  # the default imports a Markdown parser, a third of the start-up
    help="Deep contextualized word vectors from any published ELMo: exact, deterministic, fast.",
    version=__version__,
)

Flags = Parameter(name="*")
"""The fields of a dataclass as flags of their own."""
Quiet = Annotated[bool, Parameter(help="No progress.")]
AsJson = Annotated[bool, Parameter(name="--json", help="As JSON, for programs.")]


def say(text: str) -> None:
    """Write a message to standard error."""
    sys.stderr.write(f"{text}\n")


def show(text: str) -> None:
    """Write a line of data to standard output."""
    with output_errors("to standard output"):
        sys.stdout.write(f"{text}\n")


def read_config(_: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Read flags from the TOML file of `--config`; those on the command line take precedence.

    Given to a command as `config=read_config`; the keys of the file are the names of its flags.
    """
    from tomllib import TOMLDecodeError

    from cyclopts.config import Toml

    tokens = arguments.get("--config").tokens
    if not tokens:
        return
    path = Path(tokens[-1].value)
    if not path.is_file():
        raise MissingFileError(f"no such file: {path}")
    try:
        Toml(path, use_commands_as_keys=False)(app, commands, arguments)
    except CycloptsError as error:
        if isinstance(error.__cause__, TOMLDecodeError | UnicodeDecodeError):
            raise ConfigError(f"{path} is not a TOML file: {error.__cause__}") from None
        raise


def told_of_cut_words(count: int) -> str:
    """Return a note about words that were truncated."""
    if count == 1:
        return "1 word was longer than the model reads and was cut"
    return f"{count:,} words were longer than the model reads and were cut"


def left_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns are aligned on the left."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def load_model(choice: ModelChoice, settings: EmbedSettings | None = None) -> ELMo:
    """Load the model that was chosen."""
    from elmo.embedder import ELMo
    from elmo.text.vocabulary import Vocabulary
    from elmo.weights.token_file import TokenFile

    token_file = None
    if settings is not None and settings.token_file is not None:
        words = settings.token_vocabulary
        token_file = TokenFile(settings.token_file, Vocabulary.read(words) if words else None)
    return ELMo.from_pretrained(
        choice.model,
        options=choice.options,
        weights=choice.weights,
        precision=choice.precision,
        device=choice.device,
        token_file=token_file,
    )

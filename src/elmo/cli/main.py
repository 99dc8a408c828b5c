"""The command line: the application, running a command, and what all commands share.

Commands are functions in the other modules of `elmo.cli`: their arguments become flags, their
docstrings help texts. PyTorch is imported inside them, so that `elmo --help` answers at once. Data
goes to files and standard output, messages to standard error. Exit codes: 0 done, 1 stopped early
(interrupted, disk full, a bug), 2 input that cannot be used.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args

import cyclopts
from cyclopts import ArgumentCollection, CycloptsError, Parameter, UnknownOptionError

from elmo import __version__
from elmo.errors import (
    SHOWS_FLAGS,
    ConfigError,
    DivergedError,
    DownloadError,
    ElmoError,
    ElmoWarning,
    MissingFileError,
    OutputError,
    OutputExistsError,
    reason_of,
)
from elmo.runtime.files import output_errors
from elmo.settings import Group, ModelChoice

COMMANDS = ("embed", "models", "verify", "language", "prepare", "train", "task", "analyze", "bench")
"""Modules of commands; importing one registers its commands with `app`."""
FIRST_STEPS = """\
elmo embed TEXT.txt VECTORS.hdf5 --tokenizer model    vectors of every word of a raw text
elmo similar river bank                               words with the most similar vectors
elmo models                                           models by language; elmo --help: all commands\
"""
"""What `elmo` alone prints."""
DONE, STOPPED, REFUSED = 0, 1, 2
"""Exit codes: done; stopped early (interrupted, disk full, a bug); input that cannot be used."""
_WRONG_PATH = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


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


# --- running a command ----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: Without the name of the program; those of the process if None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _shorten_spinning(given)
    for name in COMMANDS:
        import_module(f"elmo.cli.{name}")
    before = SHOWS_FLAGS.set(True)
    try:
        with _one_line_warnings():
            code = _run(given)
            with output_errors("to standard output"):
                sys.stdout.flush()  # while errors can still be reported
    except CycloptsError as error:
        say(f"error: {_reason(error)}\nSee {_command(error)} --help.")
        return REFUSED
    except OutputExistsError as error:
        say(f"error: {error}")
        return REFUSED
    except (OutputError, DivergedError, DownloadError) as error:
        say(f"error: {error}")
        _discard_unwritten()
        return STOPPED
    except ElmoError as error:
        say(f"error: {error}")
        return REFUSED
    except KeyboardInterrupt:
        say("interrupted")
        return STOPPED
    except BrokenPipeError:  # the reader closed our output, as in `elmo info | head`
        sys.stderr.close()
        return STOPPED
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        say(f"error: {place}{reason_of(error)}")
        return REFUSED if isinstance(error, _WRONG_PATH) else STOPPED
    finally:
        SHOWS_FLAGS.reset(before)
    return code if isinstance(code, int) else DONE


def _run(arguments: list[str]) -> Any:
    if not arguments:
        show(FIRST_STEPS)
        return DONE
    return app(arguments, exit_on_error=False, print_error=False, result_action="return_value")


def _reason(error: CycloptsError) -> str:
    if isinstance(error, UnknownOptionError) and error.token.value == "-":
        return "- stands for standard input, and cannot be given here: name a file"
    return str(error)


def _command(error: CycloptsError) -> str:
    return " ".join(("elmo", *(error.command_chain or ())))


def _discard_unwritten() -> None:
    """Discard what standard output did not take, which Python would try to write again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # an object that is no file, in a program that calls `main`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _shorten_spinning(arguments: Sequence[str]) -> None:
    """Make idle OpenMP threads of PyTorch sleep sooner; must run before PyTorch is imported.

    GNU's OpenMP lets them spin for about a millisecond after each parallel region. Training has
    thousands of small regions a second; on a machine with other load each then waits for a thread
    that was not scheduled: forty small steps took 46 s instead of 2. `elmo bench` keeps the
    default: it measures what programs get that import elmo.
    """
    if "OMP_WAIT_POLICY" not in os.environ and arguments[:1] != ["bench"]:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show our warnings as one line, without their place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ElmoWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, ElmoWarning):
                bars = sys.modules.get("tqdm")  # a line of its own where a bar is shown
                write = say if bars is None else partial(bars.tqdm.write, file=sys.stderr)
                write(f"note: {message}")
            else:
                plain(message, category, *rest, **more)

        warnings.showwarning = show  # restored by catch_warnings
        yield


# --- what commands share --------------------------------------------------------------------------


def say(text: str) -> None:
    """Write a message to standard error."""
    sys.stderr.write(f"{text}\n")


def show(text: str) -> None:
    """Write a line of data to standard output."""
    with output_errors("to standard output"):
        sys.stdout.write(f"{text}\n")


def require_model(choice: ModelChoice) -> None:
    """Refuse a model that cannot exist; call it before PyTorch is imported, which takes a while."""
    from elmo.hub.names import require_known

    require_known(choice.model, choice.options, choice.weights)


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


def note_on_cut_words(count: int) -> str:
    """Return a note about words that were truncated."""
    if count == 1:
        return "1 word was longer than the model reads and was cut"
    return f"{count:,} words were longer than the model reads and were cut"

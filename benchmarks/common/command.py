"""A measurement as a command: its flags, and one line for what goes wrong."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence

from cyclopts import App, CycloptsError, Parameter

from benchmarks.common.settings import BenchSettings
from elmo.cli.main import DONE, REFUSED, STOPPED, print_panel, say
from elmo.errors import SHOWS_FLAGS, ElmoError, OutputError

Command = Callable[..., None]
"""A function whose arguments become flags and whose docstring becomes the help text."""


def run(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    Args:
        command: The command, of the `__main__` of a package.
        arguments: Words of the command line; those of this process if None.
    """
    app = App(
        name=_name(command),
        help_formatter=print_panel,
        default_parameter=Parameter(negative=()),
        help_format="plaintext",
    )
    app.default(command)
    before = SHOWS_FLAGS.set(True)
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except (CycloptsError, ElmoError) as error:
        say(f"error: {error}")
        return STOPPED if isinstance(error, OutputError) else REFUSED
    except KeyboardInterrupt:
        say("interrupted")
        return STOPPED
    finally:
        SHOWS_FLAGS.reset(before)
    return DONE


def command_line(command: Command) -> str:
    """Return the command as it was typed, for the record."""
    return shlex.join([*_name(command).split(), *sys.argv[1:]])


def teller(settings: BenchSettings) -> Callable[[str], None]:
    """Return the function that reports progress."""
    return (lambda text: None) if settings.quiet else say


def _name(command: Command) -> str:
    return f"python -m benchmarks.{command.__name__}"

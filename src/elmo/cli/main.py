"""The entry point of the command line: runs a command and turns errors into exit codes.

Commands are functions in the other modules of `elmo.cli`: their arguments become flags, their
docstrings help texts. PyTorch is imported inside them, so that `elmo --help` answers at once. Data
goes to files and standard output, messages to standard error. Exit codes: 0 done, 1 stopped early
(interrupted, disk full, a bug), 2 input that cannot be used.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cyclopts import CycloptsError, UnknownOptionError

from elmo.cli import analyze, bench, embed, language, models, prepare, task, train
from elmo.cli.base import DONE, REFUSED, STOPPED, app, say
from elmo.errors import (
    DivergedError,
    DownloadError,
    ElmoError,
    ElmoWarning,
    OutputError,
    OutputExistsError,
    reason_of,
)
from elmo.runtime.files import output_errors

# Importing a module of commands registers them.
__all__ = ["analyze", "bench", "embed", "language", "main", "models", "prepare", "task", "train"]

_WRONG_PATH = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: Without the name of the program; those of the process if None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _shorten_spinning(given)
    try:
        with _one_line_warnings():
            code = app(
                given,
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
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
    return code if isinstance(code, int) else DONE


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
                say(f"note: {message}")
            else:
                plain(message, category, *rest, **more)

        warnings.showwarning = show  # restored by catch_warnings
        yield


if __name__ == "__main__":
    sys.exit(main())

"""The command `elmo`: a thin door to the library.

Commands are functions, their arguments become flags and their docstrings help texts; they are in
`elmo.cli.main`. PyTorch is imported inside them, so that `elmo --help` answers at once. Data goes
to files and standard output, everything meant for people to standard error. Exit codes: 0 done, 1
stopped half-way (interrupted, disk full, a bug), 2 something the user gave cannot be used.
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
from elmo.cli.base import DONE, REFUSED, STOPPED, app, say, writing_to
from elmo.errors import (
    DivergedError,
    DownloadError,
    ElmoError,
    ElmoWarning,
    OutputError,
    OutputExistsError,
    reason_of,
)

__all__ = [
    "analyze",
    "app",
    "bench",
    "embed",
    "language",
    "main",
    "models",
    "prepare",
    "task",
    "train",
]


_WRONG_PATH = (PermissionError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _let_threads_sleep(given)
    try:
        with _warnings_for_people():
            code = app(
                given,
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
            with writing_to("standard output"):
                sys.stdout.flush()  # here, and not when Python ends
    except CycloptsError as error:
        say(f"error: {_reason(error)}\nSee {_command(error)} --help.")
        return REFUSED
    except OutputExistsError as error:
        say(f"error: {error}")
        return REFUSED
    except (OutputError, DivergedError, DownloadError) as error:
        say(f"error: {error}")
        _forget_unwritten()
        return STOPPED
    except ElmoError as error:
        say(f"error: {error}")
        return REFUSED
    except KeyboardInterrupt:
        say("interrupted")
        return STOPPED
    except BrokenPipeError:  # the reader of our output has seen enough, as in `elmo info | head`
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


def _forget_unwritten() -> None:
    """If standard output takes no more, keep Python from trying again, and complaining, at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # one that is no file, in a program around us
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _let_threads_sleep(arguments: Sequence[str]) -> None:
    """Let PyTorch's threads sleep soon when they have nothing to do; before it is imported.

    GNU's OpenMP keeps them awake for about a millisecond after each of its steps. Training takes
    thousands of small steps a second; on a machine that is busy with other things, too, each then
    waits for a thread that got no turn: forty small steps took 46 s instead of 2. `elmo bench`
    leaves all as it is: it measures what programs get that import elmo.
    """
    if "OMP_WAIT_POLICY" not in os.environ and arguments[:1] != ["bench"]:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


@contextmanager
def _warnings_for_people() -> Iterator[None]:
    """Show our warnings as one line, without the place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ElmoWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, ElmoWarning):
                say(f"note: {message}")
            else:
                plain(message, category, *rest, **more)

        warnings.showwarning = show  # put back by catch_warnings
        yield


if __name__ == "__main__":
    sys.exit(main())

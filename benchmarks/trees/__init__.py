"""Two checkouts side by side: a process inside of one of them, made-up text, tables.

`inputs` makes models and data, `checks` and `commands` compute what is hashed, `worker` is timed,
`turns` times two of them in turn. Nothing of this module imports elmo: the tree is chosen by the
PYTHONPATH of the processes that it starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
_TREE = "ELMO_COMPARED_TREE"
"""Environment variable that names the package folder that a process should import."""
N_WORDS = 20_000
"""Different words of made-up text."""


class FailedError(RuntimeError):
    """A process of a tree did not do what it was started for."""


@dataclass(frozen=True)
class Tree:
    """A checkout, and how its Python is started."""

    label: str
    root: Path
    cache: Path
    """Folder for what it compiles, its own, so that each tree builds its own kernels."""
    site: Path | None = None
    """Folder with further packages."""

    @property
    def source(self) -> Path:
        """The folder that is put into PYTHONPATH."""
        return self.root / "src"

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of a process in this tree."""
        paths = [self.source, REPOSITORY, *([self.site] if self.site else [])]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ELMO_", "PYTHONPATH"))}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "XDG_CACHE_HOME": str(self.cache),
            "ELMO_OFFLINE": "1",
            "HF_HUB_OFFLINE": "1",
            "GOMP_SPINCOUNT": "1000",  # idle threads sleep soon: the other tree has its turn
            "TOKENIZERS_PARALLELISM": "false",
            _TREE: str(self.source / "elmo"),
            **changes,
        }

    def start(
        self, arguments: Sequence[str], cwd: Path, log: Path, **changes: str
    ) -> subprocess.Popen[str]:
        """Start Python with arguments, in a process group of its own.

        Args:
            arguments: Of Python.
            cwd: Where to.
            log: File for standard output and errors.
            changes: Of the environment.
        """
        with log.open("a", encoding="utf-8") as file:
            return subprocess.Popen(
                [sys.executable, "-P", *arguments],
                cwd=cwd,
                env=self.environment(**changes),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def run(
        self, arguments: Sequence[str], cwd: Path, log: Path, seconds: float, **changes: str
    ) -> None:
        """Run Python with arguments; fail if it fails or takes longer than that many seconds."""
        wait_for(self.start(arguments, cwd, log, **changes), seconds, f"{self.label} tree", log)


def wait_for(process: subprocess.Popen[str], seconds: float, what: str, log: Path) -> None:
    """Wait for a process; end its group if it takes too long or this program is stopped."""
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise FailedError(f"{what}: no end after {seconds:.0f} s; see {log}") from None
    finally:
        end(process)
    if code:
        raise FailedError(f"{what}: exit code {code}\n{tail(log)}")


def end(process: subprocess.Popen[str]) -> None:
    """End a process that was started in a group of its own, with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def require_tree() -> None:
    """Fail if the package that this process imports is not that of its tree."""
    import elmo

    expected = Path(os.environ[_TREE])
    assert elmo.__file__ is not None
    found = Path(elmo.__file__).resolve().parent
    if found != expected.resolve():
        raise SystemExit(f"elmo is {found}, expected {expected}")


def say(text: str) -> None:
    """Write a line about progress."""
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns, the first on the left and the others on the right."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


# --- made-up text ---------------------------------------------------------------------------------


@cache
def vocabulary() -> tuple[str, ...]:
    """Return made-up words, the most frequent first; frequent words are short."""
    rng = np.random.default_rng(0)
    lengths = np.clip(1 + rng.poisson(1 + 0.5 * np.log(np.arange(1, N_WORDS + 1))), 1, 20)
    letters = np.array(list("etaoinshrdlcumwfgypbvkjxqz"))
    words: dict[str, None] = {}
    for length in lengths.tolist():
        word = "".join(rng.choice(letters, length))
        while word in words:
            word += str(rng.choice(letters))
        words[word] = None
    return tuple(words)


def make_sentences(number: int, seed: int = 0, mark: str = "") -> list[list[str]]:
    """Draw sentences of 3 to 80 words by Zipf's law, the same for the same arguments.

    Args:
        number: How many.
        seed: Another seed draws others.
        mark: Letters behind every word: other letters make words that were never seen.
    """
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(18), 0.55, number), 3, 80).astype(int).tolist()
    weights = 1 / np.arange(1, N_WORDS + 1)
    drawn = rng.choice(N_WORDS, sum(lengths), p=weights / weights.sum()).tolist()
    words = [word + mark for word in vocabulary()]
    places = iter(drawn)
    return [[words[next(places)] for _ in range(length)] for length in lengths]

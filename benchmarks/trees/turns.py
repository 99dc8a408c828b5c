"""Time two trees in turn: old, new, new, old, so that a machine that slows down slows both."""

from __future__ import annotations

import json
import select
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.trees import FailedError, Tree, end, say, table, tail

RUN_SECONDS = 1.0
"""About as long is one run of a measurement."""
ANSWER_SECONDS = 600
"""Longest time for an answer."""
FEWEST, MOST = 8, 200_000
"""Sentences of a corpus, or calls with one sentence."""
STARTS = {
    "import elmo": ["-c", "import elmo"],
    "elmo --help": ["-m", "elmo", "--help"],
    "load small-en": ["-c", "from elmo import ELMo; ELMo.from_pretrained('small-en')"],
    "first vector": [
        "-c",
        "from elmo import ELMo; ELMo.from_pretrained('small-en').encode_tokens([['Hello']])",
    ],
}
"""What fresh processes are started for."""


@dataclass(frozen=True)
class Ratio:
    """Speed of the new tree by that of the old one; more than 1 is faster."""

    name: str
    unit: str
    old: float
    """Median."""
    new: float
    value: float
    """Median of the ratios of all blocks; for fresh processes, the ratio of the shortest times."""
    lowest: float
    highest: float
    cpu: float | None
    """The same for processor time, which is less disturbed by other programs."""
    blocks: int

    def line(self) -> str:
        """Return the result in one line."""
        return f"{self.name}: {self.value:.3f} ({self.lowest:.3f}..{self.highest:.3f})"


class Worker:
    """A process in a tree that waits for questions.

    Args:
        tree: Where it runs.
        work: Folder for its log.
        until: No question is waited for after this time (of `time.monotonic`).
        changes: Of the environment.
    """

    def __init__(self, tree: Tree, work: Path, until: float = float("inf"), **changes: str) -> None:
        self.until = until
        self.tree, self.log = tree, work / f"worker-{tree.label}.log"
        with self.log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "benchmarks.trees.worker"],
                cwd=work,
                env=tree.environment(**changes),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)

    def ask(self, do: str, **arguments: Any) -> Any:
        """Ask a question; fail if there is no answer in time, or if it is an error."""
        seconds = max(0.0, min(ANSWER_SECONDS, self.until - time.monotonic()))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], seconds)
            answer = self._process.stdout.readline() if ready else ""
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise FailedError(f"{self.tree.label} tree did not answer to {do}:\n{tail(self.log)}")
        found = json.loads(answer)
        if "error" in found:
            raise FailedError(f"{self.tree.label} tree, {do}: {found['error']}")
        return found


def in_turn(
    name: str,
    old: Worker,
    new: Worker,
    what: str,
    *,
    rounds: int = 5,
    bound: float = 0.0,
    until: float = float("inf"),
    least: int = FEWEST,
    most: int = MOST,
    **arguments: Any,
) -> Ratio:
    """Time a question in both trees, in blocks of old, new, new, old.

    A ratio below the bound is measured again with twice as many further blocks, and all count.

    Args:
        name: What is measured.
        old: The tree that is compared with.
        new: The tree that is compared.
        what: `corpus` or `sentence`.
        rounds: Blocks.
        bound: Least ratio.
        until: No block begins after this time (of `time.monotonic`), but for the first.
        least: Sentences of a corpus, or calls, at least.
        most: The same at most.
        arguments: Of the question.
    """
    number = _amount_of_work(old, new, what, least, most, arguments)
    blocks: list[list[Any]] = []  # four answers each: old, new, new, old
    while True:
        seed = 2 * len(blocks) + 1
        turns = ((old, seed), (new, seed), (new, seed + 1), (old, seed + 1))
        blocks.append([w.ask(what, number=number, seed=s, **arguments) for w, s in turns])
        ratios = [_ratio(block, "seconds") for block in blocks]
        wanted = rounds if statistics.median(ratios) >= bound else 3 * rounds
        if len(blocks) >= wanted or time.monotonic() > until:
            break
    speeds = [
        statistics.median(
            block[k]["amount"] / block[k]["seconds"] for block in blocks for k in places
        )
        for places in ((0, 3), (1, 2))
    ]
    return Ratio(
        name=name,
        unit="words/s" if what == "corpus" else "sentences/s",
        old=speeds[0],
        new=speeds[1],
        value=statistics.median(ratios),
        lowest=min(ratios),
        highest=max(ratios),
        cpu=statistics.median(_ratio(block, "cpu_seconds") for block in blocks),
        blocks=len(blocks),
    )


def _ratio(block: list[Any], key: str) -> float:
    times = [max(1e-9, answer[key]) for answer in block]
    return float((times[0] + times[3]) / (times[1] + times[2]))


def _amount_of_work(
    old: Worker, new: Worker, what: str, least: int, most: int, arguments: dict[str, Any]
) -> int:
    """Warm both trees up, and choose how much to do at once."""
    number = min(least, most)
    while True:
        seed = 1_000 + number
        start = time.perf_counter()
        taken = old.ask(what, number=number, seed=seed, **arguments)["seconds"]
        taken = time.perf_counter() - start if what == "sentence" else taken
        new.ask(what, number=number, seed=seed, **arguments)
        if taken > RUN_SECONDS / 4 or number >= most:
            return max(min(least, most), min(most, round(number * RUN_SECONDS / taken)))
        number = min(most, 4 * number)


def fresh_starts(old: Tree, new: Tree, work: Path, rounds: int) -> list[Ratio]:
    """Time fresh processes in turn."""
    found = []
    for name, arguments in STARTS.items():
        times: dict[str, list[float]] = {"old": [], "new": []}
        for block in range(1 + 2 * rounds):
            for tree in (old, new, new, old):
                start = time.perf_counter()
                tree.run(arguments, work, work / "starts.log", 300, OMP_NUM_THREADS="2")
                if block:  # the first compiles
                    times[tree.label].append(time.perf_counter() - start)
        shortest = min(times["old"]) / min(times["new"])
        each = [a / b for a, b in zip(times["old"], times["new"], strict=True)]
        ratio = Ratio(
            name=name,
            unit="ms",
            old=1000 * statistics.median(times["old"]),
            new=1000 * statistics.median(times["new"]),
            value=shortest,
            lowest=min(each),
            highest=max(each),
            cpu=None,
            blocks=2 * rounds,
        )
        say(f"  {ratio.line()}")
        found.append(ratio)
    return found


def render_ratios(ratios: list[Ratio], bound: float) -> str:
    """Return a table of ratios."""
    rows = [
        (
            r.name,
            f"{r.old:,.1f}",
            f"{r.new:,.1f}",
            r.unit,
            f"{r.value:.3f}",
            f"{r.lowest:.3f}..{r.highest:.3f}",
            "-" if r.cpu is None else f"{r.cpu:.3f}",
            str(r.blocks),
            "" if r.value >= bound else f"BELOW {bound}",
        )
        for r in ratios
    ]
    head = ("what", "old", "new", "", "new/old", "spread", "by CPU time", "blocks", "")
    return table(head, rows)

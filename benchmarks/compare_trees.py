"""Compare two checkouts on this machine: the same bytes, the same speed, the same start.

    python -m benchmarks.compare_trees OLD NEW
    python -m benchmarks.compare_trees OLD NEW --part hashes --only vectors encode
    python -m benchmarks.compare_trees OLD NEW --part speed startup --json ratios.json

*hashes*: SHA-256 of what the library and the commands compute, from models and data that the old
tree made once; by environment (CPU kernel or not, threads). *speed*: words a second of a corpus and
sentences a second of single ones, old and new in turn in processes that stay. *startup*: fresh
processes in turn. The exit code is 1 where a hash differs or a ratio is below the bound.

One number is meant to differ: the `mean` perplexity of a prepared folder (geometric now), which is
left out; so is `best/` of a training run, which is chosen by it.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.trees import FailedError, Tree, end, say, table, wait_for
from benchmarks.trees.turns import Ratio, Worker, fresh_starts, in_turn, render_ratios

PARTS = ("hashes", "speed", "startup")
FIXTURE = Path(__file__).resolve().parents[2] / "shared" / "fixtures" / "allennlp"
ENVIRONMENTS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "kernel, 1 thread": (("*",), {"OMP_NUM_THREADS": "1"}),
    "kernel, 2 threads": (
        ("vectors *", "encode *", "module *", "language model *", "train lstm*"),
        {"OMP_NUM_THREADS": "2"},
    ),
    "plain, 1 thread": (
        ("vectors *", "encode *", "module *", "language model *", "embed gru"),
        {"OMP_NUM_THREADS": "1", "ELMO_NATIVE": "0"},
    ),
    "plain, 2 threads": (("vectors *",), {"OMP_NUM_THREADS": "2", "ELMO_NATIVE": "0"}),
}
"""In which environments which checks are made."""
CHECK_LIMIT = 3000
"""Seconds of all checks of a tree in one environment."""
SIZES = ("small", "original")
PRECISIONS = ("fp32", "bf16", "int8")
SPEED_THREADS = 2


@dataclass(frozen=True)
class Hash:
    """One value that both trees computed."""

    environment: str
    check: str
    what: str
    old: str
    new: str

    @property
    def is_skipped(self) -> bool:
        """Whether neither tree could compute it here."""
        return self.old == self.new and self.old.startswith("skipped")

    @property
    def is_same(self) -> bool:
        """Whether both computed the same; a failure is never the same."""
        return self.old == self.new and not self.old.startswith("failed")


# --- hashes ---------------------------------------------------------------------------------------


def compare_hashes(trees: tuple[Tree, Tree], work: Path, choices: argparse.Namespace) -> list[Hash]:
    """Make all checks in both trees."""
    inputs = work / "inputs"
    say("making models and data with the old tree")
    arguments = ["-m", "benchmarks.trees.inputs", str(inputs)]
    trees[0].run(arguments, work, work / "inputs.log", CHECK_LIMIT, OMP_NUM_THREADS="1")
    found: list[Hash] = []
    for name, (patterns, changes) in ENVIRONMENTS.items():
        if choices.environments and not any(part in name for part in choices.environments):
            continue
        checks = [check for check in _names(trees[0], work) if _is_asked(check, patterns, choices)]
        if checks:
            found += _hashes_in(trees, work, name, changes, checks, choices.fixture)
    return found


def _names(tree: Tree, work: Path) -> list[str]:
    """Ask for the names of the checks; this process does not import elmo."""
    out = work / "names.json"
    code = "import json, sys; from benchmarks.trees.checks import CHECKS; "
    code += "json.dump(list(CHECKS), open(sys.argv[1], 'w'))"
    if not out.exists():
        tree.run(["-c", code, str(out)], work, work / "names.log", 300)
    names: list[str] = json.loads(out.read_text(encoding="utf-8"))
    return names


def _is_asked(check: str, patterns: tuple[str, ...], choices: argparse.Namespace) -> bool:
    asked = not choices.only or any(part in check for part in choices.only)
    return asked and any(fnmatch.fnmatch(check, pattern) for pattern in patterns)


def _hashes_in(
    trees: tuple[Tree, Tree],
    work: Path,
    environment: str,
    changes: dict[str, str],
    checks: list[str],
    fixture: Path,
) -> list[Hash]:
    """Run both trees in one environment, at the same time where there are cores enough."""
    say(f"{environment}: {len(checks)} checks")
    start = time.perf_counter()
    place = environment.replace(", ", "-").replace(" ", "-")
    started = []
    lines: dict[str, dict[tuple[str, str], str]] = {}
    with ExitStack() as stack:
        for tree in trees:
            folder = work / f"{place}-{tree.label}"
            folder.mkdir()
            arguments = [
                "-m",
                "benchmarks.trees.checks",
                "--inputs",
                str(work / "inputs"),
                "--work",
            ]
            arguments += [str(folder), "--out", str(folder / "found.jsonl")]
            arguments += ["--fixture", str(fixture)] if fixture.is_dir() else []
            log = folder.with_suffix(".log")
            process = tree.start([*arguments, *checks], folder, log, **changes)
            stack.callback(end, process)
            started.append((tree, process, log))
            if (os.cpu_count() or 1) < 2 * int(changes["OMP_NUM_THREADS"]):
                wait_for(process, CHECK_LIMIT, f"{tree.label} tree, {environment}", log)
        for tree, process, log in started:
            wait_for(process, CHECK_LIMIT, f"{tree.label} tree, {environment}", log)
            lines[tree.label] = _read_found(log.with_suffix("") / "found.jsonl")
    say(f"  {time.perf_counter() - start:.0f} s")
    old, new = (lines[tree.label] for tree in trees)
    missing = "failed: not computed"
    return [
        Hash(environment, *key, old.get(key, missing), new.get(key, missing))
        for key in sorted(old | new, key=lambda key: checks.index(key[0]))
    ]


def _read_found(path: Path) -> dict[tuple[str, str], str]:
    found = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        value = line.get("hash") or f"skipped: {line.get('skipped')}"
        value = f"failed: {line['error']}" if "error" in line else value
        found[line["check"], line["what"]] = value
    return found


def render_hashes(found: list[Hash]) -> str:
    """Return a row for each check of each environment, and a line for each value that differs."""
    groups: dict[tuple[str, str], list[Hash]] = defaultdict(list)
    for value in found:
        groups[value.check, value.environment].append(value)
    rows, lines = [], []
    for (check, environment), values in groups.items():
        differing = [value for value in values if not value.is_same]
        verdict = f"DIFFERS ({len(differing)})" if differing else "same"
        verdict = "skipped" if all(value.is_skipped for value in values) else verdict
        shown = [_short([getattr(value, side) for value in values]) for side in ("old", "new")]
        rows.append((f"{check} [{environment}]", str(len(values)), *shown, verdict))
        for value in differing:
            lines += [f"DIFFERS: {check} [{environment}]: {value.what}"]
            lines += [f"    old {value.old}", f"    new {value.new}"]
    skipped = sorted({f"{value.check}: {value.old}" for value in found if value.is_skipped})
    return "\n".join((table(("what", "values", "old", "new", ""), rows), *lines, *skipped))


def _short(values: list[str]) -> str:
    """Return the beginning of a hash of hashes."""
    return hashlib.sha256("".join(values).encode()).hexdigest()[:16]


# --- speed ----------------------------------------------------------------------------------------


def compare_speed(trees: tuple[Tree, Tree], work: Path, choices: argparse.Namespace) -> list[Ratio]:
    """Time a corpus and single sentences, old and new in turn."""
    models = {"small": "small-en", "original": "random-original"}
    found = []
    with ExitStack() as stack:
        pair = [
            stack.enter_context(Worker(tree, work, OMP_NUM_THREADS=str(SPEED_THREADS)))
            for tree in trees
        ]
        old, new = pair
        for size in SIZES:
            for precision in PRECISIONS:
                for worker in pair:
                    worker.ask("load", model=models[size], precision=precision, device="cpu")
                for what in ("corpus", "sentence"):
                    name = f"{size} {precision} {what}"
                    ratio = in_turn(
                        name, old, new, what, rounds=choices.rounds, bound=choices.bound
                    )
                    found.append(ratio)
                    say(f"  {ratio.line()}")
    return found


# --- the program ----------------------------------------------------------------------------------


def main() -> int:
    """Compare, print tables, and return the exit code."""
    choices = _arguments()
    result: dict[str, Any] = {"old": str(choices.old), "new": str(choices.new)}
    fine = True
    with ExitStack() as stack:
        keep = choices.keep
        work = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trees-")))
        work.mkdir(parents=True, exist_ok=True)
        old, new = (
            Tree(label, root.resolve(), work / f"cache-{label}")
            for label, root in (("old", choices.old), ("new", choices.new))
        )
        try:
            for tree in (old, new):
                tree.run(
                    ["-c", "from benchmarks.trees import require_tree; require_tree()"],
                    work,
                    work / "tree.log",
                    300,
                )
            if "hashes" in choices.part:
                hashes = compare_hashes((old, new), work, choices)
                print(render_hashes(hashes))
                n_wrong = sum(not value.is_same for value in hashes)
                print(f"{len(hashes)} values, {n_wrong} differ\n", flush=True)
                result["hashes"] = [{**asdict(value), "same": value.is_same} for value in hashes]
                fine = fine and not n_wrong and bool(hashes)
            for part in ("speed", "startup"):
                if part not in choices.part:
                    continue
                say(f"{part}: old and new in turn")
                ratios = (
                    compare_speed((old, new), work, choices)
                    if part == "speed"
                    else fresh_starts(old, new, work, choices.rounds)
                )
                print(render_ratios(ratios, choices.bound) + "\n", flush=True)
                result[part] = [asdict(ratio) for ratio in ratios]
                fine = fine and all(ratio.value >= choices.bound for ratio in ratios)
        except FailedError as error:
            say(f"error: {error}")
            fine = False
    if choices.json:
        choices.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return int(not fine)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("old", type=Path, help="a checkout")
    add("new", type=Path, help="another one")
    add("--part", nargs="+", choices=PARTS, default=list(PARTS), help="what is compared (all)")
    add("--only", nargs="+", default=[], help="hashes: checks whose name contains one of these")
    add("--environments", nargs="+", default=[], help="hashes: 'kernel, 1', plain, ... (all)")
    add("--fixture", type=Path, default=FIXTURE, help="folder of AllenNLP's fixture")
    add("--rounds", type=int, default=5, help="blocks old-new-new-old of each measurement (5)")
    add("--bound", type=float, default=0.97, help="least ratio of speeds (0.97)")
    add("--json", type=Path, metavar="FILE", help="write everything there")
    add("--keep", type=Path, metavar="FOLDER", help="an empty folder to work in, which is kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

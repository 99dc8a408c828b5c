"""Compare a checkout with an older one on one GPU, in less than ten minutes.

    make gpu-check OLD=../old                       # writes gpu-check/report.txt and report.json
    python -m benchmarks.gpu_check OLD NEW --out FOLDER --site folder/with/further/packages
    python -m benchmarks.gpu_check OLD NEW --out FOLDER --device cpu       # does it run? tiny sizes

*tests*: the tests of NEW that need a GPU. *embedding*: words a second into host memory and on the
device, one sentence of seen and of new words, old and new in turn, and whether both give the same
bytes. *training*: words a second of `elmo train`, one run of each tree after the other. Weights are
random and text is made up, both with fixed seeds; nothing is installed, nothing is downloaded. Each
part has its own share of the time, what was measured is written after each, and a part that fails
does not stop the others. The exit code is 1 where a test fails or a ratio is below the bound.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trees import FailedError, Tree, end, make_sentences, say, table, tail, wait_for
from benchmarks.trees.names import own_flags
from benchmarks.trees.turns import Ratio, Worker, in_turn, render_ratios

SHARE_OF_TIME = 0.95
"""Of the minutes given, so that the program ends in time."""
SHARES = {"tests": 0.46, "embedding": 0.27, "training": 0.27}
"""Of the time that is left when a part begins, in proportion to the parts still to come."""
WARM_UP, MEASURED = 8, 16
"""Seconds of a run of training."""
BATCH = {"small": 2048, "original": 1024, "tiny": 2}
"""Streams of text in a batch of training."""
CORPUS_SENTENCES = {"cuda": 100_000, "cpu": 100}
"""Of the text that is trained on."""
LEAST_SENTENCES, MOST_SENTENCES = 4096, 60_000
"""Of a corpus that a GPU embeds."""
MOST_CALLS = 300
HASHED_SENTENCES = 300
SIDES = ("old", "new")


@dataclass
class Check:
    """What is checked, how long, and what was found so far."""

    trees: tuple[Tree, Tree]
    choices: argparse.Namespace
    work: Path
    deadline: float
    """Of `time.monotonic`."""
    found: dict[str, Any]

    @property
    def on_gpu(self) -> bool:
        """Whether this is the real check."""
        return bool(self.choices.device != "cpu")

    @property
    def environment(self) -> dict[str, str]:
        """Changes of the environment of all processes."""
        return {} if self.on_gpu else {"OMP_NUM_THREADS": "1"}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Sizes of models."""
        return ("small", "original") if self.on_gpu else ("tiny",)

    def end_of(self, part: str) -> float:
        """Return when a part must be over, so that those after it have their time."""
        to_come = list(SHARES)[list(SHARES).index(part) :]
        now = time.monotonic()
        left = self.deadline - now
        return now + left * SHARES[part] / sum(SHARES[name] for name in to_come)


@contextmanager
def _kept_apart(check: Check, name: str) -> Iterator[None]:
    """Note a failure and go on with what comes after it."""
    try:
        yield
    except Exception as error:  # whatever it is: nothing else may be lost
        traceback.print_exc()
        check.found["errors"][name] = f"{type(error).__name__}: {error}"


# --- tests ----------------------------------------------------------------------------------------


def run_tests(check: Check) -> None:
    """Run the tests of the new tree that need a GPU; write down the summary and the failures."""
    new = check.trees[1]
    files = check.choices.tests or find_gpu_tests(new.root)
    log = check.choices.out / "tests.log"
    log.unlink(missing_ok=True)
    arguments = ["-m", "pytest", "-v", "--durations=5", "-m", "gpu", "-p", "no:cacheprovider"]
    seconds = check.end_of("tests") - time.monotonic()
    result: dict[str, Any] = {"files": [str(file) for file in files], "passed": False}
    check.found["tests"] = result
    process = new.start(
        [*arguments, *map(str, files)], new.root, log, ELMO_TEST_GPU="1" if check.on_gpu else "0"
    )
    try:
        wait_for(process, seconds, "tests", log)
        result["passed"] = True
    except FailedError as error:
        result["error"] = str(error).splitlines()[0]
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    marks = ("FAILED", "ERROR", "E   ")
    result["failures"] = [line for line in lines if line.startswith(marks)][:60]
    result["summary"] = next((line for line in reversed(lines) if " in " in line), tail(log, 1))


def find_gpu_tests(root: Path) -> list[Path]:
    """Find the files of tests that are marked `gpu`, wherever they lie."""
    return sorted(
        path.relative_to(root)
        for path in (root / "tests").rglob("test_*.py")
        if "pytest.mark.gpu" in path.read_text(encoding="utf-8")
    )


# --- embedding ------------------------------------------------------------------------------------


def compare_embedding(check: Check) -> None:
    """Time corpora and single sentences of each size and precision, old and new in turn."""
    ratios: list[Ratio] = []
    hashes: list[dict[str, Any]] = []
    check.found |= {"embedding": ratios, "hashes": hashes}
    until = check.end_of("embedding")
    precisions = ("bf16", "fp32") if check.on_gpu else ("fp32",)
    models = [(size, precision) for precision in precisions for size in check.sizes]
    limit = min(check.deadline, until + 30)  # for an answer that takes much longer than expected
    with ExitStack() as stack:
        old, new = (
            stack.enter_context(Worker(tree, check.work, limit, **check.environment))
            for tree in check.trees
        )
        for number, (size, precision) in enumerate(models):
            now = time.monotonic()
            until_then = now + max(0.0, until - now) / (len(models) - number)
            with _kept_apart(check, f"embedding {size} {precision}"):
                given: Any = {"model": f"random-{size}", "precision": precision}
                for worker in (old, new):
                    answer = worker.ask("load", device=check.choices.device, **given)
                    check.found["device"] = answer["device"]
                made = [w.ask("hash", number=HASHED_SENTENCES)["hash"] for w in (old, new)]
                hashes.append(
                    {"what": f"{size} {precision}", **dict(zip(SIDES, made, strict=True))}
                )
                _time_model(check, (old, new), f"{size} {precision}", ratios, until_then)


def _time_model(
    check: Check, workers: tuple[Worker, Worker], model: str, ratios: list[Ratio], until: float
) -> None:
    corpus = {"most": MOST_SENTENCES, "least": LEAST_SENTENCES} if check.on_gpu else {"most": 64}
    calls = {"most": MOST_CALLS if check.on_gpu else 4}
    questions: list[tuple[str, str, dict[str, Any]]] = [
        ("corpus to host", "corpus", corpus),
        ("corpus on device", "corpus", {**corpus, "on_device": True}),
        ("sentence, seen words", "sentence", {**calls, "on_device": True}),
        ("sentence, new words", "sentence", {**calls, "on_device": True, "unseen": True}),
    ]
    for number, (name, what, given) in enumerate(questions):
        now = time.monotonic()
        until_then = now + max(0.0, until - now) / (len(questions) - number)
        ratio = in_turn(f"{model} {name}", *workers, what=what, until=until_then, **given)
        ratios.append(ratio)
        say(f"  {ratio.line()}")


# --- training -------------------------------------------------------------------------------------


def compare_training(check: Check) -> None:
    """Train each size in each tree, one after the other, for the same time."""
    check.found["training"] = rows = []
    data = check.work / "data"
    for number, size in enumerate(check.sizes):
        order = check.trees if number % 2 == 0 else check.trees[::-1]
        speeds: dict[str, float] = {}
        with _kept_apart(check, f"training {size}"):
            for place, tree in enumerate(order):
                runs = 2 * (len(check.sizes) - number) - place
                seconds = (check.deadline - time.monotonic()) / runs
                speeds[tree.label] = _train(check, tree, data, size, seconds)
                say(f"  training {size}, {tree.label}: {speeds[tree.label]:,.0f} words/s")
            ratio = speeds["new"] / speeds["old"]
            rows.append({"name": f"train {size}", **speeds, "value": ratio})


def _train(check: Check, tree: Tree, data: Path, size: str, limit: float) -> float:
    """Train for a while; return the words a second of all steps behind the warm-up."""
    warm_up, measured = (WARM_UP, MEASURED) if check.on_gpu else (0, 1)
    spare = limit - warm_up - measured  # for the start, compilation and the end
    if spare < 5:
        raise FailedError(f"no time is left for training {size}: {limit:.0f} s")
    out = check.work / f"run-{size}-{tree.label}"
    batch, unroll = check.choices.batch or BATCH[size], 20 if check.on_gpu else 4
    flags = {
        "data": data, "out": out, "preset": size, "batch-size": batch, "unroll-steps": unroll,
        "softmax": "sampled", "shuffle": "sentences", "device": check.choices.device,
        "precision": "bf16" if check.on_gpu else "fp32", "log-every": 20 if check.on_gpu else 1,
        "validate-every": 10**9, "validate-tokens": 1000, "checkpoint-every": 10**9,
        "minutes": (warm_up + measured) / 60,
    }  # fmt: skip
    given = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    log = check.choices.out / f"train-{size}-{tree.label}.log"
    command = own_flags(tree.source / "elmo", ["train", *given, "--quiet"])
    arguments = ["-m", "elmo", *command]
    tree.run(arguments, check.work, log, limit, **check.environment)
    lines = (out / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["seconds"] >= warm_up]
    if len(rows) < 2:
        raise FailedError(f"training {size} made too few steps: {len(lines)} rows in {log}")
    steps = rows[-1]["step"] - rows[0]["step"]
    return float(steps * batch * unroll / (rows[-1]["seconds"] - rows[0]["seconds"]))


def start_preparing(check: Check) -> Any:
    """Prepare the corpus that both trees train on in the background, while tests run."""
    text = check.work / "text.txt"
    number = CORPUS_SENTENCES["cuda" if check.on_gpu else "cpu"]
    lines = [" ".join(sentence) for sentence in make_sentences(number)]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tree = check.trees[0]
    arguments = ["prepare", str(text), str(check.work / "data")]
    arguments += ["--heldout-share", "0.01", "--vocab-size", "30000"]
    command = ["-m", "elmo", *own_flags(tree.source / "elmo", arguments)]
    return tree.start(command, check.work, check.choices.out / "prepare.log", **check.environment)


# --- the report -----------------------------------------------------------------------------------


def render(check: Check) -> str:
    """Return what was found so far as text."""
    found, bound = check.found, check.choices.bound
    lines = [f"{found['date']}  {found.get('device', '')}  Python {found['python']}", ""]
    if "tests" in found:
        tests = found["tests"]
        lines += [f"tests: {'passed' if tests['passed'] else 'FAILED'}: {tests.get('summary')}"]
        lines += [f"  {line}" for line in (tests.get("error"), *tests.get("failures", [])) if line]
        lines.append("")
    if found.get("embedding"):
        lines += [render_ratios(found["embedding"], bound), ""]
    if found.get("hashes"):
        same = [(h["what"], "same" if h["old"] == h["new"] else "DIFFER") for h in found["hashes"]]
        lines += [table(("bytes of vectors", ""), same), ""]
    if found.get("training"):
        rows = [
            (r["name"], f"{r['old']:,.0f}", f"{r['new']:,.0f}", f"{r['value']:.3f}",
             "" if r["value"] >= bound else f"BELOW {bound}")
            for r in found["training"]
        ]  # fmt: skip
        lines += [table(("words/s", "old", "new", "new/old", ""), rows), ""]
    lines += [f"{part} FAILED: {error}" for part, error in found["errors"].items()]
    lines.append(f"{found['seconds']:.0f} s")
    return "\n".join(lines)


def save(check: Check, start: float) -> None:
    """Write what was found so far."""
    check.found["seconds"] = time.monotonic() - start
    text = json.dumps(check.found, indent=2, default=vars) + "\n"
    (check.choices.out / "report.json").write_text(text, encoding="utf-8")
    (check.choices.out / "report.txt").write_text(render(check) + "\n", encoding="utf-8")


def is_fine(check: Check) -> bool:
    """Return whether all parts are there, tests passed, and no ratio is below the bound."""
    found, bound = check.found, check.choices.bound
    values = [ratio.value for ratio in found.get("embedding", [])]
    values += [row["value"] for row in found.get("training", [])]
    same = all(row["old"] == row["new"] for row in found.get("hashes", []))
    passed = found.get("tests", {}).get("passed", False)
    return bool(passed and same and not found["errors"] and all(v >= bound for v in values))


PARTS: dict[str, Callable[[Check], None]] = {
    "tests": run_tests,
    "embedding": compare_embedding,
    "training": compare_training,
}


def main() -> int:
    """Check, write the report, and return the exit code."""
    choices = _arguments()
    choices.out = choices.out.resolve()
    choices.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found = {"date": time.strftime("%Y-%m-%d %H:%M"), "python": platform.python_version()}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-check-")))
        old, new = (
            Tree(label, root.resolve(), work / f"cache-{label}", choices.site)
            for label, root in (("old", choices.old), ("new", choices.new))
        )
        deadline = start + 60 * SHARE_OF_TIME * choices.minutes
        check = Check((old, new), choices, work, deadline, {**found, "errors": {}})
        preparing = start_preparing(check)
        stack.callback(end, preparing)
        for name, part in PARTS.items():
            say(f"{name}: until {check.end_of(name) - start:.0f} s")
            with _kept_apart(check, name):
                if name == "training":
                    wait_for(preparing, 60, "elmo prepare", choices.out / "prepare.log")
                part(check)
            save(check, start)
    print(render(check))
    return int(not is_fine(check))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("old", type=Path, help="a checkout")
    add("new", type=Path, help="the one that is checked")
    add("--out", type=Path, required=True, help="folder for report.txt, report.json and logs")
    add("--minutes", type=float, default=10, help="most time (10)")
    add("--device", default="cuda", help="cuda; cpu shows that the script runs")
    add("--tests", nargs="+", help="files or folders of tests, from NEW (those marked gpu)")
    add("--site", type=lambda text: Path(text).resolve(), help="folder with further packages")
    add("--batch", type=int, help="streams of training, for a smaller GPU")
    add("--bound", type=float, default=0.97, help="least ratio of speeds (0.97)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

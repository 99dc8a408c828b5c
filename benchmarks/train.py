"""How fast training is on this machine, and whether its memory grows.

    python -m benchmarks.train --preset tutorial --steps 200
    python -m benchmarks.train --preset tiny --steps 2000
    python -m benchmarks.train --preset tutorial --text novel.txt --tokenizer chinese

A run of `elmo train` in a process of its own, from a prepared corpus on disk to optimizer steps, is
watched from outside: steps per second from its `speed.jsonl`, and its resident memory. Without
--text it reads made-up text (`elmo.text.made_up`).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.common.machine import this_machine
from elmo.text.made_up import make_sentences
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings

N_SENTENCES = 20_000
"""Of the made-up text: about 400,000 words."""


def main() -> None:
    """Measure, and print a report."""
    choices = _arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(choices, folder)
        rows, memory = _watch(choices, folder)
    _report(choices, rows, memory)


def _prepare(choices: argparse.Namespace, folder: Path) -> None:
    text, tokenizer = choices.text, choices.tokenizer
    if text is None:
        text = folder / "text.txt"
        lines = (" ".join(sentence) + "\n" for sentence in make_sentences(N_SENTENCES))
        text.write_text("".join(lines), encoding="utf-8")
    settings = PrepareSettings(tokenizer=tokenizer, vocab_size=choices.vocab_size)
    prepare([text], folder / "data", settings)


def _watch(choices: argparse.Namespace, folder: Path) -> tuple[list[dict[str, float]], list[float]]:
    """Run the training; return the rows of its speed file and its memory in MB at each of them."""
    command = [sys.executable, "-m", "elmo", "train", "--quiet", "--device", "cpu"]
    command += ["--data", str(folder / "data"), "--out", str(folder / "run")]
    command += ["--preset", choices.preset, "--steps", str(choices.steps)]
    command += ["--log-every", str(max(1, choices.steps // 20)), "--validate-every", "1000000000"]
    command += ["--checkpoint-every", "1000000000", *choices.flags]
    speed = folder / "run" / "speed.jsonl"
    memory: list[float] = []
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            n_rows = len(speed.read_bytes().splitlines()) if speed.exists() else 0
            if n_rows > len(memory):
                memory += [_resident_mb(process.pid)] * (n_rows - len(memory))
            time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    rows = [json.loads(line) for line in speed.read_text(encoding="utf-8").splitlines()]
    return rows, memory


def _resident_mb(process: int) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1000 if found else 0.0


def _report(choices: argparse.Namespace, rows: list[dict[str, float]], memory: list[float]) -> None:
    machine = this_machine()
    every = rows[0]["step"]
    times = [rows[0]["seconds"], *(b["seconds"] - a["seconds"] for a, b in pairwise(rows))]
    speeds = sorted(every / seconds for seconds in times[1:] if seconds > 0)
    words = sorted(row["tokens_per_second"] for row in rows[1:])
    print(f"elmo train --preset {choices.preset}, {choices.steps} steps, {machine.date}")
    print(f"machine  {machine.cpu}, {machine.cores} cores usable, {machine.instructions}")
    print(f"         load {machine.load} at the end, torch {machine.torch}")
    print(f"steps/s  {statistics.median(speeds):.2f} ({speeds[0]:.2f}..{speeds[-1]:.2f})")
    print(f"tokens/s {statistics.median(words):,.0f} ({words[0]:,.0f}..{words[-1]:,.0f})")
    seen = [mb for mb in memory if mb]
    if len(seen) > 2:
        print(
            f"memory   {seen[1]:,.0f} MB at step {2 * every:,.0f}, {max(seen):,.0f} at most, "
            f"{seen[-1]:,.0f} at the end"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="tutorial")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--text", type=Path, help="a text file instead of made-up text")
    parser.add_argument("--tokenizer", default="whitespace")
    parser.add_argument("--vocab-size", type=int, default=30_000)
    parser.add_argument("flags", nargs="*", help="further flags of elmo train, behind --")
    return parser.parse_args()


if __name__ == "__main__":
    main()

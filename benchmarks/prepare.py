"""How fast `elmo prepare` reads text, and how much memory it takes.

Without --text it prepares made-up text (`elmo.text.made_up`): the same on every machine, but
with fewer different words than real text, and therefore faster.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from benchmarks.common.machine import this_machine
from benchmarks.common.memory import peak_mb
from elmo.settings import TokenizerName
from elmo.text.made_up import make_sentences
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.workers import default_workers


@dataclass(frozen=True)
class PrepareRow:
    """One run."""

    text: str
    tokenizer: str
    workers: int
    words: int
    seconds: float
    words_per_second: float
    parent_mb: float
    """Peak resident memory of the process that reads and counts."""
    worker_mb: float
    """Peak resident memory of the largest worker; 0 without workers."""


def measure(text: Path, tokenizer: TokenizerName, workers: int) -> PrepareRow:
    """Prepare a text in a folder that goes away afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        settings = PrepareSettings(tokenizer=tokenizer, workers=workers)
        report = prepare([text], Path(folder) / "out", settings, show_progress=True)
    assert report is not None
    unit = 1 if sys.platform == "darwin" else 1024
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit / 1e6
    return PrepareRow(
        text=text.name,
        tokenizer=tokenizer,
        workers=workers,
        words=report.train.words + report.heldout.words,
        seconds=report.seconds,
        words_per_second=report.words_per_second,
        parent_mb=round(peak_mb(), 1),
        worker_mb=round(largest, 1) if workers > 1 else 0.0,
    )


def made_up_text(folder: Path, sentences: int) -> Path:
    """Write made-up sentences, ten a paragraph, twenty paragraphs a document."""
    path = folder / "made-up.txt"
    lines = [" ".join(words).capitalize() + "." for words in make_sentences(sentences)]
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, len(lines), 10):
            file.write(" ".join(lines[first : first + 10]))
            file.write("\n" if first % 200 else "\n\n")
    return path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="real text, packed or not")
    parser.add_argument("--tokenizer", choices=get_args(TokenizerName), default="english")
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--sentences", type=int, default=500_000, help="of made-up text")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = arguments.text or made_up_text(Path(folder), arguments.sentences)
        row = measure(text, arguments.tokenizer, arguments.workers)
    machine = this_machine()
    if arguments.json:
        figures = {"machine": asdict(machine), "run": asdict(row)}
        arguments.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")
    print(f"{machine.cpu}, {machine.cores} cores, load {machine.load}, {machine.date}")
    for name, value in asdict(row).items():
        print(f"{name:<18}{value:>14,}" if not isinstance(value, str) else f"{name:<18}{value:>14}")


if __name__ == "__main__":
    main()

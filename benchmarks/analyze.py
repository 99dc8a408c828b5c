"""How fast `elmo analyze contextuality` and `elmo similar` are.

Contextuality is measured against embedding the same text: the time inside `stream_windows` and
that of everything else, in one run, so that a busy machine slows both. `similar` is measured on a
saved index of random vectors: from the word to the list, once the process has started.

    python -m benchmarks.analyze                       # made-up text, the default model
    python -m benchmarks.analyze --sentences 100000 --text wiki.txt --tokenizer english
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.machine import this_machine
from benchmarks.common.memory import peak_mb
from elmo import ELMo
from elmo.analysis.contextual.measure import measure_windows
from elmo.analysis.corpus import Corpus
from elmo.analysis.settings import ContextualitySettings, CorpusSettings
from elmo.analysis.words.word_index import WordIndex
from elmo.text.made_up import make_sentences

RUNS = 5


@dataclass(frozen=True)
class ContextualityRow:
    """One run of the measures of contextuality."""

    model: str
    text: str
    sentences: int
    words: int
    seconds: float
    """All of it: reading, embedding, drawing samples, measuring them."""
    embedding_seconds: float
    """Inside `stream_windows`."""
    ratio: float
    peak_mb: float


@dataclass(frozen=True)
class SimilarRow:
    """Questions to one index."""

    words: int
    dim: int
    first_seconds: float
    """Opening the index and the first answer."""
    seconds: float
    """Each further answer, the median."""
    process_seconds: float
    """The whole command, the start of Python included."""


class TimedModel:
    """A model that notes the time spent inside it, reading of sentences left out.

    Args:
        model: The model.
    """

    def __init__(self, model: ELMo) -> None:
        self.model = model
        self.seconds = 0.0

    def stream_windows(self, sentences: Iterable[Any], **settings: Any) -> Iterator[Any]:
        """Embed as the model does."""
        read = self._timed(iter(sentences), -1)
        return self._timed(self.model.stream_windows(read, **settings), 1)

    def _timed(self, values: Iterator[Any], sign: int) -> Iterator[Any]:
        """Add the time until each value, or subtract it."""
        while True:
            started = time.perf_counter()
            value = next(values, None)
            self.seconds += sign * (time.perf_counter() - started)
            if value is None:
                return
            yield value


def measure_contextual(choices: argparse.Namespace, text: Path) -> ContextualityRow:
    """Measure how contextual the vectors of a text are, and how long that takes."""
    model = ELMo.from_pretrained(choices.model, device=choices.device)
    timed: Any = TimedModel(model)
    corpus = Corpus(
        CorpusSettings(
            corpus=(text,), tokenizer=choices.tokenizer, max_sentences=choices.sentences
        ),
        show_progress=True,
    )
    settings = ContextualitySettings()
    started = time.perf_counter()
    report = measure_windows(corpus.windows(timed), model.n_layers, model.dim, settings)
    seconds = time.perf_counter() - started
    return ContextualityRow(
        model=str(choices.model or "default"),
        text=text.name,
        sentences=report.n_sentences,
        words=report.n_words,
        seconds=round(seconds, 2),
        embedding_seconds=round(timed.seconds, 2),
        ratio=round(seconds / timed.seconds, 3),
        peak_mb=round(peak_mb(), 1),
    )


def measure_similar(n_words: int, dim: int, folder: Path) -> SimilarRow:
    """Ask an index of random vectors."""
    path = folder / "words.index"
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n_words, dim), dtype=np.float32)
    words = [f"word{k}" for k in range(n_words)]
    WordIndex(words, np.ones(n_words, np.int64), vectors, {}).save(path)
    del vectors
    started = time.perf_counter()
    index = WordIndex.load(path)
    index.similar("word7", remove_mean=True)
    first = time.perf_counter() - started
    times = [_seconds(partial(index.similar, f"word{k}", remove_mean=True)) for k in range(50)]
    command = [sys.executable, "-m", "elmo", "similar", "word7", "--index", str(path)]
    process = [
        _seconds(lambda: subprocess.run(command, check=True, capture_output=True))
        for _ in range(RUNS)
    ]
    return SimilarRow(
        words=n_words,
        dim=dim,
        first_seconds=round(first, 4),
        seconds=round(float(np.median(times)), 4),
        process_seconds=round(float(np.median(process)), 3),
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> int:
    """Measure, and print what was measured."""
    choices = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        similar = [measure_similar(n, choices.dim, Path(folder)) for n in choices.words]
        for row in similar:
            print(
                f"similar, {row.words:,} words of {row.dim}: first answer {row.first_seconds:.3f} "
                f"s, then {row.seconds:.3f} s; the whole command {row.process_seconds:.2f} s"
            )
        text = choices.text
        if text is None:
            text = Path(folder) / "made-up.txt"
            lines = (" ".join(words) for words in make_sentences(choices.sentences))
            text.write_text("\n".join(lines) + "\n")
        contextual = measure_contextual(choices, text)
    print(
        f"contextuality, {contextual.sentences:,} sentences, {contextual.words:,} words: "
        f"{contextual.seconds:.1f} s, of which embedding {contextual.embedding_seconds:.1f} s: "
        f"{contextual.ratio:.2f} times embedding alone; peak {contextual.peak_mb:,.0f} MB"
    )
    if choices.json is not None:
        facts = {
            "machine": asdict(this_machine(None)),
            "similar": [asdict(row) for row in similar],
            "contextuality": asdict(contextual),
        }
        choices.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder, file or Hub repository; else the default model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--text", type=Path, help="text to read; else made-up text")
    parser.add_argument("--tokenizer", default="whitespace", help="how the text is split")
    parser.add_argument("--sentences", type=int, default=5000, help="sentences of the text")
    parser.add_argument("--words", type=int, nargs="+", default=[100_000], help="words of indexes")
    parser.add_argument("--dim", type=int, default=256, help="values of a vector in an index")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

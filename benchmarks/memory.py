"""Peak memory of one system, measured in a process that does nothing else.

Run as a script it loads one system, embeds the corpus, and prints what that took as JSON;
`measure_memory` does so in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corpus import make_sentences
from systems import Ours, in_given_order

System = Literal["fp32", "bf16", "allennlp"]
"""One of our precisions, or the peer."""


@dataclass(frozen=True)
class MemoryRow:
    """What one system took."""

    name: str
    load_seconds: float
    """From the files on disk to a model that is ready, imports included."""
    loaded_mb: float
    """Peak resident memory until then."""
    peak_mb: float
    """Peak resident memory after embedding the corpus."""


def measure_memory(
    name: str, system: System, folder: Path, sentences: int, threads: int
) -> MemoryRow:
    """Measure one system in a fresh process.

    Args:
        name: What to call it.
        system: Which one.
        folder: Where the weights are.
        sentences: Sentences of the corpus.
        threads: Threads of torch.
    """
    command = [sys.executable, __file__, system, str(folder), str(sentences), str(threads)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return MemoryRow(name=name, **json.loads(printed))


def _embed(system: System, folder: Path, sentences: int, threads: int) -> dict[str, float]:
    start = time.perf_counter()
    import torch

    torch.set_num_threads(threads)
    corpus = make_sentences(sentences)
    results: object
    if system == "allennlp":
        from peers import AllenNLP

        peer = AllenNLP(folder)
        seconds, loaded = time.perf_counter() - start, peak_mb()
        results = in_given_order(peer, corpus)
    else:
        ours = Ours(folder, system)
        seconds, loaded = time.perf_counter() - start, peak_mb()
        results = ours.in_one_call(corpus)
    peak = peak_mb()
    del results  # all of them were kept until here, as both systems' users would
    return {"load_seconds": seconds, "loaded_mb": loaded, "peak_mb": peak}


def peak_mb() -> float:
    """Give the most memory that this process has had resident so far, in units of 10^6 bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux it starts at the size of the process that started this one.
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    """Measure the system named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=("fp32", "bf16", "allennlp"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("sentences", type=int)
    parser.add_argument("threads", type=int)
    arguments = parser.parse_args()
    print(json.dumps(_embed(**vars(arguments))))


if __name__ == "__main__":
    main()

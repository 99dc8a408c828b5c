"""Peak memory of one system, measured in a process that does nothing else.

Run as a module it loads one system, embeds the corpus, and writes what that took as JSON;
`measure_memory` does so in a fresh process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.memory import gpu_peak_mb, peak_mb
from elmo.errors import ElmoError

PEER_SYSTEM = "allennlp"
_ROOT = str(Path(__file__).parents[2])
_PATHS = os.environ.get("PYTHONPATH", "").split(os.pathsep)


@dataclass(frozen=True)
class MemoryTask:
    """What a fresh process does."""

    system: str
    """One of our precisions, or `allennlp`."""
    source: str
    """Where the weights are."""
    sentences: int
    """Sentences of the corpus."""
    threads: int
    """Threads of torch."""
    device: str
    """Where to compute."""


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
    gpu_mb: float | None = None
    """Peak of what PyTorch took of the memory of a GPU; None on a CPU."""


def measure_memory(name: str, task: MemoryTask) -> MemoryRow:
    """Measure one system in a fresh process.

    Args:
        name: What to call it.
        task: What the process does.
    """
    command = [sys.executable, "-m", __name__, json.dumps(asdict(task))]
    # Wherever this process was started, the new one finds `benchmarks`.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, *_PATHS]))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ElmoError(f"measuring the memory of {name} failed: {last[0]}")
    return MemoryRow(name=name, **json.loads(done.stdout))


def _embed(task: MemoryTask) -> dict[str, float | None]:
    start = time.perf_counter()
    import torch

    from benchmarks.common.systems import Ours, in_given_order
    from elmo.text.made_up import make_sentences

    torch.set_num_threads(task.threads)
    device = torch.device(task.device)
    corpus = make_sentences(task.sentences)
    results: object
    if task.system == PEER_SYSTEM:
        from benchmarks.common.allennlp import AllenNLP

        peer = AllenNLP(Path(task.source), device)
        seconds, loaded = time.perf_counter() - start, peak_mb()
        results = in_given_order(peer, corpus, device)
    else:
        precision: Any = task.system
        ours = Ours(task.source, precision, device)
        seconds, loaded = time.perf_counter() - start, peak_mb()
        results = ours.in_one_call(corpus)
    peak, on_gpu = peak_mb(), gpu_peak_mb(device)
    del results  # all of them were kept until here, as both systems' users would
    return {"load_seconds": seconds, "loaded_mb": loaded, "peak_mb": peak, "gpu_mb": on_gpu}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_embed(MemoryTask(**json.loads(sys.argv[1])))))

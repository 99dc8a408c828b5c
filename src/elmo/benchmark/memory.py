"""Peak memory of one system, measured in a process that does nothing else.

Run as a module it loads one system, embeds the corpus, and writes what that took as JSON;
`measure_memory` does so in a fresh process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmo.errors import ElmoError

PEER_SYSTEM = "allennlp"


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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ElmoError(f"measuring the memory of {name} failed: {last[0]}")
    return MemoryRow(name=name, **json.loads(done.stdout))


def _embed(task: MemoryTask) -> dict[str, float | None]:
    start = time.perf_counter()
    import torch

    from elmo.benchmark.corpus import make_sentences
    from elmo.benchmark.systems import Ours, in_given_order

    torch.set_num_threads(task.threads)
    device = torch.device(task.device)
    corpus = make_sentences(task.sentences)
    results: object
    if task.system == PEER_SYSTEM:
        from elmo.benchmark.peers import AllenNLP

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


def peak_mb() -> float:
    """Give the most memory that this process has had resident so far, in units of 10^6 bytes."""
    # Not ru_maxrss: on Linux it starts at the size of the process that started this one.
    kilobytes = _status("VmHWM")
    if kilobytes is not None:
        return kilobytes * 1024 / 1e6
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def gpu_peak_mb(device: Any) -> float | None:
    """Give the most memory of a GPU that PyTorch took since `restart_peaks`; None on a CPU."""
    import torch

    if device.type != "cuda":
        return None
    return torch.cuda.max_memory_allocated(device) / 1e6


def restart_peaks(device: Any) -> bool:
    """Give memory back to the system as far as possible, and let peaks begin anew from there.

    Returns:
        Whether `peak_mb` begins anew: only Linux can do that, and not in every container.
    """
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        return False
    return True


def _status(name: str) -> int | None:
    """Read a number from what Linux says about this process; None elsewhere."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    for line in status.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_embed(MemoryTask(**json.loads(sys.argv[1])))))

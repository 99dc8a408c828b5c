"""`elmo bench`: how fast a model is on this machine, what it takes, and how exact it is."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Parameter

from elmo import __version__
from elmo.cli.base import DONE, Flags, app, say, show
from elmo.errors import ConfigError
from elmo.runtime.tables import NOTHING, text_table
from elmo.settings import Precision

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from elmo.embedder import ELMo

    Vectors = npt.NDArray[np.float32]

_SENTENCES = {"cpu": 256, "cuda": 10_000}
"""Sentences of the text, about 21 words each, by the kind of device."""
_CHECKED = 64
"""Sentences whose vectors are compared with fp32."""
_LATENCY_WORDS, _LATENCY_RUNS = 20, 20
_RUNS = 3
_THREADS_PER_CORE = 4
"""More threads than a process can start would crash PyTorch."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What is measured."""

    precision: Annotated[
        tuple[Precision, ...], Parameter(consume_multiple=True, show_default=False)
    ] = ()
    """One or more; by default all that the device has instructions for."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto: the CPU and, where there is one, the GPU."""
    threads: int | None = None
    """Threads on a CPU; by default one for each core."""
    json: Path | None = None
    """Write the figures to this file, too."""
    quiet: bool = False
    """No progress."""

    def __post_init__(self) -> None:
        most = _THREADS_PER_CORE * (os.cpu_count() or 1)
        if self.threads is not None and not 1 <= self.threads <= most:
            raise ConfigError(
                f"--threads is {self.threads}, expected at least 1 and at most {most}"
            )


@dataclass(frozen=True)
class Figures:
    """What was measured of one precision on one device."""

    precision: Precision
    device: str
    words_per_second: float
    """Of a text whose words are new to the model, all layers."""
    milliseconds_new: float
    """One sentence of 20 words that are new to the model."""
    milliseconds_known: float
    """The same when the context-free vectors of its words are in the cache."""
    load_seconds: float
    peak_mb: float | None
    """Peak resident memory of the process; None where the system does not tell."""
    gpu_mb: float | None
    """Peak memory of the GPU; None on a CPU."""
    largest_error: float
    """Largest absolute difference of a value from fp32 on the CPU."""
    least_cosine: float
    """Smallest cosine of a word's vector with the same in fp32 on the CPU."""


_SETTINGS = BenchSettings()


@app.command
def bench(
    model: Annotated[str | None, Parameter(name="MODEL")] = None,
    /,
    *,
    settings: Annotated[BenchSettings, Flags] = _SETTINGS,
) -> int:
    """Measure a model on this machine: speed, memory and exactness of each precision.

    The text is made up, with the statistics of English; every figure of time is a median, after a
    warm-up. Errors are differences from fp32 vectors of the same text.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub;
        by default the default model.
    settings
        What is measured.
    """
    import torch

    from elmo.hub.names import default_model
    from elmo.runtime.files import output_errors, write_text

    if settings.json is not None:
        with output_errors(settings.json):
            settings.json.parent.mkdir(parents=True, exist_ok=True)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    name = default_model() if model is None else model
    tell = (lambda text: None) if settings.quiet else say
    rows = _measure_all(name, settings, tell)
    machine = {
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if any(row.gpu_mb for row in rows) else None,
        "torch": torch.__version__,
        "elmo": __version__,
    }
    show(_render(name, machine, rows))
    if settings.json is not None:
        report = {"model": name, "machine": machine, "figures": [asdict(row) for row in rows]}
        write_text(settings.json, json.dumps(report, indent=2) + "\n")
    return DONE


# --- measuring ------------------------------------------------------------------------------------


def _measure_all(name: str, settings: BenchSettings, tell: Callable[[str], None]) -> list[Figures]:
    from elmo.embedder import ELMo
    from elmo.text.made_up import make_sentences

    devices = _devices(settings.device)
    tell(f"{name}: fp32 vectors to compare with")
    checked = make_sentences(_CHECKED, seed=1)
    exact = _joined(ELMo.from_pretrained(name, device="cpu").encode_tokens(checked))
    rows: list[Figures] = []
    refused: ConfigError | None = None
    for device in devices:
        text = make_sentences(_SENTENCES.get(device.type, _SENTENCES["cpu"]))
        for precision in dict.fromkeys(settings.precision or _precisions(device)):
            tell(f"{name}: {precision} on {device}")
            try:
                rows.append(_measure(name, precision, device, text, checked, exact))
            except ConfigError as error:  # such as int8 on a GPU
                tell(f"left out: {error}")
                refused = error
    if refused is not None and not rows:
        raise refused
    return rows


def _devices(name: str) -> list[torch.device]:
    """Return the devices to measure: for `auto` the CPU and a GPU where there is one."""
    import torch

    from elmo.runtime.devices import find_device

    if name != "auto":
        return [find_device(name)]
    return [
        find_device(kind) for kind in ("cpu", "cuda") if kind == "cpu" or torch.cuda.is_available()
    ]


def _precisions(device: torch.device) -> list[Precision]:
    """Return all precisions, on a CPU those that it has instructions for."""
    from elmo.backends.cpu.products import runs_natively

    return [p for p in get_args(Precision) if device.type != "cpu" or runs_natively(p)]


def _measure(
    name: str,
    precision: Precision,
    device: torch.device,
    text: list[list[str]],
    checked: list[list[str]],
    exact: Vectors,
) -> Figures:
    """Load a model and measure it.

    Args:
        name: What `ELMo.from_pretrained` is given.
        precision: Of its products.
        device: Where it computes.
        text: Sentences whose embedding is timed.
        checked: Sentences whose vectors are compared.
        exact: Their vectors in fp32, `(n_layers, n, dim)`.
    """
    import torch

    from elmo.embedder import ELMo
    from elmo.text.made_up import make_sentence

    on_gpu = device.type == "cuda"
    begins_anew = _restart_peaks(device)
    start = time.perf_counter()
    model = ELMo.from_pretrained(name, precision=precision, device=device)
    load_seconds = time.perf_counter() - start
    largest, least = _errors(_joined(model.encode_tokens(checked)), exact)
    sentence = [make_sentence(_LATENCY_WORDS)]
    seconds = _median_seconds(model, text, _RUNS, known=False)
    return Figures(
        precision=precision,
        device=str(device),
        words_per_second=sum(map(len, text)) / seconds,
        milliseconds_new=1000 * _median_seconds(model, sentence, _LATENCY_RUNS, known=False),
        milliseconds_known=1000 * _median_seconds(model, sentence, _LATENCY_RUNS, known=True),
        load_seconds=load_seconds,
        peak_mb=_peak_mb() if begins_anew else None,
        gpu_mb=torch.cuda.max_memory_allocated(device) / 1e6 if on_gpu else None,
        largest_error=largest,
        least_cosine=least,
    )


def _median_seconds(model: ELMo, sentences: list[list[str]], runs: int, known: bool) -> float:
    """Return the median time of embedding sentences, after one run that does not count.

    Args:
        model: The model.
        sentences: Lists of words.
        runs: How many runs count.
        known: Whether the context-free vectors of the words stay in the cache between the runs.
    """
    times = []
    for _ in range(1 + runs):
        if not known:
            model._pipeline.words.clear()
        start = time.perf_counter()
        vectors = model.encode_tokens(sentences)  # in host memory: nothing is left to wait for
        times.append(time.perf_counter() - start)
        del vectors
    return statistics.median(times[1:])


def _joined(vectors: list[Vectors]) -> Vectors:
    """Join the vectors of sentences, each `(n_layers, n, dim)`, along the words."""
    import numpy as np

    return np.concatenate(vectors, axis=1)


def _errors(found: Vectors, exact: Vectors) -> tuple[float, float]:
    """Return the largest difference and the smallest cosine of vectors `(n_layers, n, dim)`."""
    import numpy as np

    lengths = np.linalg.norm(found, axis=-1) * np.linalg.norm(exact, axis=-1)
    cosines = (found * exact).sum(axis=-1) / np.maximum(lengths, np.finfo(np.float32).tiny)
    return float(np.abs(found - exact).max()), float(cosines.min())


def _restart_peaks(device: torch.device) -> bool:
    """Return memory to the system and restart its peak, where the system can do that: on Linux."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):  # another system, or a container that forbids it
        return False
    return True


def _peak_mb() -> float:
    """Return the peak of resident memory since `_restart_peaks`, in units of 10^6 bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


# --- the table ------------------------------------------------------------------------------------


def _cpu_name() -> str:
    """Return the name of the processor."""
    with suppress(OSError):  # only Linux has this file
        names = re.findall(r"^model name\s*: (.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return names[0] if names else platform.machine()
    return platform.processor() or platform.machine()


def _render(name: str, machine: dict[str, Any], rows: list[Figures]) -> str:
    """Return the figures as a table below a line on the machine."""
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    head = (
        f"{name} on {machine['cpu']}, threads: {machine['threads']}{gpu}; "
        f"torch {machine['torch']}, elmo {machine['elmo']}"
    )
    header = (
        "precision",
        "words/s",
        "ms a sentence",
        "known words",
        "load s",
        "peak MB",
        "GPU MB",
        "largest error",
        "least cosine",
    )
    cells = (
        (
            f"{row.precision} on {row.device}",
            f"{row.words_per_second:,.0f}",
            f"{row.milliseconds_new:.1f}",
            f"{row.milliseconds_known:.1f}",
            f"{row.load_seconds:.2f}",
            *(NOTHING if mb is None else f"{mb:,.0f}" for mb in (row.peak_mb, row.gpu_mb)),
            f"{row.largest_error:.1e}",
            f"{row.least_cosine:.5f}",
        )
        for row in rows
    )
    return f"{head}\n\n{text_table(header, cells)}"

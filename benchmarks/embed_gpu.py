"""Where the time goes when a GPU embeds: speed, its ceiling on the host, latency, memory, errors.

    python -m benchmarks.embed_gpu
    python -m benchmarks.embed_gpu --sizes original --precision bf16 --profile
    python -m benchmarks.embed_gpu --quick --device cpu
    python -m benchmarks.embed_gpu --host-alone            # needs no GPU

`python -m benchmarks.speed --device cuda` compares with AllenNLP round by round and is the record;
this looks inside. The corpus is the same: 100,000 sentences, about two million words, every layer
of every word. *Host alone* is the same call with a model that computes nothing: no GPU can make it
faster than that. With `--host-alone` nothing else is measured, on PyTorch's device `meta`, whose
tensors have a shape but no data.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from benchmarks.common.allennlp import PEER, AllenNLP, MissingPeerError
from benchmarks.common.machine import Machine, this_machine
from benchmarks.common.memory import gpu_peak_mb
from benchmarks.common.models import Subject, published_folder, subject_of_size
from benchmarks.common.output import require_writable, write_json
from benchmarks.common.systems import Sentences, in_sorted_order, wait_for
from elmo.backends.base import Backend, WordCache, WordSource
from elmo.backends.gpu.model import GPUBackend
from elmo.backends.gpu.word_table import DeviceWordCache
from elmo.config import ElmoConfig, Preset
from elmo.embed.pipeline import Pipeline
from elmo.embedder import ELMo
from elmo.errors import ElmoError
from elmo.model.bilm import State, Tensors, random_bilm, zero_state
from elmo.runtime.devices import find_device
from elmo.runtime.tables import NOTHING, text_table
from elmo.settings import Precision
from elmo.text.made_up import count_words, make_sentence, make_sentences

LATENCY_WORDS = 20
CHECKED_SENTENCES = 200
PEER_SENTENCES = 4096
BATCHES = (64, 256, 1024, 4096, 8192, 16384)
"""Sentences of a batch, as it grows."""
LENGTHS = (5, 20, 80, 320)
"""Words of each sentence, as they grow, in a corpus of the same size."""


@dataclass(frozen=True)
class Row:
    """What was measured of one size and precision; speeds are words a second."""

    size: str
    precision: str
    on_gpu: float
    """Vectors stay on the GPU."""
    in_host_memory: float
    in_host_memory_float16: float
    host_alone: float
    latency_ms: float
    """One sentence of known words, its vectors on the GPU: median of many calls."""
    latency_p95_ms: float
    latency_host_ms: float
    """The same with vectors in host memory."""
    latency_new_words_ms: float
    largest_error: float
    """Against the same weights in float32 on the CPU."""
    mean_error: float
    gpu_mb: float | None
    """Peak of GPU memory over the whole corpus, its vectors on the GPU included."""
    by_batch: dict[int, float] = field(default_factory=dict)
    by_length: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All that was measured."""

    machine: Machine
    sentences: int
    words: int
    layers: str
    rows: list[Row]
    peer: dict[str, float]
    """Words a second of AllenNLP, sorted by length, by size; empty where it is not installed."""


class Nothing(Backend):
    """Stands in for a backend and computes nothing.

    Args:
        backend: Whose place.
        device: Where it would compute; as the backend if None.
    """

    cells = GPUBackend.cells
    cache_mb = GPUBackend.cache_mb

    def __init__(self, backend: Backend, device: torch.device | None = None) -> None:
        self.config, self.precision = backend.config, backend.precision
        self.vocabulary, self.alphabet = backend.vocabulary, backend.alphabet
        self.device = backend.device if device is None else device
        self.boundaries = backend.boundaries.to(self.device)

    def _cache_words(self, source: WordSource, capacity: int) -> WordCache:
        return DeviceWordCache(source, self.config, self.precision, capacity)

    def tensors(self) -> Tensors:
        """Return no weights."""
        return {}

    def encode_words(self, ids: Tensor) -> Tensor:
        """Return vectors `(n, projection_dim)` of any content."""
        return torch.empty(len(ids), self.config.projection_dim, device=ids.device)

    def contextualize(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        state: State | None = None,
        depth: int | None = None,
    ) -> tuple[list[Tensor], State]:
        """Return layers `(n, 2 * projection_dim)` of any content."""
        assert state is not None
        empty = torch.empty(len(tokens), self.config.output_dim, device=vectors.device)
        return [empty] * (self.config.n_layers if depth is None else depth), state


def measure(subject: Subject, precision: Precision, choices: argparse.Namespace) -> Row:
    """Measure one size in one precision."""
    device, layers = find_device(choices.device), choices.layers
    sentences = make_sentences(choices.sentences)
    model = ELMo(subject.read(), precision=precision, device=device)

    def embed(text: Sentences, **settings: Any) -> Callable[[], Any]:
        def run() -> Any:
            model._pipeline.words.clear()
            vectors = model.encode_tokens(text, layers=layers, **settings)
            wait_for(device)
            return vectors

        return run

    stay = embed(sentences, convert_to_tensor=True)
    stay()  # kernels are compiled, memory is taken
    peak = _peak_of(stay, device)
    if choices.profile:
        _profile(stay, device)
    words = count_words(sentences)
    one, one_on_host, one_new = _latencies(model, choices)
    largest, mean = _errors(model, subject)
    by_batch, by_length = _scaling(embed, choices)
    return Row(
        size=subject.name,
        precision=precision,
        on_gpu=words / _seconds(stay, choices.rounds),
        in_host_memory=words / _seconds(embed(sentences), choices.rounds),
        in_host_memory_float16=words / _seconds(embed(sentences, dtype="float16"), choices.rounds),
        host_alone=words / _host_seconds(model, stay, choices.rounds),
        latency_ms=statistics.median(one),
        latency_p95_ms=sorted(one)[int(0.95 * len(one))],
        latency_host_ms=statistics.median(one_on_host),
        latency_new_words_ms=statistics.median(one_new),
        largest_error=largest,
        mean_error=mean,
        gpu_mb=peak,
        by_batch=by_batch,
        by_length=by_length,
    )


def _seconds(run: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a run."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
        del result
    return statistics.median(seconds)


def _host_seconds(model: ELMo, run: Callable[[], Any], rounds: int) -> float:
    """Time a run with a backend that computes nothing."""
    pipeline = model._pipeline
    real, source = pipeline.backend, pipeline.words.source
    pipeline.backend = Nothing(real)
    pipeline.words.source = replace(source, model=pipeline.backend)
    try:
        run()
        return _seconds(run, rounds)
    finally:
        pipeline.backend, pipeline.words.source = real, source
        pipeline.words.clear()


def measure_host(size: Preset, choices: argparse.Namespace) -> list[float]:
    """Return the seconds of rounds of the host's part of the work, without a GPU."""
    nowhere = torch.device("meta")
    model = ELMo(random_bilm(ElmoConfig.preset(size)), device="cpu")
    model._pipeline = Pipeline(Nothing(model._pipeline.backend, nowhere))
    model._pipeline._starts["zero"] = zero_state(model.config, 1, torch.empty(0, device=nowhere))
    sentences = make_sentences(choices.sentences)
    seconds = []
    for _ in range(1 + choices.rounds):
        model._pipeline.words.clear()
        begin = time.perf_counter()
        vectors = model.encode_tokens(sentences, layers=choices.layers, convert_to_tensor=True)
        seconds.append(time.perf_counter() - begin)
        del vectors
    return seconds[1:]


def _latencies(
    model: ELMo, choices: argparse.Namespace
) -> tuple[list[float], list[float], list[float]]:
    """Return milliseconds of single sentences: on the GPU, in host memory, with new words."""
    sentence, device = make_sentence(LATENCY_WORDS), model.device

    def call(to_tensor: bool, forget: bool) -> float:
        if forget:
            model._pipeline.words.clear()
        wait_for(device)
        start = time.perf_counter()
        model.encode_tokens([sentence], layers=choices.layers, convert_to_tensor=to_tensor)
        wait_for(device)
        return 1000 * (time.perf_counter() - start)

    ways = (True, False), (False, False), (True, True)
    for way in ways * 3:
        call(*way)
    on_gpu, on_host, new = ([call(*way) for _ in range(choices.calls)] for way in ways)
    return on_gpu, on_host, new


def _errors(model: ELMo, subject: Subject) -> tuple[float, float]:
    """Compare every layer of some sentences with float32 on the CPU: largest and mean error."""
    sentences = make_sentences(CHECKED_SENTENCES, seed=1)
    exact = ELMo(subject.read(), device="cpu").encode_tokens(sentences)
    pairs = zip(model.encode_tokens(sentences), exact, strict=True)
    errors = np.concatenate([np.abs(found - other).ravel() for found, other in pairs])
    return float(errors.max()), float(errors.mean())


def _scaling(
    embed: Callable[..., Callable[[], Any]], choices: argparse.Namespace
) -> tuple[dict[int, float], dict[int, float]]:
    """Return words a second as batches grow and as sentences grow."""
    text = make_sentences(max(1, choices.sentences // 4))
    by_batch = {}
    for rows in BATCHES:
        run = embed(text, batch_size=rows, batch_tokens=10**9, convert_to_tensor=True)
        run()
        by_batch[rows] = count_words(text) / _seconds(run, 1)
    by_length = {}
    for length in LENGTHS:
        number = max(1, count_words(text) // length)
        same = [make_sentence(length, seed=seed) for seed in range(min(number, 500))]
        text_of_length = (same * (1 + number // len(same)))[:number]
        run = embed(text_of_length, convert_to_tensor=True)
        run()
        by_length[length] = count_words(text_of_length) / _seconds(run, 1)
    return by_batch, by_length


def _peak_of(run: Callable[[], Any], device: torch.device) -> float | None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    run()
    return gpu_peak_mb(device)


def _profile(run: Callable[[], Any], device: torch.device) -> None:
    """Print which kernels and which calls take the time."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as record:
        run()
    by = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(record.key_averages().table(sort_by=by, row_limit=25, max_name_column_width=60))


def measure_peer(subject: Subject, choices: argparse.Namespace) -> dict[str, float]:
    """Measure AllenNLP in its fastest way, if it is installed."""
    device = find_device(choices.device)
    text = make_sentences(min(PEER_SENTENCES, choices.sentences))
    try:
        with published_folder(subject) as folder:
            peer = AllenNLP(folder, device)
    except MissingPeerError as error:
        print(error)
        return {}
    in_sorted_order(peer, text, device)
    seconds = _seconds(lambda: in_sorted_order(peer, text, device), 1)
    return {subject.name: count_words(text) / seconds}


# --- the report -----------------------------------------------------------------------------------


def render(report: Report) -> str:
    """Return the report as plain text."""
    machine = report.machine
    head = (
        f"{machine.date}; {machine.gpu or machine.cpu}, {machine.cores} cores; Python "
        f"{machine.python}, torch {machine.torch}\n{report.sentences} sentences, {report.words} "
        f"words, layers {report.layers}; words a second"
    )
    speeds = text_table(
        ("model", "on GPU", "host memory", "as float16", "host alone", PEER, "peak GPU MB"),
        [
            (
                f"{row.size} {row.precision}",
                *(
                    f"{value:,.0f}"
                    for value in (
                        row.on_gpu,
                        row.in_host_memory,
                        row.in_host_memory_float16,
                        row.host_alone,
                    )
                ),
                f"{report.peer[row.size]:,.0f}" if row.size in report.peer else NOTHING,
                NOTHING if row.gpu_mb is None else f"{row.gpu_mb:,.0f}",
            )
            for row in report.rows
        ],
    )
    single = text_table(
        ("one sentence, ms", "median", "p95", "to host", "new words", "max error", "mean error"),
        [
            (
                f"{row.size} {row.precision}",
                f"{row.latency_ms:.2f}",
                f"{row.latency_p95_ms:.2f}",
                f"{row.latency_host_ms:.2f}",
                f"{row.latency_new_words_ms:.2f}",
                f"{row.largest_error:.1e}",
                f"{row.mean_error:.1e}",
            )
            for row in report.rows
        ],
    )
    batches = _scaling_table("sentences a batch", BATCHES, report.rows, "by_batch")
    lengths = _scaling_table("words a sentence", LENGTHS, report.rows, "by_length")
    return "\n\n".join((head, speeds, single, batches, lengths))


def _scaling_table(what: str, sizes: Sequence[int], rows: Sequence[Row], name: str) -> str:
    return text_table(
        (what, *map(str, sizes)),
        [
            (
                f"{row.size} {row.precision}",
                *(f"{getattr(row, name)[size]:,.0f}" for size in sizes),
            )
            for row in rows
        ],
    )


def main() -> None:
    """Measure, print the tables, and write the JSON if asked."""
    choices = _arguments()
    require_writable(choices.json)
    if choices.host_alone:
        for size in choices.sizes:
            seconds = statistics.median(measure_host(size, choices))
            speed = count_words(make_sentences(choices.sentences)) / seconds
            print(f"{size}: the host alone {1000 * seconds:.0f} ms, {speed:,.0f} words/s")
        return
    device = find_device(choices.device)
    subjects = [subject_of_size(size, choices.data) for size in choices.sizes]
    rows: list[Row] = []
    peer: dict[str, float] = {}
    for subject in subjects:
        if not choices.skip_peers:
            peer |= measure_peer(subject, choices)
        for precision in choices.precision:
            rows.append(measure(subject, precision, choices))
            print(f"{subject.name} {precision}: {rows[-1].on_gpu:,.0f} words/s", flush=True)
    words = count_words(make_sentences(choices.sentences))
    machine = this_machine(device if device.type == "cuda" else None)
    report = Report(machine, choices.sentences, words, choices.layers, rows, peer)
    print(render(report))
    write_json(report, choices.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--sizes", nargs="+", choices=get_args(Preset), default=["original", "small"])
    add("--precision", nargs="+", choices=["fp32", "bf16", "fp16"], default=["bf16", "fp32"])
    add("--sentences", type=int, default=100_000, help="of the corpus (100,000)")
    add("--layers", type=_layers, default="all", help="which vectors of a word (all)")
    add("--rounds", type=int, default=3, help="of each measurement (3)")
    add("--calls", type=int, default=200, help="with one sentence (200)")
    add("--device", default="cuda", help="where to compute (cuda)")
    add("--data", type=Path, help="folder for random weights (the user's cache folder)")
    add("--skip-peers", action="store_true", help="measure ours alone")
    add("--host-alone", action="store_true", help="only the host's work, without a GPU")
    add("--profile", action="store_true", help="print which kernels take the time")
    add("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    add("--quick", action="store_true", help="does it run? a tiny model, little text")
    choices = parser.parse_args()
    if choices.quick:
        choices.sizes, choices.sentences, choices.rounds = ["tiny"], 100, 1
        choices.precision, choices.calls = ["fp32"], 5
    return choices


def _layers(text: str) -> str | int:
    return text if text.isalpha() else int(text)


if __name__ == "__main__":
    try:
        main()
    except ElmoError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

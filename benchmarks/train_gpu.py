"""How fast training is on a GPU, end to end, and whether its kernels learn as the plain code does.

    python -m benchmarks.train_gpu --sizes small original --seconds 60 --json figures.json
    python -m benchmarks.train_gpu --sizes small --profile
    python -m benchmarks.train_gpu --sizes small --compare-losses 2000 --out curves
    python -m benchmarks.train_gpu --draw curves/losses-small.json

Everything goes through the loop of `elmo train`, from a prepared corpus on disk to optimizer steps.
Without --data the corpus is made up (`elmo.text.made_up`). A figure is the words of all steps
after the warm-up over the time that they took.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.common.machine import this_machine
from elmo.config import ElmoConfig
from elmo.runtime.devices import find_device
from elmo.runtime.metrics_file import METRICS_FILE, read_metrics
from elmo.text.made_up import make_sentences
from elmo.training import gradients, trainer
from elmo.training.build import build_model, model_ids
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shards import Corpus
from elmo.training.run_log import SPEED_FILE
from elmo.training.settings import TrainSettings
from elmo.training.streams import Position, Streams

BATCH = {"small": 2048, "original": 1024}
"""Streams in a batch by size; 64 for the others."""
NEVER = 1_000_000_000
PROFILED = 20
"""Steps that are profiled, after as many that are not."""


@dataclass(frozen=True)
class Figures:
    """What was measured of one size."""

    size: str
    batch: int
    unroll: int
    seconds: float
    """Measured time, without the warm-up."""
    steps: int
    tokens_per_second: float
    milliseconds_per_step: float
    distinct_words: float
    """Distinct words in a batch, on average."""
    flops_per_token: float
    """Operations of the products, forward and backward pass."""
    teraflops: float
    utilization: float
    """Of the peak that was given."""
    peak_memory_gb: float


def main() -> None:
    """Measure, and print a report."""
    choices = _arguments()
    if choices.draw:
        _draw(choices.draw)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = choices.data or _made_up(choices, folder)
        if choices.compare_losses:
            _compare(choices, data, folder)
        elif choices.profile:
            for size in choices.sizes:
                _profile(choices, data, folder, size)
        else:
            _report(choices, [_measure(choices, data, folder, size) for size in choices.sizes])


def _made_up(choices: argparse.Namespace, folder: Path) -> Path:
    text = folder / "text.txt"
    with text.open("w", encoding="utf-8") as file:
        for seed in range(0, choices.sentences, 50_000):
            number = min(50_000, choices.sentences - seed)
            lines = [" ".join(sentence) for sentence in make_sentences(number, seed)]
            file.write("\n".join(lines) + "\n\n")
    settings = PrepareSettings(vocab_size=choices.vocab_size, heldout_share=0.002)
    prepare([text], folder / "data", settings)
    return folder / "data"


def _settings(choices: argparse.Namespace, data: Path, out: Path, size: str) -> TrainSettings:
    """Return the settings of a run without interruptions."""
    changes: dict[str, Any] = {"softmax_samples": choices.samples} if choices.samples else {}
    return TrainSettings(
        data=data,
        out=out,
        preset=size,  # type: ignore[arg-type]
        batch_size=choices.batch or BATCH.get(size, 64),
        unroll_steps=choices.unroll,
        softmax="sampled",
        shuffle="sentences",
        precision=choices.precision,
        kernels="plain" if choices.plain else "auto",
        no_cuda_graphs=choices.no_graphs,
        device=choices.device,
        log_every=choices.log_every,
        validate_every=NEVER,
        validate_tokens=1000,
        checkpoint_every=NEVER,
        quiet=True,
        minutes=(choices.warm_up + choices.seconds) / 60,
        **changes,
    )


# --- speed ----------------------------------------------------------------------------------------


def _measure(choices: argparse.Namespace, data: Path, folder: Path, size: str) -> Figures:
    out = folder / f"run-{size}"
    settings = _settings(choices, data, out, size)
    is_gpu = find_device(choices.device).type == "cuda"
    if is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainer.train(settings)
    rows = [json.loads(line) for line in (out / SPEED_FILE).read_text("utf-8").splitlines()]
    measured = [row for row in rows if row["seconds"] >= choices.warm_up]
    if len(measured) < 2:
        raise SystemExit(f"{size}: too few steps were measured; give a longer --seconds")
    steps = measured[-1]["step"] - measured[0]["step"]
    seconds = measured[-1]["seconds"] - measured[0]["seconds"]
    assert settings.batch_size is not None
    tokens = steps * settings.batch_size * settings.unroll_steps
    distinct, flops = _count(settings)
    return Figures(
        size=size,
        batch=settings.batch_size,
        unroll=settings.unroll_steps,
        seconds=round(seconds, 1),
        steps=int(steps),
        tokens_per_second=round(tokens / seconds),
        milliseconds_per_step=round(1000 * seconds / steps, 2),
        distinct_words=round(distinct),
        flops_per_token=round(flops),
        teraflops=round(flops * tokens / seconds / 1e12, 1),
        utilization=round(flops * tokens / seconds / 1e12 / choices.peak, 3),
        peak_memory_gb=round(torch.cuda.max_memory_reserved() / 1e9, 1) if is_gpu else 0.0,
    )


def _count(settings: TrainSettings) -> tuple[float, float]:
    """Return the distinct words of a batch, and the operations that a word of a stream costs."""
    assert settings.data is not None
    assert settings.batch_size is not None
    corpus = Corpus.open(settings.data)
    model = build_model(settings, corpus.vocabulary).model
    streams = Streams(
        corpus.train,
        corpus.vocabulary,
        model_ids(model, corpus.vocabulary),
        rows=settings.batch_size,
        unroll=settings.unroll_steps,
        shuffle=settings.shuffle,
    )
    batches = itertools.islice(streams.batches(Position()), 5)
    distinct = float(np.mean([len(batch.types) for batch, _ in batches]))
    drawn = model.output.draw(0)
    n_candidates = len(corpus.vocabulary) if drawn is None else len(drawn.candidates)
    share = distinct / (settings.batch_size * settings.unroll_steps)
    return distinct, _flops(model.bilm.config, n_candidates, share)


def _flops(config: ElmoConfig, n_candidates: int, share: float) -> float:
    """Count the products of one word of a stream, forward and backward (twice as many), by hand.

    Args:
        config: Sizes.
        n_candidates: Words that a softmax looks at.
        share: Distinct words for each word of a stream.
    """
    width, dim, n_filters = config.projection_dim, config.dim, config.n_filters
    layer = 2 * 4 * dim * width + (dim * width if config.has_projection else 0)
    both_directions = 2 * (config.n_layers * layer + width * n_candidates)
    word = config.n_highway * 2 * n_filters**2 + n_filters * width
    return 3 * 2 * (both_directions + share * word)


def _report(choices: argparse.Namespace, figures: list[Figures]) -> None:
    device = find_device(choices.device)
    machine = this_machine(device if device.type == "cuda" else None)
    print(f"elmo train, {machine.date}, torch {machine.torch}, {machine.gpu or machine.cpu}")
    for found in figures:
        print(
            f"{found.size:10s} {found.tokens_per_second:12,d} tokens/s over {found.seconds:.0f} s, "
            f"batch {found.batch} x {found.unroll}, {found.milliseconds_per_step:.2f} ms a step, "
            f"{found.distinct_words:,.0f} distinct words, {found.teraflops:.0f} TFLOP/s "
            f"({found.utilization:.0%} of {choices.peak:g}), {found.peak_memory_gb:.1f} GB"
        )
    if choices.json:
        record = {"machine": asdict(machine), "figures": [asdict(found) for found in figures]}
        choices.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


# --- profile --------------------------------------------------------------------------------------


def _profile(choices: argparse.Namespace, data: Path, folder: Path, size: str) -> None:
    """Print where the time of some steps goes, kernels compiled before."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    key = "self_cpu_time_total"
    if find_device(choices.device).type == "cuda":
        activities = [torch.profiler.ProfilerActivity.CUDA]
        key = "self_cuda_time_total"
    for name in ("first", "second"):
        settings = _settings(choices, data, folder / f"{name}-{size}", size)
        settings = settings.replace(minutes=None, steps=PROFILED)
        if name == "first":
            trainer.train(settings)
            continue
        with torch.profiler.profile(activities=activities) as profile:
            trainer.train(settings)
    batch = f"{settings.batch_size} x {settings.unroll_steps}"
    print(f"{size}: {PROFILED} steps, batch {batch}, and a measurement")
    print(profile.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70))


# --- loss curves ----------------------------------------------------------------------------------


def _compare(choices: argparse.Namespace, data: Path, folder: Path) -> None:
    """Compare the losses of plain float32 and fused bfloat16, and two of the latter."""
    (size,) = choices.sizes
    plain = {"kernels": "plain", "precision": "fp32"}
    fused = {"kernels": "auto", "precision": "bf16"}
    curves: dict[str, np.ndarray[Any, Any]] = {}
    for name, changes, chance in (
        ("plain fp32", plain, 0),
        ("fused bf16", fused, 0),
        ("fused bf16, other chance", fused, 1),
    ):
        settings = _settings(choices, data, folder / name.replace(" ", "-"), size)
        settings = settings.replace(minutes=None, steps=choices.compare_losses, **changes)
        curves[name] = _losses(settings, chance)
    one, other, chance_only = curves.values()
    record = {
        "size": size,
        "steps": choices.compare_losses,
        "batch": settings.batch_size,
        "steps_per_point": choices.log_every,
        "mean_difference_plain_fused": float(np.abs(one - other).mean()),
        "mean_signed_difference": float((other - one).mean()),
        "mean_difference_by_chance": float(np.abs(other - chance_only).mean()),
        "last_losses": {name: float(curve[-10:].mean()) for name, curve in curves.items()},
    }
    print(json.dumps(record, indent=2))
    record["curves"] = {name: curve.tolist() for name, curve in curves.items()}
    choices.out.mkdir(parents=True, exist_ok=True)
    file = choices.out / f"losses-{size}.json"
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    _draw(file)


def _losses(settings: TrainSettings, chance: int) -> np.ndarray[Any, Any]:
    """Train, and return the losses of all rows of metrics.

    Args:
        settings: How.
        chance: Changes dropout and candidates, but neither weights nor the order of the text.
    """
    plain = gradients._mixed
    with mock.patch.object(gradients, "_mixed", lambda *numbers: plain(chance, *numbers)):
        trainer.train(settings)
    assert settings.out is not None
    rows = read_metrics(settings.out / METRICS_FILE)
    return np.array([row["loss"] for row in rows if row["split"] == "train"])


def _draw(file: Path) -> None:
    """Draw the curves of a file that --compare-losses wrote, into the same folder."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no matplotlib here: draw elsewhere with --draw {file}")
        return
    record = json.loads(file.read_text("utf-8"))
    every = record["steps_per_point"]
    curves = {name: np.array(curve) for name, curve in record["curves"].items()}
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    for name, curve in curves.items():
        above.plot(every * (1 + np.arange(len(curve))), curve, label=name, linewidth=1)
    above.set_ylabel("training loss (nats)")
    above.legend()
    plain, fused, chance = curves.values()
    steps = every * (1 + np.arange(len(plain)))
    below.plot(steps, fused - plain, label="fused bf16 - plain fp32", linewidth=1)
    below.plot(steps, chance - fused, label="other dropout and candidates", linewidth=1, alpha=0.7)
    below.axhline(0, color="black", linewidth=0.5)
    below.set_ylabel("difference")
    below.set_xlabel(f"steps (means of {every})")
    below.legend()
    figure.savefig(file.with_suffix(".png"), dpi=120)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["small", "original"])
    parser.add_argument("--seconds", type=float, default=60, help="measured time of each size")
    parser.add_argument("--warm-up", type=float, default=20, help="seconds before")
    parser.add_argument("--data", type=Path, help="a prepared corpus instead of made-up text")
    parser.add_argument("--sentences", type=int, default=400_000, help="of the made-up text")
    parser.add_argument("--vocab-size", type=int, default=30_000, help="of the made-up text")
    parser.add_argument("--batch", type=int, help="streams; by default by size")
    parser.add_argument("--unroll", type=int, default=20)
    parser.add_argument("--samples", type=int, help="candidates that are drawn, if not the default")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--plain", action="store_true", help="PyTorch's operators, no kernels")
    parser.add_argument("--no-graphs", action="store_true", help="start every kernel by itself")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--peak", type=float, default=790, help="TFLOP/s that the GPU could do")
    parser.add_argument("--json", type=Path, help="write figures here, too")
    parser.add_argument("--profile", action="store_true", help="print the top kernels instead")
    parser.add_argument("--compare-losses", type=int, metavar="STEPS", help="plain and fused")
    parser.add_argument("--draw", type=Path, help="only draw what --compare-losses wrote")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for --compare-losses")
    return parser.parse_args()


if __name__ == "__main__":
    main()

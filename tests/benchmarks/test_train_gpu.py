"""The benchmark of training on a GPU runs, on a CPU as well."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import train_gpu
from elmo.config import ElmoConfig

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--sizes", "tiny", "--device", "cpu", "--sentences", "300", "--batch", "2", "--unroll", "4"]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.train_gpu", *TINY, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )


def test_figures_are_printed_and_written(tmp_path):
    file = tmp_path / "figures.json"
    done = run("--seconds", 3, "--warm-up", 0, "--log-every", 1, "--precision", "fp32",
               "--json", file)  # fmt: skip
    (found,) = json.loads(file.read_text())["figures"]
    assert f"{found['tokens_per_second']:,d} tokens/s" in done.stdout
    tokens = found["steps"] * found["batch"] * found["unroll"]
    assert found["tokens_per_second"] == pytest.approx(tokens / found["seconds"], rel=0.05)


def test_loss_curves_are_compared(tmp_path):
    run("--compare-losses", 4, "--log-every", 1, "--out", tmp_path)
    told = json.loads((tmp_path / "losses-tiny.json").read_text())
    assert told["mean_difference_plain_fused"] < told["mean_difference_by_chance"]
    assert (tmp_path / "losses-tiny.png").read_bytes().startswith(b"\x89PNG")


def test_operations_are_counted_as_by_hand():
    original = ElmoConfig.preset("original")
    # Two directions of two layers, 512 -> 4 x 4096 twice and 4096 -> 512, forth and twice back.
    layers = 3 * 2 * 2 * 2 * (2 * 512 * 4 * 4096 + 4096 * 512)
    assert train_gpu._flops(original, 0, 0.0) == layers
    softmax = 3 * 2 * 2 * 512 * 1000
    words = 3 * 2 * (2 * 2 * 2048 * 2048 + 2048 * 512)
    assert train_gpu._flops(original, 1000, 1.0) == layers + softmax + words

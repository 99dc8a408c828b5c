"""The benchmark of training on a GPU runs, on a CPU as well."""

import json
import sys

import pytest

from benchmarks import train_gpu
from elmo.config import ElmoConfig

TINY = ["--sizes", "tiny", "--device", "cpu", "--sentences", "300", "--batch", "2", "--unroll", "4"]


@pytest.fixture
def run(monkeypatch):
    """Run the script in this process with a tiny model."""

    def start(*arguments):
        monkeypatch.setattr(sys, "argv", ["train_gpu", *TINY, *map(str, arguments)])
        train_gpu.main()

    return start


def test_figures_are_printed_and_written(run, tmp_path, capsys):
    file = tmp_path / "figures.json"
    run("--seconds", 2, "--warm-up", 0, "--log-every", 1, "--precision", "fp32", "--json", file)
    (found,) = json.loads(file.read_text())["figures"]
    assert f"{found['tokens_per_second']:,d} tokens/s" in capsys.readouterr().out
    tokens = found["steps"] * found["batch"] * found["unroll"]
    assert found["tokens_per_second"] == pytest.approx(tokens / found["seconds"], rel=0.05)


def test_loss_curves_are_compared(run, tmp_path):
    run("--compare-losses", 4, "--log-every", 1, "--out", tmp_path)
    record = json.loads((tmp_path / "losses-tiny.json").read_text())
    assert record["mean_difference_plain_fused"] < record["mean_difference_by_chance"]
    assert (tmp_path / "losses-tiny.png").read_bytes().startswith(b"\x89PNG")


def test_operations_are_counted_as_by_hand():
    original = ElmoConfig.preset("original")
    # Two directions, two layers: 512 -> 4 x 4096 twice and 4096 -> 512, forward, twice backward.
    layers = 3 * 2 * 2 * 2 * (2 * 512 * 4 * 4096 + 4096 * 512)
    assert train_gpu._flops(original, 0, 0.0) == layers
    softmax = 3 * 2 * 2 * 512 * 1000
    words = 3 * 2 * (2 * 2 * 2048 * 2048 + 2048 * 512)
    assert train_gpu._flops(original, 1000, 1.0) == layers + softmax + words

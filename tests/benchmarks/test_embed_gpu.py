"""The benchmark of embedding on a GPU runs, on a CPU."""

import json
import re
import sys

import pytest
import torch

from benchmarks import embed_gpu
from elmo.errors import ConfigError


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the script in this process with a tiny model; returns what it prints."""

    def start(*flags):
        monkeypatch.setattr(sys, "argv", ["embed_gpu", "--quick", *flags])
        embed_gpu.main()
        return capsys.readouterr().out

    return start


def test_the_work_of_the_host_is_measured_without_a_gpu(run):
    assert re.fullmatch(r"tiny: the host alone \d+ ms, [\d,]+ words/s\n", run("--host-alone"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(run):
    with pytest.raises(ConfigError, match=r"device 'cuda' cannot be used: .*device='cpu'"):
        run()


def test_the_benchmark_of_embedding_on_a_gpu_runs(run, tmp_path):
    path = tmp_path / "report.json"
    flags = ["--device", "cpu", "--skip-peers", "--data", str(tmp_path), "--json", str(path)]
    printed = run(*flags)
    report = json.loads(path.read_text(encoding="utf-8"))
    (row,) = report["rows"]
    assert (row["size"], row["precision"], row["largest_error"]) == ("tiny", "fp32", 0)
    speeds = [row[name] for name in ("on_gpu", "in_host_memory", "host_alone", "latency_ms")]
    assert all(value > 0 for value in [*speeds, *row["by_batch"].values()])
    assert "host alone" in printed

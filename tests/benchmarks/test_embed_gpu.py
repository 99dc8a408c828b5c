"""The benchmark of embedding on a GPU runs, on a CPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = [sys.executable, "-m", "benchmarks.embed_gpu", "--quick"]


def start(command, environment):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )


def run(*flags):
    command = [*SCRIPT, *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = start(command, environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_work_of_the_host_is_measured_without_a_gpu():
    assert re.fullmatch(r"tiny: the host alone \d+ ms, [\d,]+ words/s\n", run("--host-alone"))


def test_a_missing_gpu_is_said_in_one_line():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = start(SCRIPT, environment)
    assert done.returncode == 2
    assert re.fullmatch(r"device 'cuda' cannot be used: [^\n]*device='cpu'[^\n]*\n", done.stderr)


def test_the_benchmark_of_embedding_on_a_gpu_runs(tmp_path):
    path = tmp_path / "report.json"
    flags = ["--device", "cpu", "--skip-peers", "--data", str(tmp_path), "--json", str(path)]
    printed = run(*flags)
    report = json.loads(path.read_text(encoding="utf-8"))
    (row,) = report["rows"]
    assert (row["size"], row["precision"], row["largest_error"]) == ("tiny", "fp32", 0)
    speeds = [row[name] for name in ("on_gpu", "in_host_memory", "host_alone", "latency_ms")]
    assert all(value > 0 for value in [*speeds, *row["by_batch"].values()])
    assert "host alone" in printed

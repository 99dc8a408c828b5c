"""The scripts in benchmarks/ run."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_benchmark_of_training_runs(tmp_path):
    command = [sys.executable, "-m", "benchmarks.train", "--preset", "tiny", "--steps", "20"]
    text = tmp_path / "text.txt"
    text.write_text("a small text for a small model .\n" * 400)
    done = subprocess.run(
        [*command, "--text", str(text)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^steps/s +\d", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^memory +[\d,]+ MB", done.stdout, flags=re.MULTILINE)

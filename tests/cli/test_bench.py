"""`elmo bench`, as users run it."""

import json
import os
import re

import numpy as np
import pytest

from elmo import ELMo
from elmo.cli import bench
from elmo.cli.main import main
from elmo.errors import ConfigError

QUICK = ["--device", "cpu", "--quiet"]


@pytest.fixture(autouse=True)
def little_text(monkeypatch):
    monkeypatch.setattr(bench, "_SENTENCES", {"cpu": 8})
    monkeypatch.setattr(bench, "_CHECKED", 4)
    monkeypatch.setattr(bench, "_LATENCY_RUNS", 1)
    monkeypatch.setattr("gc.collect", lambda: 0)  # of all tests' objects: slow


@pytest.fixture
def model_folder(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_the_table_shows_what_the_json_has(model_folder, tmp_path, capsys):
    path = tmp_path / "figures.json"
    flags = ["--precision", "fp32", "int8", "int8", "--json", str(path)]
    assert main(["bench", model_folder, *QUICK, *flags]) == 0
    captured = capsys.readouterr()
    assert "int8" not in captured.err.replace("note:", "")
    report = json.loads(path.read_text(encoding="utf-8"))
    assert captured.out.startswith(f"{report['model']} on {report['machine']}\n")
    rows = [re.split(r" {2,}", line) for line in captured.out.splitlines()[3:]]
    assert [row[0] for row in rows] == ["fp32 on cpu", "int8 on cpu"]
    for row, figures in zip(rows, report["figures"], strict=True):
        assert row[1:4] == [
            f"{figures['words_per_second']:,.0f}",
            f"{figures['milliseconds']:.1f}",
            f"{figures['milliseconds_known']:.1f}",
        ]
        assert row[6:] == [f"{figures['largest_error']:.1e}", f"{figures['least_cosine']:.5f}"]
    exact, rounded = report["figures"]
    assert exact["largest_error"] == 0 < rounded["largest_error"]
    assert exact["least_cosine"] == pytest.approx(1)
    assert 0.9 < rounded["least_cosine"] < 1


def test_all_precisions_of_the_device_are_measured_by_default(model_folder, monkeypatch, capsys):
    path = "elmo.backends.cpu.products.runs_natively"
    monkeypatch.setattr(path, lambda precision: precision in ("fp32", "fp16"))
    assert main(["bench", model_folder, "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert re.findall(r"^(\w+) on cpu", captured.out, re.MULTILINE) == ["fp32", "fp16"]
    assert f"{model_folder}: fp16 on cpu" in captured.err


def test_a_precision_that_a_device_refuses_is_left_out(model_folder, monkeypatch, capsys):
    load = ELMo.from_pretrained

    def refuse(name, *, precision="fp32", device=None):
        if precision == "bf16":
            raise ConfigError("no bf16 here")
        return load(name, precision=precision, device=device)

    monkeypatch.setattr(ELMo, "from_pretrained", refuse)
    assert main(["bench", model_folder, *QUICK, "--precision", "bf16", "fp16"]) == 0
    captured = capsys.readouterr()
    assert "note: left out: no bf16 here" in captured.err
    assert "fp16 on cpu" in captured.out
    assert main(["bench", model_folder, *QUICK, "--precision", "bf16"]) == 2
    assert "error: no bf16 here" in capsys.readouterr().err


def test_errors_are_those_that_were_put_in():
    exact = [np.random.default_rng(0).normal(size=(2, n, 8)) for n in (3, 1)]
    found = [vectors.copy() for vectors in exact]
    assert bench._errors(found, exact) == (0, pytest.approx(1))
    found[1][1] *= -1
    largest, least = bench._errors(found, exact)
    assert (largest, least) == (2 * np.abs(exact[1][1]).max(), pytest.approx(-1))


@pytest.mark.parametrize(
    ("flags", "code", "expected"),
    [
        (["./missing"], 2, "no such model"),
        (["--threads", "0"], 2, "--threads is 0, expected at least 1"),
        (["--threads", "100000"], 2, f"at most {4 * os.cpu_count()}"),
        (["--device", "tpu9"], 2, "tpu9"),
        (["--precision", "fp64"], 2, "--precision"),
        (["--json", "/dev/null/report.json"], 2, "cannot write /dev/null/report.json"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(flags, code, expected, capsys):
    assert main(["bench", *flags]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert "Traceback" not in captured.err

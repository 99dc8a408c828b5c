"""The functions of `elmo.tasks`: what the commands do, in Python."""

import dataclasses
import json
import subprocess
import sys

import pytest

from elmo import tasks
from elmo.cli.main import main
from elmo.errors import ConfigError
from task_data import settings

TINY = {"features": "random", "random_dim": 4, "hidden_size": 4, "epochs": 1, "min_steps": 0}


def test_a_task_is_trained_evaluated_and_used_in_python_as_by_commands(folder, tmp_path, capsys):
    data, cpu = folder / "texts.csv", ["--device", "cpu"]
    report = tasks.train(
        "classify", data=str(data), out=str(tmp_path / "head"), device="cpu", quiet=True, **TINY
    )
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    command = ["task", "train", "classify", "--data", str(data), *cpu, *flags, "--quiet"]
    assert main([*command, "--out", str(tmp_path / "other")]) == 0
    names = ("model.safetensors", "metrics.jsonl")
    one, other = ([(tmp_path / out / n).read_bytes() for n in names] for out in ("head", "other"))
    assert one == other
    assert "best by dev accuracy" in str(report)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.epochs = 2

    scores = tasks.evaluate(tmp_path / "head", data, device="cpu", quiet=True)
    capsys.readouterr()
    asked = ["task", "evaluate", str(tmp_path / "head"), "--data", str(data), *cpu, "--quiet"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == scores

    (found,) = tasks.predict(str(tmp_path / "head"), "the cup is red", device="cpu")
    assert main(["task", "predict", str(tmp_path / "head"), "the cup is red", *cpu]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_a_report_shows_its_curve_in_a_notebook(folder, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    chosen = settings(folder, "texts.csv", tmp_path, features="glove", epochs=1)
    assert tasks.train("classify", chosen)._repr_png_().startswith(b"\x89PNG")
    (tmp_path / "curve.png").unlink()
    assert tasks.train("classify", chosen, resume=True)._repr_png_() is None


def test_tasks_are_there_after_importing_the_package():
    code = "import elmo, sys; assert elmo.tasks.train; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_fields_replace_those_of_settings(folder, tmp_path):
    chosen = settings(folder, "texts.csv", tmp_path, features="glove", epochs=1)
    assert tasks.train("classify", settings=chosen, train_share=0.5).n_train == 36
    with pytest.raises(TypeError, match="learn_rate"):
        tasks.train("classify", settings=chosen, learn_rate=0.5)
    with pytest.raises(ConfigError, match="epochs is 0, expected more than 0"):
        tasks.train("classify", settings=chosen, epochs=0)

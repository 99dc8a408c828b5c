"""The commands of tasks: train, evaluate, predict."""

import io
import json
import subprocess
import sys

import pytest

from elmo import tasks
from elmo.cli.main import main
from elmo.tasks.run.training import train_task
from task_data import settings

FLAGS = ["--features", "random", "--random-dim", "12", "--hidden-size", "8", "--epochs", "1"]
FLAGS += ["--min-steps", "1", "--device", "cpu", "--dropout", "0", "--quiet"]


def entailment():
    pairs = [("A man eats.", "A man eats.", "same"), ("A dog runs.", "A man eats.", "other")]
    keys = ("sentence1", "sentence2", "gold_label")
    return "\n".join(json.dumps(dict(zip(keys, pair, strict=True))) for pair in pairs * 3)


def questions():
    context = "Ann sang. Bo left early."
    answers = [{"text": "Bo", "answer_start": context.index("Bo")}]
    qas = [{"id": str(k), "question": "Who left?", "answers": answers} for k in range(4)]
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]})


def documents():
    rows = [("Ann", "(0)"), ("saw", "-"), ("Bo", "(1)"), (".", "-"), ("Ann", "(0)"), ("left", "-")]
    lines = [f"x 0 {k} {word} {mark}" for k, (word, mark) in enumerate(rows)]
    document = "\n".join(["#begin document (x); part 000", *lines, "#end document", ""])
    return document * 3


CASES = {
    "nli": ("d.jsonl", entailment, "A man eats.\tA dog runs.", "label"),
    "qa": ("d.json", questions, "Who sang?\tAnn sang, and Bo left.", "answer"),
    "coref": ("d.conll", documents, "Ann saw Bo. Ann left.", "clusters"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_task_is_trained_measured_and_used(name, tmp_path, capsys):
    file, content, text, key = CASES[name]
    data, head = tmp_path / file, str(tmp_path / "head")
    data.write_text(content())
    given = ["--data", str(data), "--dev", str(data), "--out", head, *FLAGS]
    assert main(["task", "train", name, *given]) == 0
    capsys.readouterr()

    shown = tmp_path / "predictions.jsonl"
    measure = ["--data", str(data), "--device", "cpu", "--predictions", str(shown)]
    assert main(["task", "evaluate", head, "--json", "--quiet", *measure]) == 0
    scores = json.loads(capsys.readouterr().out)
    metric = tasks.load(head, device="cpu").task.metric
    result = json.loads((tmp_path / "head" / "result.json").read_text())
    assert scores[metric] == pytest.approx(result["dev"][metric], abs=1e-3)
    assert all(key in json.loads(line) for line in shown.read_text().splitlines())

    assert main(["task", "predict", head, text, "--device", "cpu"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed[key] is not None
    (found,) = tasks.load(head, device="cpu")([text])
    assert found[key] == printed[key]


@pytest.fixture(scope="module")
def heads(folder, tmp_path_factory):
    """Trained heads of two tasks."""
    out = tmp_path_factory.mktemp("heads")
    train_task("classify", settings(folder, "texts.csv", out / "classify", features="glove+elmo"))
    train_task("tag", settings(folder, "tags.conll", out / "tag", features="glove"))
    return out


def test_predict_reads_texts_files_and_standard_input(heads, tmp_path, capsys, monkeypatch):
    folder = str(heads / "classify")
    assert main(["task", "predict", folder, "the cup is black", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "black"
    lines = tmp_path / "lines.txt"
    lines.write_text("the cup is red\nthe hat is blue\n")
    out = tmp_path / "out.jsonl"
    assert main(["task", "predict", folder, str(lines), "--out", str(out), "--device", "cpu"]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["input"], r["label"]) for r in records] == [(0, "red"), (1, "blue")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cup is green\n")))
    capsys.readouterr()
    assert main(["task", "predict", folder, "-", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "green"
    assert main(["task", "predict", folder, str(tmp_path / "none.txt")]) == 2
    assert main(["task", "predict", str(tmp_path), "text"]) == 2
    assert "no trained head" in capsys.readouterr().err


def test_evaluate_prints_what_training_reported(folder, heads, tmp_path, capsys):
    command = ["task", "evaluate", str(heads / "tag"), "--data", str(folder / "tags.conll")]
    command += ["--device", "cpu", "--quiet", "--cache-dir", str(folder / "cache")]
    predictions = tmp_path / "predictions.jsonl"
    assert main([*command, "--json", "--predictions", str(predictions)]) == 0
    result = json.loads((heads / "tag" / "result.json").read_text())
    assert json.loads(capsys.readouterr().out) == result["dev"]
    assert len(predictions.read_text().splitlines()) == result["n_dev"]
    assert main(command) == 0
    assert "f1" in capsys.readouterr().out


def test_settings_come_from_a_file_and_flags_win(folder, tmp_path, capsys):
    config = tmp_path / "run.toml"
    lines = [
        f'data = "{folder / "texts.csv"}"',
        f'vectors = "{folder / "vectors.txt"}"',
        'features = "glove"',
        "epochs = 7",
        "hidden-size = 8",
    ]
    config.write_text("\n".join(lines))
    command = ["task", "train", "classify", "--config", str(config), "--epochs", "1", "--quiet"]
    assert main([*command, "--min-steps", "0", "--out", str(tmp_path / "out")]) == 0
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (run["epochs"], run["hidden_size"], run["features"]) == (1, 8, "glove")
    assert "best by dev accuracy" in capsys.readouterr().err


def test_what_is_not_there_is_refused_before_pytorch_is_imported(tmp_path):
    (tmp_path / "data.csv").write_text("text,label\na,b\n")
    out, data = ["--out", str(tmp_path / "out")], ["--data", str(tmp_path / "data.csv")]
    train = ["task", "train", "classify", *out]
    commands = [
        ["task", "predict", str(tmp_path / "none"), "text"],
        ["task", "evaluate", str(tmp_path / "none"), *data],
        [*train, "--data", str(tmp_path / "none.csv")],
        [*train, *data, "--dev", str(tmp_path / "none.csv")],
        [*train, *data, "--model", str(tmp_path / "none")],
    ]
    code = f"import sys; from elmo.cli.main import main; codes = [main(c) for c in {commands}]\n"
    code += "print(codes, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2, 2, 2, 2, 2] False"
    assert done.stderr.count("none") >= 5

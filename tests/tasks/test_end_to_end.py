"""Entailment, questions and coreference from the command line: train, measure, predict."""

import json

import pytest

from elmo import tasks
from elmo.cli.main import main

FLAGS = ["--features", "random", "--random-dim", "12", "--hidden", "8", "--epochs", "1"]
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

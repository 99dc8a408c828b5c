"""Errors of precisions: the command, the measures."""

import json

import numpy as np
import pytest

from benchmarks.common.command import run
from benchmarks.exactness.__main__ import exactness
from benchmarks.exactness.measure import Mode, layer_errors


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """A treebank in which a word's last letter is its part of speech."""
    folder = tmp_path_factory.mktemp("treebank")
    tags = {"a": "NOUN", "o": "VERB", "e": "ADJ"}
    stems = [left + right for left in "bcdfg" for right in "aeiou"]
    for part, some in (("train", stems[::2] + stems[1::4]), ("test", stems[3::4])):
        lines = []
        for stem in some:
            for number, (letter, tag) in enumerate(tags.items(), start=1):
                lines.append(f"{number}\t{stem}l{letter}\t_\t{tag}" + "\t_" * 6)
            lines.append("")
        (folder / f"made-up-{part}.conllu").write_text("\n".join(lines) + "\n")
    return folder


def test_precision_reports_errors_and_probes(tmp_path, model_folder, treebank, capsys):
    paths = [tmp_path / "precision.json", tmp_path / "precision.md"]
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat .\n\nHello\n")
    flags = ["--text", str(text), "--treebank", str(treebank), "--quiet", "--device", "cpu"]
    flags += ["--json", str(paths[0]), "--markdown", str(paths[1])]
    assert run(exactness, [str(model_folder), *flags]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert paths[1].read_text(encoding="utf-8") == captured.out
    report = json.loads(paths[0].read_text(encoding="utf-8"))
    assert (report["n_sentences"], report["n_words"], report["n_tags"]) == (2, 8, 3)
    modes = list(dict.fromkeys(row["mode"]["precision"] for row in report["errors"]))
    assert modes[0] == "fp32"
    assert "bf16" in modes
    errors = {(row["mode"]["precision"], row["layer"]): row for row in report["errors"]}
    for layer in range(3):
        exact, rounded = errors["fp32", layer], errors["bf16", layer]
        assert exact["largest"] < 1e-5 < rounded["largest"]
        assert exact["mean"] <= exact["largest"]
        assert exact["least_cosine"] == pytest.approx(1)
        assert f"| fp32 | {layer} | {exact['largest']:.1e} |" in captured.out
    scores = {(row["mode"]["precision"], row["layer"]): row for row in report["probes"]}
    first = scores["fp32", 0]
    assert first["changed"] == 0
    assert first["accuracy_of_fp32_probe"] == first["accuracy_of_own_probe"] > 0.9
    assert scores.keys() == errors.keys()
    again = tmp_path / "again.json"
    flags = ["--text", str(text), "--treebank", str(treebank), "--quiet", "--device", "cpu"]
    assert run(exactness, [str(model_folder), *flags, "--json", str(again)]) == 0
    repeated = json.loads(again.read_text(encoding="utf-8"))
    assert (repeated["errors"], repeated["probes"]) == (report["errors"], report["probes"])


def test_precision_takes_its_sentences_from_the_treebank_if_there_is_no_text(
    model_folder, treebank, capsys
):
    flags = ["--treebank", str(treebank), "--precision", "fp32", "--words", "4", "--quiet"]
    assert run(exactness, [str(model_folder), *flags, "--device", "cpu"]) == 0
    assert "on 2 sentences, 6 words" in capsys.readouterr().out


def test_an_empty_text_is_refused(tmp_path, model_folder, capsys):
    (tmp_path / "empty.txt").write_text("\n\n")
    flags = ["--text", str(tmp_path / "empty.txt"), "--quiet", "--device", "cpu"]
    assert run(exactness, [str(model_folder), *flags]) == 2
    assert "has no words" in capsys.readouterr().err


def test_errors_of_layers_are_those_that_were_put_in():
    rng = np.random.default_rng(0)
    expected = [rng.normal(size=(2, n, 8)) for n in (3, 1)]
    found = [vectors.copy() for vectors in expected]
    found[0][1, 2, 5] += 0.5
    found[1][1] *= -1
    first, second = layer_errors(Mode("bf16", "cpu"), found, expected)
    assert (first.layer, first.largest, first.mean, first.relative) == (0, 0, 0, 0)
    assert first.least_cosine == pytest.approx(1)
    assert second.largest == pytest.approx(max(0.5, 2 * np.abs(expected[1][1]).max()))
    total = 0.5 + 2 * np.abs(expected[1][1]).sum()
    assert second.mean == pytest.approx(total / 32)
    assert second.least_cosine == pytest.approx(-1)
    assert (str(first.mode), str(Mode("bf16", "cuda:0"))) == ("bf16", "bf16 on cuda:0")

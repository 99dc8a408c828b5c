"""elmo similar, neighbors and analyze as users meet them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmo import ELMo, ElmoConfig, random_bilm
from elmo.cli.main import main
from elmo.text.made_up import make_sentences


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    ELMo(random_bilm(ElmoConfig.preset("tiny")), device="cpu").save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [" ".join(words[:12]) for words in make_sentences(150, seed=4)]
    lines += ["the bank of the river", "a bank lends money", "my bank closed", "only once"]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def elmo(capsys, *arguments):
    """Run a command; gives its exit code, what it showed and what it said."""
    code = main([*map(str, arguments)])
    return code, *capsys.readouterr()


def test_similar_makes_an_index_and_uses_it_again(capsys, tmp_path, model_folder, text):
    index = tmp_path / "words.index"
    flags = ("--corpus", text, "--min-count", 2, "--index", index)
    code, shown, said = elmo(capsys, "similar", "bank", "--model", model_folder, *flags)
    assert code == 0
    assert shown.startswith("similar to bank")
    assert "words of 32 values" in said
    assert elmo(capsys, "similar", "bank", "--index", index, "--min-count", 2)[1] == shown
    code, shown, _ = elmo(capsys, "similar", "--index", index, "bank", "the", "--format", "json")
    assert [entry["word"] for entry in json.loads(shown)] == ["bank", "the"]
    code, _, said = elmo(capsys, "similar", "bank", *flags, "--layer", 0)
    assert (code, "--overwrite" in said) == (2, True)
    done = elmo(
        capsys, "similar", "bank", "--model", model_folder, *flags, "--layer", 0, "--overwrite"
    )
    assert done[0] == 0
    assert "words of 16 values" in done[2]


def test_a_word_may_follow_the_corpus(capsys, model_folder, text):
    flags = ("--model", model_folder, "--corpus", text, "--min-count", "1", "--quiet")
    assert elmo(capsys, "similar", *flags, "bank")[1].startswith("similar to bank")


def test_similar_says_what_it_needs(capsys, tmp_path, model_folder, text):
    assert elmo(capsys, "similar")[0] == 2
    code, _, said = elmo(capsys, "similar", "bank", "--model", model_folder)
    assert (code, "--vocabulary FILE" in said) == (2, True)
    code, _, said = elmo(capsys, "similar", "x", "--corpus", tmp_path / "no", "--quiet")
    assert (code, "no such text file" in said) == (2, True)
    flags = ("--model", model_folder, "--corpus", text, "--quiet")
    code, _, said = elmo(capsys, "similar", "unheard-of", *flags)
    assert (code, "'unheard-of' never occurs" in said) == (2, True)
    (tmp_path / "words.txt").write_text("cat\ncar\ndog\n")
    words = ("--vocabulary", tmp_path / "words.txt", "--model", model_folder)
    code, shown, _ = elmo(capsys, "similar", "cat", *words)
    assert code == 0
    assert len(shown.splitlines()) == 3
    code, _, said = elmo(capsys, "similar", "cat", *words, "--layer", 1)
    assert (code, "no context" in said) == (2, True)


def test_a_word_that_no_list_has_is_spelled(capsys, tmp_path, model_folder):
    (tmp_path / "words.txt").write_text("cat\ncar\ndog\n")
    words = ("--vocabulary", tmp_path / "words.txt", "--model", model_folder, "--quiet")
    code, shown, _ = elmo(capsys, "similar", "catt", *words)
    assert code == 0
    assert {line.split()[0] for line in shown.splitlines()[1:]} == {"cat", "car", "dog"}
    index = tmp_path / "kept.index"
    code, _, said = elmo(capsys, "similar", "catt", *words, "--index", index)
    assert (code, "'catt' never occurs" in said) == (2, True)


def test_neighbors_of_two_sentences_in_one_pass(capsys, model_folder, text):
    flags = ("--model", model_folder, "--corpus", text, "--quiet", "--top", 2)
    sentences = ("The [bank] of the river .", "my [bank] [closed]")
    code, shown, _ = elmo(capsys, "neighbors", *sentences, *flags)
    assert code == 0
    assert shown.count("in context:") == 3
    code, shown, _ = elmo(capsys, "neighbors", sentences[0], *flags, "--format", "json")
    assert len(json.loads(shown)[0]["in_context"]) == 2
    assert elmo(capsys, "neighbors", "nothing marked", *flags)[0] == 2
    assert elmo(capsys, "neighbors", *flags)[0] == 2


def test_text_may_come_through_a_pipe(model_folder, text):
    command = ["analyze", "contextuality", "--corpus", "-", "--model", model_folder, "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "elmo", *command, "--resamples", "5"],
        stdin=Path(text).open(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "154 sentences" in done.stdout


def test_contextuality_writes_a_report(capsys, tmp_path, model_folder, text):
    pytest.importorskip("matplotlib")
    flags = ("--model", model_folder, "--corpus", text, "--quiet", "--resamples", 20)
    out = ("--out", tmp_path / "report")
    code, shown, said = elmo(capsys, "analyze", "contextuality", *flags, *out)
    assert code == 0
    assert "self-similarity" in shown
    assert "were requested" in shown
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names == {f"contextuality{suffix}" for suffix in (".json", ".md", ".png", ".svg")}
    report = json.loads((tmp_path / "report" / "contextuality.json").read_text())
    assert len(report["layers"]) == 3
    code, _, said = elmo(capsys, "analyze", "contextuality", *flags, *out)
    assert (code, "--overwrite" in said) == (2, True)
    code, shown, _ = elmo(capsys, "analyze", "contextuality", *flags, "--json")
    assert json.loads(shown) == report
    code, _, said = elmo(capsys, "analyze", "contextuality", *flags, "--max-sentences", 2)
    assert (code, "too small" in said) == (2, True)


def test_senses_write_a_page_into_the_folder_where_one_is(
    capsys, tmp_path, monkeypatch, model_folder, text
):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    flags = ("--model", model_folder, "--corpus", text, "--quiet", "--projection", "pca")
    code, shown, _ = elmo(capsys, "analyze", "senses", "bank", *flags)
    assert code == 0
    assert "3 occurrences of bank" in shown
    assert (tmp_path / "senses-bank.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "senses-bank.png").is_file()
    for word, told in (("unheard/../of", "never occurs"), ("only", "occurs once")):
        code, _, said = elmo(capsys, "analyze", "senses", word, *flags)
        assert (code, told in said) == (2, True)
    assert {path.suffix for path in tmp_path.iterdir()} == {".html", ".json", ".md", ".png", ".svg"}


def test_correlation_needs_files_and_shows_every_layer(capsys, tmp_path, model_folder):
    (tmp_path / "pairs.tsv").write_text("cat\tdog\t5\ncat\tcar\t1\ndog\tcar\t2\n")
    flags = ("--model", model_folder, "--resamples", 10, "--quiet")
    code, shown, _ = elmo(capsys, "analyze", "correlation", tmp_path / "pairs.tsv", *flags)
    assert code == 0
    assert shown.count("in isolation") >= 4
    assert elmo(capsys, "analyze", "correlation", *flags)[0] == 2


def test_layers_say_what_is_missing_before_a_model_is_loaded(capsys, tmp_path):
    nowhere = ("--model", tmp_path / "no-model", "--data", tmp_path)
    code, _, said = elmo(capsys, "analyze", "layers", *nowhere, "--tasks", "pos")
    assert (code, "treebank" in said) == (2, True)
    wordnet = ("--wordnet", tmp_path)
    code, _, said = elmo(capsys, "analyze", "layers", *nowhere, "--tasks", "wsd", *wordnet)
    assert (code, "wordnet-base" in said) == (2, True)


def test_layers_without_data_say_what_they_want_and_where_it_is(capsys):
    code, shown, said = elmo(capsys, "analyze", "layers", "--model", "no-such-model")
    assert (code, shown) == (2, "")
    for home in ("UniversalDependencies", "wsdeval", "mcl-wic", "wordnet-base"):
        assert home in said
    assert "--data FOLDER" in said
    assert len(said.splitlines()) <= 6


def test_raw_chinese_needs_no_flag(capsys, tmp_path):
    pytest.importorskip("rjieba")
    corpus = tmp_path / "zh.txt"
    lines = ["我们今天去北京大学看书。", "他昨天去北京大学吃饭。", "她说北京大学很好。"]
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = ("--model", "small-zh", "--corpus", corpus, "--quiet", "--device", "cpu")
    asked = ("neighbors", "我喜欢[北京大学]。", *flags, "--same-word", "--format", "json")
    code, shown, said = elmo(capsys, *asked)
    assert (code, said) == (0, "")
    (found,) = json.loads(shown)
    assert found["sentence"] == ["我", "喜欢", "北京大学", "。"]
    assert found["n_occurrences"] == 3
    code, _, said = elmo(capsys, *asked, "--tokenizer", "whitespace")
    assert "Chinese characters without spaces" in said


def test_without_the_extras_there_is_a_report_but_no_picture(tmp_path, model_folder, text):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    code = (
        "import sys, importlib.util as u; plain = u.find_spec\n"
        "hidden = ('matplotlib', 'sklearn', 'faiss')\n"
        "sys.modules.update(dict.fromkeys(hidden))\n"
        "u.find_spec = lambda name, *rest: None if name in hidden else plain(name, *rest)\n"
        "from elmo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    flags = ("--model", model_folder, "--corpus", text, "--quiet")
    done = run("analyze", "contextuality", *flags, "--out", "out", "--resamples", 5)
    assert done.returncode == 0, done.stderr
    assert "pip install matplotlib" in done.stderr
    assert sorted(p.suffix for p in (tmp_path / "out").iterdir()) == [".json", ".md"]
    done = run("analyze", "senses", "bank", *flags)
    assert (done.returncode, "'analysis' extra" in done.stderr) == (2, True)
    done = run("similar", "bank", *flags, "--search", "faiss")
    assert (done.returncode, "'search' extra" in done.stderr) == (2, True)

"""elmo perplexity, score and substitutes as users meet them."""

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from elmo.cli.main import main
from elmo.lm.scoring import LanguageModelScorer
from lm.test_scoring import SMALL, language_model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model with an output layer, and its folder."""
    folder = tmp_path_factory.mktemp("small")
    _, checkpoint = language_model(folder, SMALL)
    return LanguageModelScorer(checkpoint, device="cpu"), folder


def elmo(*arguments, stdin=None):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "elmo", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat .\n\nunheard-of 河 the the .\nÖl\n", encoding="utf-8")
    return path


def test_perplexity_is_printed_for_people_and_for_programs(small, text):
    expected = small[0].perplexity([line.split() for line in text.read_text("utf-8").splitlines()])
    done = elmo("perplexity", small[1], text, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert f"forward     {expected.forward:.3f}" in done.stdout
    assert "unknown     1 (10.00% of the words, counted as <UNK>)" in done.stdout
    done = elmo("perplexity", "--model", small[1], text, "--json", "--quiet", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts == {
        **dataclasses.asdict(expected),
        "mean": pytest.approx(math.sqrt(expected.forward * expected.backward)),
        "unknown_rate": 0.1,
        "tokenizer": "whitespace",
    }


def test_perplexity_without_unknown_words(small, text, capsys):
    assert main(["perplexity", str(small[1]), str(text), "--skip-unknown", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_predictions"] == 12
    assert facts["counts_unknown"] is False


def test_scores_come_as_a_table_or_as_json_from_standard_input(small):
    lines = "the cat\n\nunheard-of\n"
    done = elmo("score", small[1], "--device", "cpu", stdin=lines)
    assert done.returncode == 0, done.stderr
    assert "unheard-of (as <UNK>)" in done.stdout
    assert done.stdout.count("</S>") == 3
    done = elmo("score", small[1], "-", "--json", "--unit", "bits", "--quiet", stdin=lines)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expected = small[0].score([["the", "cat"], [], ["unheard-of"]], unit="bits")
    assert found == [{"sentence": n, **one.to_dict()} for n, one in enumerate(expected, start=1)]


def test_substitutes_are_listed_for_every_marked_word(small, capsys):
    sentence = "the [cat] sat [dog] ."
    assert main(["substitutes", str(small[1]), sentence, "--json", "-k", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["word"], one["position"]) for one in found] == [("cat", 1), ("dog", 3)]
    expected = small[0].substitutes(["the", "cat", "sat", "dog", "."], 1, k=2)
    assert found[0]["substitutes"] == [entry._asdict() for entry in expected.words]
    assert main(["substitutes", "--model", str(small[1]), sentence]) == 0
    shown = capsys.readouterr().out
    assert "in the place of 'cat', word 2:" in shown
    assert "<- the word itself" in shown
    assert "<- it is unknown" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["perplexity"], "needs TEXT"),
        (["perplexity", "{model}", "no-such-file"], "no such text file"),
        (["perplexity", "{model}", "{empty}"], "has no words"),
        (["perplexity", "{model}", "{blank}"], "has no words"),
        (["perplexity", "{model}", "{binary}"], "line 1: byte 0xff"),
        (["perplexity", "--model", "{model}", "{model}", "{blank}"], "named twice"),
        (["perplexity", "{model}", "{blank}", "--encoding", "klingon"], "no encoding"),
        (["score", "no-such-model", "{blank}"], "no such model"),
        (["score", "random-tiny", "{blank}"], "elmo finetune"),
        (["substitutes", "{model}", "the cat"], "is marked"),
        (["substitutes", "{model}", "the [cat]", "--top", "0"], "k is 0"),
        (["substitutes"], "needs SENTENCE"),
    ],
)
@pytest.mark.filterwarnings("ignore::elmo.errors.ElmoWarning")
def test_mistakes_are_reported_without_a_traceback(small, tmp_path, capsys, arguments, message):
    files = {"empty": b"", "blank": b"\n \n\n", "binary": b"\xff\xfe\x00\x01\n"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    places = {name: tmp_path / name for name in files} | {"model": small[1]}
    assert main([argument.format(**places) for argument in arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


def test_an_empty_text_scores_nothing(small, tmp_path, capsys):
    (tmp_path / "empty").write_text("")
    assert main(["score", str(small[1]), str(tmp_path / "empty"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_word_of_ten_thousand_characters_is_cut_and_told(small, tmp_path, capsys):
    (tmp_path / "long").write_text("the " + "x" * 10_000 + " sat\n")
    assert main(["score", str(small[1]), str(tmp_path / "long"), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert max(map(len, shown.out.splitlines())) < 120
    assert "1 word was longer" in shown.err
    found = small[0].score([["the", "x" * 10_000, "sat"]])[0]
    assert np.isfinite(found.joint).all()


def test_the_help_of_these_commands_comes_without_torch():
    code = (
        "import sys; from elmo.cli.main import main\n"
        "for command in ('perplexity', 'score', 'substitutes'):\n"
        "    assert main([command, '--help']) == 0\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("written", ["<UNK>", "<unk>", "<Unk>"])
def test_a_written_unknown_word_is_unknown_however_it_is_spelled(small, tmp_path, capsys, written):
    scored = small[0].score([["the", written, "sat"]])[0]
    assert scored.known == (True, False, True)
    assert scored.words[1] == written
    assert small[0].substitutes(["the", written, "sat"], 1).rank is None
    shown = []
    for word in (written, "<UNK>"):
        (tmp_path / "text.txt").write_text(f"the {word} sat .\nthe cat sat {word} .\n")
        assert main(["perplexity", str(small[1]), str(tmp_path / "text.txt"), "--quiet"]) == 0
        shown.append(capsys.readouterr().out)
    assert "unknown     2 (22.22%" in shown[0]
    assert shown[0] == shown[1]


def raw_text(language):
    if language == "en":
        return "Isn't this strange? He said so, didn't he?\n" * 5
    return "我们今天去北京大学看书。他说很好。你呢。\n" * 12


@pytest.mark.parametrize(("model", "tokenizer"), [("small-en", "english"), ("small-zh", "chinese")])
def test_raw_text_is_split_by_the_tokenizer_of_the_model(model, tokenizer, tmp_path, capsys):
    """Without a flag the result is that of the flag; as white space it is another one, and told."""
    pytest.importorskip("rjieba" if tokenizer == "chinese" else "numpy")
    text = tmp_path / "raw.txt"
    text.write_text(raw_text(model[-2:]), encoding="utf-8")

    def measured(*flags):
        arguments = ["perplexity", model, str(text), *flags, "--json", "--quiet", "--device", "cpu"]
        assert main(arguments) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out), shown.err

    own, silence = measured()
    assert own["tokenizer"] == tokenizer
    assert (own, silence) == measured("--tokenizer", tokenizer)
    assert silence == ""
    other, told = measured("--tokenizer", "whitespace")
    assert other["n_words"] < own["n_words"]
    assert "looks raw" in told
    assert "--tokenizer model" in told


@pytest.mark.parametrize("model", ["small-en", "small-zh"])
def test_split_text_is_reported_if_it_is_split_again(model, tmp_path, capsys):
    words = {
        "small-en": "Is n't this strange ? He said so , did n't he ?\n",
        "small-zh": "我们 今天 去 北京大学 看书 , 他 说 很 好 。\n",
    }
    (tmp_path / "split.txt").write_text(words[model] * 10, encoding="utf-8")
    arguments = ["score", model, str(tmp_path / "split.txt"), "--quiet", "--device", "cpu"]
    assert main(arguments) == 0
    assert "--tokenizer whitespace" in capsys.readouterr().err
    assert main([*arguments, "--tokenizer", "whitespace"]) == 0
    assert capsys.readouterr().err == ""


def test_substitutes_take_a_raw_sentence(capsys):
    arguments = ["substitutes", "small-en", "He isn't at the [bank].", "--json", "--device", "cpu"]
    assert main(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["position"] == 5  # He is n't at the bank .
    assert main([*arguments, "--tokenizer", "whitespace"]) == 0
    (other,) = json.loads(capsys.readouterr().out)
    assert other["position"] == 4


@pytest.mark.parametrize(
    "command",
    [
        ["perplexity", "nosuch", "text.txt"],
        ["score", "nosuch", "text.txt"],
        ["substitutes", "nosuch", "The [bank] ."],
        ["similar", "bank", "--model", "nosuch"],
        ["neighbors", "The [bank] .", "--model", "nosuch", "--corpus", "text.txt"],
        ["analyze", "contextuality", "--model", "nosuch", "--corpus", "text.txt"],
    ],
)
def test_an_unknown_model_is_refused_before_pytorch_is_imported(tmp_path, command):
    (tmp_path / "text.txt").write_text("A cat sat .\n", encoding="utf-8")
    code = (
        "import sys; sys.modules['torch'] = None; from elmo.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert "nosuch" in done.stderr
    assert "Traceback" not in done.stderr

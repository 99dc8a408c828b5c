"""The benchmarks run: deterministic text, the same random weights, valid reports."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    """Lets tests import the modules of the benchmarks, which are scripts and no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def corpus(benchmarks):
    import corpus

    return corpus


def test_corpus_is_deterministic(corpus):
    first = corpus.make_sentences(50, seed=3)
    corpus.vocabulary.cache_clear()
    assert corpus.make_sentences(50, seed=3) == first
    assert corpus.make_sentences(50, seed=4) != first


def test_corpus_is_the_same_on_every_machine(corpus):
    # Were this to change, recorded speeds could no longer be compared.
    assert corpus.make_sentence(4) == ["aosb", "stoi", "os", "os"]


def test_corpus_has_the_lengths_of_real_sentences(corpus):
    sentences = corpus.make_sentences(4000)
    lengths = [len(sentence) for sentence in sentences]
    assert min(lengths) >= corpus.SHORTEST
    assert max(lengths) <= corpus.LONGEST
    assert np.mean(lengths) == pytest.approx(21, abs=1)
    assert corpus.count_words(sentences) == sum(lengths)
    assert len(corpus.make_sentence(20000)) == 20000


def test_corpus_obeys_zipf(corpus):
    words = corpus.vocabulary()
    assert len(set(words)) == len(words) == corpus.N_WORDS
    text = corpus.make_sentence(20000)
    # The second word is half as frequent as the first, and most words of the language are missing.
    assert text.count(words[0]) == pytest.approx(2 * text.count(words[1]), rel=0.2)
    assert len(set(text)) < corpus.N_WORDS / 4
    letters = [np.mean([len(word) for word in some]) for some in (text, words)]
    assert 3 < letters[0] < letters[1] < 9  # frequent words are short


def test_spread_and_ratios_are_taken_round_by_round(benchmarks):
    from timing import Spread, ratios

    # The machine was ten times slower in the second round; the ratio does not notice.
    assert ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0)


def test_contenders_take_turns(benchmarks):
    from timing import Contender, interleave

    calls = []
    contenders = [
        Contender("a", lambda: calls.append("a"), lambda: calls.append("ready")),
        Contender("b", lambda: calls.append("b")),
    ]
    seconds = interleave(contenders, 2)
    assert calls == ["ready", "a", "b"] * 2
    assert [len(seconds[name]) for name in "ab"] == [2, 2]


def test_missing_peer_says_how_to_install_it(benchmarks, monkeypatch):
    import peers

    monkeypatch.delitem(sys.modules, "allennlp", raising=False)
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(peers.MissingPeerError, match=re.escape(peers.HOW_TO_INSTALL)):
        peers.load_elmo_class()


def test_quick_run_without_peers_writes_a_valid_report(tmp_path):
    path = tmp_path / "report.json"
    command = [sys.executable, str(BENCHMARKS / "embed.py"), "--quick", "--skip-peers"]
    command += ["--sentences", "8", "--threads", "1", "--precision", "fp32", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["machine"]["threads"] == 1
    (size,) = report["sizes"]
    assert (size["size"], size["sentences"]) == ("tiny", 8)
    assert [row["name"].split(",")[0] for row in size["batch"]] == ["ours fp32"] * 2
    for row in size["batch"] + size["latency"] + report["linearity"]:
        assert all(seconds > 0 for seconds in row["seconds"])
        assert row["name"] in done.stdout
    assert 0 < size["memory"][0]["loaded_mb"] <= size["memory"][0]["peak_mb"]


def test_the_benchmark_of_training_runs(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "train.py"), "--preset", "tiny", "--steps", "20"]
    text = tmp_path / "text.txt"
    text.write_text("a small text for a small model .\n" * 400)
    done = subprocess.run(
        [*command, "--text", str(text)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^steps/s +\d", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^memory +[\d,]+ MB", done.stdout, flags=re.MULTILINE)

"""The benchmarks of analysis and of preparing text run."""

import argparse

import pytest

from benchmarks import analyze, prepare
from elmo.text.made_up import count_words, make_sentences


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in make_sentences(100)))
    return path


def test_contextuality_is_measured_beside_embedding(model_folder, text):
    choices = argparse.Namespace(
        model=str(model_folder), device="cpu", tokenizer="whitespace", sentences=100
    )
    row = analyze.measure_contextual(choices, text)
    assert (row.sentences, row.words) == (100, count_words(make_sentences(100)))
    assert 0 < row.embedding_seconds <= row.seconds


def test_similar_words_are_measured_on_an_index(tmp_path, monkeypatch):
    monkeypatch.setattr(analyze, "RUNS", 1)
    row = analyze.measure_similar(200, 8, tmp_path)
    assert (row.words, row.dim) == (200, 8)
    assert min(row.first_seconds, row.seconds) >= 0


def test_preparing_is_measured(text):
    row = prepare.measure(text, "whitespace", workers=1)
    assert row.words == count_words(make_sentences(100))
    assert row.words_per_second > 0

"""Corpora are read again and again, and embedded as single calls would."""

import numpy as np
import pytest

from elmo.analysis.corpus import Corpus
from elmo.analysis.settings import CorpusSettings
from elmo.errors import InputError
from elmo.text.made_up import make_sentences


@pytest.fixture(scope="module")
def sentences():
    made = [words[:12] for words in make_sentences(120, seed=1)]
    return made + made[:10]


@pytest.fixture(scope="module")
def corpus_file(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(" ".join(words) for words in sentences) + "\n\n")
    return path


def test_a_corpus_can_be_read_again_and_cut(corpus_file, sentences):
    corpus = Corpus(CorpusSettings(corpus=(corpus_file,), max_sentences=7))
    assert list(corpus) == list(corpus) == sentences[:7]
    assert sum(corpus.count_words().values()) == sum(map(len, sentences[:7]))


def test_windows_hold_the_vectors_that_encode_tokens_gives(tiny_elmo, corpus_file, sentences):
    corpus = Corpus(CorpusSettings(corpus=(corpus_file, corpus_file)))
    windows = list(corpus.windows(tiny_elmo, "all"))
    assert [words for w in windows for words in w.sentences] == sentences * 2
    expected = np.concatenate(tiny_elmo.encode_tokens(sentences * 2), axis=1)
    np.testing.assert_array_equal(np.concatenate([w.vectors for w in windows], axis=1), expected)
    names, ids = windows[0].numbered
    sentence, place = windows[0].positions
    words = [windows[0].sentences[s][p] for s, p in zip(sentence, place, strict=True)]
    assert [names[i] for i in ids] == words


def test_case_can_be_ignored_without_changing_what_the_model_reads(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("The cat\nthe CAT\n")
    corpus = Corpus(CorpusSettings(corpus=(path,), ignore_case=True))
    assert corpus.count_words() == {"the": 2, "cat": 2}
    (window,) = corpus.windows(tiny_elmo, 0)
    assert window.numbered[0] == ["the", "cat"]
    assert not np.array_equal(window.vectors[0], window.vectors[2])


def test_a_corpus_needs_a_file():
    with pytest.raises(InputError, match="give corpus"):
        Corpus(CorpusSettings())

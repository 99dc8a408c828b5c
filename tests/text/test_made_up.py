"""Made-up text has the statistics of real text, and is the same everywhere."""

import numpy as np
import pytest

from elmo.text import made_up


def test_text_is_deterministic():
    first = made_up.make_sentences(50, seed=3)
    made_up.vocabulary.cache_clear()
    assert made_up.make_sentences(50, seed=3) == first
    assert made_up.make_sentences(50, seed=4) != first


def test_text_is_the_same_on_every_machine():
    # Were this to change, recorded speeds could no longer be compared.
    assert made_up.make_sentence(4) == ["aosb", "stoi", "os", "os"]


def test_text_has_the_lengths_of_real_sentences():
    sentences = made_up.make_sentences(4000)
    lengths = [len(sentence) for sentence in sentences]
    assert min(lengths) >= made_up.SHORTEST
    assert max(lengths) <= made_up.LONGEST
    assert np.mean(lengths) == pytest.approx(21, abs=1)
    assert made_up.count_words(sentences) == sum(lengths)
    assert len(made_up.make_sentence(20000)) == 20000


def test_text_obeys_zipf():
    words = made_up.vocabulary()
    assert len(set(words)) == len(words) == made_up.N_WORDS
    text = made_up.make_sentence(20000)
    # The second word is half as frequent as the first, and most words of the language are missing.
    assert text.count(words[0]) == pytest.approx(2 * text.count(words[1]), rel=0.2)
    assert len(set(text)) < made_up.N_WORDS / 4
    letters = [np.mean([len(word) for word in some]) for some in (text, words)]
    assert 3 < letters[0] < letters[1] < 9  # frequent words are short

"""Mean vectors of words over a corpus, and context-free ones."""

import numpy as np
import pytest

from elmo.analysis.words.word_means import (
    frequent_words,
    index_of_corpus,
    index_of_words,
    mean_vectors,
)
from elmo.errors import InputError


@pytest.mark.parametrize("layers", [0, 1, "top", "mix", "all"])
def test_means_are_those_of_all_occurrences(tiny_elmo, corpus, sentences, layers):
    words = list(frequent_words(corpus, 3))
    means, counts = mean_vectors(tiny_elmo, corpus, words, layers)
    embedded = tiny_elmo.encode_tokens(sentences, layers=layers)
    for row, word in enumerate(words[:15]):
        own = [
            vectors[..., place, :]
            for own, vectors in zip(sentences, embedded, strict=True)
            for place, other in enumerate(own)
            if other == word
        ]
        assert counts[row] == len(own)
        np.testing.assert_allclose(means[..., row, :], np.mean(own, axis=0), atol=1e-5)


def test_a_word_that_never_occurs_has_no_mean(tiny_elmo, corpus):
    means, counts = mean_vectors(tiny_elmo, corpus, ["never-seen"], "top")
    assert counts.tolist() == [0]
    assert not means.any()


def test_the_context_free_index_needs_no_context(tiny_elmo, corpus):
    by_corpus = index_of_corpus(tiny_elmo, corpus, 0, min_count=3)
    by_list = index_of_words(tiny_elmo, by_corpus.words, "a list")
    np.testing.assert_array_equal(by_corpus.vectors, by_list.vectors)
    means, _ = mean_vectors(tiny_elmo, corpus, by_corpus.words, 0)
    half = means[:, : means.shape[1] // 2]  # layer 0 is the same vector twice
    np.testing.assert_allclose(by_corpus.vectors, half, atol=1e-5)


def test_words_come_by_frequency_and_limits_hold(corpus):
    counts = corpus.count_words()
    words = frequent_words(corpus, 2, max_words=5)
    assert list(words) == sorted(counts, key=lambda word: (-counts[word], word))[:5]
    with pytest.raises(InputError, match="no word occurs 100000 times"):
        frequent_words(corpus, 100_000)

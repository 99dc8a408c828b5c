"""The cache of context-free vectors in host memory: always the same, whatever it holds."""

import signal
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import TokenFile
from elmo.backends.base import HostWordCache
from elmo.weights.token_file import write_token_file

WORDS = ("the", "cat", "sat", "on", "Öl", "🤗", "")


class Counter:
    """A stand-in for the character encoder whose results name the word, and that counts."""

    def __init__(self):
        self.computed = []

    def __call__(self, words):
        self.computed += words
        return torch.tensor([[len(word), sum(word.encode()), 1.0] for word in words])


def host_cache(compute, capacity, file=None):
    return HostWordCache(SimpleNamespace(compute=compute, file=file), 3, capacity)


def distinct_words(max_size=5):
    return st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=max_size)


@settings(max_examples=60)
@given(lookups=st.lists(distinct_words(), max_size=8), capacity=st.integers(0, 5))
def test_vectors_are_the_same_whatever_is_cached(lookups, capacity):
    vectors = host_cache(Counter(), capacity)
    for words in lookups:
        found = vectors.lookup(words)
        assert torch.equal(found, Counter()(words).reshape(-1, 3))
        assert len(vectors) <= capacity


@settings(max_examples=60)
@given(lookups=st.lists(distinct_words(), max_size=8), capacity=st.integers(1, 5))
def test_the_words_that_were_least_recently_used_are_dropped_first(lookups, capacity):
    counter = Counter()
    vectors = host_cache(counter, capacity)
    model = OrderedDict()
    for words in lookups:
        counter.computed.clear()
        vectors.lookup(words)
        assert counter.computed == [word for word in words if word not in model]
        for word in words:
            if word in model:
                model.move_to_end(word)
        for word in counter.computed:
            model[word] = True
            if len(model) > capacity:
                model.popitem(last=False)
        assert len(vectors) == len(model)


def test_a_cached_word_is_not_computed_again():
    counter = Counter()
    vectors = host_cache(counter, 10)
    vectors.lookup(["a", "b"])
    vectors.lookup(["b", "c", "a"])
    assert counter.computed == ["a", "b", "c"]
    vectors.clear()
    assert len(vectors) == 0
    vectors.lookup(["a"])
    assert counter.computed == ["a", "b", "c", "a"]


class NoRoom:
    """A table that cannot be written."""

    shape = (4, 3)

    def __setitem__(self, place, rows):
        raise MemoryError


def test_vectors_that_cannot_be_cached_are_not_taken_for_others():
    vectors = host_cache(Counter(), 4)
    vectors.lookup(["the", "cat", "sat"])
    table, vectors._table = vectors._table, NoRoom()
    with pytest.raises(MemoryError):
        vectors.lookup(["on", "Öl"])
    vectors._table = table
    for _ in range(2):
        assert torch.equal(vectors.lookup(list(WORDS)), Counter()(WORDS))


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_waits_until_all_is_cached():
    def interrupted(words):
        signal.raise_signal(signal.SIGINT)
        return Counter()(words)

    vectors = host_cache(interrupted, 4)
    with pytest.raises(KeyboardInterrupt):
        vectors.lookup(["the", "cat"])
    assert torch.equal(vectors.lookup(["cat", "the"]), Counter()(["cat", "the"]))


def test_changing_a_result_does_not_change_the_memory():
    vectors = host_cache(Counter(), 10)
    expected = vectors.lookup(["a"]).clone()
    vectors.lookup(["a"]).zero_()
    assert torch.equal(vectors.lookup(["a"]), expected)


def test_a_word_on_file_is_not_computed(tmp_path):
    write_token_file(tmp_path / "tokens.h5", ["the", "cat"], [Counter()(["the", "cat"])], "f")
    counter = Counter()
    found = host_cache(counter, 0, TokenFile(tmp_path / "tokens.h5")).lookup(["cat", "sat", "the"])
    assert counter.computed == ["sat"]
    assert torch.equal(found, Counter()(["cat", "sat", "the"]))


class Ids:
    """Words of more than three letters are cut."""

    def are_cut(self, words):
        return np.array([len(word) > 3 for word in words], dtype=bool)


def test_a_batch_has_each_word_once_in_whatever_sentences_are_taken():
    source = SimpleNamespace(compute=Counter(), file=None, ids=Ids(), device=torch.device("cpu"))
    cache = HostWordCache(source, 3, 10)
    sentences = [["a", "long"], [], ["a", "b", "a"]]
    ((first, window),) = cache.windows(sentences, max_rows=1)
    assert first == 0
    assert window.sizes == [2, 0, 3]
    assert window.subset([2, 0]).sizes == [3, 2]
    assert window.subset(slice(1, 3)).sizes == [0, 3]
    vectors, tokens, n_cut = window.subset([2, 0]).words()
    assert torch.equal(vectors, Counter()(["a", "b", "long"]))
    assert tokens.tolist() == [0, 1, 0, 0, 2]
    assert n_cut == 1

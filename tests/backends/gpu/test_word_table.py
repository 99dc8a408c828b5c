"""Word vectors that stay on a device: always the same, whatever is remembered."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import ElmoConfig, TokenFile
from elmo.backends.gpu import word_table
from elmo.backends.gpu.word_table import (
    DeviceWordCache,
    SentencesReadAhead,
    _renumber,
    _renumber_runs,
    renumber_in_numpy,
)
from elmo.errors import InputError
from elmo.weights.token_file import write_token_file

CONFIG = ElmoConfig.preset("tiny", dim=8, projection_dim=3)


class Counter:
    """A stand-in for the character encoder whose results name the word, and that counts."""

    def __init__(self):
        self.computed = []

    def __call__(self, words):
        self.computed += words
        return torch.tensor([[len(word), sum(word.encode()), 1.0] for word in words])


def are_long(words):
    return np.array([len(word) > 3 for word in words], dtype=bool)


def remember(compute, capacity, file=None):
    ids, cpu = SimpleNamespace(are_cut=are_long), torch.device("cpu")
    source = SimpleNamespace(compute=compute, ids=ids, file=file, device=cpu)
    return DeviceWordCache(source, CONFIG, "fp32", capacity)


def batches_of_words():
    return st.lists(
        st.lists(st.sampled_from(["a", "b", "cc", "d", "eeee"]), max_size=6), max_size=4
    )


@settings(max_examples=60)
@given(batches=st.lists(batches_of_words(), max_size=5), capacity=st.integers(0, 6))
def test_vectors_are_the_same_whatever_is_remembered(batches, capacity):
    vectors = remember(Counter(), capacity)
    for sentences in batches:
        words = [word for sentence in sentences for word in sentence]
        found = vectors.read(sentences)
        assert len(found.vectors) == len(set(words))
        expected = Counter()(words).reshape(-1, 3)
        assert torch.equal(found.vectors[found.tokens], expected)
        assert found.n_cut == words.count("eeee")
        assert len(vectors) <= capacity
        assert torch.equal(vectors.lookup(words), expected)


def test_only_new_words_are_computed():
    counter = Counter()
    vectors = remember(counter, 10)
    vectors.read([["a", "b", "a"], [], ["c"]])
    vectors.read([["c", "d"]])
    assert counter.computed == ["a", "b", "c", "d"]
    vectors.clear()
    assert len(vectors) == 0
    vectors.read([["a"]])
    assert counter.computed[4:] == ["a"]


def test_the_words_that_were_not_asked_for_longest_are_forgotten_first():
    counter = Counter()
    vectors = remember(counter, 3)
    for sentence in (["a"], ["b"], ["c"], ["a"], ["d"], ["a", "c", "d"]):
        vectors.read([sentence])
    assert counter.computed == ["a", "b", "c", "d"]  # d took the place of b
    vectors.read([["b"]])
    assert counter.computed[4:] == ["b"]
    # Words of the batch at hand stay: of three new ones, none finds a place beside three known.
    vectors.clear()
    vectors.read([["a", "b", "c"]])
    vectors.read([["a", "b", "c", "x", "y", "z"]])
    counter.computed.clear()
    vectors.read([["a", "b", "c"]])
    assert counter.computed == []


def test_a_failure_leaves_no_word_without_its_vector():
    fails = True

    def compute(words):
        if fails:
            raise torch.OutOfMemoryError("no memory")
        return Counter()(words)

    vectors = remember(compute, 10)
    with pytest.raises(torch.OutOfMemoryError):
        vectors.read([["a", "b"]])
    assert len(vectors) == 0
    fails = False
    assert torch.equal(vectors.lookup(["b", "a"]), Counter()(["b", "a"]))


@pytest.mark.parametrize("capacity", [2, 3, 10])
def test_a_failure_at_any_step_leaves_every_word_with_its_own_vector(monkeypatch, capacity):
    """The memory of a GPU may be at its end whenever something is sent there."""
    for steps in range(10):
        vectors = remember(Counter(), capacity)
        vectors.read([["a", "b", "cc"]])
        left = iter(range(steps))

        def send_or_fail(array, device, left=left):
            if next(left, None) is None:
                raise torch.OutOfMemoryError("no memory")
            return torch.from_numpy(array)

        with monkeypatch.context() as patch:
            patch.setattr(word_table, "send", send_or_fail)
            try:
                vectors.read([["cc", "d", "eeee"]])
                failed = False
            except torch.OutOfMemoryError:
                failed = True
        for words in (["d", "a"], ["eeee", "b", "cc"], ["a", "d"]):
            assert torch.equal(vectors.lookup(words), Counter()(words))
        if not failed:
            break
    assert 1 < steps < 9


def test_a_failure_between_finding_and_reading_leaves_no_word_without_its_vector(monkeypatch):
    vectors = remember(Counter(), 10)
    vectors.read([["a"]])

    def fail(*_):
        raise MemoryError

    for step in ("_renumber", "are_cut"):
        with monkeypatch.context() as patch:
            owner = word_table if step == "_renumber" else vectors.source.ids
            patch.setattr(owner, step, fail)
            with pytest.raises(MemoryError):
                vectors.read([["a", "b", "cc"]])
        words = ["cc", "a", "d", "b"]
        assert torch.equal(vectors.lookup(words), Counter()(words))
        vectors.clear()


def test_words_on_file_are_read_and_the_others_computed(tmp_path):
    write_token_file(tmp_path / "tokens.h5", ["a", "b"], [Counter()(["a", "b"])], "f")
    counter = Counter()
    vectors = remember(counter, 10, TokenFile(tmp_path / "tokens.h5"))
    assert torch.equal(vectors.lookup(["b", "c", "a"]), Counter()(["b", "c", "a"]))
    assert torch.equal(vectors.lookup(["a"]), Counter()(["a"]))
    assert counter.computed == ["c"]


@given(numbers=st.lists(st.integers(0, 19), max_size=30), limit=st.sampled_from([20, 10_000]))
def test_renumbering_is_that_of_numpy(numbers, limit):
    given_numbers = np.array(numbers, dtype=np.int64)
    distinct, places = _renumber(given_numbers, limit)
    expected, inverse = np.unique(given_numbers, return_inverse=True)
    assert np.array_equal(distinct, expected)
    assert np.array_equal(places, inverse)


@given(
    numbers=st.lists(st.integers(0, 19), min_size=1, max_size=30),
    limit=st.sampled_from([20, 10_000]),
    data=st.data(),
)
def test_runs_are_renumbered_in_the_same_way_everywhere(numbers, limit, data):
    starts = data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=6))
    sizes = [data.draw(st.integers(0, len(numbers) - start)) for start in starts]
    arrays = [np.array(part, dtype=np.int64) for part in (numbers, starts, sizes)]
    chosen = [n for a, k in zip(starts, sizes, strict=True) for n in numbers[a : a + k]]
    expected, inverse = np.unique(np.array(chosen, dtype=np.int64), return_inverse=True)
    for renumber in (_renumber_runs, renumber_in_numpy):
        distinct, places = renumber(*arrays, limit)
        assert np.array_equal(distinct, expected)
        assert np.array_equal(places, inverse)


@pytest.mark.parametrize(
    ("numbers", "starts", "sizes"),
    [([3, 20], [0], [2]), ([-30, 3], [0], [2]), ([3], [1], [1]), ([3], [0], [3])],
)
def test_what_is_out_of_bounds_is_refused_everywhere(numbers, starts, sizes):
    arrays = [np.array(part, dtype=np.int64) for part in (numbers, starts, sizes)]
    for renumber in (_renumber_runs, renumber_in_numpy):
        with pytest.raises(IndexError):
            renumber(*arrays, 8)


@pytest.mark.parametrize("built", [True, False], ids=["built", "in Python"])
@settings(max_examples=60)
@given(batches=st.lists(batches_of_words(), max_size=5))
def test_words_get_the_numbers_of_the_reference(built, batches):
    with pytest.MonkeyPatch.context() as patch:
        if not built:
            patch.setattr(word_table, "find_words", lambda *_: None)
        slots, reference = word_table._Slots(7), word_table._Slots(7)
        for sentences in batches:
            assert np.array_equal(slots.find(sentences), reference.find_in_python(sentences))
            assert list(slots.items()) == list(reference.items())
            assert slots.pop_new() == reference.pop_new()


class Word(str):
    """As those of NumPy: a word, but not a plain string."""


@pytest.mark.parametrize("sentences", [[["a", Word("b")], ["b"]], [("a", "b"), ["b"]]])
def test_unusual_words_and_lists_are_looked_up_as_the_usual_ones(sentences):
    slots = word_table._Slots(7)
    assert slots.find(sentences).tolist() == [7, 8, 8]
    assert slots.pop_new() == ["a", "b"]


# --- a whole call ahead ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    sentences=batches_of_words(),
    before=batches_of_words(),
    capacity=st.integers(0, 6),
    data=st.data(),
)
def test_words_read_ahead_are_those_of_the_sentences(sentences, before, capacity, data):
    vectors = remember(Counter(), capacity)
    vectors.read(before)
    ahead = vectors.read_ahead(sentences)
    assert ahead.sizes == list(map(len, sentences))
    fits = len({word for sentence in sentences for word in sentence}) <= capacity
    assert isinstance(ahead, SentencesReadAhead) == fits
    if not fits:
        return
    vectors.clear()  # another thread may push words out before the batches come
    numbers = data.draw(st.permutations(range(len(sentences))))
    part = data.draw(st.slices(len(sentences)))
    chosen = ahead.subset(numbers).subset(part)
    words = [word for number in numbers[part] for word in sentences[number]]
    found = chosen.words()
    assert chosen.sizes == [len(sentences[number]) for number in numbers[part]]
    assert len(found.vectors) == len(set(words))
    assert torch.equal(found.vectors[found.tokens], Counter()(words).reshape(-1, 3))
    assert found.n_cut == words.count("eeee")


def test_each_word_of_a_call_is_computed_once():
    counter = Counter()
    vectors = remember(counter, 10)
    ahead = vectors.read_ahead([["a", "b"], ["b", "c"]])
    for number in (1, 0):
        ahead.subset([number]).words()
    assert counter.computed == ["a", "b", "c"]


@pytest.mark.parametrize("bad", [1, None, b"b", ["b"]])
def test_what_is_no_word_is_named_with_its_place_and_nothing_is_remembered(bad):
    vectors = remember(Counter(), 10)
    for read in (vectors.read_ahead, vectors.read):
        with pytest.raises(InputError, match=r"sentence 1, word 2 is .* expected a string"):
            read([["x"], ["y", "z", bad]])
    assert len(vectors) == 0
    assert len(vectors.read([["x", "y"]]).vectors) == 2

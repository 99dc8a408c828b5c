"""An index of words answers exactly, saved or not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.analysis.words.word_index import WordIndex
from elmo.errors import InputError, MissingFileError


def direct_cosines(index, row, remove_mean):
    rows = index.vectors.astype(np.float64)
    if remove_mean:
        rows = rows - rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows[row]


@given(st.integers(0, 39), st.integers(1, 50), st.booleans(), st.floats(-5, 5))
def test_similar_words_are_those_with_the_highest_cosines(
    random_index, row, top, remove_mean, shift
):
    index = random_index(shift=shift)
    found = index.similar(f"w{row}", top, remove_mean=remove_mean)
    cosines = direct_cosines(index, row, remove_mean)
    order = [k for k in np.argsort(-cosines) if k != row][:top]
    assert [entry.word for entry in found] == [f"w{k}" for k in order]
    np.testing.assert_allclose([entry.cosine for entry in found], cosines[order], atol=1e-4)


@pytest.mark.parametrize("remove_mean", [False, True])
def test_a_saved_index_answers_the_same(random_index, tmp_path, remove_mean):
    index = random_index()
    index.save(tmp_path / "words.index")
    again = WordIndex.load(tmp_path / "words.index")
    assert again.similar("w3", 5, remove_mean=remove_mean) == index.similar(
        "w3", 5, remove_mean=remove_mean
    )
    assert again.facts["min_count"] == 1
    index.save(tmp_path / "again.index")
    assert (tmp_path / "words.index").read_bytes() == (tmp_path / "again.index").read_bytes()


def test_a_damaged_index_is_reported(random_index, tmp_path):
    path = tmp_path / "words.index"
    random_index().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(InputError, match="damaged"):
        WordIndex.load(path)
    for wrong in (b'\\"dim\\": 7', b'\\"dam\\": 6', b'\\"dim\\": x'):
        path.write_bytes(whole.replace(b'\\"dim\\": 6', wrong))
        with pytest.raises(InputError, match="do not fit together"):
            WordIndex.load(path)
    path.write_bytes(b"no index at all")
    with pytest.raises(InputError):
        WordIndex.load(path)
    with pytest.raises(MissingFileError, match="no such index"):
        WordIndex.load(tmp_path / "other")


def test_counts_and_stop_words_limit_what_is_listed(random_index):
    index = random_index()
    allowed = index.allowed(frozenset({"w5", "w6"}), min_count=20, max_count=38)
    listed = {entry.word for entry in index.similar("w0", 100, allowed=allowed)}
    assert listed == {f"w{k}" for k in range(2, 21)} - {"w5", "w6"}
    nobody = index.allowed(frozenset(), max_count=0)
    assert index.similar("w0", 3, allowed=nobody) == []


def test_an_unknown_word_is_reported_with_other_spellings(random_index):
    with pytest.raises(InputError, match=r"'W3' never occurs.*there is 'w3'"):
        random_index().similar("W3")


def test_vectors_of_zeros_give_no_nan():
    index = WordIndex(["a", "b", "c"], np.ones(3, int), np.zeros((3, 4), np.float32), {})
    for remove_mean in (False, True):
        assert [e.cosine for e in index.similar("a", remove_mean=remove_mean)] == [0.0, 0.0]

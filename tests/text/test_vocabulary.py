"""Lists of words and their files."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import InputError, MissingFileError
from elmo.text.vocabulary import Vocabulary, WordMapper
from strategies import VOCABULARY


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("vocabulary") / "vocab.txt"


# A file has one word a line, without white space around it, and one line that means nothing.
written_words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(
    lambda word: word == word.strip() and word != "!!!MAXTERMID"
)


@given(drawn=st.lists(written_words, max_size=8))
def test_a_written_vocabulary_reads_back_the_same(path, drawn):
    Vocabulary(drawn).write(path)
    assert Vocabulary.read(path).words == tuple(drawn)


def test_lines_are_stripped_and_the_count_line_of_the_billion_words_is_skipped(path):
    path.write_bytes(b"<S>\r\n</S> \n<UNK>\n!!!MAXTERMID\nthe\n")
    assert Vocabulary.read(path).words == ("<S>", "</S>", "<UNK>", "the")


def test_only_a_line_feed_ends_a_word(path):
    path.write_text("a\u2028b\nc\u0085d\n", encoding="utf-8")
    assert Vocabulary.read(path).words == ("a\u2028b", "c\u0085d")


def test_a_gzipped_vocabulary_is_read(tmp_path):
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(gzip.compress("<S>\nÖl\n".encode()))
    assert Vocabulary.read(path).words == ("<S>", "Öl")


def test_a_word_that_stands_twice_keeps_its_last_place():
    vocabulary = Vocabulary(["a", "b", "a"])
    assert vocabulary.place("a") == 2
    assert len(vocabulary) == 3
    assert list(vocabulary) == ["a", "b", "a"]


def test_a_word_that_is_not_listed_has_no_place():
    vocabulary = Vocabulary(["a"])
    assert vocabulary.place("b") is None
    assert "a" in vocabulary
    assert "b" not in vocabulary


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"gone\.txt"):
        Vocabulary.read(tmp_path / "gone.txt")


def test_a_file_in_another_encoding_is_named(path):
    path.write_bytes("Öl\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"vocab.txt is not valid UTF-8"):
        Vocabulary.read(path)


@pytest.mark.parametrize("missing", ["<S>", "</S>", "<UNK>"])
def test_a_missing_special_word_is_named(missing):
    words = [word for word in VOCABULARY if word != missing]
    with pytest.raises(InputError, match=f"here.txt: the vocabulary lacks {missing};"):
        Vocabulary(words).require_specials("here.txt")
    with pytest.raises(InputError, match=missing):
        WordMapper(Vocabulary(words))


def test_words_are_looked_up_one_above_their_place_and_unknown_ones_as_unknown():
    mapper = WordMapper(Vocabulary(VOCABULARY))
    assert mapper.rows(["<S>", "cat", "never seen", "<UNK>"]).tolist() == [1, 5, 3, 3]
    assert mapper.rows([]).shape == (0,)
    assert not mapper.are_cut(["x" * 1000]).any()


def test_a_batch_of_words_is_padded_with_zeros():
    ids = WordMapper(Vocabulary(VOCABULARY)).batch([["the", "cat"], [], ["the"]])
    assert torch.equal(ids, torch.tensor([[4, 5], [0, 0], [4, 0]]))


def test_a_damaged_vocabulary_is_told(tmp_path):
    (tmp_path / "vocab.txt.gz").write_bytes(gzip.compress(b"<S>\n" * 100)[:-10])
    with pytest.raises(InputError, match="damaged or cut short"):
        Vocabulary.read(tmp_path / "vocab.txt.gz")


def test_a_byte_order_mark_is_not_part_of_the_first_word(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf<S>\n")
    assert Vocabulary.read(tmp_path / "vocab.txt").words == ("<S>",)


def test_a_pipe_is_as_good_as_a_file_and_a_folder_is_not(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        written = pool.submit((tmp_path / "pipe").write_text, "one\ntwo\n")
        assert Vocabulary.read(tmp_path / "pipe").words == ("one", "two")
        written.result()
    with pytest.raises(InputError, match="is a folder, expected a vocabulary file"):
        Vocabulary.read(tmp_path)

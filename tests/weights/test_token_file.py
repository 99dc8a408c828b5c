"""Token files: precomputed context-free vectors, the same as the computed ones."""

import h5py
import numpy as np
import pytest

from elmo import ELMo, ElmoError, TokenFile
from elmo.errors import (
    InputError,
    MissingFileError,
    OutputError,
    OutputExistsError,
    WeightsError,
)
from elmo.text.vocabulary import Vocabulary
from elmo.weights.token_file import write_token_file
from strategies import seeded_bilm

WORDS = ("the", "cat", "sat", "on", "Öl", "🤗", "")


@pytest.fixture
def written(tmp_path, tiny_elmo):
    path = tmp_path / "tokens.h5"
    write_token_file(path, WORDS, [tiny_elmo.word_vectors(WORDS)], tiny_elmo.fingerprint)
    return path


def classic_file(path, elmo, words=WORDS, **layout):
    """Write what bilm-tf writes: rows, and not a word about whose they are."""
    with h5py.File(path, "w") as file:
        file.create_dataset("embedding", data=elmo.word_vectors(words), **layout)
    return path


def test_a_written_file_reads_back_with_its_words_and_its_model(written, tiny_elmo):
    file = TokenFile(written)
    assert file.vocabulary.words == WORDS
    assert file.fingerprint == tiny_elmo.fingerprint
    assert file.dim == tiny_elmo.config.projection_dim
    assert np.array_equal(file.vectors(np.arange(len(WORDS))), tiny_elmo.word_vectors(WORDS))
    assert file.row("cat") == 1
    assert file.row("dog") is None


def test_vectors_are_written_block_by_block(tmp_path):
    words = [f"word{n}" for n in range(25)]
    rows = np.random.default_rng(1).random((25, 3), np.float32)
    blocks = (rows[start : start + 10] for start in (0, 10, 20))
    write_token_file(tmp_path / "tokens.h5", words, blocks, "f")
    file = TokenFile(tmp_path / "tokens.h5")
    assert np.array_equal(file.vectors(np.arange(25)), rows)


def test_vectors_from_a_file_are_the_computed_ones(written, tiny_bilm, tiny_elmo):
    with_file = ELMo(tiny_bilm, token_file=TokenFile(written))
    sentences = [["the", "cat", "sat"], ["a", "dog", "on", "🤗", ""]]
    for vectors, expected in zip(
        with_file.encode_tokens(sentences), tiny_elmo.encode_tokens(sentences), strict=True
    ):
        assert np.array_equal(vectors, expected)


def test_words_that_are_not_on_file_are_computed_from_characters(tmp_path, tiny_bilm, tiny_elmo):
    rows = tiny_elmo.word_vectors(["the", "cat"])
    path = tmp_path / "tokens.h5"
    with h5py.File(path, "w") as file:
        # Off by a little, so that it shows which vectors come from the file.
        file.create_dataset("embedding", data=rows + 1e-4)
    elmo = ELMo(tiny_bilm, token_file=TokenFile(path, Vocabulary(["the", "cat"])))
    found = elmo.word_vectors(["cat", "dog", "the"])
    expected = tiny_elmo.word_vectors(["cat", "dog", "the"])
    np.testing.assert_allclose(found - expected, [[1e-4] * 16, [0] * 16, [1e-4] * 16], atol=1e-6)


@pytest.mark.parametrize(
    "layout",
    [{}, {"chunks": (2, 16)}, {"chunks": (3, 5), "compression": "gzip"}, {"dtype": "float64"}],
)
def test_classic_files_are_read_whatever_their_layout(tmp_path, tiny_elmo, layout):
    path = classic_file(tmp_path / "tokens.h5", tiny_elmo, **layout)
    file = TokenFile(path, Vocabulary(WORDS))
    rows = np.array([3, 0, 3])
    found = file.vectors(rows)
    assert found.dtype == np.float32
    assert np.array_equal(found, tiny_elmo.word_vectors(WORDS)[rows])
    assert file.fingerprint is None


def test_a_classic_file_needs_its_vocabulary(tmp_path, tiny_elmo):
    path = classic_file(tmp_path / "tokens.h5", tiny_elmo)
    with pytest.raises(ElmoError, match=r"which words its rows are.*vocabulary"):
        TokenFile(path)


def test_a_vocabulary_of_another_length_is_refused(tmp_path, tiny_elmo):
    path = classic_file(tmp_path / "tokens.h5", tiny_elmo)
    with pytest.raises(WeightsError, match="7 rows, but the vocabulary has 2 words"):
        TokenFile(path, Vocabulary(["a", "b"]))


def test_a_file_of_another_model_is_known_by_its_fingerprint(written, tiny_config):
    other = seeded_bilm(tiny_config, seed=9)
    with pytest.raises(WeightsError, match="was made with another model"):
        ELMo(other, token_file=TokenFile(written))


def test_a_classic_file_of_another_model_is_known_by_its_vectors(tmp_path, tiny_config, tiny_elmo):
    path = classic_file(tmp_path / "tokens.h5", tiny_elmo)
    other = seeded_bilm(tiny_config, seed=9)
    with pytest.raises(WeightsError, match="does not fit the model"):
        ELMo(other, token_file=TokenFile(path, Vocabulary(WORDS)))


def test_a_file_with_nan_is_refused(tmp_path, tiny_bilm, tiny_elmo):
    path = classic_file(tmp_path / "tokens.h5", tiny_elmo)
    with h5py.File(path, "r+") as file:
        file["embedding"][0, 0] = np.nan
    with pytest.raises(WeightsError, match="differ by up to nan"):
        ELMo(tiny_bilm, token_file=TokenFile(path, Vocabulary(WORDS)))


def test_a_classic_file_with_its_words_in_another_order_is_known_by_its_vectors(
    tmp_path, tiny_bilm, tiny_elmo
):
    path = classic_file(tmp_path / "tokens.h5", tiny_elmo)
    with pytest.raises(WeightsError, match="another vocabulary"):
        ELMo(tiny_bilm, token_file=TokenFile(path, Vocabulary(reversed(WORDS))))


def test_vectors_of_another_width_are_refused(tmp_path, tiny_bilm):
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file.create_dataset("embedding", data=np.zeros((7, 8), np.float32))
    with pytest.raises(WeightsError, match="vectors of 8 values, the model has 16"):
        ELMo(tiny_bilm, token_file=TokenFile(tmp_path / "tokens.h5", Vocabulary(WORDS)))


def test_a_path_will_do_where_the_words_are_inside(tmp_path, tiny_elmo, written):
    tiny_elmo.save_pretrained(tmp_path / "model")
    elmo = ELMo.from_pretrained(tmp_path / "model", token_file=written)
    assert np.array_equal(elmo.word_vectors(WORDS), tiny_elmo.word_vectors(WORDS))


def test_a_file_that_is_no_token_file_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match="no such token file"):
        TokenFile(tmp_path / "gone.h5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(WeightsError, match="not a readable HDF5 file"):
        TokenFile(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.create_dataset("vectors", data=np.zeros((2, 3)))
    with pytest.raises(WeightsError, match="no dataset 'embedding'"):
        TokenFile(tmp_path / "other.h5")
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file.create_dataset("embedding", data=np.zeros(6))
    with pytest.raises(WeightsError, match="expected two axes"):
        TokenFile(tmp_path / "flat.h5", Vocabulary("abcdef"))


def test_an_existing_file_is_kept_unless_overwriting_is_allowed(written, tiny_elmo):
    before = written.read_bytes()
    with pytest.raises(OutputExistsError, match=r"give (--)?overwrite to replace"):
        write_token_file(written, ["new"], [tiny_elmo.word_vectors(["new"])], "f")
    assert written.read_bytes() == before
    write_token_file(written, ["new"], [tiny_elmo.word_vectors(["new"])], "f", overwrite=True)
    assert TokenFile(written).vocabulary.words == ("new",)


def test_a_failure_leaves_no_part_of_a_file(tmp_path):
    def fail():
        yield np.zeros((1, 3), np.float32)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        write_token_file(tmp_path / "tokens.h5", ["a", "b"], fail(), "f")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_file_that_was_there(written):
    def fail():
        yield np.zeros((1, 3), np.float32)
        raise RuntimeError("out of memory")

    before = written.read_bytes()
    with pytest.raises(RuntimeError, match="out of memory"):
        write_token_file(written, ["a"], fail(), "f", overwrite=True)
    assert written.read_bytes() == before
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_no_words_are_refused(tmp_path):
    with pytest.raises(InputError, match="vocabulary is empty"):
        write_token_file(tmp_path / "tokens.h5", [], [], "f")
    assert list(tmp_path.iterdir()) == []


def test_a_classic_file_without_its_vocabulary_says_what_is_missing(tmp_path, tiny_elmo):
    with h5py.File(tmp_path / "tokens.h5", "w") as file:
        file.create_dataset("embedding", data=tiny_elmo.word_vectors(["a"]))
    with pytest.raises(MissingFileError, match=r"tokens\.h5 does not say which words"):
        TokenFile(tmp_path / "tokens.h5")


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_words_that_hdf5_cannot_hold_are_told_before_any_work(tmp_path, word):
    def compute():
        raise AssertionError("nothing should be computed")
        yield

    with pytest.raises(InputError, match="line 2"):
        write_token_file(tmp_path / "out.h5", ["a", word], compute(), "")


def test_a_folder_that_is_not_there_is_told(tmp_path, tiny_elmo):
    with pytest.raises(OutputError, match="cannot write"):
        write_token_file(tmp_path / "no" / "out.h5", ["a"], [tiny_elmo.word_vectors(["a"])], "")

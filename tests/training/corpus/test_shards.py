"""Files of arrays, shards and prepared corpora: what they hold, and how damage is told."""

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import elmo.text.vocabulary
from elmo.errors import InputError, MissingFileError
from elmo.runtime.array_files import Stream, map_arrays, pack_words, unpack_words, write_arrays
from elmo.runtime.files import sha256_of
from elmo.training.corpus import shards
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shards import Corpus, Shard
from training.corpus.test_prepare import all_rare_words, counts_of

TEXT = "the cat sat\nthe dog sat\n\nthe unique word 河 sat\n" * 10


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT + "hapax Ünïque\n", encoding="utf-8")
    prepare([tmp_path / "text.txt"], tmp_path / "corpus", PrepareSettings(heldout_share=0.2))
    return tmp_path / "corpus"


@given(words=st.lists(st.text(st.characters(exclude_categories=("Cs",)))))
def test_words_come_back_as_they_were_packed(words):
    letters, starts = pack_words(words)
    assert unpack_words(letters, starts) == words
    assert unpack_words(letters, starts[1:3]) == words[1:2]


@given(
    lengths=st.tuples(*[st.integers(0, 9)] * 4),
    text=st.text(st.characters(exclude_categories=("Cs",))),
)
def test_arrays_are_valid_safetensors_and_come_back_by_memory_map(tmp_path_factory, lengths, text):
    path = tmp_path_factory.getbasetemp() / "arrays.safetensors"
    dtypes = ("uint8", "uint32", "int64", "uint64")
    arrays = {
        f"{dtype} é": np.arange(length).astype(dtype)
        for dtype, length in zip(dtypes, lengths, strict=True)
    }
    write_arrays(path, arrays, {"about": text})
    mapped, metadata = map_arrays(path)
    theirs = load_file(path)
    assert metadata == {"about": text}
    assert mapped.keys() == theirs.keys() == arrays.keys()
    for name, array in arrays.items():
        for read in (mapped[name], theirs[name]):
            np.testing.assert_array_equal(read, array)
            assert read.dtype == array.dtype


def test_a_stream_writes_the_same_bytes_as_an_array(tmp_path):
    array = np.arange(10, dtype=np.uint32)
    whole = write_arrays(tmp_path / "whole", {"a": array}, {})
    stream = Stream("uint32", 10, iter([array[:3], array[3:3], array[3:]]))
    assert write_arrays(tmp_path / "pieces", {"a": stream}, {}) == whole
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sha256_of(tmp_path / "whole") == whole


def test_a_file_that_could_not_be_written_is_not_there(tmp_path):
    def pieces():
        yield np.zeros(3, np.uint32)
        raise RuntimeError("halfway")

    (tmp_path / "a").write_text("before")
    with pytest.raises(RuntimeError):
        write_arrays(tmp_path / "a", {"x": Stream("uint32", 9, pieces())}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"


@pytest.mark.parametrize("damage", [b"", b"\x05", b"\xff" * 100, b"\x02" + b"\0" * 7 + b"[]"])
def test_a_file_that_holds_no_arrays_is_named(tmp_path, damage):
    (tmp_path / "broken").write_bytes(damage)
    with pytest.raises(InputError, match="broken is damaged"):
        map_arrays(tmp_path / "broken")


@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_no_damage_of_a_header_leads_to_another_error(tmp_path_factory, cut, at, byte):
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    write_arrays(path, {"tokens": np.arange(9, dtype=np.uint32)}, {"about": "x"})
    data = bytearray(path.read_bytes())
    if at < len(data):
        data[at] = byte
    path.write_bytes(data[: len(data) - cut] if cut < len(data) else data)
    with pytest.raises(InputError, match=r"is damaged|is no shard"):  # it lacks the other arrays
        Shard(path)


def test_a_corpus_is_opened_with_its_words_numbers_and_rare_spelling(folder):
    corpus = Corpus.open(folder)
    assert corpus.vocabulary.words[:3] == ("<S>", "</S>", "<UNK>") == shards.SPECIALS
    assert shards.SPECIALS == elmo.text.vocabulary.SPECIALS
    n_words = len(corpus.vocabulary)
    for shard in [*corpus.train, *corpus.heldout]:
        assert shard.tokens.dtype == np.uint32
        assert shard.sentence_starts.dtype == shard.document_starts.dtype == np.int64
        assert not shard.tokens.flags.writeable
        assert shard.tokens.max() < n_words + shard.n_rare
        letters, lengths = shard.rare_bytes(range(shard.n_rare))
        assert letters.tobytes().decode() == "".join(all_rare_words(shard))
        assert lengths.tolist() == [len(word.encode()) for word in all_rare_words(shard)]
        assert shard.rare_words([]) == []
    rare = {word for shard in [*corpus.train, *corpus.heldout] for word in all_rare_words(shard)}
    assert "Ünïque" in rare
    with pytest.raises(IndexError):
        corpus.train[0].rare_words([corpus.train[0].n_rare])
    with pytest.raises(FrozenInstanceError):
        corpus.manifest.types = 3
    for name, facts in corpus.manifest.files.items():
        assert sha256_of(folder / name) == facts.sha256


def test_counts_agree_with_the_training_text(folder):
    corpus = Corpus.open(folder)
    counts = np.array(counts_of(corpus))
    n_words = len(corpus.vocabulary)
    tokens = np.concatenate([shard.tokens for shard in corpus.train])
    np.testing.assert_array_equal(
        counts[3:], np.bincount(tokens[tokens < n_words], minlength=n_words)[3:]
    )
    assert counts[2] == (tokens >= n_words).sum() == corpus.manifest.train.unknown
    sentences = sum(len(shard.sentence_starts) - 1 for shard in corpus.train)
    assert counts[0] == counts[1] == sentences == corpus.manifest.train.sentences


def test_the_fingerprint_changes_with_the_data_alone(tmp_path, folder):
    again = [("again", TEXT + "hapax Ünïque\n"), ("other", TEXT + "hapax Ünïques\n")]
    prints = []
    for name, text in again:
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        settings = PrepareSettings(heldout_share=0.2)
        prepare([tmp_path / f"{name}.txt"], tmp_path / name, settings)
        prints.append(Corpus.open(tmp_path / name).fingerprint)
    assert prints[0] == Corpus.open(folder).fingerprint != prints[1]


def test_what_is_no_corpus_is_refused_with_advice(tmp_path, folder):
    with pytest.raises(MissingFileError, match="no such folder"):
        Corpus.open(tmp_path / "gone")
    with pytest.raises(MissingFileError, match=r"no prepared corpus.*corpus\.json.*elmo prepare"):
        Corpus.open(tmp_path)
    (folder / "corpus.json").unlink()
    (folder / ".work").mkdir()
    with pytest.raises(InputError, match=r"unfinished.*resume"):
        Corpus.open(folder)


def test_a_damaged_manifest_is_named(folder):
    path = folder / "corpus.json"
    fields = json.loads(path.read_text())
    for content in ("", "[]", "{}", json.dumps(fields | {"train": 3})):
        path.write_text(content)
        with pytest.raises(InputError, match=r"corpus\.json is damaged"):
            Corpus.open(folder)
    path.write_text(json.dumps(fields | {"format_version": 99}))
    with pytest.raises(InputError, match="format version 99, this release reads 1"):
        Corpus.open(folder)


def test_a_missing_or_short_shard_is_named(folder):
    path = folder / "train-00000.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(InputError, match=r"train-00000\.safetensors is damaged: it has .* bytes"):
        Corpus.open(folder)
    path.unlink()
    with pytest.raises(MissingFileError, match=r"train-00000\.safetensors is missing"):
        Corpus.open(folder)


def test_a_shard_whose_lengths_disagree_is_refused(tmp_path):
    arrays = {
        "tokens": np.zeros(3, np.uint32),
        "sentence_starts": np.array([0, 2], np.int64),
        "document_starts": np.array([0, 1], np.int64),
        "rare_letters": np.zeros(0, np.uint8),
        "rare_starts": np.zeros(1, np.int64),
    }
    write_arrays(tmp_path / "shard", arrays, {})
    with pytest.raises(InputError, match="lengths of its arrays disagree"):
        Shard(tmp_path / "shard")
    del arrays["tokens"]
    write_arrays(tmp_path / "shard", arrays, {})
    with pytest.raises(InputError, match="no shard of a corpus: it lacks the array 'tokens'"):
        Shard(tmp_path / "shard")


def test_a_vocabulary_that_disagrees_with_the_manifest_is_refused(folder):
    path = folder / "vocab.txt"
    words = path.read_text(encoding="utf-8")
    path.write_text(words.replace("sat", "sit"), encoding="utf-8")
    with pytest.raises(InputError, match=r"vocab\.txt is not the vocabulary"):
        Corpus.open(folder)

"""Similar words and neighbours in context: means, indexes, searches, lists."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.analysis.contextuality.stop_words import read_stop_words
from elmo.analysis.passages import Corpus
from elmo.analysis.settings import CorpusSettings, NeighborSettings
from elmo.analysis.words.faiss_search import faiss_search
from elmo.analysis.words.neighbor_report import render_neighbors
from elmo.analysis.words.neighbors import MarkedWord, find_neighbors
from elmo.analysis.words.similar import render_similar, require_same
from elmo.analysis.words.word_index import WordIndex
from elmo.analysis.words.word_means import (
    frequent_words,
    index_of_corpus,
    index_of_words,
    mean_vectors,
)
from elmo.errors import ConfigError, InputError, MissingFileError
from elmo.runtime.tables import text_table
from elmo.text.made_up import make_sentences


@pytest.fixture(scope="module")
def sentences():
    return [words[:10] for words in make_sentences(80, seed=2)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(" ".join(words) for words in sentences))
    return Corpus(CorpusSettings(corpus=(path,)))


def random_index(n=40, dim=6, seed=0, shift=2.0):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, dim)).astype(np.float32) + np.float32(shift)
    counts = np.arange(n, 0, -1)
    return WordIndex([f"w{k}" for k in range(n)], counts, vectors, {"min_count": 1})


def direct_cosines(index, row, remove_mean):
    rows = index.vectors.astype(np.float64)
    if remove_mean:
        rows = rows - rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows[row]


# --- vectors of words -----------------------------------------------------------------------------


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


# --- the index ------------------------------------------------------------------------------------


@given(st.integers(0, 39), st.integers(1, 50), st.booleans(), st.floats(-5, 5))
def test_similar_words_are_those_with_the_highest_cosines(row, top, remove_mean, shift):
    index = random_index(shift=shift)
    found = index.similar(f"w{row}", top, remove_mean=remove_mean)
    cosines = direct_cosines(index, row, remove_mean)
    order = [k for k in np.argsort(-cosines) if k != row][:top]
    assert [entry.word for entry in found] == [f"w{k}" for k in order]
    np.testing.assert_allclose([entry.cosine for entry in found], cosines[order], atol=1e-4)


@pytest.mark.parametrize("remove_mean", [False, True])
def test_a_saved_index_answers_the_same(tmp_path, remove_mean):
    index = random_index()
    index.save(tmp_path / "words.index")
    again = WordIndex.load(tmp_path / "words.index")
    assert again.similar("w3", 5, remove_mean=remove_mean) == index.similar(
        "w3", 5, remove_mean=remove_mean
    )
    assert again.facts["min_count"] == 1
    index.save(tmp_path / "again.index")
    assert (tmp_path / "words.index").read_bytes() == (tmp_path / "again.index").read_bytes()


def test_a_damaged_index_is_told(tmp_path):
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


def test_counts_and_stop_words_limit_what_is_listed():
    index = random_index()
    allowed = index.allowed(frozenset({"w5", "w6"}), min_count=20, max_count=38)
    listed = {entry.word for entry in index.similar("w0", 100, allowed=allowed)}
    assert listed == {f"w{k}" for k in range(2, 21)} - {"w5", "w6"}
    nobody = index.allowed(frozenset(), max_count=0)
    assert index.similar("w0", 3, allowed=nobody) == []


def test_an_unknown_word_is_told_with_other_spellings():
    with pytest.raises(InputError, match=r"'W3' never occurs.*there is 'w3'"):
        random_index().similar("W3")


def test_vectors_of_zeros_give_no_nan():
    index = WordIndex(["a", "b", "c"], np.ones(3, int), np.zeros((3, 4), np.float32), {})
    for remove_mean in (False, True):
        assert [e.cosine for e in index.similar("a", remove_mean=remove_mean)] == [0.0, 0.0]


@pytest.mark.parametrize("n", [40, 12_000])
@pytest.mark.parametrize("remove_mean", [False, True])
def test_faiss_finds_what_the_exact_search_finds(tmp_path, n, remove_mean):
    pytest.importorskip("faiss")
    index = random_index(n, dim=8)
    path = tmp_path / "cells.faiss"
    allowed = index.allowed(frozenset({"w7"}), min_count=n // 4)
    exact = index.similar("w1", 10, remove_mean=remove_mean, allowed=allowed)
    for _ in range(2):  # learned, then read
        search = faiss_search(index, remove_mean, path)
        found = index.similar("w1", 10, remove_mean=remove_mean, allowed=allowed, search=search)
        shared = {e.word for e in exact} & {e.word for e in found}
        assert len(shared) == 10 if n == 40 else len(shared) >= 8
    with pytest.raises(InputError, match="the index has 30"):
        faiss_search(random_index(30, dim=8), remove_mean, path)


def test_a_saved_index_answers_without_pytorch(tmp_path):
    random_index().save(tmp_path / "words.index")
    code = (
        "import sys; from elmo.cli.main import main; sys.modules['torch'] = None\n"
        f"sys.exit(main(['similar', 'w1', '--index', {str(tmp_path / 'words.index')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "similar to w1" in done.stdout


def test_flags_that_contradict_an_index_are_told(tmp_path):
    require_same(tmp_path, {"layer": "1", "model": "x"}, {"layer": "1", "model": None})
    with pytest.raises(ConfigError, match=r"made with layer '1', not '2'"):
        require_same(tmp_path, {"layer": "1"}, {"layer": "2"})


def test_lists_as_json_and_csv_hold_the_same():
    found = {"w1": random_index().similar("w1", 3)}
    as_json = json.loads(render_similar(found, "json"))[0]["similar"]
    as_csv = list(csv.DictReader(io.StringIO(render_similar(found, "csv"))))
    assert [row["word"] for row in as_csv] == [entry["word"] for entry in as_json]
    assert [int(row["count"]) for row in as_csv] == [entry["count"] for entry in as_json]
    assert "w1" in render_similar(found, "table")
    assert "no other word" in render_similar({"w1": []}, "table")


def test_stop_words_come_from_a_list_or_a_file(tmp_path):
    assert "the" in read_stop_words("english")
    (tmp_path / "stop.txt").write_text("Und\n\noder\n")
    assert read_stop_words(str(tmp_path / "stop.txt")) == {"und", "oder"}
    assert read_stop_words(None) == frozenset()
    with pytest.raises(MissingFileError, match="expected 'english' or a file"):
        read_stop_words("klingon")


def test_tables_count_wide_characters_twice():
    lines = text_table(("word", "n"), [("宝玉", "1"), ("ab", "10")]).splitlines()
    assert lines[1] == "宝玉   1"
    assert lines[2] == "ab    10"


# --- neighbours -----------------------------------------------------------------------------------


def direct_neighbors(model, sentences, query, layer, same_word):
    target = model.encode_tokens([query.sentence], layers=layer)[0][query.position]
    target = target.astype(np.float64) / np.linalg.norm(target)
    found = {}
    for words, vectors in zip(sentences, model.encode_tokens(sentences, layers=layer), strict=True):
        for place, vector in enumerate(vectors):
            if words == query.sentence or (same_word and words[place] != query.word):
                continue
            found[tuple(words), place] = vector @ target / np.linalg.norm(vector)
    return sorted(found.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("same_word", [False, True])
@pytest.mark.parametrize("layer", ["top", 0])
def test_neighbors_are_the_nearest_occurrences(tiny_elmo, corpus, sentences, layer, same_word):
    word = next(iter(frequent_words(corpus, 3)))
    number = next(n for n, words in enumerate(sentences) if word in words)
    queries = [
        MarkedWord(sentences[number], sentences[number].index(word)),
        MarkedWord([word, "alone"], 0),
    ]
    settings = NeighborSettings(layer=layer, top=6, same_word=same_word, min_count=1)
    for found in find_neighbors(tiny_elmo, corpus, queries, settings):
        expected = direct_neighbors(tiny_elmo, sentences, found.query, layer, same_word)
        assert found.n_occurrences == len(expected)
        cosines = [near.cosine for near in found.occurrences]
        np.testing.assert_allclose(cosines, [c for _, c in expected[:6]], atol=1e-5)
        assert all(near.sentence != found.query.sentence for near in found.occurrences)
        names = sorted({w for words in sentences for w in words} - {word})
        vectors = tiny_elmo.word_vectors([word, *names]).astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        best = np.sort(vectors[1:] @ vectors[0])[::-1][:6]
        np.testing.assert_allclose([near.cosine for near in found.static], best, atol=1e-5)


def test_repeated_sentences_count_once(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("a b c\n" * 5 + "b a\n")
    corpus = Corpus(CorpusSettings(corpus=(path,)))
    query = MarkedWord(["x", "a"], 1)
    (found,) = find_neighbors(tiny_elmo, corpus, [query], NeighborSettings(top=10, same_word=True))
    assert sorted(near.sentence for near in found.occurrences) == [["a", "b", "c"], ["b", "a"]]


def test_static_vectors_of_a_file_stand_beside(tmp_path, tiny_elmo):
    (tmp_path / "text.txt").write_text("The cat sat\na dog sat\n")
    (tmp_path / "glove.txt").write_text("cat 1 0\ndog 0.9 0.1\nsat 0 1\nthe -1 0\n")
    corpus = Corpus(CorpusSettings(corpus=(tmp_path / "text.txt",)))
    settings = NeighborSettings(top=2, static=tmp_path / "glove.txt")
    queries = [MarkedWord(["Cat"], 0), MarkedWord(["unheard-of"], 0)]
    known, unknown = find_neighbors(tiny_elmo, corpus, queries, settings)
    assert [near.word for near in known.static] == ["dog", "sat"]
    assert unknown.static == []
    assert "there is no vector of 'unheard-of'" in render_neighbors([unknown], "table")


def test_a_word_that_never_occurs_is_told(tiny_elmo, corpus):
    query = MarkedWord(["never-seen"], 0)
    with pytest.raises(InputError, match="'never-seen' never occurs"):
        find_neighbors(tiny_elmo, corpus, [query], NeighborSettings(same_word=True))


def test_neighbors_as_json_and_csv_hold_the_same(tiny_elmo, corpus, sentences):
    query = MarkedWord(sentences[0], 0)
    found = find_neighbors(tiny_elmo, corpus, [query], NeighborSettings(top=3))
    (facts,) = json.loads(render_neighbors(found, "json"))
    rows = list(csv.DictReader(io.StringIO(render_neighbors(found, "csv"))))
    in_context = [row for row in rows if row["kind"] == "context"]
    assert [r["word"] for r in in_context] == [
        near["sentence"][near["position"]] for near in facts["in_context"]
    ]
    assert [r["word"] for r in rows if r["kind"] == "static"] == [
        near["word"] for near in facts["static"]
    ]
    assert f"[{sentences[0][0]}]" in render_neighbors(found, "table")

"""The occurrences nearest to a word in its context."""

import csv
import io
import json

import numpy as np
import pytest

from elmo.analysis.settings import NeighborSettings
from elmo.analysis.words.neighbors import MarkedWord, neighbors
from elmo.analysis.words.word_means import frequent_words
from elmo.errors import InputError


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
    queries = " ".join(sentences[number]).replace(word, f"[{word}]", 1), f"[{word}] alone"
    settings = NeighborSettings(layer=layer, top=6, same_word=same_word, min_count=1)
    report = neighbors(*queries, model=tiny_elmo, corpus=corpus.settings, settings=settings)
    assert [found.sentence for found in report.neighborhoods] == [
        sentences[number],
        [word, "alone"],
    ]
    for found in report.neighborhoods:
        query = MarkedWord(found.sentence, found.position)
        expected = direct_neighbors(tiny_elmo, sentences, query, layer, same_word)
        assert found.n_compared == len(expected)
        cosines = [near.cosine for near in found.in_context]
        np.testing.assert_allclose(cosines, [c for _, c in expected[:6]], atol=1e-5)
        assert all(near.sentence != found.sentence for near in found.in_context)
        names = sorted({w for words in sentences for w in words} - {word})
        vectors = tiny_elmo.word_vectors([word, *names]).astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        best = np.sort(vectors[1:] @ vectors[0])[::-1][:6]
        np.testing.assert_allclose([near.cosine for near in found.static], best, atol=1e-5)


def test_repeated_sentences_count_once(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("a b c\n" * 5 + "b a\n")
    report = neighbors("x [a]", model=tiny_elmo, corpus=path, top=10, same_word=True)
    (found,) = report.neighborhoods
    assert sorted(near.sentence for near in found.in_context) == [["a", "b", "c"], ["b", "a"]]


def test_static_vectors_of_a_file_stand_beside(tmp_path, tiny_elmo):
    (tmp_path / "text.txt").write_text("The cat sat\na dog sat\n")
    (tmp_path / "glove.txt").write_text("cat 1 0\ndog 0.9 0.1\nsat 0 1\nthe -1 0\n")
    settings = NeighborSettings(top=2, static_vectors=tmp_path / "glove.txt")
    text = tmp_path / "text.txt"
    report = neighbors("[Cat]", "[unheard-of]", model=tiny_elmo, corpus=text, settings=settings)
    known, unknown = report.neighborhoods
    assert [near.word for near in known.static] == ["dog", "sat"]
    assert unknown.static == []
    assert "there is no vector of 'unheard-of'" in "\n".join(unknown.lines())


def test_a_word_that_never_occurs_is_reported(tiny_elmo, corpus):
    with pytest.raises(InputError, match="'never-seen' never occurs"):
        neighbors("[never-seen]", model=tiny_elmo, corpus=corpus.settings, same_word=True)


def test_neighbors_as_json_and_csv_hold_the_same(tiny_elmo, corpus, sentences):
    query = " ".join([f"[{sentences[0][0]}]", *sentences[0][1:]])
    found = neighbors(query, model=tiny_elmo, corpus=corpus.settings, top=3)
    (facts,) = json.loads(found.render("json"))
    rows = list(csv.DictReader(io.StringIO(found.render("csv"))))
    in_context = [row for row in rows if row["kind"] == "context"]
    assert [r["word"] for r in in_context] == [
        near["sentence"][near["position"]] for near in facts["in_context"]
    ]
    assert [r["word"] for r in rows if r["kind"] == "static"] == [
        near["word"] for near in facts["static"]
    ]
    assert f"[{sentences[0][0]}]" in found.render("table")

"""The occurrences of a word: sampled, clustered, with examples."""

import json

import numpy as np
import pytest

from elmo.analysis.corpus import Corpus
from elmo.analysis.geometry import unit_rows
from elmo.analysis.occurrences.senses import senses
from elmo.analysis.settings import CorpusSettings, SenseSettings
from elmo.analysis.words.word_means import index_of_corpus
from elmo.errors import ConfigError, InputError

pytest.importorskip("sklearn")

RIVER = "the {} bank of the river was {}"
MONEY = "a {} bank lends its money to {}"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    fill = [f"w{k}" for k in range(12)]
    lines = [RIVER.format(w, w * 2) for w in fill] + [MONEY.format(w, w * 2) for w in fill]
    lines += ["once upon a time", "Bank with a capital", lines[0], "just <script> alone"]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines))
    return Corpus(CorpusSettings(corpus=(path,)))


def test_occurrences_are_those_of_the_word(tiny_elmo, corpus):
    report = senses(
        "bank", model=tiny_elmo, corpus=corpus.settings, settings=SenseSettings(projection=("pca",))
    )
    assert report.n_occurrences == 25
    assert len(report.occurrences) == 24  # one sentence stands there twice
    assert all(o.words[o.position] == "bank" for o in report.occurrences)
    assert sum(group.size for group in report.clusters) == 24
    vectors = {}
    for o in report.occurrences:
        vectors[tuple(o.words)] = tiny_elmo.encode_tokens([o.words], layers="top")[0][o.position]
    for number, group in enumerate(report.clusters):
        own = [o for o in report.occurrences if o.cluster == number]
        rows = unit_rows(np.stack([vectors[tuple(o.words)] for o in own]))
        center = unit_rows(rows.sum(axis=0)[None])[0]
        np.testing.assert_allclose([o.cosine_to_center for o in own], rows @ center, atol=1e-5)
        nearest = own[int((rows @ center).argmax())]
        assert report.occurrences[group.examples[0]].cosine_to_center == nearest.cosine_to_center


def test_two_uses_of_a_word_make_two_groups(tiny_elmo, corpus):
    """Even random weights tell contexts apart that share all their neighbors."""
    report = senses(
        "bank",
        model=tiny_elmo,
        corpus=corpus.settings,
        settings=SenseSettings(projection=("pca",), clusters=2),
    )
    kinds = [{o.words[0] for o in report.occurrences if o.cluster == k} for k in (0, 1)]
    assert sorted(map(sorted, kinds)) == [["a"], ["the"]]


def test_fewer_occurrences_are_drawn_and_it_is_reported(tiny_elmo, corpus):
    settings = SenseSettings(projection=("pca",), max_occurrences=7)
    report = senses("bank", model=tiny_elmo, corpus=corpus.settings, settings=settings)
    assert len(report.occurrences) == 7
    assert "7 of 25 occurrences" in report.notes[0]
    again = senses("bank", model=tiny_elmo, corpus=corpus.settings, settings=settings)
    assert report.json() == again.json()


@pytest.mark.parametrize(
    ("word", "told"),
    [("unheard-of", "never occurs"), ("once", "occurs once"), ("river", None)],
)
def test_rare_words_are_reported(tiny_elmo, corpus, word, told):
    settings = SenseSettings(projection=("pca",))
    if told is None:
        assert (
            senses(word, model=tiny_elmo, corpus=corpus.settings, settings=settings).n_occurrences
            == 13
        )
    else:
        with pytest.raises(InputError, match=told):
            senses(word, model=tiny_elmo, corpus=corpus.settings, settings=settings)


def test_two_occurrences_are_enough(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("a cat\nthe cat\n")
    report = senses("cat", model=tiny_elmo, corpus=path)
    assert [group.size for group in report.clusters] == [2]
    json.loads(report.json())
    report.page()
    many = senses("cat", model=tiny_elmo, corpus=path, settings=SenseSettings(clusters=5))
    assert "only 2 clusters: 5 were requested" in many.notes[0]


def test_a_layer_that_the_model_lacks_is_named_by_its_flag(tiny_elmo, corpus):
    expected = r"layer is 9, expected 'top', 'average', 'mix' or a number from 0 to 2 \("
    with pytest.raises(ConfigError, match=expected):
        senses("bank", model=tiny_elmo, corpus=corpus.settings, layer=9)
    with pytest.raises(ConfigError, match=expected):
        index_of_corpus(tiny_elmo, corpus, 9, min_count=1)

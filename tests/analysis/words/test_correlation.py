"""Similarities of words beside human judgments."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conftest import SHARED
from elmo.analysis.corpus import Corpus
from elmo.analysis.settings import CorpusSettings, CorrelationSettings
from elmo.analysis.words.correlation import (
    correlation,
    read_judged_pairs,
    spearman,
    spearman_estimate,
)
from elmo.errors import InputError

spearmanr = pytest.importorskip("scipy.stats").spearmanr


@given(hnp.arrays(np.float64, (2, 12), elements=st.integers(0, 5).map(float)))
def test_spearman_is_that_of_scipy_for_any_ties(values):
    first, second = values
    found = spearman(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(first, second).statistic, abs=1e-9)


def test_spearman_knows_its_extremes():
    values = np.arange(10.0)
    assert spearman(values, values**3) == pytest.approx(1.0)
    assert spearman(values, -values) == pytest.approx(-1.0)
    found = spearman_estimate(values, values, 50, 0)
    assert found.low == pytest.approx(1.0)


@pytest.mark.parametrize("separator", ["\t", ",", "  ", "; "])
def test_judged_pairs_are_read_in_any_columns(tmp_path, separator):
    rows = [("word1", "word2", "score"), ("a", "b", "1.5"), ("李白", "诗", "9"), ("c", "d", "0")]
    path = tmp_path / "pairs.txt"
    path.write_text("\r\n".join(separator.join(row) for row in rows) + "\r\n\r\n# end\r\n")
    pairs = read_judged_pairs(path)
    assert (pairs.left[1], pairs.right[1], pairs.scores[1]) == ("李白", "诗", 9.0)
    assert len(pairs.scores) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a b 1\na b\n", "line 2"),
        ("a b 1\na b nan\n", "line 2"),
        ("a b 1\n", "has 1 pair;"),
        ("a b x\n", r"has 0 pairs \(line 1, 'a b x', has no score: taken for a header\);"),
    ],
)
def test_files_that_are_no_pairs_are_reported(tmp_path, text, told):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(InputError, match=told):
        read_judged_pairs(tmp_path / "pairs.txt")


def test_words_are_compared_in_isolation_and_in_context(tmp_path, tiny_elmo):
    (tmp_path / "pairs.txt").write_text("cat dog 5\ncat car 2\ndog car 1\ncat unseen 3\n")
    (tmp_path / "text.txt").write_text("the cat sat\na dog sat\nthe car went\na cat ran\n")
    pairs = read_judged_pairs(tmp_path / "pairs.txt")
    corpus = Corpus(CorpusSettings(corpus=(tmp_path / "text.txt",)))
    settings = CorrelationSettings(resamples=20)
    report = correlation(
        tmp_path / "pairs.txt", model=tiny_elmo, corpus=tmp_path / "text.txt", settings=settings
    )
    assert [(row.condition, row.layer, row.n_pairs) for row in report.rows] == [
        (condition, layer, n)
        for condition, n in (("isolation", 4), ("context", 3))
        for layer in ("0", "1", "2", "mix")
    ]
    assert "3 of 4 pairs" in report.notes[0]
    assert "unseen" in report.notes[0]
    alone = {w: tiny_elmo.encode_tokens([[w]])[0][:, 0] for w in pairs.words}

    def cosine(a, b):
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    cosines = [
        cosine(alone[a][2], alone[b][2]) for a, b in zip(pairs.left, pairs.right, strict=True)
    ]
    expected = spearman(pairs.scores, np.array(cosines))
    assert report.rows[2].spearman.value == pytest.approx(expected)
    embedded = tiny_elmo.encode_tokens(list(corpus))
    cat = (embedded[0][:, 1] + embedded[3][:, 1]) / 2
    means = {"cat": cat, "dog": embedded[1][:, 1], "car": embedded[2][:, 1]}
    cosines = [
        cosine(means[a][1], means[b][1])
        for a, b in (("cat", "dog"), ("cat", "car"), ("dog", "car"))
    ]
    assert report.rows[5].spearman.value == pytest.approx(
        spearman(pairs.scores[:3], np.array(cosines))
    )
    json.loads(report.json())
    assert "in context" in report.text()
    pytest.importorskip("matplotlib")
    report.save(tmp_path)
    assert (tmp_path / "correlation.png").is_file()


def test_a_corpus_without_the_words_leaves_isolation(tmp_path, tiny_elmo):
    (tmp_path / "pairs.txt").write_text("a b 1\nc d 2\ne f 3\n")
    (tmp_path / "text.txt").write_text("something else\n")
    report = correlation(
        tmp_path / "pairs.txt", model=tiny_elmo, corpus=tmp_path / "text.txt", resamples=5
    )
    assert {row.condition for row in report.rows} == {"isolation"}
    assert "too few to compare in context" in report.notes[0]


def test_the_chinese_sets_are_read():
    folder = SHARED / "data" / "zh"
    if not (folder / "240.txt").is_file():
        pytest.skip("the Chinese sets are not beside the repository (../shared/data/zh)")
    assert len(read_judged_pairs(folder / "240.txt").scores) == 240
    assert len(read_judged_pairs(folder / "297.txt").scores) == 297

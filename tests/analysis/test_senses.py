"""Occurrences of a word in groups: clusters, projections, the page, the picture."""

import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.analysis.contextuality.geometry import unit_rows
from elmo.analysis.passages import Corpus
from elmo.analysis.report_files import as_json
from elmo.analysis.senses.clusters import cluster, silhouette
from elmo.analysis.senses.occurrences import find_senses
from elmo.analysis.senses.page import draw_senses, render_senses, senses_page
from elmo.analysis.senses.projection import chosen_projections, principal_components, project
from elmo.analysis.settings import CorpusSettings, SenseSettings
from elmo.analysis.words.word_means import index_of_corpus
from elmo.errors import ConfigError, InputError

RIVER = "the {} bank of the river was {}"
MONEY = "a {} bank lends its money to {}"


def three_directions(seed=0, size=12, noise=0.05):
    rng = np.random.default_rng(seed)
    centres = np.eye(3, 8)
    labels = np.repeat([0, 1, 2], [size, size - 2, size - 4])
    return centres[labels] + noise * rng.standard_normal((len(labels), 8)), labels


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    fill = [f"w{k}" for k in range(12)]
    lines = [RIVER.format(w, w * 2) for w in fill] + [MONEY.format(w, w * 2) for w in fill]
    lines += ["once upon a time", "Bank with a capital", lines[0], "just <script> alone"]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(lines))
    return Corpus(CorpusSettings(corpus=(path,)))


# --- groups ---------------------------------------------------------------------------------------


@given(st.integers(0, 30))
def test_clear_groups_are_found_and_counted(seed):
    vectors, labels = three_directions(seed)
    found = cluster(vectors, None, 6, seed)
    assert found.labels.tolist() == labels.tolist()  # the largest group is the first
    assert found.silhouette > 0.8


def test_the_silhouette_is_that_of_all_distances():
    vectors, _ = three_directions(noise=0.6)
    rows = unit_rows(vectors)
    labels = np.random.default_rng(0).integers(0, 3, len(rows))
    distances = 1 - rows @ rows.T
    values = []
    for place in range(len(rows)):
        own = [k for k in np.flatnonzero(labels == labels[place]) if k != place]
        a = distances[place, own].mean()
        others = set(labels.tolist()) - {labels[place]}
        b = min(distances[place, labels == other].mean() for other in others)
        values.append((b - a) / max(a, b))
    assert silhouette(rows, labels) == pytest.approx(np.mean(values))


def test_the_number_of_groups_can_be_chosen():
    vectors, _ = three_directions()
    assert cluster(vectors, 5, 6, 0).labels.max() == 4
    alone = cluster(vectors, 1, 6, 0)
    assert alone.silhouette is None
    assert not alone.labels.any()


def test_identical_vectors_make_one_group_and_no_nan():
    found = cluster(np.ones((20, 4)), 3, 6, 0)
    assert not found.labels.any()
    assert np.isfinite(found.centres).all()
    zeros = cluster(np.zeros((20, 4)), None, 6, 0)
    assert np.isfinite(zeros.centres).all()


# --- planes ---------------------------------------------------------------------------------------


def test_principal_components_keep_the_distances_of_a_plane():
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((30, 2)) * [3, 1] @ np.linalg.qr(rng.standard_normal((6, 6)))[0][:2]
    points = principal_components(flat)

    def distances(rows):
        return np.linalg.norm(rows[:, None] - rows[None], axis=2)

    np.testing.assert_allclose(distances(points), distances(flat), atol=1e-9)
    assert points[:, 0].var() > points[:, 1].var()


@pytest.mark.parametrize("n", [2, 3, 4, 30])
def test_projections_of_any_number_are_finite_and_repeatable(n):
    vectors = np.random.default_rng(0).standard_normal((n, 5))
    for kind in chosen_projections(()):
        points = project(vectors, kind, seed=3)
        assert points.shape == (n, 2)
        assert np.isfinite(points).all()
        np.testing.assert_array_equal(points, project(vectors, kind, seed=3))


def test_t_sne_keeps_clear_groups_apart():
    pytest.importorskip("sklearn")
    vectors, labels = three_directions()
    points = project(vectors, "tsne", 0)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(axis=1)] == labels).mean() > 0.95


# --- reports --------------------------------------------------------------------------------------


def test_occurrences_are_those_of_the_word(tiny_elmo, corpus):
    report = find_senses(tiny_elmo, corpus, "bank", SenseSettings(projection=("pca",)))
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
        centre = unit_rows(rows.sum(axis=0)[None])[0]
        np.testing.assert_allclose([o.closeness for o in own], rows @ centre, atol=1e-5)
        nearest = own[int((rows @ centre).argmax())]
        assert report.occurrences[group.examples[0]].closeness == nearest.closeness


def test_two_uses_of_a_word_make_two_groups(tiny_elmo, corpus):
    """Even random weights tell contexts apart that share all their neighbours."""
    report = find_senses(tiny_elmo, corpus, "bank", SenseSettings(projection=("pca",), clusters=2))
    kinds = [{o.words[0] for o in report.occurrences if o.cluster == k} for k in (0, 1)]
    assert sorted(map(sorted, kinds)) == [["a"], ["the"]]


def test_fewer_occurrences_are_drawn_and_it_is_told(tiny_elmo, corpus):
    settings = SenseSettings(projection=("pca",), occurrences=7)
    report = find_senses(tiny_elmo, corpus, "bank", settings)
    assert len(report.occurrences) == 7
    assert "7 of 25 occurrences" in report.notes[0]
    again = find_senses(tiny_elmo, corpus, "bank", settings)
    assert as_json(report) == as_json(again)


@pytest.mark.parametrize(
    ("word", "told"),
    [("unheard-of", "never occurs"), ("once", "occurs once"), ("river", None)],
)
def test_rare_words_are_told(tiny_elmo, corpus, word, told):
    settings = SenseSettings(projection=("pca",))
    if told is None:
        assert find_senses(tiny_elmo, corpus, word, settings).n_occurrences == 13
    else:
        with pytest.raises(InputError, match=told):
            find_senses(tiny_elmo, corpus, word, settings)


def test_two_occurrences_are_enough(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("a cat\nthe cat\n")
    corpus = Corpus(CorpusSettings(corpus=(path,)))
    report = find_senses(tiny_elmo, corpus, "cat", SenseSettings())
    assert [group.size for group in report.clusters] == [2]
    json.loads(as_json(report))
    senses_page(report)
    many = find_senses(tiny_elmo, corpus, "cat", SenseSettings(clusters=5))
    assert "only 2 groups: 5 were asked for" in many.notes[0]


def test_one_of_something_is_not_many(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    path.write_text("a cat\nthe cat\n")
    corpus = Corpus(CorpusSettings(corpus=(path,)))
    report = find_senses(tiny_elmo, corpus, "cat", SenseSettings(clusters=1, projection=("pca",)))
    assert "2 occurrences in text.txt, layer top; 1 group, silhouette" in render_senses(report)
    assert "“cat” in 1 group<" in senses_page(report)


def test_a_layer_that_the_model_lacks_is_named_by_its_flag(tiny_elmo, corpus):
    expected = r"--layer is 9, expected 'top', 'average', 'mix' or a number from 0 to 2 \("
    with pytest.raises(ConfigError, match=expected):
        find_senses(tiny_elmo, corpus, "bank", SenseSettings(layer=9))
    with pytest.raises(ConfigError, match=expected):
        index_of_corpus(tiny_elmo, corpus, 9, min_count=1)


class Checker(HTMLParser):
    """Looks for anything that would leave the page, and for unclosed elements."""

    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.addresses = [], 0, []

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        self.addresses += [v for k, v in attributes if k in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_no_network_and_escapes_words(tmp_path, tiny_elmo):
    path = tmp_path / "text.txt"
    evil = "</script><script>alert(1)</script>"
    path.write_text(f"a bank & {evil} b\nthe bank <b> \" '\nmy {{bank}} bank\n")
    corpus = Corpus(CorpusSettings(corpus=(path,)))
    page = senses_page(find_senses(tiny_elmo, corpus, "bank", SenseSettings()))
    checker = Checker()
    checker.feed(page)
    assert checker.scripts == 2
    assert checker.addresses == []
    assert checker.open == []
    assert evil not in page
    assert "http" not in page.replace("http-equiv", "")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert f"& {evil} b" in {entry["right"] for entry in data}
    assert html.escape(evil) in page


def test_the_word_itself_may_be_anything(tmp_path, tiny_elmo):
    pytest.importorskip("matplotlib")
    path = tmp_path / "text.txt"
    path.write_text("a $x_1$ <i>\nthe $x_1$ .\nan $x_1$ ?\n")
    corpus = Corpus(CorpusSettings(corpus=(path,)))
    report = find_senses(tiny_elmo, corpus, "$x_1$", SenseSettings())
    draw_senses(report, tmp_path / "picture")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert "[$x_1$]" in render_senses(report)

"""Scores of coreference: cases computed by hand, and laws."""

import sys
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import MissingExtraError
from elmo.tasks.heads.coref import Coref
from elmo.tasks.metrics.clusters import average_f1, coreference_scores, without_singletons
from elmo.tasks.metrics.scores import Score

pytest.importorskip("scipy", reason="needs the extra tasks")


def test_coreference_by_hand():
    # The example of Luo (2005): key {1..5} {6,7} {8..12}, response {1..5} {6..12}.
    gold = [[[1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11, 12]]]
    predicted = [[[1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11, 12]]]
    scores = coreference_scores(gold, predicted)
    assert scores["muc"] == Score(pytest.approx(9 / 10), pytest.approx(1.0))
    b3_precision = (5 * 1 + 2 * 2 / 7 + 5 * 5 / 7) / 12
    assert scores["b3"] == Score(pytest.approx(b3_precision), pytest.approx(1.0))
    alike = 1 + 2 * 5 / 12  # {8..12} with {6..12}
    assert scores["ceafe"] == Score(pytest.approx(alike / 2), pytest.approx(alike / 3))
    assert scores["mentions"] == Score(1.0, 1.0)
    expected = (scores["muc"].f1 + scores["b3"].f1 + scores["ceafe"].f1) / 3
    assert average_f1(scores) == pytest.approx(expected)


def test_missing_and_superfluous_mentions_are_errors():
    gold = [[["a", "b", "c"]]]
    predicted = [[["a", "b", "x"]]]
    scores = coreference_scores(gold, predicted)
    assert scores["muc"] == Score(pytest.approx(1 / 2), pytest.approx(1 / 2))
    assert scores["b3"] == Score(pytest.approx(4 / 9), pytest.approx(4 / 9))
    assert scores["ceafe"] == Score(pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert scores["mentions"] == Score(pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_counts_are_added_over_documents():
    gold = [[[1, 2]], [[1, 2, 3]]]
    predicted = [[[1, 2]], [[1, 2], [3]]]
    scores = coreference_scores(gold, predicted)
    assert scores["muc"] == Score(pytest.approx(2 / 2), pytest.approx(2 / 3))
    assert scores["b3"] == Score(pytest.approx(5 / 5), pytest.approx((2 + 5 / 3) / 5))
    assert scores["ceafe"] == Score(pytest.approx(1.8 / 3), pytest.approx(1.8 / 2))


def test_singletons_count_where_they_are_given():
    gold = [[[1, 2], [3]]]
    with_them, without = [[[1, 2], [3]]], [[[1, 2]]]
    assert average_f1(coreference_scores(gold, with_them)) == pytest.approx(1.0)
    assert coreference_scores(gold, without)["muc"].f1 == 1
    assert coreference_scores(gold, without)["b3"].recall == pytest.approx(2 / 3)
    assert without_singletons(gold[0]) == [[1, 2]]


@st.composite
def clusterings(draw, mentions=8):
    """Draw clusters of some of the mentions."""
    names = draw(st.lists(st.integers(0, 4), min_size=mentions, max_size=mentions))
    groups = {}
    for mention, name in enumerate(names):
        if name:  # 0: no mention
            groups.setdefault(name, []).append(mention)
    return list(groups.values())


def b3_by_definition(key, response):
    """Recall of B3, mention by mention."""
    total, count = 0.0, 0
    for cluster in key:
        for mention in cluster:
            other = next((set(c) for c in response if mention in c), set())
            total += len(set(cluster) & other) / len(cluster)
            count += 1
    return total / count if count else 0


def ceafe_by_definition(key, response):
    """The best sum of likenesses over all ways to pair clusters."""
    few, many = sorted([key, response], key=len)
    if not few:
        return 0
    return max(
        sum(2 * len(set(a) & set(b)) / (len(a) + len(b)) for a, b in zip(few, chosen, strict=True))
        for chosen in permutations(many, len(few))
    )


@given(clusterings(), clusterings())
def test_clusters_are_measured_as_the_definitions_say(gold, predicted):
    scores = coreference_scores([gold], [predicted])
    assert scores["b3"].recall == pytest.approx(b3_by_definition(gold, predicted))
    assert scores["b3"].precision == pytest.approx(b3_by_definition(predicted, gold))
    best = ceafe_by_definition(gold, predicted)
    assert scores["ceafe"].recall == pytest.approx(best / len(gold) if gold else 0)
    assert scores["ceafe"].precision == pytest.approx(best / len(predicted) if predicted else 0)


@given(clusterings(), clusterings())
def test_coreference_is_fair_to_both_sides_and_one_for_equals(gold, predicted):
    forward = coreference_scores([gold], [predicted])
    backward = coreference_scores([predicted], [gold])
    for name, score in forward.items():
        assert score.precision == pytest.approx(backward[name].recall)
        assert 0 <= score.f1 <= 1 + 1e-12
    if any(len(cluster) > 1 for cluster in gold):
        assert average_f1(coreference_scores([gold], [gold])) == pytest.approx(1)


def test_without_scipy_the_extra_is_named_before_anything_is_trained(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtraError, match="needs the 'tasks' extra: pip install scipy"):
        Coref(singletons=False).check([])

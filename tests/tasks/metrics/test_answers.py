"""Answers as SQuAD scores them: cases computed by hand, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.metrics.answers import answer_f1, answer_scores, normalized


def test_answers_are_normalized_in_the_official_order():
    assert normalized("The  U.S. Army's, an answer") == "us armys answer"
    assert normalized("a-the-b") == "atheb"  # marks go before articles, which are then no words
    assert normalized("Theatre") == "theatre"
    assert normalized("“quoted”") == "“quoted”"  # marks beyond ASCII stay


def test_answer_scores_by_hand():
    assert answer_f1("the cat sat", "cat sat down") == pytest.approx(0.8)  # 2 of 2, 2 of 3
    assert answer_f1("", "") == 0  # as the official script has it
    gold = [["Denver Broncos", "Broncos"], ["in 1990"], ["blue"]]
    predicted = ["The Broncos", "1990", "red"]
    scores = answer_scores(gold, predicted)
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores["f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)


@given(st.text(alphabet="abct hean.,'", max_size=20), st.text(alphabet="abct hean.,'", max_size=20))
def test_answer_f1_is_symmetric_and_one_for_equals(first, second):
    assert answer_f1(first, second) == pytest.approx(answer_f1(second, first))
    assert normalized(normalized(first)) == normalized(first)
    if normalized(first):
        assert answer_f1(first, first) == 1

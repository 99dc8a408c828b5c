"""Accuracy, F1 of labels, spans and roles, answers of SQuAD: cases by hand, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.metrics.scores import (
    Score,
    accuracy,
    answer_f1,
    answer_scores,
    arguments_of,
    macro_f1,
    normalized,
    role_score,
    span_score,
)
from elmo.tasks.tag_schemes import to_bioes, to_iob2
from tag_spans import spans


def test_accuracy_and_macro_f1_by_hand():
    gold, predicted = list("aabbc"), list("abbba")
    assert accuracy(gold, predicted) == 3 / 5
    assert macro_f1(gold, predicted) == pytest.approx((0.5 + 0.8 + 0.0) / 3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1))
def test_accuracy_is_micro_f1_and_all_right_is_one(pairs):
    gold, predicted = [a for a, _ in pairs], [b for _, b in pairs]
    assert macro_f1(gold, gold) == accuracy(gold, gold) == 1
    assert 0 <= macro_f1(gold, predicted) <= 1
    assert accuracy(gold, predicted) == accuracy(predicted, gold)


def test_nothing_to_measure_is_zero():
    assert accuracy([], []) == macro_f1([], []) == 0
    assert Score.of_counts(0, 0, 0).f1 == 0


def test_span_f1_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "I-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-ORG", "O", "O"]]
    score = span_score(gold, predicted)  # one of three predicted, one of three meant
    assert (score.precision, score.recall, score.f1) == (1 / 3, 1 / 3, 1 / 3)


@given(spans(), spans())
def test_span_f1_is_the_overlap_of_two_sets_in_any_scheme(gold, predicted):
    score = span_score([to_iob2(gold, 12)], [to_bioes(predicted, 12)])
    common = len(set(gold) & set(predicted))
    total = len(gold) + len(predicted)
    assert score.f1 == pytest.approx(2 * common / total if total else 0)
    other = span_score([to_bioes(predicted, 12)], [to_iob2(gold, 12)])
    assert (other.precision, other.recall) == (score.recall, score.precision)


def test_seqeval_agrees_where_it_is_installed():
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    generator = np.random.default_rng(0)
    tags = ["O", "B-X", "I-X", "B-Y", "I-Y", "E-X", "S-Y"]
    gold, predicted = ([list(generator.choice(tags, 9)) for _ in range(50)] for _ in range(2))
    assert span_score(gold, predicted).f1 == pytest.approx(metrics.f1_score(gold, predicted))


def test_tags_for_other_words_are_an_error():
    with pytest.raises(ValueError, match="1 tags predicted for 2 words"):
        span_score([["O", "O"]], [["O"]])
    with pytest.raises(ValueError, match="1 tags predicted for 2 words"):
        role_score([["O", "O"]], [["O"]])


def test_pieces_of_an_argument_are_one_argument_and_the_verb_is_none():
    tags = ["B-A1", "O", "B-V", "B-C-A1", "I-C-A1", "B-R-A1", "B-C-V"]
    assert arguments_of(tags) == [("A1", ((0, 1), (3, 5))), ("R-A1", ((5, 6),))]


def test_a_piece_without_a_beginning_is_an_argument():
    assert arguments_of(["B-C-A1", "B-V", "B-A1"]) == [("A1", ((0, 1),)), ("A1", ((2, 3),))]


def test_a_piece_belongs_to_the_nearest_argument_before_it():
    found = arguments_of(["B-A1", "B-A1", "B-V", "B-C-A1"])
    assert found == [("A1", ((0, 1),)), ("A1", ((1, 2), (3, 4)))]


def test_role_f1_by_hand():
    gold = [["B-A0", "B-V", "B-A1", "O", "B-C-A1"], ["B-V", "B-A1", "I-A1", "O", "B-AM-TMP"]]
    predicted = [["B-A0", "B-V", "B-A1", "O", "O"], ["B-V", "B-A1", "I-A1", "O", "B-AM-LOC"]]
    score = role_score(gold, predicted)  # A0 and the second A1 of four; half an A1 is none
    assert (score.precision, score.recall) == (2 / 4, 2 / 4)


@given(spans())
def test_without_continuations_roles_are_spans(drawn):
    tags = to_iob2(drawn, 12)
    others = to_iob2(drawn[:-1], 12)
    assert role_score([tags], [others]) == span_score([tags], [others])


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

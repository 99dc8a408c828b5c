"""Metrics of tasks: cases computed by hand, and laws."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.heads.tag_schemes import (
    LabelledSpan,
    irregular_places,
    scheme_of,
    spans_of,
    to_bioes,
    to_iob2,
)
from elmo.tasks.metrics.answers import answer_f1, answer_scores, normalized
from elmo.tasks.metrics.assignment import best_assignment
from elmo.tasks.metrics.clusters import average_f1, coreference_scores, without_singletons
from elmo.tasks.metrics.entities import entity_score, entity_scores
from elmo.tasks.metrics.labels import accuracy, label_scores, macro_f1
from elmo.tasks.metrics.roles import arguments_of, role_score, role_scores
from elmo.tasks.metrics.scores import Score


@st.composite
def spans(draw, length=12):
    """Draw spans that do not overlap, among `length` words."""
    cuts = sorted(draw(st.sets(st.integers(0, length), max_size=8)))
    kept = [(a, b) for a, b in pairwise(cuts) if draw(st.booleans())]
    return [LabelledSpan(a, b, draw(st.sampled_from("XY"))) for a, b in kept]


# Labels


def test_accuracy_and_macro_f1_by_hand():
    gold, predicted = list("aabbc"), list("abbba")
    assert accuracy(gold, predicted) == 3 / 5
    scores = label_scores(gold, predicted)
    assert scores["a"] == Score(1 / 2, 1 / 2)
    assert scores["b"] == Score(2 / 3, 1.0)
    assert scores["c"] == Score(0.0, 0.0)
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


# Tags and spans


def test_one_rule_reads_every_scheme():
    expected = [(0, 2, "PER"), (2, 3, "PER"), (4, 6, "ORG")]
    iob1 = ["I-PER", "I-PER", "B-PER", "O", "I-ORG", "I-ORG"]
    iob2 = ["B-PER", "I-PER", "B-PER", "O", "B-ORG", "I-ORG"]
    bioes = ["B-PER", "E-PER", "S-PER", "O", "B-ORG", "E-ORG"]
    bilou = ["B-PER", "L-PER", "U-PER", "O", "B-ORG", "L-ORG"]
    for tags in (iob1, iob2, bioes, bilou):
        assert spans_of(tags) == expected
    assert [scheme_of([tags]) for tags in (iob1, iob2, bioes, bilou)] == [
        "iob1",
        "iob2",
        "bioes",
        "bioes",
    ]


def test_a_change_of_type_begins_a_span_as_in_the_conll_scorer():
    assert spans_of(["B-X", "I-Y", "I-Y", "O", "I-X"]) == [(0, 1, "X"), (1, 3, "Y"), (4, 5, "X")]
    assert spans_of(["E-X", "E-X", "I-X"]) == [(0, 1, "X"), (1, 2, "X"), (2, 3, "X")]
    assert irregular_places(["B-X", "I-Y", "I-Y", "O", "I-X"]) == [1, 4]


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["NOUN", "O"], "labels"),
        (["B-X", "NN"], "labels"),
        (["O", "O"], "iob2"),
        (["O", "I-X", "B-X"], "iob1"),
        (["B-X", "O", "I-X"], "iob2"),
        (["I-", "O"], "labels"),
    ],
)
def test_schemes_are_told_apart(tags, scheme):
    assert scheme_of([tags]) == scheme


@given(spans())
def test_spans_survive_every_scheme(drawn):
    for write in (to_iob2, to_bioes):
        tags = write(drawn, 12)
        assert spans_of(tags) == drawn
        assert irregular_places(tags) == []


@given(st.lists(st.sampled_from([f"{p}-{t}" for p in "BIES" for t in "XY"] + ["O"]), max_size=9))
def test_spans_are_where_the_conll_scorer_starts_and_ends_chunks(tags):
    assert spans_of(tags) == conll_chunks(tags)


def conll_chunks(tags):
    """Chunks by the two decision tables of the CoNLL scorer, written out one by one."""
    parsed = [("O", "")] + [(t[0], t[2:]) for t in tags] + [("O", "")]
    chunks, begin = [], None
    for place, ((p, p_type), (t, t_type)) in enumerate(pairwise(parsed)):
        ends = (
            p in ("E", "S")
            or (p in ("B", "I") and t in ("B", "S", "O"))
            or (p != "O" and p_type != t_type)
        )
        starts = (
            t in ("B", "S")
            or (p in ("E", "S", "O") and t in ("E", "I"))
            or (t != "O" and p_type != t_type)
        )
        if ends and begin is not None:
            chunks.append(LabelledSpan(begin, place, p_type))
            begin = None
        if starts:
            begin = place
    return chunks


# Entities


def test_entity_f1_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "I-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-ORG", "O", "O"]]
    score = entity_score(gold, predicted)  # one of three predicted, one of three meant
    assert (score.precision, score.recall, score.f1) == (1 / 3, 1 / 3, 1 / 3)
    by_type = entity_scores(gold, predicted)
    assert by_type["PER"].f1 == 1
    assert by_type["ORG"] == Score(0.0, 0.0)
    assert by_type["LOC"] == Score(0.0, 0.0)
    assert list(by_type) == ["LOC", "ORG", "PER"]


@given(spans(), spans())
def test_entity_f1_is_the_overlap_of_two_sets_in_any_scheme(gold, predicted):
    score = entity_score([to_iob2(gold, 12)], [to_bioes(predicted, 12)])
    common = len(set(gold) & set(predicted))
    total = len(gold) + len(predicted)
    assert score.f1 == pytest.approx(2 * common / total if total else 0)
    other = entity_score([to_bioes(predicted, 12)], [to_iob2(gold, 12)])
    assert (other.precision, other.recall) == (score.recall, score.precision)


def test_seqeval_agrees_where_it_is_installed():
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    generator = np.random.default_rng(0)
    tags = ["O", "B-X", "I-X", "B-Y", "I-Y", "E-X", "S-Y"]
    gold, predicted = ([list(generator.choice(tags, 9)) for _ in range(50)] for _ in range(2))
    assert entity_score(gold, predicted).f1 == pytest.approx(metrics.f1_score(gold, predicted))


def test_tags_for_other_words_are_an_error():
    with pytest.raises(ValueError, match="1 tags predicted for 2 words"):
        entity_score([["O", "O"]], [["O"]])
    with pytest.raises(ValueError, match="1 tags predicted for 2 words"):
        role_score([["O", "O"]], [["O"]])


# Roles


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
    by_role = role_scores(gold, predicted)
    assert by_role["A1"] == Score(1 / 2, 1 / 2)
    assert "V" not in by_role
    assert by_role["AM-TMP"] == Score(0.0, 0.0)


@given(spans())
def test_without_continuations_roles_are_spans(drawn):
    tags = to_iob2(drawn, 12)
    others = to_iob2(drawn[:-1], 12)
    assert role_score([tags], [others]) == entity_score([tags], [others])


# Answers


def test_answers_are_normalised_in_the_official_order():
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


# Assignment and clusters


@given(
    st.integers(0, 5).flatmap(
        lambda n: st.integers(0, 5).flatmap(
            lambda m: st.lists(
                st.lists(st.integers(-5, 9), min_size=m, max_size=m), min_size=n, max_size=n
            ).map(lambda rows: np.array(rows, dtype=float).reshape(n, m))
        )
    )
)
def test_no_assignment_is_better(values):
    found = best_assignment(values)
    n, m = values.shape
    assert len({row for row, _ in found}) == len({column for _, column in found}) == min(n, m)
    table = values if n <= m else values.T
    best = max(
        sum(table[k, column] for k, column in enumerate(columns))
        for columns in permutations(range(max(n, m)), min(n, m))
    )
    assert sum(values[pair] for pair in found) == pytest.approx(best)


def test_a_large_assignment_is_as_good_as_sorting():
    values = np.random.default_rng(0).random(300)
    # Worth i * v[j]: the best pairs sort both, by the inequality of rearrangement.
    found = dict(best_assignment(np.outer(np.arange(300), values)))
    assert [values[found[k]] for k in range(1, 300)] == sorted(values)[1:]


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
    there = coreference_scores([gold], [predicted])
    back = coreference_scores([predicted], [gold])
    for name, score in there.items():
        assert score.precision == pytest.approx(back[name].recall)
        assert 0 <= score.f1 <= 1 + 1e-12
    if any(len(cluster) > 1 for cluster in gold):
        assert average_f1(coreference_scores([gold], [gold])) == pytest.approx(1)

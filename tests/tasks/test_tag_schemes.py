"""Tags of every scheme and the spans that they encode."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.tag_schemes import (
    LabeledSpan,
    irregular_places,
    scheme_of,
    spans_of,
    to_bioes,
    to_iob2,
)
from tag_spans import spans


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
        (["B-X", "O", "I-X", "O", "I-Y"], "iob1"),
        (["I-", "O"], "labels"),
    ],
)
def test_schemes_are_recognized(tags, scheme):
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
            chunks.append(LabeledSpan(begin, place, p_type))
            begin = None
        if starts:
            begin = place
    return chunks

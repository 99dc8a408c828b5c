"""Semantic roles in JSON lines and in bracket columns."""

import json

import pytest

from elmo.errors import InputError
from elmo.tasks.readers.frames import read_propbank, read_props
from elmo.tasks.settings import ReadOptions
from reader_samples import CONLL_2012, PROPS

FRAME = {"pred": 1, "sense": "go.01", "tags": ["B-ARG0", "B-V", "O"]}


def test_frames_of_json_lines(write):
    lines = [{"words": ["I", "go", "."], "frames": [FRAME]}, {"words": ["Oh"], "frames": []}]
    (frame,) = read_propbank(write("\n".join(map(json.dumps, lines))), ReadOptions())
    assert (frame.words, frame.predicate, frame.predicates) == (["I", "go", "."], 1, (1,))
    assert frame.tags == ["B-ARG0", "B-V", "O"]
    assert frame.place.endswith("line 1")


@pytest.mark.parametrize(
    ("words", "change", "message"),
    [
        (["I", "go", "."], {"pred": 3}, "'pred' is 3, expected a word from 0 to 2"),
        (["I", "go", "."], {"tags": ["O"]}, "expected 3 tags, one a word"),
        (["I", "go", "."], {"tags": ["X", "B-V", "O"]}, "tags are not O, B-ARG"),
        ([], {}, "no 'words'"),
    ],
)
def test_bad_frames_are_refused(write, words, change, message):
    record = {"words": words, "frames": [{**FRAME, **change}]}
    with pytest.raises(InputError, match=f"line 1: .*{message}"):
        read_propbank(write(json.dumps(record)), ReadOptions())


def test_props_in_brackets(write):
    first, second = read_props(write(PROPS), ReadOptions())
    assert first.words == ["The", "cat", "sat", "and", "purred"]
    assert (first.predicate, first.predicates) == (2, (2, 4))
    assert first.tags == ["B-A0", "I-A0", "B-V", "O", "O"]
    assert (second.predicate, second.predicates, second.tags[4]) == (4, (2, 4), "B-V")
    assert second.place.endswith("line 1")


def test_props_of_conll_2012(write):
    (frame,) = read_props(write(CONLL_2012), ReadOptions())
    assert frame.words == ["She", "has", "cats"]
    assert (frame.predicate, frame.predicates) == (1, (1,))
    assert frame.tags == ["B-ARG0", "B-V", "B-ARG1"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cat  NN  -     *)", "cat  NN  -     *", r"line 1: .*\(A0 is not closed|line 3: .*inside"),
        ("and  CC  -     *  ", "and  CC  -     *) ", "line 4: .* closes what was not opened"),
        ("and  CC  -     *  ", "and  CC  -     x  ", "line 1: no column marks|line 4"),
        ("cat  NN  -     *)", "cat  NN  -     (A2*))", "line 2: .* an argument inside of another"),
        ("(V*)  *\n", "(V*)\n", "line 3: 4 columns, expected 5"),
        ("sit ", "- ", "line 1: no column marks as many predicates"),
    ],
)
def test_broken_props_are_refused(write, old, new, message):
    assert old in PROPS
    with pytest.raises(InputError, match=message):
        read_props(write(PROPS.replace(old, new)), ReadOptions())

"""Coreference in the columns of CoNLL-2012 and LitBank."""

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.coreference import read_coreference
from elmo.tasks.settings import ReadOptions
from reader_samples import CONLL_2012, litbank


def test_coreference_of_litbank_with_nested_mentions(write):
    rows = [
        ("His", "(0|(1)"),
        ("dog", "0)"),
        (),
        ("He", "(1)"),
        ("and", ""),
        ("it", "(0)"),
        ("the", "(2"),
        ("end", "2)"),
    ]
    (document,) = read_coreference(write(litbank(rows), "b.conll"), ReadOptions())
    assert document.sentences == [["His", "dog"], ["He", "and", "it", "the", "end"]]
    assert document.clusters == [[(0, 1), (2, 3)], [(0, 2), (4, 5)], [(5, 7)]]
    assert document.name == "b; part 0"


def test_coreference_of_conll_2012(write):
    (document,) = read_coreference(write(CONLL_2012), ReadOptions())
    assert document.clusters == [[(0, 1)]]
    assert document.sentences[1] == ["Oh"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "(0"), ("b", "")], r"line 2: the mention \(0 is not closed"),
        ([("a", "0)")], r"line 2: '0\)' closes what was not opened"),
        ([("a", "(x)")], "line 2: .*expected marks such as"),
        ([("a", "3")], "line 2: .*expected marks such as"),
    ],
)
def test_broken_coreference_is_refused(write, rows, message):
    with pytest.raises(InputError, match=message):
        read_coreference(write(litbank(rows)), ReadOptions())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n", "line 1: a word before '#begin document'"),
        ("#begin document (x)\n#begin document (y)\n", "line 2: a document begins inside"),
        ("#end document\n", "line 1: a document ends that did not begin"),
        ("#begin document (x)\na b c d -\n", "line 2: the file ends inside of a document"),
        (
            "#begin document (x)\na b c\n#end document\n",
            "line 2: 3 columns, expected those of CoNLL-2012",
        ),
        ("", "no documents"),
    ],
)
def test_documents_must_begin_and_end(write, text, message):
    with pytest.raises(InputError, match=message):
        read_coreference(write(text), ReadOptions())


def test_odd_mentions_are_counted(write):
    rows = [("a", "(0)|(0)"), ("b", "(1)|(2)"), ("c", "(3"), (), ("d", "3)")]
    with pytest.warns(ElmoWarning) as told:
        (document,) = read_coreference(write(litbank(rows)), ReadOptions())
    assert document.clusters == [[(0, 1)], [(1, 2)]]
    text = " ".join(str(warning.message) for warning in told)
    assert "1 mentions are in two clusters" in text
    assert "1 mentions go over the end of a sentence" in text

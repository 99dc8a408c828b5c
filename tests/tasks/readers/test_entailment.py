"""Pairs of texts in JSON lines and tables."""

import json

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.entailment import read_pairs
from elmo.text.files import EnglishTokenizer
from reader_samples import PAIR

ENGLISH = EnglishTokenizer()


def test_pairs_of_json_lines_and_tables(write):
    lines = [PAIR, {**PAIR, "gold_label": "-"}, {**PAIR, "gold_label": "-"}]
    with pytest.warns(ElmoWarning, match="2 pairs have no label.*line 2"):
        (pair,) = read_pairs(write("\n".join(map(json.dumps, lines)), "d.jsonl"), ENGLISH)
    assert pair.premise == ["A", "man", "eats", "."]
    assert pair.hypothesis == ["He", "eats", "."]
    assert pair.label == "entailment"
    table = write("\t".join(PAIR) + "\n" + "\t".join(PAIR.values()) + "\n", "d.tsv")
    (other,) = read_pairs(table, ENGLISH)
    assert (other.premise, other.hypothesis, other.label) == (
        pair.premise,
        pair.hypothesis,
        pair.label,
    )
    assert other.place.endswith("line 2")


def test_bad_pairs_are_refused(write):
    with pytest.raises(InputError, match="line 1: no gold_label or label that is a string"):
        read_pairs(write('{"sentence1": "a", "gold_label": 3}', "d.jsonl"), ENGLISH)
    with pytest.raises(InputError, match="line 1: no 'sentence2' that is a string"):
        read_pairs(write('{"sentence1": "a", "label": "x"}', "d.jsonl"), ENGLISH)
    with pytest.raises(InputError, match="line 2: 2 columns, expected 3"):
        read_pairs(write("sentence1\tsentence2\tgold_label\na\tb\n", "d.tsv"), ENGLISH)
    with pytest.warns(ElmoWarning, match="1 pairs lack a text"), pytest.raises(InputError):
        read_pairs(write(json.dumps({**PAIR, "sentence2": " "}), "d.jsonl"), ENGLISH)

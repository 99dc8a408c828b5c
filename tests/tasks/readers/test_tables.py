"""Texts with labels and pairs of texts in csv, tsv and JSON lines; lines with labels."""

import json

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.tables import read_label_lines, read_pairs, read_table
from elmo.tasks.settings import ReadOptions
from reader_samples import PAIR

ENGLISH, WORDS = ReadOptions(), ReadOptions(tokenizer="whitespace")


def test_csv_with_a_header_several_texts_and_lines_in_quotation_marks(write):
    path = write('label,title,description\n3,"A, b","two\nlines"\n1,c,d\n', "news.csv")
    first, second = read_table(path, WORDS)
    assert (first.words, first.label) == (["A,", "b", "two", "lines"], "3")
    assert second.place.endswith("line 4")
    assert read_table(path, WORDS.replace(text_column="title"))[0].words == ["A,", "b"]
    several = WORDS.replace(text_column="title,label", label_column="title")
    assert read_table(path, several)[0].words == ["A,", "b", "3"]


def test_tables_without_names_go_by_number(write):
    path = write('pos\tsay "no\nneg\tagain\n', "data.tsv")
    with pytest.raises(InputError, match=r"no column label or gold_label.*label_column"):
        read_table(path, WORDS)
    examples = read_table(path, WORDS.replace(label_column="0", text_column="1"))
    assert [(e.words, e.label) for e in examples] == [(["say", '"no'], "pos"), (["again"], "neg")]


def test_json_lines_with_numbers_as_labels(write):
    path = write('{"text": "Don\'t go.", "label": 1}\n\n{"text": "", "label": 0}\n', "d.jsonl.gz")
    with pytest.warns(ElmoWarning, match="1 rows with empty texts are left out.*line 3"):
        (example,) = read_table(path, ENGLISH)
    assert (example.words, example.label) == (["Do", "n't", "go", "."], "1")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("text,label\na,b,c\n", "d.csv", "line 2: 3 columns, expected 2: text, label"),
        ('text,label\n"a,b\n', "d.csv", "line 2: not valid csv"),
        ("text,label\n", "d.csv", "no texts with labels"),
        ("{'text'}", "d.jsonl", "line 1: not valid JSON"),
        ("[1]", "d.jsonl", "line 1: expected a JSON object"),
        ('{"text": "a", "label": 1}\n{"text": "a"}', "d.jsonl", "line 2: no column label or"),
    ],
)
def test_bad_tables_are_refused(write, text, name, message):
    with pytest.raises(InputError, match=message):
        read_table(write(text, name), WORDS)
    path = write("text,label\na,b\n", "ok.csv")
    with pytest.raises(InputError, match="no column 'body'; there are: text, label"):
        read_table(path, WORDS.replace(text_column="body"))


def test_lines_that_begin_with_a_label(write):
    path = write("LOC:city Where is it ?\n__label__HUM Who ?\nDESC\n")
    with pytest.warns(ElmoWarning, match="1 labels without a text.*line 3"):
        examples = read_label_lines(path, WORDS)
    assert [(e.words, e.label) for e in examples] == [
        (["Where", "is", "it", "?"], "LOC:city"),
        (["Who", "?"], "HUM"),
    ]


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
    with pytest.raises(
        InputError, match="line 1: no column gold_label or label; there are: sentence1"
    ):
        read_pairs(write('{"sentence1": "a"}', "d.jsonl"), ENGLISH)
    with pytest.raises(
        InputError, match="line 1: no column sentence2; there are: sentence1, label"
    ):
        read_pairs(write('{"sentence1": "a", "label": "x"}', "d.jsonl"), ENGLISH)
    with pytest.raises(InputError, match="line 2: 2 columns, expected 3"):
        read_pairs(write("sentence1\tsentence2\tgold_label\na\tb\n", "d.tsv"), ENGLISH)
    with pytest.warns(ElmoWarning, match="1 pairs lack a text"), pytest.raises(InputError):
        read_pairs(write(json.dumps({**PAIR, "sentence2": " "}), "d.jsonl"), ENGLISH)

"""Texts with labels in csv, tsv, JSON lines and lines that begin with a label."""

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.tables import read_label_lines, read_table
from elmo.text.files import EnglishTokenizer, WhitespaceTokenizer

ENGLISH, WORDS = EnglishTokenizer(), WhitespaceTokenizer()


def test_csv_with_a_header_several_texts_and_lines_in_quotation_marks(write):
    path = write('label,title,description\n3,"A, b","two\nlines"\n1,c,d\n', "news.csv")
    first, second = read_table(path, WORDS)
    assert (first.words, first.label) == (["A,", "b", "two", "lines"], "3")
    assert second.place.endswith("line 4")
    assert read_table(path, WORDS, text_column="title")[0].words == ["A,", "b"]
    assert read_table(path, WORDS, text_column="title,label", label_column="title")


def test_tables_without_names_go_by_number(write):
    path = write('pos\tsay "no\nneg\tagain\n', "data.tsv")
    with pytest.raises(InputError, match=r"which column is the label.*--label-column"):
        read_table(path, WORDS)
    examples = read_table(path, WORDS, label_column="0", text_column="1")
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
        ('{"text": "a", "label": 1}\n{"text": "a"}', "d.jsonl", "line 2: which column"),
    ],
)
def test_bad_tables_are_refused(write, text, name, message):
    with pytest.raises(InputError, match=message):
        read_table(write(text, name), WORDS)
    path = write("text,label\na,b\n", "ok.csv")
    with pytest.raises(InputError, match="no column 'body'; there are: text, label"):
        read_table(path, WORDS, text_column="body")


def test_lines_that_begin_with_a_label(write):
    path = write("LOC:city Where is it ?\n__label__HUM Who ?\nDESC\n")
    with pytest.warns(ElmoWarning, match="1 labels without a text.*line 3"):
        examples = read_label_lines(path, WORDS)
    assert [(e.words, e.label) for e in examples] == [
        (["Where", "is", "it", "?"], "LOC:city"),
        (["Who", "?"], "HUM"),
    ]

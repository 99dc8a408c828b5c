"""CoNLL-U: words and their columns, lines of errors."""

import pytest

from elmo.errors import InputError
from elmo.text.conllu import read_conllu
from reader_samples import CONLLU


def test_words_are_the_parts_of_contractions_and_no_empty_nodes(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU + "\n\n# a comment\n\n" + CONLLU)
    first, second = read_conllu(path)
    assert [row.field("form") for row in first] == ["Do", "n't", "go"]
    assert [row.field("upos") for row in second] == ["AUX", "PART", "VERB"]
    assert [row.line for row in first] == [3, 4, 6]
    assert second[0].line == 13


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3\tgo\n", "line 7: 2 columns, expected the 10 of CoNLL-U"),
        ("9" + "\t_" * 9, "line 7: word 9, expected word 4"),
        ("4-" + "\t_" * 9, "line 7: '4-' is no number of a word"),
    ],
)
def test_broken_lines_are_refused_with_file_and_line(tmp_path, line, message):
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU + line)
    with pytest.raises(InputError, match=rf"a\.conllu, {message}"):
        list(read_conllu(path))

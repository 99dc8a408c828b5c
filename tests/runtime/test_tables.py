"""Numbers and tables as text."""

from elmo.runtime.tables import counted, markdown_table, text_table


def test_tables_are_aligned():
    assert text_table(("name", "n"), [("a", "10"), ("long name", "7")]) == (
        "name        n\na          10\nlong name   7"
    )
    assert markdown_table(("name", "n"), [("a", "1")]) == "| name | n |\n| --- | ---: |\n| a | 1 |"


def test_chinese_characters_take_two_columns():
    assert text_table(("word", "n"), [("猫", "1")]) == "word  n\n猫    1"


def test_nouns_agree_with_their_numbers():
    assert [counted(n, "word") for n in (0, 1, 1000)] == ["0 words", "1 word", "1,000 words"]

"""Sentences of users: words that they mark."""

import pytest

from elmo.errors import InputError
from elmo.text.files import WhitespaceTokenizer
from elmo.text.sentences import marked_words


def test_marks_are_found_wherever_they_stand():
    def split(text):
        return marked_words(text, WhitespaceTokenizer())

    assert split("The [bank] of the [river].") == (
        ["The", "bank", "of", "the", "river", "."],
        [1, 4],
    )
    assert split("[one]") == (["one"], [0])
    with pytest.raises(InputError, match=r"\[a b\] marks 2 words"):
        split("the [a b] cat")
    with pytest.raises(InputError, match="marks 0 words"):
        split("the [] cat")
    with pytest.raises(InputError, match="no word of 'the cat' is marked"):
        split("the cat")

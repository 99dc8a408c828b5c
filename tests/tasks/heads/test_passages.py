"""Words of questions and paragraphs: their places, and answers aligned with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.heads.passages import align, locate
from elmo.tasks.heads.qa import Qa
from elmo.tasks.readers import files
from elmo.tasks.readers.examples import Answer, Question, Span
from elmo.tasks.settings import ReadOptions

SPLIT = ReadOptions(tokenizer="whitespace")


# Places of words


@given(st.text(alphabet="abAB .,'-\"\n\t()é河", max_size=60))
def test_words_are_where_their_places_say(text):
    for tokenizer in ("english", "whitespace"):
        located = locate(text, ReadOptions(tokenizer=tokenizer))
        words = [word for sentence in located.sentences for word in sentence]
        assert len(located) == len(words)
        for number, word in enumerate(words):
            assert located.cut_out(Span(number, number + 1)) == word
            assert located.words_at(located.starts[number], located.stops[number]) == (
                number,
                number + 1,
            )


def test_pieces_of_a_text_are_its_words():
    located = locate("He was born in (1867) in Warsaw.", ReadOptions())
    start = located.text.index("1867")
    span = located.words_at(start, start + 4)
    assert located.cut_out(span) == "1867"
    assert located.cut_out(Span(0, 3)) == "He was born"
    assert located.words_at(2, 3) is None  # the blank
    short = located.first_words(2)
    assert (len(short), short.sentences) == (2, [["He", "was"]])
    assert located.first_words(99) is located


def test_a_tokenizer_that_changes_words_is_refused(monkeypatch):
    class Lower:
        def sentences(self, text):
            return [text.lower().split()]

    monkeypatch.setattr(files, "tokenizer_of", lambda name: Lower())
    with pytest.raises(InputError, match="the tokenizer 'english' made 'ann' of 'Ann'"):
        locate("Ann", ReadOptions())


# Alignment


def questions(context, *answers, **changes):
    given_answers = tuple(Answer(text, start) for text, start in answers)
    return [Question("q", context, "Who ?", given_answers, place="f, line 1", **changes)]


def test_answers_are_found_wherever_the_context_has_them_as_words():
    (found,) = align(questions("Ann met Anna and Ann .", ("Ann", 0)), SPLIT)
    assert found.spans == ((0, 1), (4, 5))  # not the beginning of Anna
    (found,) = align(questions("Bo or Cy .", ("Bo", 0), ("Cy", 6)), SPLIT)
    assert found.spans == ((0, 1), (2, 3))


def test_answers_inside_of_words_are_counted():
    with pytest.warns(ElmoWarning, match=r"1 questions have an answer that begins.*f, line 1"):
        (found,) = align(questions("In 1990s style", ("1990", 3)), SPLIT)
    assert found.spans == ((1, 2),)


def test_cut_contexts_and_lost_answers_are_counted():
    with pytest.warns(ElmoWarning) as told:
        (found,) = align(questions("a b c d", ("d", 6)), ReadOptions(max_words=2))
    assert (len(found.context), found.spans) == (2, ())
    messages = " ".join(str(warning.message) for warning in told)
    assert "1 questions have a text of more than 2 words, which is cut" in messages
    assert "1 questions have no answer in the words of their text" in messages
    with pytest.raises(InputError, match="no training question has an answer"):
        Qa.from_examples([found])


def test_paragraphs_are_split_once():
    given_questions = questions("a b c", ("a", 0)) + questions("a b c", ("b", 2))
    first, second = align(given_questions, SPLIT)
    assert first.context is second.context


def test_empty_questions_are_refused():
    with pytest.raises(InputError, match="f, line 1: no words"):
        align(questions(" ", ("a", 0)), SPLIT)

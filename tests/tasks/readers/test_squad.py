"""Questions of SQuAD: answers, their offsets, broken files."""

import json
import re

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.examples import Answer
from elmo.tasks.readers.squad import read_squad
from elmo.tasks.settings import ReadOptions
from reader_samples import squad


def test_questions_have_their_paragraph_and_answers(write):
    given_answers = {"text": "Ann", "answer_start": 0}, {"text": "Bo", "answer_start": 8}
    path = write(json.dumps(squad("Ann and Bo.", *given_answers), indent=1), "d.json.gz")
    (question,) = read_squad(path, ReadOptions())
    assert question.id == "q1"
    assert question.answers == (Answer("Ann", 0), Answer("Bo", 8))
    assert question.place.endswith("d.json.gz, question q1")


def test_answers_elsewhere_are_moved_and_answers_nowhere_counted(write):
    wrong = {"text": "Ann", "answer_start": 9}, {"text": "Cy", "answer_start": 0}
    path = write(json.dumps(squad("Ann, Bo, Ann.", *wrong[:1])), "d.json")
    assert read_squad(path, ReadOptions())[0].answers == (Answer("Ann", 9),)
    path = write(json.dumps(squad("Ann, Bo,  Ann.", *wrong)), "d.json")
    with pytest.warns(ElmoWarning) as told:
        (question,) = read_squad(path, ReadOptions())
    assert question.answers == (Answer("Ann", 10),)
    messages = [str(warning.message) for warning in told]
    assert any("1 answers are not where answer_start says" in text for text in messages)
    assert any(re.search(r"left out \(first: .*d.json, question q1\)", text) for text in messages)


def test_questions_without_an_answer_are_counted(write):
    path = write(json.dumps(squad("Ann.")), "d.json")
    with (
        pytest.warns(ElmoWarning, match="1 questions without an answer.*question q1"),
        pytest.raises(InputError, match="no questions with answers"),
    ):
        read_squad(path, ReadOptions())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not valid JSON"),
        ("[]", "the file: no 'data' of type list"),
        ('{"data": [{}]}', "article 0: no 'paragraphs' of type list"),
        (json.dumps(squad("Ann.", {"text": 3})), "question q1: no 'text' of type str"),
        (json.dumps(squad("A", {"text": "A", "answer_start": "0"})), "'answer_start' of type int"),
    ],
)
def test_bad_questions_are_refused(write, content, message):
    with pytest.raises(InputError, match=message):
        read_squad(write(content, "d.json"), ReadOptions())

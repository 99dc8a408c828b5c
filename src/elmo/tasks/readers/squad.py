"""SQuAD v1.1: articles of paragraphs with questions, each answered by a piece of its paragraph.

The file is often one long line, so messages name the question instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmo.tasks.readers.examples import Answer, Question
from elmo.tasks.readers.files import Remarks, place, problem
from elmo.tasks.settings import ReadOptions
from elmo.text.files import TextFile


def read_squad(path: Path, options: ReadOptions) -> list[Question]:
    """Read questions with their paragraphs and answers.

    Counted in a warning: answers that are not at their offset but elsewhere in the paragraph (the
    nearest occurrence is taken), answers that are not in it at all (left out), and questions
    without any answer, such as the unanswerable ones of version 2 (left out).
    """
    with TextFile(path, options.encoding) as lines:
        text = "\n".join(lines)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise problem(path, error.lineno, f"not valid JSON: {error.msg}") from None
    remarks = Remarks(path)
    questions = []
    for number, article in enumerate(_get(path, content, "data", list, "the file")):
        where = f"article {number}"
        for paragraph in _get(path, article, "paragraphs", list, where):
            context = _get(path, paragraph, "context", str, where)
            for item in _get(path, paragraph, "qas", list, where):
                name = _get(path, item, "id", str, where)
                question = _question(path, item, f"question {name}", context, remarks)
                if question is not None:
                    questions.append(question)
    return remarks.finish(questions, "questions with answers")


def _question(path: Path, item: Any, where: str, context: str, remarks: Remarks) -> Question | None:
    """Return a question; None for one that is left out."""
    text = _get(path, item, "question", str, where)
    given = _get(path, item, "answers", list, where)
    found = [_answer(path, answer, where, context, remarks) for answer in given]
    answers = tuple(answer for answer in found if answer is not None)
    if not context.strip() or not text.strip():
        remarks.add("questions are empty or have an empty context; left out", where)
    elif not answers:
        remarks.add("questions without an answer in their context are left out", where)
    else:
        return Question(item["id"], context, text, answers, place(path, where))
    return None


def _answer(path: Path, answer: Any, where: str, context: str, remarks: Remarks) -> Answer | None:
    """Return an answer at an occurrence in the context; None if there is none."""
    text = _get(path, answer, "text", str, where)
    start = _get(path, answer, "answer_start", int, where)
    if text.strip() and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    places = list(occurrences(context, text)) if text.strip() else []
    if not places:
        remarks.add("answers are not in their context; left out", where)
        return None
    remarks.add("answers are not where answer_start says; the nearest place is taken", where)
    return Answer(text, min(places, key=lambda found: abs(found - start)))


def _get(path: Path, record: Any, key: str, kind: type, where: str) -> Any:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise problem(
            path, where, f"no {key!r} of type {kind.__name__}, expected the layout of SQuAD v1.1"
        )
    return value


def occurrences(text: str, piece: str) -> Iterator[int]:
    """Yield all offsets, overlapping ones included, at which a text has a piece."""
    found = text.find(piece)
    while found >= 0:
        yield found
        found = text.find(piece, found + 1)

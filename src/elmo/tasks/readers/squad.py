"""SQuAD v1.1: articles of paragraphs with questions, each answered by a piece of its paragraph.

A JSON file may be one line, so messages name the question, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmo.errors import InputError
from elmo.tasks.readers.examples import Answer, Question
from elmo.tasks.readers.files import Remarks, not_empty, place, problem
from elmo.text.files import TextFile


def read_squad(path: Path, *, encoding: str = "utf-8") -> list[Question]:
    """Read questions with their paragraphs and answers.

    Counted in a warning: answers that are not at their offset but elsewhere in the paragraph (the
    nearest occurrence is taken), answers that are not in it at all (left out), and questions
    without any answer, such as the unanswerable ones of version 2 (left out).
    """
    with TextFile(path, encoding) as lines:
        text = "\n".join(lines)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise problem(path, error.lineno, f"not valid JSON: {error.msg}") from None
    reader = _Reader(path, text)
    reader.read(content)
    reader.remarks.warn()
    return not_empty(reader.questions, path, "questions with answers")


class _Reader:
    """Collects the questions of a file."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.remarks = Remarks(path)
        self.questions: list[Question] = []
        self._text = text
        self._one_line = "\n" not in text.strip()
        self._searched = 0
        self._line = 1

    def read(self, content: Any) -> None:
        """Collect all questions."""
        articles = content.get("data") if isinstance(content, dict) else None
        if not isinstance(articles, list):
            raise problem(self.path, 1, "expected an object with a list 'data', as SQuAD has it")
        for number, article in enumerate(articles):
            where = f"article {number}"
            title = str(article.get("title", "")) if isinstance(article, dict) else ""
            for paragraph in self._get(article, "paragraphs", list, where):
                context = self._get(paragraph, "context", str, where)
                for item in self._get(paragraph, "qas", list, where):
                    self._add(item, context, title, where)

    def _add(self, item: Any, context: str, title: str, where: str) -> None:
        name = self._get(item, "id", str, where)
        line = self._line_of(name)
        where = f"question {name}"
        question = self._get(item, "question", str, where)
        given = self._get(item, "answers", list, where)
        answers = tuple(
            answer
            for one in given
            if (answer := self._answer(one, context, line, where)) is not None
        )
        if not context.strip() or not question.strip():
            self.remarks.add("questions are empty or have an empty context; left out", line, where)
        elif not answers:
            self.remarks.add(
                "questions without an answer in their context are left out", line, where
            )
        else:
            at = f"{place(self.path, line)}, {where}"
            self.questions.append(Question(name, context, question, answers, title, at))

    def _answer(self, answer: Any, context: str, line: int, where: str) -> Answer | None:
        """Return an answer at an occurrence in the context; None if there is none."""
        text = self._get(answer, "text", str, where)
        start = self._get(answer, "answer_start", int, where)
        if text.strip() and start >= 0 and context.startswith(text, start):
            return Answer(text, start)
        places = list(occurrences(context, text)) if text.strip() else []
        if not places:
            self.remarks.add("answers are not in their context; left out", line, where)
            return None
        self.remarks.add(
            "answers are not where answer_start says; the nearest place is taken", line
        )
        return Answer(text, min(places, key=lambda found: abs(found - start)))

    def _get(self, record: Any, key: str, kind: type, where: str) -> Any:
        value = record.get(key) if isinstance(record, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(
                f"{place(self.path, self._line)}, {where}: no {key!r} of type {kind.__name__}, "
                "expected the layout of SQuAD v1.1"
            )
        return value

    def _line_of(self, name: str) -> int:
        """Return the line of a question, at or after that of the question before."""
        if not self._one_line:
            found = self._text.find(json.dumps(name), self._searched)
            if found >= 0:
                self._line += self._text.count("\n", self._searched, found)
                self._searched = found
        return self._line


def occurrences(text: str, piece: str) -> Iterator[int]:
    """Yield all offsets, overlapping ones included, at which a text has a piece."""
    found = text.find(piece)
    while found >= 0:
        yield found
        found = text.find(piece, found + 1)

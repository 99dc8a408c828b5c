"""What readers give: one frozen dataclass a task.

Every example says in `place` where it comes from (`"train.txt, line 7"`), for messages; the field
is empty in examples that were made from raw text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Words = list[str]


class Span(NamedTuple):
    """Consecutive words: those from `start` on and before `stop`, counted from 0."""

    start: int
    stop: int


@dataclass(frozen=True)
class TextExample:
    """A text with a label."""

    words: Words
    label: str | None = None
    """None for a text whose label is not known."""
    place: str = ""


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with one tag for each word."""

    words: Words
    tags: list[str] | None = None
    """As many as words; entities in IOB2 whatever the file has. None where they are not known."""
    place: str = ""


@dataclass(frozen=True)
class Frame:
    """One predicate of a sentence and its arguments."""

    words: Words
    predicate: int
    """Number of the predicate's word, from 0."""
    tags: list[str] | None = None
    """As many as words, in IOB2; the predicate itself is `B-V`. None where they are not known."""
    sense: str = ""
    """Sense of the predicate, such as `come.03`; empty where it is not known."""
    place: str = ""


@dataclass(frozen=True)
class EntailmentPair:
    """Two texts, and what the first says about the second."""

    premise: Words
    hypothesis: Words
    label: str | None = None
    """`entailment`, `neutral`, `contradiction` or what the file has; None where not known."""
    place: str = ""


class Answer(NamedTuple):
    """An answer as it stands in the context."""

    text: str
    start: int
    """Its first character's place in the context, from 0."""


@dataclass(frozen=True)
class Question:
    """A question about a paragraph, answered by a piece of it."""

    id: str
    context: str
    """The paragraph, raw."""
    question: str
    answers: tuple[Answer, ...] = ()
    """What people answered; several for questions of the test set, none for raw ones."""
    title: str = ""
    """Title of the article that the paragraph is from."""
    place: str = ""


@dataclass(frozen=True)
class Document:
    """Sentences, and which pieces of them mean the same."""

    sentences: list[Words]
    clusters: list[list[Span]] | None = None
    """Spans count the words of the whole document; None where clusters are not known."""
    name: str = ""
    place: str = ""
    lines: tuple[int, ...] = ()
    """Line of the file on which each sentence begins, from 1; empty for raw text."""

"""What readers return: one frozen dataclass a task.

Every example has in `place` file and line it comes from (`"train.txt, line 7"`), for messages; the
field is empty in examples made from raw text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Words = list[str]


class Span(NamedTuple):
    """Consecutive words: from `start` up to, not including, `stop`, counted from 0."""

    start: int
    stop: int


@dataclass(frozen=True)
class TextExample:
    """A text with a label."""

    words: Words
    label: str | None = None
    """None for a text whose label is unknown."""
    place: str = ""


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with one tag for each word."""

    words: Words
    tags: list[str] | None = None
    """As many as words; entities in IOB2 whatever the file has. None where they are unknown."""
    place: str = ""


@dataclass(frozen=True)
class Frame:
    """One predicate of a sentence and its arguments."""

    words: Words
    predicate: int | None
    """Number of the predicate's word, from 0; None where predicates must be found."""
    tags: list[str] | None = None
    """As many as words, in IOB2; the predicate itself is `B-V`. None where they are unknown."""
    predicates: tuple[int, ...] = ()
    """All predicates of the sentence."""
    place: str = ""


@dataclass(frozen=True)
class EntailmentPair:
    """Two texts, and whether the first entails the second."""

    premise: Words
    hypothesis: Words
    label: str | None = None
    """`entailment`, `neutral`, `contradiction` or what the file has; None where unknown."""
    place: str = ""


class Answer(NamedTuple):
    """An answer as it stands in the context."""

    text: str
    start: int
    """Offset of its first character in the context, from 0."""


@dataclass(frozen=True)
class Question:
    """A question about a paragraph, answered by a piece of it."""

    id: str
    context: str
    """The paragraph, raw."""
    question: str
    answers: tuple[Answer, ...] = ()
    """Annotated answers; several for questions of the test set, none for raw ones."""
    place: str = ""


@dataclass(frozen=True)
class Document:
    """Sentences, and their clusters of coreferent mentions."""

    sentences: list[Words]
    clusters: list[list[Span]] | None = None
    """Spans count the words of the whole document; None where clusters are unknown."""
    name: str = ""
    place: str = ""

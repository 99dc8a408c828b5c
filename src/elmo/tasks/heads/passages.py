"""Questions with their words, and answers as words instead of characters.

Tokenizers here leave every character of a word as it is and only drop white space, so words are
located again by scanning the text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import InputError
from elmo.tasks.readers.examples import Question, Span, Words
from elmo.tasks.readers.files import sentences_of, warn_of, words_of
from elmo.tasks.readers.formats import read_questions
from elmo.tasks.readers.squad import occurrences
from elmo.tasks.settings import ReadOptions


@dataclass(frozen=True)
class LocatedText:
    """A text, its sentences of words, and the character offsets of each word."""

    text: str
    sentences: list[Words]
    starts: list[int]
    """First character of every word, over all sentences."""
    stops: list[int]
    """The character after the last of every word."""

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.starts)

    def cut_out(self, words: Span) -> str:
        """Return the text from the first of some words to the last."""
        return self.text[self.starts[words.start] : self.stops[words.stop - 1]]

    def words_at(self, start: int, stop: int) -> Span | None:
        """Return the words that overlap the characters from `start` up to `stop`, if any."""
        first = bisect_right(self.stops, start)
        after = bisect_left(self.starts, stop)
        return Span(first, after) if first < after else None

    def first_words(self, count: int) -> LocatedText:
        """Truncate the text to its first words, within a sentence if need be."""
        if count >= len(self):
            return self
        kept: list[Words] = []
        left = count
        for words in self.sentences:
            if left > 0:
                kept.append(words[:left])
            left -= len(words)
        return LocatedText(self.text, kept, self.starts[:count], self.stops[:count])


def locate(text: str, options: ReadOptions) -> LocatedText:
    """Split a raw text and locate its words; the tokenizer must not change any of them."""
    sentences = [words for words in sentences_of(text, options) if words]
    starts: list[int] = []
    stops: list[int] = []
    place = 0
    for word in (word for words in sentences for word in words):
        found = text.find(word, place)
        if found < 0:
            rest = text[place : place + 40]
            raise InputError(
                f"the tokenizer {options.tokenizer or 'english'!r} made {word!r} of {rest!r}: "
                "expected words as they stand in the text; choose another tokenizer"
            )
        place = found + len(word)
        starts.append(found)
        stops.append(place)
    return LocatedText(text, sentences, starts, stops)


@dataclass(frozen=True)
class Passage:
    """A question about a paragraph, in words."""

    question: Question
    context: LocatedText
    words: Words
    """Of the question."""
    spans: tuple[Span, ...] = ()
    """Words of the context that are an answer, at every occurrence."""

    @property
    def place(self) -> str:
        """File, line and name of the question."""
        return self.question.place


def read_passages(paths: Sequence[Path], options: ReadOptions) -> list[Passage]:
    """Read SQuAD's JSON; answers are aligned with words."""
    return align(read_questions(paths, options), options)


def align(questions: Sequence[Question], options: ReadOptions) -> list[Passage]:
    """Split questions and contexts into words, and align answers with words.

    Counted in a warning: contexts that are truncated, answers that begin or end inside of a word
    (whole words are taken), and questions whose answers are all truncated away (kept for
    evaluation; training learns nothing from them).
    """
    contexts = {text: locate(text, options) for text in dict.fromkeys(q.context for q in questions)}
    limit = options.max_words
    passages = [passage_of(q, options, contexts[q.context].first_words(limit)) for q in questions]
    cases = {
        f"questions have a text of more than {limit} words, which is cut; see --max-words": [
            p for p in passages if len(contexts[p.question.context]) > limit
        ],
        "questions have an answer that begins or ends inside of a word; whole words are taken": [
            p for p in passages if _is_rough(p)
        ],
        "questions have no answer in the words of their text; nothing is learned from them": [
            p for p in passages if p.question.answers and not p.spans
        ],
    }
    for what, found in cases.items():
        warn_of(what, [passage.place for passage in found])
    return passages


def passage_of(question: Question, options: ReadOptions, context: LocatedText) -> Passage:
    """Split one question into words, and align its answers with its context."""
    words = words_of(question.question, options)
    if not len(context) or not words:
        raise InputError(f"{question.place or 'an example'}: no words in the question or its text")
    spans: set[Span] = set()
    for answer in question.answers:
        for start in (answer.start, *occurrences(context.text, answer.text)):
            span = context.words_at(start, start + len(answer.text))
            if span is None:
                continue
            # Elsewhere than where it was annotated, an answer must be whole words.
            if start == answer.start or context.cut_out(span) == answer.text:
                spans.add(span)
    return Passage(question, context, words, tuple(sorted(spans)))


def _is_rough(passage: Passage) -> bool:
    """Check whether an answer begins or ends inside of a word."""
    for answer in passage.question.answers:
        stop = answer.start + len(answer.text)
        span = passage.context.words_at(answer.start, stop)
        if span is not None and passage.context.cut_out(span) != answer.text.strip():
            return True
    return False

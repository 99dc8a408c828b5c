"""Questions with their words, and answers as words instead of characters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.heads.offsets import LocatedText, locate
from elmo.tasks.readers.examples import Question, Span, Words
from elmo.tasks.recipe import ReadOptions
from elmo.text.files import Tokenizer, get_tokenizer


@dataclass(frozen=True)
class Passage:
    """A question about a paragraph, in words."""

    question: Question
    context: LocatedText
    words: Words
    """Of the question."""
    spans: tuple[Span, ...] = ()
    """Words of the context that are an answer, wherever the context has it."""

    @property
    def place(self) -> str:
        """File, line and name of the question."""
        return self.question.place


def aligned(questions: Sequence[Question], options: ReadOptions) -> list[Passage]:
    """Split questions and contexts into words, and match answers with words.

    Counted in a warning: contexts that are cut, answers of which only a part of a word is meant
    (whole words are taken), and questions whose answers are all behind the cut (kept to be
    measured; training learns nothing from them).
    """
    tokenizer = get_tokenizer(options.tokenizer)
    contexts: dict[str, LocatedText] = {}
    passages = []
    for question in questions:
        context = contexts.get(question.context)
        if context is None:
            context = contexts[question.context] = locate(question.context, tokenizer)
        cut = context.first_words(options.max_words)
        passages.append(_passage(question, cut, tokenizer))
    _tell(passages, contexts, options.max_words)
    return passages


def passage_of(question: Question, tokenizer: Tokenizer, max_words: int) -> Passage:
    """Do as `aligned` with one question, without a warning."""
    return _passage(question, locate(question.context, tokenizer).first_words(max_words), tokenizer)


def _passage(question: Question, context: LocatedText, tokenizer: Tokenizer) -> Passage:
    words = list(chain.from_iterable(tokenizer.sentences(question.question)))
    if not len(context) or not words:
        raise InputError(f"{question.place or 'an example'}: no words in the question or its text")
    return Passage(question, context, words, tuple(_answer_words(question, context)))


def _answer_words(question: Question, context: LocatedText) -> list[Span]:
    """Give the words of all answers, everywhere in the context, in order."""
    spans: set[Span] = set()
    for answer in question.answers:
        for start in (answer.start, *_occurrences(context.text, answer.text)):
            span = context.words_at(start, start + len(answer.text))
            if span is None:
                continue
            # Elsewhere than where people saw it, an answer must be whole words.
            if start == answer.start or context.cut_out(span) == answer.text:
                spans.add(span)
    return sorted(spans)


def _occurrences(text: str, piece: str) -> Iterator[int]:
    found = text.find(piece)
    while found >= 0:
        yield found
        found = text.find(piece, found + 1)


def _is_rough(passage: Passage) -> bool:
    """Tell whether an answer begins or ends inside of a word."""
    for answer in passage.question.answers:
        stop = answer.start + len(answer.text)
        span = passage.context.words_at(answer.start, stop)
        if span is not None and passage.context.cut_out(span) != answer.text.strip():
            return True
    return False


def _tell(passages: Sequence[Passage], contexts: dict[str, LocatedText], max_words: int) -> None:
    """Warn of what does not fit words, each with its first place."""
    cases = {
        f"questions have a text of more than {max_words} words, which is cut; see --max-words": [
            p for p in passages if len(contexts[p.question.context]) > max_words
        ],
        "questions have an answer that begins or ends inside of a word; whole words are taken": [
            p for p in passages if _is_rough(p)
        ],
        "questions have no answer in the words of their text; nothing is learned from them": [
            p for p in passages if p.question.answers and not p.spans
        ],
    }
    for what, found in cases.items():
        if found:
            warnings.warn(
                f"{len(found):,} {what} (first: {found[0].place})", ElmoWarning, stacklevel=4
            )

"""Checks of what callers pass as sentences and texts."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from elmo.errors import InputError
from elmo.runtime.tables import counted
from elmo.text.files import Tokenizer

Words = list[str]

LINES_LOOKED_AT = 1000
"""Lines, or sentences, that `text.mismatch` looks at."""
_MARKED = re.compile(r"\[([^\[\]]*)\]")


def checked_sentences(sentences: Iterable[Iterable[str]], first: int = 0) -> Iterator[Words]:
    """Yield sentences as lists of words, or say exactly what is not one.

    Args:
        sentences: Any iterable of lists, tuples or other iterables of words.
        first: The number of the first of them, for what is said.
    """
    if isinstance(sentences, str | bytes):
        raise InputError(
            f"expected sentences, each a list of words; received the text {sentences[:40]!r}. "
            "Split it into words, or call encode(text) for a vector of the whole text"
        )
    for number, sentence in enumerate(_iterate(sentences, "sentences"), start=first):
        if isinstance(sentence, str | bytes):
            raise InputError(
                f"sentence {number} is {sentence[:40]!r}, expected a list of words. Split "
                "it first, and put a single sentence into a list, [words]; for raw texts write "
                "encode(texts, output_value='token_embeddings')"
            )
        yield _checked_words(sentence, f"sentence {number}")


def listed_sentences(
    sentences: Iterable[Iterable[str]], words_are_checked_later: bool = False
) -> list[Words]:
    """Return all of `checked_sentences`; a few C loops check millions of words in plain lists.

    Args:
        sentences: See `checked_sentences`.
        words_are_checked_later: Whether what stands in a list is taken for words.
    """
    if isinstance(sentences, list | tuple) and set(map(type, sentences)) <= {list}:
        listed: list[Words] = list(sentences)
        if words_are_checked_later or set(map(type, chain.from_iterable(listed))) <= {str}:
            return listed
    return list(checked_sentences(sentences))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while many lists or tensors are made at once.

    It would walk all of them again and again, which takes longer than making them.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def tokenized_texts(texts: Iterable[Any], tokenizer: Tokenizer) -> Iterator[list[Words]]:
    """Yield texts as lists of sentences.

    Args:
        texts: Raw texts, or texts split into words beforehand, in any mixture.
        tokenizer: Splits the raw ones.
    """
    for number, text in enumerate(_iterate(texts, "texts")):
        if isinstance(text, str):
            yield tokenizer.sentences(text)
        elif isinstance(text, bytes):
            raise InputError(f"text {number} is bytes, expected a string: decode it first")
        elif text is None or isinstance(text, int | float):  # such as a missing value of a table
            raise InputError(f"text {number} is {text!r}, expected a string, or a list of words")
        else:
            yield [_checked_words(text, f"text {number}")]


def marked_words(sentence: str, tokenizer: Tokenizer) -> tuple[list[str], list[int]]:
    """Split a sentence; return its words and the positions of those in square brackets.

    Args:
        sentence: Such as `The [bank] of the river .`
        tokenizer: Splits the parts between the brackets, and the marked words.
    """
    words: list[str] = []
    positions: list[int] = []
    # With one group in the pattern, the marked words are at the odd places.
    for place, part in enumerate(_MARKED.split(sentence)):
        split = [word for words in tokenizer.sentences(part) for word in words]
        if place % 2:
            if len(split) != 1:
                raise InputError(
                    f"[{part}] marks {counted(len(split), 'word')}, expected one: mark each word "
                    "by its own brackets"
                )
            positions.append(len(words))
        words += split
    if not positions:
        raise InputError(
            f"no word of {sentence[:40]!r} is marked: put square brackets around one, as in "
            "'The [bank] of the river .'"
        )
    return words, positions


def _checked_words(sentence: Any, what: str) -> Words:
    words = list(_iterate(sentence, what))
    for place, word in enumerate(words):
        if not isinstance(word, str):
            raise InputError(
                f"{what}, word {place} is {_shown(word)} of type {type(word).__name__}, "
                "expected a string"
            )
    return words


def _iterate(value: Any, what: str) -> Iterable[Any]:
    if isinstance(value, Mapping):
        raise InputError(
            f"{what}: received a {type(value).__name__}, expected a list: give its text, as in "
            '[row["text"] for row in rows]'
        )
    try:
        iter(value)
    except TypeError:
        raise InputError(
            f"{what}: received {_shown(value)} of type {type(value).__name__}, expected a list"
        ) from None
    checked: Iterable[Any] = value
    return checked


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."

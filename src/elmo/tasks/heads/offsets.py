"""Words of a raw text and the places of their characters, there and back.

Tokenizers here leave every character of a word as it is and only drop white space, so that words
are found again by walking through the text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from elmo.errors import InputError
from elmo.tasks.readers.examples import Span, Words
from elmo.text.files import Tokenizer


@dataclass(frozen=True)
class LocatedText:
    """A text, its sentences of words, and where each word is."""

    text: str
    sentences: list[Words]
    starts: list[int]
    """First character of every word, over all sentences."""
    stops: list[int]
    """The character behind the last of every word."""

    def __len__(self) -> int:
        """How many words there are."""
        return len(self.starts)

    def cut_out(self, words: Span) -> str:
        """Give the piece of the text from the first of some words to the last."""
        return self.text[self.starts[words.start] : self.stops[words.stop - 1]]

    def words_at(self, start: int, stop: int) -> Span | None:
        """Give the words that have any of the characters from `start` on and before `stop`.

        None if there are none.
        """
        first = bisect_right(self.stops, start)
        after = bisect_left(self.starts, stop)
        return Span(first, after) if first < after else None

    def first_words(self, count: int) -> LocatedText:
        """Give the same text with the first words only, whole sentences cut where they must be."""
        if count >= len(self):
            return self
        kept: list[Words] = []
        left = count
        for words in self.sentences:
            if left > 0:
                kept.append(words[:left])
            left -= len(words)
        return LocatedText(self.text, kept, self.starts[:count], self.stops[:count])


def locate(text: str, tokenizer: Tokenizer) -> LocatedText:
    """Split a text and find its words in it.

    Args:
        text: Raw.
        tokenizer: One that changes no character of a word.
    """
    sentences = [words for words in tokenizer.sentences(text) if words]
    starts: list[int] = []
    stops: list[int] = []
    place = 0
    for words in sentences:
        for word in words:
            found = text.find(word, place)
            if found < 0:
                rest = text[place : place + 40]
                raise InputError(
                    f"the tokenizer {tokenizer.name!r} made {word!r} of {rest!r}: expected words "
                    "as they stand in the text; choose another tokenizer"
                )
            place = found + len(word)
            starts.append(found)
            stops.append(place)
    return LocatedText(text, sentences, starts, stops)

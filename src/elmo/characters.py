"""Words as character ids, exactly as every published ELMo spells them.

A word is its UTF-8 bytes between a begin-word and an end-word mark, padded to `max_characters`.
All ids are shifted up by one so that 0 can mean "no word here":

    id 0        masked position (a zero vector)
    1 .. 256    the bytes 0 .. 255
    257, 258    begin and end of sentence
    259, 260    begin and end of word
    261         padding inside a word (a learned vector, it takes part in the convolution)

This is bilm-tf's `UnicodeCharsVocabulary` and AllenNLP's `ELMoCharacterMapper`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import InputError

BEGIN_SENTENCE_CHARACTER = 257
END_SENTENCE_CHARACTER = 258
BEGIN_WORD_CHARACTER = 259
END_WORD_CHARACTER = 260
PADDING_CHARACTER = 261
N_CHARACTERS = 262
"""Rows of the character table, the masked row 0 included."""

BEGIN_SENTENCE = "<S>"
END_SENTENCE = "</S>"


class CharacterMapper:
    """Spell words as rows of character ids.

    Args:
        max_characters: Length of a row. Two places go to the begin and end marks, so words are cut
            after `max_characters - 2` bytes, inside a code point if need be, as published.
        tokens_to_add: Further words that are spelt as one single id (below 261), as AllenNLP's
            argument of the same name; unshifted ids, as there.

    Example:
        >>> CharacterMapper(6).rows(["a", "<S>"]).tolist()
        [[259, 98, 260, 261, 261, 261], [259, 257, 260, 261, 261, 261]]
    """

    def __init__(
        self, max_characters: int = 50, tokens_to_add: Mapping[str, int] | None = None
    ) -> None:
        if max_characters < 3:
            raise InputError(f"max_characters is {max_characters}, expected at least 3")
        self.max_characters = max_characters
        self._single = {
            BEGIN_SENTENCE: BEGIN_SENTENCE_CHARACTER,
            END_SENTENCE: END_SENTENCE_CHARACTER,
        }
        for token, character in (tokens_to_add or {}).items():
            if not 0 <= character < N_CHARACTERS - 1:
                raise InputError(
                    f"tokens_to_add: id {character} of {token!r} is outside 0..{N_CHARACTERS - 2}; "
                    "choose an unused byte such as 1 to 31"
                )
            self._single[token] = character + 1

    @property
    def max_bytes(self) -> int:
        """Bytes of a word that fit between its marks."""
        return self.max_characters - 2

    def is_cut(self, word: str) -> bool:
        """Tell whether a word is longer than its row and will lose its end."""
        if len(word) * 4 <= self.max_bytes:  # a code point has at most four bytes
            return False
        return word not in self._single and len(_bytes(word)) > self.max_bytes

    def rows(self, words: Sequence[str]) -> Tensor:
        """Spell words.

        Args:
            words: Any words; `<S>` and `</S>` give the sentence boundaries.

        Returns:
            Character ids, int64 of shape `(len(words), max_characters)`.
        """
        # One placeholder byte for the words that are spelt as a single id, put right below.
        single = [
            (row, self._single[word]) for row, word in enumerate(words) if word in self._single
        ]
        spelt = [
            b"\0" if word in self._single else _bytes(word)[: self.max_bytes] for word in words
        ]
        lengths = np.array([len(characters) for characters in spelt], dtype=np.int64)
        ids = np.full((len(words), self.max_characters), PADDING_CHARACTER, dtype=np.int64)
        ids[:, 0] = BEGIN_WORD_CHARACTER
        row, column = ragged_positions(lengths)
        ids[row, column + 1] = np.frombuffer(b"".join(spelt), dtype=np.uint8).astype(np.int64) + 1
        ids[np.arange(len(words)), lengths + 1] = END_WORD_CHARACTER
        for place, character in single:
            ids[place, 1] = character
        return torch.from_numpy(ids)

    def batch(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Spell a batch of sentences, padded with 0 to the longest.

        Args:
            sentences: Lists of words.

        Returns:
            Character ids, int64 of shape `(batch, time, max_characters)`.
        """
        longest = max((len(sentence) for sentence in sentences), default=0)
        ids = torch.zeros(len(sentences), longest, self.max_characters, dtype=torch.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence)] = self.rows(sentence)
        return ids


def batch_to_ids(sentences: Sequence[Sequence[str]], max_characters: int = 50) -> Tensor:
    """Spell a batch of sentences as AllenNLP's function of the same name does.

    Args:
        sentences: Lists of words. A plain string in the place of a list is an error here
            (AllenNLP silently read it as a list of one-letter words).
        max_characters: Length of a word's row; 50 in every published model.

    Returns:
        Character ids, int64 of shape `(batch, time, max_characters)`; 0 where there is no word.
    """
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise InputError(
                f"sentence {number} is the string {sentence[:40]!r}, expected a list of words; "
                "split it first, for instance with .split()"
            )
    return CharacterMapper(max_characters).batch(sentences)


def ragged_positions(
    lengths: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Give row and column of every element of rows of these lengths, row by row.

    Args:
        lengths: Shape `(rows,)`.

    Returns:
        Two arrays of shape `(sum(lengths),)`.

    Example:
        >>> [positions.tolist() for positions in ragged_positions(np.array([2, 0, 1]))]
        [[0, 0, 2], [0, 1, 0]]
    """
    row = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    return row, np.arange(len(row)) - starts[row]


def _bytes(word: str) -> bytes:
    # "ignore" drops lone surrogates, as both published mappers do.
    return word.encode("utf-8", "ignore")

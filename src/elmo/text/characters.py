"""Words as character ids: UTF-8 bytes as every published ELMo encodes them, or code points.

Without an alphabet a word is its UTF-8 bytes between a begin-word and an end-word mark, padded to
`max_characters`. All ids are shifted up by one so that 0 can mean "no word here":

    id 0        masked position (a zero vector)
    1 .. 256    the bytes 0 .. 255
    257, 258    begin and end of sentence
    259, 260    begin and end of word
    261         padding inside a word (a learned vector, it takes part in the convolution)

This is bilm-tf's `UnicodeCharsVocabulary` and AllenNLP's `ELMoCharacterMapper`. With an alphabet a
word is its code points between the same marks; `alphabet.py` has their ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.config import N_BYTE_CHARACTERS, ElmoConfig
from elmo.errors import ConfigError, InputError
from elmo.text.alphabet import Alphabet
from elmo.text.sentences import checked_sentences
from elmo.text.vocabulary import BEGIN_SENTENCE, END_SENTENCE, Vocabulary, WordMapper

BEGIN_SENTENCE_CHARACTER = 257
END_SENTENCE_CHARACTER = 258
BEGIN_WORD_CHARACTER = 259
END_WORD_CHARACTER = 260
PADDING_CHARACTER = 261
N_CHARACTERS = N_BYTE_CHARACTERS
"""Rows of the character table of bytes, the masked row 0 included."""

_ID_TYPES = (torch.int64, torch.int32, torch.int16)
"""Types of numbers that every id of a character fits into."""


class Marks(NamedTuple):
    """The ids that are no part of a word's text."""

    begin_sentence: int
    end_sentence: int
    begin_word: int
    end_word: int
    padding: int


BYTE_MARKS = Marks(
    BEGIN_SENTENCE_CHARACTER,
    END_SENTENCE_CHARACTER,
    BEGIN_WORD_CHARACTER,
    END_WORD_CHARACTER,
    PADDING_CHARACTER,
)
ALPHABET_MARKS = Marks(1, 2, 3, 4, 5)
"""The same in every alphabet; `alphabet.SPECIAL_CHARACTERS` has their names."""


class CharacterMapper:
    """Encode words as rows of character ids.

    Args:
        max_characters: Length of a row. Two places go to the begin and end marks, so words are cut
            after `max_characters - 2` bytes, inside a code point if need be, as published; with an
            alphabet, after so many code points.
        tokens_to_add: Further words that are encoded as one single id (below 261), as AllenNLP's
            argument of the same name; unshifted ids, as there.
        alphabet: The characters of a model that encodes words as code points.

    Example:
        >>> CharacterMapper(6).rows(["a", "<S>"]).tolist()
        [[259, 98, 260, 261, 261, 261], [259, 257, 260, 261, 261, 261]]
        >>> CharacterMapper(6, alphabet=Alphabet("石头")).rows(["石头", "石碑"]).tolist()
        [[3, 7, 8, 4, 5, 5], [3, 7, 6, 4, 5, 5]]
    """

    def __init__(
        self,
        max_characters: int = 50,
        tokens_to_add: Mapping[str, int] | None = None,
        alphabet: Alphabet | None = None,
    ) -> None:
        if max_characters < 3:
            raise InputError(f"max_characters is {max_characters}, expected at least 3")
        self.max_characters = max_characters
        self.alphabet = alphabet
        self._marks = BYTE_MARKS if alphabet is None else ALPHABET_MARKS
        self._single = {
            BEGIN_SENTENCE: self._marks.begin_sentence,
            END_SENTENCE: self._marks.end_sentence,
        }
        n_characters = N_CHARACTERS if alphabet is None else alphabet.n_characters
        for token, character in (tokens_to_add or {}).items():
            if not 0 <= character < n_characters - 1:
                raise InputError(
                    f"tokens_to_add: id {character} of {token!r} is outside 0..{n_characters - 2}; "
                    "choose one that no text uses, among bytes for instance 1 to 31"
                )
            self._single[token] = character + 1

    @property
    def capacity(self) -> int:
        """Bytes of a word, or characters of the alphabet, that fit between its marks."""
        return self.max_characters - 2

    def are_cut(self, words: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which words are too long for a row and lose their end, `(len(words),)`."""
        cut = np.zeros(len(words), dtype=bool)
        # A code point has at most four bytes, so that most words need not be encoded.
        always_fits = self.capacity // 4
        for place in [n for n, word in enumerate(words) if len(word) > always_fits]:
            word = words[place]
            length = len(_bytes(word)) if self.alphabet is None else len(word)
            cut[place] = length > self.capacity and word not in self._single
        return cut

    def rows(self, words: Sequence[str]) -> Tensor:
        """Encode words.

        Args:
            words: Any words; `<S>` and `</S>` give the sentence boundaries.

        Returns:
            Character ids, int64 of shape `(len(words), max_characters)`.
        """
        single = []
        if not self._single.keys().isdisjoint(words):
            # A placeholder of one character for words with a single id, which replaces it below.
            single = [(row, word) for row, word in enumerate(words) if word in self._single]
            words = ["\0" if word in self._single else word for word in words]
        ids = self._between_marks(*self._encode(words))
        for row, word in single:
            ids[row, 1] = self._single[word]
        return torch.from_numpy(ids)

    def rows_of_bytes(
        self, letters: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Encode words that are given as UTF-8; the same as `rows`, without a step for each word.

        Args:
            letters: The bytes of all words, one after another, `(sum(lengths),)`.
            lengths: Bytes of each word, `(n,)`; none of the words is a sentence boundary.

        Returns:
            Character ids `(n, max_characters)`.
        """
        if self.alphabet is not None:
            raise InputError("an alphabet encodes words as code points, not as bytes: use rows")
        return self._between_marks(letters.astype(np.int64) + 1, lengths)

    def _between_marks(
        self, inside: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Lay words out in rows, cut if need be; the arguments are what `_encode` gives."""
        if len(lengths) and lengths.max() > self.capacity:
            _, column = ragged_positions(lengths)
            inside, lengths = inside[column < self.capacity], np.minimum(lengths, self.capacity)
        ids = np.full((len(lengths), self.max_characters), self._marks.padding, dtype=np.int64)
        ids[:, 0] = self._marks.begin_word
        row, column = ragged_positions(lengths)
        ids[row, column + 1] = inside
        ids[np.arange(len(lengths)), lengths + 1] = self._marks.end_word
        return ids

    def _encode(self, words: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Encode what stands between the marks.

        Args:
            words: Words with a text of their own.

        Returns:
            The ids of all words, one after another, `(sum(lengths),)`; and how many of them each
            word has, `(len(words),)`.
        """
        if max(map(len, words), default=0) > self.capacity:
            words = [
                word if len(word) <= self.capacity else self._shortened(word) for word in words
            ]
        text = "".join(words)
        lengths = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
        if self.alphabet is not None:
            return self.alphabet.ids(text).astype(np.int64), lengths
        letters = np.frombuffer(_bytes(text), dtype=np.uint8)
        return letters.astype(np.int64) + 1, _byte_lengths(letters, lengths, words)

    def _shortened(self, word: str) -> str:
        """Return as many code points of a long word as fill its row."""
        return (_bytes(word).decode() if self.alphabet is None else word)[: self.capacity]

    def batch(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Encode a batch of sentences, padded with 0 to the longest.

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


# --- the ids that a model reads -------------------------------------------------------------------

WordIds = CharacterMapper | WordMapper


def word_ids(
    config: ElmoConfig, vocabulary: Vocabulary | None, alphabet: Alphabet | None = None
) -> WordIds:
    """Return what turns words into the ids that a model with these sizes reads."""
    if config.reads_characters:
        require_alphabet(config, alphabet)
        return CharacterMapper(config.max_characters, alphabet=alphabet)
    if vocabulary is None:
        raise InputError("a model that reads words needs its vocabulary to look words up")
    return WordMapper(vocabulary)


def boundary_ids(
    config: ElmoConfig, vocabulary: Vocabulary | None, alphabet: Alphabet | None = None
) -> Tensor:
    """Return the ids of `<S>` and `</S>`, int64 `(2, max_characters)` or `(2,)`."""
    if not config.reads_characters and vocabulary is None:
        return torch.tensor([1, 2])  # bilm-tf wants <S> and </S> to be the first two words
    return word_ids(config, vocabulary, alphabet).rows([BEGIN_SENTENCE, END_SENTENCE])


def checked_ids(ids: Tensor) -> Tensor:
    """Return ids as int64, or raise an `InputError` that names what was passed instead.

    Kernels take ids for places in memory, and would read anywhere with other numbers.
    """
    if not isinstance(ids, Tensor):
        received = f"a {type(ids).__name__}"
    elif ids.dtype not in _ID_TYPES:
        received = str(ids.dtype).removeprefix("torch.")
    else:
        return ids.long()
    raise InputError(
        f"ids are {received}, expected a tensor of whole numbers (int64) as batch_to_ids gives it"
    )


def require_alphabet(config: ElmoConfig, alphabet: Alphabet | None) -> None:
    """Raise an error unless a model of these sizes goes with this alphabet, or with none."""
    if alphabet is None:
        if config.has_alphabet:
            raise ConfigError(
                f"n_characters is {config.n_characters}: the model encodes words as code points, "
                f"so it needs its alphabet (or n_characters={N_BYTE_CHARACTERS} for UTF-8 bytes)"
            )
    elif not config.reads_characters:
        raise ConfigError("the model reads whole words: it cannot have an alphabet")
    elif alphabet.n_characters != config.n_characters:
        raise ConfigError(
            f"n_characters is {config.n_characters}, but the alphabet of {len(alphabet)} "
            f"characters needs {alphabet.n_characters}; give "
            "ElmoConfig.replace(n_characters=alphabet.n_characters)"
        )


def batch_to_ids(
    sentences: Sequence[Sequence[str]], max_characters: int = 50, alphabet: Alphabet | None = None
) -> Tensor:
    """Encode a batch of sentences as AllenNLP's function of the same name does.

    Args:
        sentences: Lists of words. A plain string in the place of a list is an error here
            (AllenNLP silently read it as a list of one-letter words).
        max_characters: Length of a word's row; 50 in every published model.
        alphabet: The characters of a model that encodes words as code points.

    Returns:
        Character ids, int64 of shape `(batch, time, max_characters)`; 0 where there is no word.
    """
    checked = list(checked_sentences(sentences))
    return CharacterMapper(max_characters, alphabet=alphabet).batch(checked)


def padding_character(config: ElmoConfig) -> int:
    """Return the id that fills the rest of a word's row."""
    return (ALPHABET_MARKS if config.has_alphabet else BYTE_MARKS).padding


def ragged_positions(
    lengths: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return row and column of every element of rows of these lengths, row by row.

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


def _byte_lengths(
    letters: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64], words: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Return how many bytes words have.

    Args:
        letters: The bytes of all words, one after another.
        lengths: Code points of each word, `(n,)`.
        words: The words, n of them.

    Returns:
        Shape `(n,)`.
    """
    n_points = int(lengths.sum())
    if len(letters) == n_points:  # all are ASCII
        return lengths
    starts = np.flatnonzero((letters & 0xC0) != 0x80)  # all but a code point's further bytes
    if len(starts) != n_points:  # `_bytes` dropped some
        return np.array([len(_bytes(word)) for word in words], dtype=np.int64)
    ends = np.append(starts, len(letters))[np.cumsum(lengths)]
    return np.diff(ends, prepend=0)


def _bytes(text: str) -> bytes:
    # "ignore" drops lone surrogates, as both published mappers do.
    return text.encode("utf-8", "ignore")

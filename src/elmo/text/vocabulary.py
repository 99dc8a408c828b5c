"""Lists of words: of models that read whole words, of token files, of the softmax."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import InputError
from elmo.runtime.input_files import MOST_LIST_BYTES, decoded, split_lines
from elmo.text.files import require_readable

BEGIN_SENTENCE = "<S>"
END_SENTENCE = "</S>"
UNKNOWN = "<UNK>"
SPECIALS = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN)
_SKIPPED_LINE = "!!!MAXTERMID"  # bilm-tf skips this line of the 1 Billion Word vocabulary


class Vocabulary:
    """Words and their places in a list, one word a line in the file.

    A word that stands twice keeps its last place, as in bilm-tf.

    Args:
        words: The words in order.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self._places = {word: place for place, word in enumerate(self.words)}

    @classmethod
    def read(cls, path: Path | str) -> Vocabulary:
        """Read a vocabulary file: UTF-8, one word a line, optionally gzipped."""
        path = Path(path)
        require_readable(path, "vocabulary file")
        try:
            with path.open("rb") as stored:
                file = gzip.open(stored, "rb") if path.suffix == ".gz" else stored
                content = file.read(MOST_LIST_BYTES + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path} is damaged or cut short: {error}") from None
        if len(content) > MOST_LIST_BYTES:
            raise InputError(
                f"{path} has more than {MOST_LIST_BYTES:,} bytes of text, which no vocabulary has; "
                "it is another file, or damaged"
            )
        lines = split_lines(path, decoded(path, content))
        stripped = [line.strip() for line in lines]
        return cls(word for word in stripped if word != _SKIPPED_LINE)

    def write(self, path: Path | str) -> None:
        """Write one word a line."""
        Path(path).write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._places

    def place(self, word: str) -> int | None:
        """Return the place of a word, or None."""
        return self._places.get(word)

    def require_specials(self, source: str) -> None:
        """Raise an error unless the sentence boundaries and the unknown word are listed.

        bilm-tf, when `<S>` is missing, silently uses the last word of the list in its place.
        """
        missing = [word for word in SPECIALS if word not in self]
        if missing:
            raise InputError(
                f"{source}: the vocabulary lacks {', '.join(missing)}; "
                f"a model that reads words needs all of {', '.join(SPECIALS)}"
            )


class WordMapper:
    """Look words up as ids of a model that reads words; the counterpart of `CharacterMapper`.

    Ids are shifted up by one so that 0 can mean "no word here", as in bilm-tf's `TokenBatcher`.

    Args:
        vocabulary: The model's words, the specials among them.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        vocabulary.require_specials("vocabulary")
        self.vocabulary = vocabulary
        unknown = vocabulary.place(UNKNOWN)
        assert unknown is not None
        self._unknown = unknown

    def are_cut(self, words: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which words lose their end, `(len(words),)`: none, they are looked up whole."""
        return np.zeros(len(words), dtype=bool)

    def rows(self, words: Sequence[str]) -> Tensor:
        """Look words up.

        Returns:
            Word ids, int64 of shape `(len(words),)`.
        """
        places = (self.vocabulary.place(word) for word in words)
        return torch.tensor(
            [1 + (self._unknown if place is None else place) for place in places],
            dtype=torch.int64,
        )

    def batch(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Look a batch of sentences up, padded with 0 to the longest.

        Returns:
            Word ids, int64 of shape `(batch, time)`.
        """
        longest = max((len(sentence) for sentence in sentences), default=0)
        ids = torch.zeros(len(sentences), longest, dtype=torch.int64)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence)] = self.rows(sentence)
        return ids

"""Vectors of words without context: from GloVe or word2vec, or randomly initialized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Self

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.tasks.readers.examples import Words
from elmo.tasks.settings import TaskSettings
from elmo.text.static_vectors import VectorSource, open_vectors

UNKNOWN = 0
"""Row of all words without a vector; it is learned."""
_MIN_COUNT = 2
"""Rarer words of the training data train the unknown vector, if vectors are random."""


class StaticWords(nn.Module):
    """A table of word vectors.

    A word that is not in the table is looked up in lower case; failing that, it gets a learned
    vector that all unknown words share.

    Args:
        words: The words of the rows from 1 on.
        vectors: Their vectors, `(len(words), dim)`.
        learned: Whether the vectors are trained with the task.
        source: Where vectors of further words are, if anywhere.
    """

    table: Tensor

    def __init__(
        self,
        words: Sequence[str],
        vectors: Tensor,
        *,
        learned: bool,
        source: VectorSource | None = None,
    ) -> None:
        super().__init__()
        self.rows = {word: row for row, word in enumerate(words, start=1)}
        self.source = source
        self.learned = learned
        self.unknown = nn.Parameter(torch.zeros(vectors.shape[1]))
        if learned:
            self.table = nn.Parameter(vectors.clone())
        else:
            self.register_buffer("table", vectors)
        self._looked_up = set(words)

    @classmethod
    def chosen(
        cls, settings: TaskSettings, training: Iterable[Words], others: Iterable[Words]
    ) -> Self | None:
        """Build the table that settings ask for, if any.

        Args:
            settings: The user's choices.
            training: Sentences of the training data.
            others: Further sentences that will be read.
        """
        if settings.static == "glove":
            words = {word for sentence in chain(training, others) for word in sentence}
            return cls.from_source(open_vectors(settings.vectors), words, settings.finetune_vectors)
        if settings.static == "random":
            return cls.random(training, settings.random_dim)
        return None

    @classmethod
    def from_source(cls, source: VectorSource, words: Iterable[str], learned: bool) -> Self:
        """Build a table from the vectors that a file or package has of some words."""
        wanted = sorted(_spellings(words))
        read = source.read(wanted)
        table = cls(
            list(read.found), torch.from_numpy(read.vectors), learned=learned, source=source
        )
        table._looked_up.update(wanted)
        return table

    @classmethod
    def random(cls, sentences: Iterable[Sequence[str]], dim: int) -> Self:
        """Build a table of random vectors of the words that occur more than once."""
        counts = Counter(word for words in sentences for word in words)
        kept = sorted(word for word, count in counts.items() if count >= _MIN_COUNT)
        if not kept:
            raise ConfigError(
                "--features random needs training data in which some word occurs twice; choose "
                "glove or elmo for so little text"
            )
        return cls(kept, torch.randn(len(kept), dim) * dim**-0.5, learned=True)

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self.unknown.shape[0]

    @property
    def words(self) -> list[str]:
        """The words of the rows from 1 on."""
        return list(self.rows)

    def add(self, words: Iterable[str]) -> None:
        """Look up further words in the source; rows that exist keep their values."""
        if self.source is None:
            return
        new = sorted(_spellings(words) - self._looked_up)
        if not new:
            return
        self._looked_up.update(new)
        read = self.source.read(new)
        if not read.found:
            return
        more = torch.from_numpy(read.vectors).to(self.table)
        with torch.no_grad():
            table = torch.cat([self.table, more])
        self.table = nn.Parameter(table) if self.learned else table
        for word in read.found:
            self.rows[word] = len(self.rows) + 1

    def row(self, word: str) -> int:
        """Return the row of a word, `UNKNOWN` if it has none."""
        return self.rows.get(word) or self.rows.get(word.lower(), UNKNOWN)

    def forward(self, rows: Tensor) -> Tensor:
        """Return vectors `(n, dim)` of rows `(n,)`."""
        known = (rows != UNKNOWN).unsqueeze(1)
        if not len(self.table):
            return self.unknown.expand(len(rows), -1)
        return torch.where(known, self.table[(rows - 1).clamp(min=0)], self.unknown)


def _spellings(words: Iterable[str]) -> set[str]:
    distinct = set(words)
    return distinct | {word.lower() for word in distinct}

"""Vectors of whole words beside the characters of a model, as ELMoForManyLangs has them.

Such a model projects `[vector of the word; what the filters saw in its characters]`. The projection
is linear, so that is the character encoder of any other model, plus a term for each known word. An
unknown word's term is part of the projection's bias; what is kept here is the difference from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from elmo.text.vocabulary import BEGIN_SENTENCE, END_SENTENCE

_AT_A_TIME = 32  # words whose terms are in memory before they are summed


class WordLookup:
    """A term for each known word, added to the context-free vectors that characters give.

    Args:
        words: The known words, in the order of the rows.
        vectors: Their vectors less that of an unknown word, `(words, width)`, float32.
        projection: Shape `(projection_dim, width)`, float32.
        n_characters: Characters of a word that are read; longer words are looked up by as many.
    """

    def __init__(
        self, words: Sequence[str], vectors: Tensor, projection: Tensor, n_characters: int
    ) -> None:
        self.words = tuple(words)
        self.vectors = vectors
        self.projection = projection
        self._n_characters = n_characters
        # The boundaries are no words: their terms are in the character encoder.
        self._rows = {
            word: row
            for row, word in enumerate(self.words)
            if word not in (BEGIN_SENTENCE, END_SENTENCE)
        }

    def add_to(self, vectors: Tensor, words: Sequence[str]) -> Tensor:
        """Add the terms of words to their vectors from characters.

        Args:
            vectors: Shape `(len(words), projection_dim)`, on any device.
            words: The words.

        Returns:
            The same shape.
        """
        found = [
            (place, row)
            for place, word in enumerate(words)
            if (row := self._rows.get(word[: self._n_characters])) is not None
        ]
        if not found:
            return vectors
        places, rows = torch.tensor(found).T
        terms = torch.cat([self._terms(some) for some in rows.split(_AT_A_TIME)])
        return vectors.index_add(0, places.to(vectors.device), terms.to(vectors))

    def _terms(self, rows: Tensor) -> Tensor:
        # Sums instead of a product, so that a word's term does not depend on its neighbors.
        return (self.vectors[rows].unsqueeze(1) * self.projection).sum(dim=2)

    def update(self, digest: hashlib._Hash) -> None:
        """Make a fingerprint depend on everything here."""
        digest.update("\n".join(self.words).encode("utf-8", "surrogatepass"))
        for tensor in (self.vectors, self.projection):
            digest.update(f"lookup{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().data)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return {"vectors": self.vectors, "projection": self.projection}

    def rounded_to(self, tensors: dict[str, Tensor]) -> WordLookup:
        """Return the same words with other numbers."""
        vectors, projection = tensors["vectors"].float(), tensors["projection"].float()
        return WordLookup(self.words, vectors, projection, self._n_characters)

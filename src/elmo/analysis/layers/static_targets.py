"""Some words of many sentences, with static vectors: what a model has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmo.text.sentences import Words
from elmo.text.vector_sources import VectorSource

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

STATIC_NAMES = ("static", "static, sentence")
"""What `static_targets` gives: the vectors of words alone, and the mean over their sentence."""


def static_targets(source: VectorSource, sentences: Sequence[Words], spans: Integers) -> Vectors:
    """Give static vectors of some words of sentences.

    Args:
        source: Where vectors are from. A word that it lacks is looked up in lower case; if that is
            not there, either, the word counts as zeros.
        sentences: None empty.
        spans: For each target its sentence, its first word and the word behind its last, int64
            `(n, 3)`. Of several words the mean is taken.

    Returns:
        Shape `(2, n, dim)`, see `STATIC_NAMES`.
    """
    words = {word for sentence in sentences for word in sentence}
    read = source.read(sorted(words | {word.lower() for word in words}))
    table = np.concatenate([np.zeros((1, read.dim), np.float32), read.vectors])

    def row(word: str) -> int:
        place = read.found.get(word, read.found.get(word.lower()))
        return 0 if place is None else place + 1

    rows = [[row(word) for word in sentence] for sentence in sentences]
    means = np.stack([table[numbers].mean(axis=0) for numbers in rows])
    own = [table[rows[k][first:end]].mean(axis=0) for k, first, end in spans.tolist()]
    return np.stack([np.stack(own), means[spans[:, 0]]])

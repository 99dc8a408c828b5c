"""One vector for each word: the mean over its occurrences in a corpus, or the context-free one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from elmo.analysis.corpus import Corpus
from elmo.analysis.geometry import group_sums
from elmo.analysis.settings import OneLayer
from elmo.analysis.words.word_index import WordIndex
from elmo.embed.pipeline import require_layer
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.settings import Layers

Vectors = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]

_BATCH = 4096


def frequent_words(corpus: Corpus, min_count: int, max_words: int | None = None) -> dict[str, int]:
    """Return the frequent words of a corpus with their counts, the most frequent first."""
    ordered = sorted(corpus.count_words().items(), key=lambda word: (-word[1], word[0]))
    kept = {word: count for word, count in ordered if count >= min_count}
    if not kept:
        most = f"the most frequent word occurs {ordered[0][1]} times" if ordered else "it is empty"
        raise InputError(
            f"{corpus.name}: no word occurs {min_count} times ({most}); give more text, or a "
            "smaller --min-count"
        )
    return dict(list(kept.items())[:max_words])


def context_free_vectors(model: ELMo, words: Sequence[str], show_progress: bool = False) -> Vectors:
    """Compute the context-free vectors of words, `(len(words), projection_dim)`."""
    vectors = np.empty((len(words), model.config.projection_dim), np.float32)
    starts = range(0, len(words), _BATCH)
    for start in tqdm(starts, disable=not show_progress, unit="batch"):
        vectors[start : start + _BATCH] = model.word_vectors(words[start : start + _BATCH])
    return vectors


def mean_vectors(
    model: ELMo, corpus: Corpus, words: Sequence[str], layers: Layers
) -> tuple[Vectors, Counts]:
    """Average the vectors of words over all their occurrences.

    Args:
        model: The model.
        corpus: Where they occur.
        words: Which words.
        layers: `all`, or one vector a word.

    Returns:
        Shape `(len(words), dim)`, or `(n_layers, len(words), dim)` for `all`, zeros for a word that
        does not occur; and the occurrences of each, `(len(words),)`.
    """
    rows = {word: row for row, word in enumerate(words)}
    wanted = (s for s in corpus if any(corpus.word(word) in rows for word in s))
    lead = (model.n_layers,) if layers == "all" else ()
    sums = np.zeros((*lead, len(words), model.dim), np.float32)
    counts = np.zeros(len(words), np.int64)
    for window in corpus.windows(model, layers, wanted):
        names, ids = window.numbered
        found = np.array([rows.get(name, -1) for name in names], np.int64)[ids]
        places = np.flatnonzero(found >= 0)
        present, added = group_sums(window.vectors[..., places, :], found[places], axis=-2)
        sums[..., present, :] += added
        counts += np.bincount(found[places], minlength=len(words))
    sums /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return sums, counts


def index_of_corpus(
    model: ELMo,
    corpus: Corpus,
    layer: OneLayer,
    min_count: int,
    max_words: int | None = None,
    show_progress: bool = False,
) -> WordIndex:
    """Index the frequent words of a corpus, which is read twice, or once for layer 0."""
    require_layer(layer, model.config)
    counts = frequent_words(corpus, min_count, max_words)
    words = list(counts)
    if layer == 0:
        vectors = context_free_vectors(model, words, show_progress)
    else:
        vectors, _ = mean_vectors(model, corpus, words, layer)
    facts = {"corpus": corpus.name, "min_count": min_count, "layer": str(layer)}
    return WordIndex(words, np.array(list(counts.values()), np.int64), vectors, facts)


def index_of_words(
    model: ELMo, words: Sequence[str], source: str, show_progress: bool = False
) -> WordIndex:
    """Index the context-free vectors of a list of words."""
    distinct = list(dict.fromkeys(word for word in words if word))
    if not distinct:
        raise InputError(f"{source} has no words")
    vectors = context_free_vectors(model, distinct, show_progress)
    facts = {"words": source, "layer": "0"}
    return WordIndex(distinct, np.zeros(len(distinct), np.int64), vectors, facts)

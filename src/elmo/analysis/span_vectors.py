"""Vectors of spans of words: in every layer and in the mix, or static ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from tqdm.auto import tqdm

from elmo.embed.pipeline import mix_layers
from elmo.embedder import ELMo
from elmo.text.sentences import Words
from elmo.text.static_vectors import VectorSource

Vectors = npt.NDArray[np.float32]
Spans = npt.NDArray[np.int64]
"""The sentence of each span, its first word, and the word after its last, int64 `(n, 3)`."""

STATIC_NAMES = ("static", "static, sentence")
"""What `static_span_vectors` returns: vectors of the span, and the mean over its sentence."""


def layer_names(model: ELMo) -> list[str]:
    """Return the names of what `span_vectors` yields: the layers, then the mix."""
    return [*map(str, range(model.n_layers)), "mix"]


def with_mix(layers: Vectors, model: ELMo) -> Vectors:
    """Append the model's mix to its layers: `(n_layers, n, dim)` -> `(n_layers + 1, n, dim)`."""
    mixed = mix_layers([torch.from_numpy(layer) for layer in layers], model.config)
    return np.concatenate([layers, mixed.numpy()[None]])


def every_word(sentences: Sequence[Words]) -> Spans:
    """Return the spans of all single words."""
    spans = [
        (k, place, place + 1) for k, words in enumerate(sentences) for place in range(len(words))
    ]
    return np.array(spans, np.int64).reshape(-1, 3)


def span_vectors(
    model: ELMo, sentences: Sequence[Words], spans: Spans, what: str = "", show: bool = False
) -> Iterator[tuple[npt.NDArray[np.int64], Vectors]]:
    """Embed sentences, and yield the vectors of spans in bounded memory.

    Args:
        model: The model.
        sentences: None of them empty.
        spans: In the order of the sentences. The vector of a span is the mean of its words'.
        what: Label of the progress bar.
        show: Whether to show it.

    Yields:
        Numbers of spans, int64 `(k,)`, and their vectors `(n_layers + 1, k, dim)`: the layers,
        then the mix.
    """
    done = 0
    with tqdm(total=len(sentences), disable=not show, desc=what, unit=" sentences") as bar:
        for window, of_sentences in model.stream_windows(iter(sentences)):
            vectors = np.concatenate(of_sentences, axis=1)
            numbers = np.arange(*np.searchsorted(spans[:, 0], [done, done + len(window)]))
            if len(numbers):
                sizes = np.fromiter(map(len, window), np.int64, len(window))
                sentence, first, end = spans[numbers].T
                starts = (np.cumsum(sizes) - sizes)[sentence - done] + first
                yield numbers, with_mix(_span_means(vectors, starts, end - first), model)
            done += len(window)
            bar.update(len(window))


def all_span_vectors(
    model: ELMo, sentences: Sequence[Words], spans: Spans, what: str = "", show: bool = False
) -> Vectors:
    """Return what `span_vectors` yields in one array: `(n_layers + 1, n, dim)`."""
    gathered = np.empty((model.n_layers + 1, len(spans), model.dim), np.float32)
    for numbers, vectors in span_vectors(model, sentences, spans, what, show):
        gathered[:, numbers] = vectors
    return gathered


def static_span_vectors(source: VectorSource, sentences: Sequence[Words], spans: Spans) -> Vectors:
    """Return static vectors of spans.

    Args:
        source: A word that it lacks is looked up in lower case; if that is missing, too, its vector
            is zeros.
        sentences: None of them empty.
        spans: The vector of a span is the mean of its words'.

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


def _span_means(vectors: Vectors, firsts: Spans, lengths: Spans) -> Vectors:
    """Average runs of rows of `(n_layers, n, dim)`; returns `(n_layers, len(firsts), dim)`."""
    sums = vectors[:, firsts]
    for step in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > step)
        sums[:, longer] += vectors[:, firsts[longer] + step]
    sums /= lengths[:, None]
    return sums

"""Some words of many sentences, with their vectors in every layer and in the mix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from elmo.embed.selection import mix_layers
from elmo.embedder import ELMo
from elmo.text.sentences import Words

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def layer_names(model: ELMo) -> list[str]:
    """Give the names of what `target_vectors` gives: the layers, then the mix."""
    return [*map(str, range(model.n_layers)), "mix"]


def target_vectors(
    model: ELMo, sentences: Sequence[Words], spans: Integers, what: str = "", show: bool = False
) -> Iterator[tuple[Integers, Vectors]]:
    """Embed sentences, and give the vectors of some of their words in bounded memory.

    Args:
        model: What embeds.
        sentences: None empty.
        spans: For each target its sentence, its first word and the word behind its last, int64
            `(n, 3)`, in the order of the sentences. Of several words the mean is taken.
        what: What is going on, for the progress bar.
        show: Whether to show one.

    Yields:
        Numbers of targets, int64 `(k,)`, and their vectors `(n_layers + 1, k, dim)`: the layers,
        then the mix.
    """
    done = 0
    with tqdm(total=len(sentences), disable=not show, desc=what, unit=" sentences") as bar:
        for window, of_sentences in model.stream_windows(iter(sentences)):
            vectors = np.concatenate(of_sentences, axis=1)
            first, last = np.searchsorted(spans[:, 0], [done, done + len(window)])
            numbers = np.arange(first, last)
            if len(numbers):
                sizes = np.fromiter(map(len, window), np.int64, len(window))
                starts = (np.cumsum(sizes) - sizes)[spans[numbers, 0] - done]
                means = _span_means(vectors, starts + spans[numbers, 1], _lengths(spans[numbers]))
                yield numbers, _with_mix(means, model)
            done += len(window)
            bar.update(len(window))


def all_targets(
    model: ELMo, sentences: Sequence[Words], spans: Integers, what: str = "", show: bool = False
) -> Vectors:
    """Do as `target_vectors`, all at once: `(n_layers + 1, n, dim)`."""
    gathered = np.empty((model.n_layers + 1, len(spans), model.dim), np.float32)
    for numbers, vectors in target_vectors(model, sentences, spans, what, show):
        gathered[:, numbers] = vectors
    return gathered


def every_word(sentences: Sequence[Words]) -> Integers:
    """Give spans that name every word of some sentences, int64 `(n, 3)`."""
    spans = [
        (k, place, place + 1) for k, words in enumerate(sentences) for place in range(len(words))
    ]
    return np.array(spans, np.int64).reshape(-1, 3)


def _lengths(spans: Integers) -> Integers:
    return spans[:, 2] - spans[:, 1]


def _span_means(vectors: Vectors, firsts: Integers, lengths: Integers) -> Vectors:
    """Average runs of rows of `(n_layers, n, dim)`; gives `(n_layers, len(firsts), dim)`."""
    sums = vectors[:, firsts]
    for step in range(1, int(lengths.max())):
        longer = np.flatnonzero(lengths > step)
        sums[:, longer] += vectors[:, firsts[longer] + step]
    sums /= lengths[:, None]
    return sums


def _with_mix(layers: Vectors, model: ELMo) -> Vectors:
    mixed = mix_layers([torch.from_numpy(layer) for layer in layers], model.config)
    return np.concatenate([layers, mixed.numpy()[None]])

"""Which sentences share a batch, and which batches are planned together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from elmo.model.packing import runs
from elmo.text.sentences import Words


def plan_batches(lengths: Sequence[int], max_tokens: int, max_rows: int) -> list[list[int]]:
    """Group sentences of similar length, within a budget of words and of sentences.

    Args:
        lengths: Words of each sentence.
        max_tokens: Words in a batch; one longer sentence makes a batch of its own.
        max_rows: Sentences in a batch.

    Returns:
        Numbers of sentences, longest first; every one stands in exactly one batch.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    numbers = order.tolist()
    return [numbers[start:end] for start, end in runs(sizes[order], max_tokens, max_rows)]


def windows(
    sentences: Iterable[Words], max_tokens: int, multiple: int = 1
) -> Iterator[list[Words]]:
    """Collect a stream of sentences in windows, within which batches may be planned.

    Args:
        sentences: Lists of words.
        max_tokens: Words, and sentences, after which a window ends.
        multiple: A window has a multiple of this many sentences, but for the last: with state
            carried, windows must not cut batches.
    """
    window: list[Words] = []
    tokens = 0
    for sentence in sentences:
        window.append(sentence)
        tokens += 1 + len(sentence)
        if tokens >= max_tokens and len(window) % multiple == 0:
            yield window
            window, tokens = [], 0
    if window:
        yield window

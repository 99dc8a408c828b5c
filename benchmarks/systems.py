"""The ways to embed a corpus that are compared, each as one function of the sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elmo.settings import Precision

if TYPE_CHECKING:  # so that a process that measures one system does not pay for the other
    from peers import AllenNLP

Sentences = list[list[str]]
Vectors = list[npt.NDArray[np.float32]]

BATCH_SIZE = 32
"""Sentences that AllenNLP is given at a time, and that we are given in small calls."""


class Ours:
    """Our model on the CPU, with a word cache that can be emptied.

    Args:
        folder: Where the weights are.
        precision: Of the products.
    """

    def __init__(self, folder: Path, precision: Precision) -> None:
        from elmo.embedder import ELMo

        self.model = ELMo.from_pretrained(folder, precision=precision, device="cpu")
        self.name = f"ours {precision}"

    def forget(self) -> None:
        """Empty the word cache, so that a run has nothing from the run before."""
        self.model._pipeline.words.clear()

    def in_one_call(self, sentences: Sentences) -> Vectors:
        """Embed all sentences at once: all layers of every sentence."""
        return self.model.encode_tokens(sentences, layers="all")

    def in_small_calls(self, sentences: Sentences) -> Vectors:
        """Embed in the order given, a few sentences a call, as a service would."""
        return [vectors for batch in _batches(sentences) for vectors in self.in_one_call(batch)]


def in_given_order(peer: AllenNLP, sentences: Sentences) -> list[object]:
    """Embed with AllenNLP in the order given."""
    return [peer.embed(batch) for batch in _batches(sentences)]


def in_sorted_order(peer: AllenNLP, sentences: Sentences) -> list[object]:
    """Embed with AllenNLP sorted by length: little padding, its best case.

    Putting results back in order, which a user would have to do, is not even asked of it.
    """
    return [peer.embed(batch) for batch in _batches(sorted(sentences, key=len))]


def _batches(sentences: Sentences) -> Iterator[Sentences]:
    for start in range(0, len(sentences), BATCH_SIZE):
        yield sentences[start : start + BATCH_SIZE]

"""Sentences -> what `WordFeatures` needs of them, prepared once and found again quickly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from elmo.embedder import ELMo
from elmo.model.bilm import word_ids
from elmo.model.checkpoint import Checkpoint
from elmo.runtime.devices import free_memory, send
from elmo.tasks.features.features import Lookup, WordFeatures
from elmo.tasks.features.layer_cache import LayerCache, default_folder
from elmo.tasks.features.static_words import UNKNOWN
from elmo.tasks.heads.base import Words

Array = npt.NDArray[Any]

_SHARE_OF_GPU = 0.5
"""Of a GPU's free memory that layers may take, so that batches need not be copied there."""
_BLOCK_WORDS = 1 << 16


class LayerSource:
    """Layers of sentences under one model, from the cache or computed.

    Args:
        checkpoint: The model.
        device: Where it computes, and where layers are wanted.
        folder: Of the cache; that of the user if None.
        quiet: Whether to show no progress.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        folder: Path | None = None,
        quiet: bool = True,
    ) -> None:
        self.fingerprint = checkpoint.fingerprint()
        self.n_layers, self.dim = checkpoint.config.n_layers + 1, checkpoint.config.output_dim
        self._checkpoint = checkpoint
        self._elmo: ELMo | None = None
        self._device = device
        self._quiet = quiet
        self._cache = LayerCache(
            folder or default_folder(), self.fingerprint, self.n_layers, self.dim
        )
        self._resident: Tensor | None = None
        self._moved: dict[int, int] = {}

    def add(self, sentences: Iterable[Words]) -> None:
        """Compute what is not in the cache yet."""
        missing = self._cache.missing(sentences)
        total = sum(map(len, missing))
        with tqdm(
            total=total,
            desc="embedding",
            unit=" words",
            unit_scale=True,
            disable=self._quiet or not missing,
        ) as bar:
            self._cache.add(missing, self._model, bar.update)

    def place(self, words: Words) -> tuple[int, int]:
        """Tell where the words of a sentence are: the first, and how many."""
        return self._cache.place(words)

    def settle(self, places: Sequence[tuple[int, int]]) -> None:
        """Copy sentences to the memory of a GPU, if that is where they are wanted and they fit."""
        places = sorted(set(places))
        n_words = sum(words for _, words in places)
        n_bytes = 2 * n_words * self.n_layers * self.dim
        if self._device.type != "cuda" or n_bytes > _SHARE_OF_GPU * free_memory(self._device):
            return
        shape = (n_words, self.n_layers, self.dim)
        self._resident = torch.empty(shape, dtype=torch.float16, device=self._device)
        done = 0
        for block in _blocks(places):
            rows = torch.from_numpy(self._cache.gather(block))
            self._resident[done : done + len(rows)] = rows.to(self._device)
            for start, words in block:
                self._moved[start] = done
                done += words

    def gather(self, places: Sequence[tuple[int, int]]) -> Tensor:
        """Give the layers of sentences, one after another: `(n_words, n_layers, dim)` float16."""
        if self._resident is not None and all(start in self._moved for start, _ in places):
            starts = [(self._moved[start], words) for start, words in places]
            index = np.concatenate([np.arange(a, a + n) for a, n in starts] or [np.zeros(0, int)])
            return self._resident[send(index, self._device)]
        return send(self._cache.gather(places), self._device)

    def _model(self) -> ELMo:
        if self._elmo is None:
            self._elmo = ELMo(self._checkpoint, device=self._device)
        return self._elmo


class DirectLayers:
    """Layers of sentences, computed when they are asked for and kept by nobody.

    Args:
        elmo: The model.
    """

    def __init__(self, elmo: ELMo) -> None:
        self._elmo = elmo
        self.n_layers, self.dim = elmo.n_layers, elmo.dim

    def compute(self, sentences: Sequence[Words]) -> Tensor:
        """Give the layers of sentences, `(n_words, n_layers, dim)`, rounded as in the cache."""
        vectors = self._elmo.encode_tokens(sentences, dtype="float16", convert_to_tensor=True)
        if not vectors:
            return torch.zeros(0, self.n_layers, self.dim)
        return torch.cat(vectors, dim=1).transpose(0, 1)


class Lookups:
    """Finds what `features` needs of sentences.

    Args:
        features: The module that will get it.
        source: Where layers come from, if `features` has ELMo in it and the biLM does not learn.
        device: Where results are wanted.
    """

    def __init__(
        self,
        features: WordFeatures,
        source: LayerSource | DirectLayers | None,
        device: torch.device,
    ) -> None:
        self._features = features
        self._source = source
        self._device = device
        self._rows: dict[tuple[str, ...], Array] = {}
        self._places: dict[tuple[str, ...], tuple[int, int]] = {}
        bilm = features.bilm
        self._ids = word_ids(bilm.config, bilm.vocabulary, bilm.alphabet) if bilm else None

    def prepare(self, sentences: Sequence[Words], settle: bool = False) -> None:
        """Make ready for sentences that will be asked for.

        Args:
            sentences: All of them.
            settle: Whether they will be asked for often.
        """
        static = self._features.static
        if static is not None:
            static.add(word for words in sentences for word in words)
            for words in sentences:
                key = tuple(words)
                if key not in self._rows:
                    self._rows[key] = np.array([static.row(w) for w in words], dtype=np.int64)
        if isinstance(self._source, LayerSource):
            self._source.add(sentences)
            self._places.update((tuple(words), self._source.place(words)) for words in sentences)
            if settle:
                self._source.settle(list(self._places.values()))

    def unknown_share(self, sentences: Iterable[Words]) -> float:
        """Give the share of words that have no static vector; every sentence counts once."""
        arrays = [self._rows[key] for key in {tuple(words) for words in sentences}]
        n_words = sum(map(len, arrays))
        return sum(int((rows == UNKNOWN).sum()) for rows in arrays) / max(1, n_words)

    def __call__(self, sentences: Sequence[Words]) -> Lookup:
        """Give what is known of the words of some sentences, one after another."""
        keys = [tuple(words) for words in sentences]
        rows = layers = ids = None
        if self._features.static is not None:
            found = [self._rows[key] for key in keys]
            rows = send(np.concatenate(found or [np.zeros(0, np.int64)]), self._device)
        if isinstance(self._source, LayerSource):
            layers = self._source.gather([self._places[key] for key in keys])
        elif self._source is not None:
            layers = self._source.compute(sentences).to(self._device)
        elif self._ids is not None:
            ids = self._ids.batch(list(sentences)).to(self._device)
        return Lookup(rows, layers, ids)


def _blocks(places: Sequence[tuple[int, int]]) -> Iterable[list[tuple[int, int]]]:
    block: list[tuple[int, int]] = []
    size = 0
    for place in places:
        block.append(place)
        size += place[1]
        if size >= _BLOCK_WORDS:
            yield block
            block, size = [], 0
    if block:
        yield block

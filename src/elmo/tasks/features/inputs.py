"""Sentences -> inputs of `WordFeatures`, prepared once and looked up by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from elmo.embedder import ELMo
from elmo.model.bilm import Checkpoint
from elmo.runtime.devices import free_memory, send
from elmo.runtime.files import cache_folder
from elmo.tasks.features.layer_cache import LayerCache
from elmo.tasks.features.static_words import UNKNOWN
from elmo.tasks.features.word_features import FeatureInputs, WordFeatures
from elmo.tasks.readers.examples import Words
from elmo.text.characters import word_ids

Array = npt.NDArray[Any]

_SHARE_OF_GPU = 0.5
"""Share of a GPU's free memory for resident layers, which need not be copied by batch."""
_BLOCK_WORDS = 1 << 16


class CachedLayers:
    """Layers of sentences under one model, from the cache on disk or computed.

    Args:
        checkpoint: The model.
        device: Where it computes, and where layers are returned.
        folder: Folder of the cache; that of the user if None.
        quiet: Whether to hide the progress bar.
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
        self._device = device
        self._quiet = quiet
        self._cache = LayerCache(
            folder or cache_folder("layers"), self.fingerprint, self.n_layers, self.dim
        )
        self._places: dict[tuple[str, ...], tuple[int, int]] = {}
        self._resident: Tensor | None = None
        self._resident_rows: dict[int, int] = {}

    def prepare(self, sentences: Sequence[Words], repeatedly: bool = False) -> None:
        """Compute what is not in the cache; keep what is read repeatedly in GPU memory."""
        missing = self._cache.missing(sentences)
        with tqdm(
            total=sum(map(len, missing)),
            desc="embedding",
            unit=" words",
            unit_scale=True,
            disable=self._quiet or not missing,
        ) as bar:
            self._cache.add(missing, lambda: self._elmo, bar.update)
        self._places.update((tuple(words), self._cache.place(words)) for words in sentences)
        if repeatedly and self._device.type == "cuda":
            self._keep_on_device(sorted(set(self._places.values())))

    def compute(self, sentences: Sequence[Words]) -> Tensor:
        """Return layers of prepared sentences, concatenated: `(n_words, n_layers, dim)` float16."""
        places = [self._places[tuple(words)] for words in sentences]
        if self._resident is not None and all(start in self._resident_rows for start, _ in places):
            starts = [(self._resident_rows[start], words) for start, words in places]
            index = np.concatenate([np.arange(a, a + n) for a, n in starts] or [np.zeros(0, int)])
            return self._resident[send(index, self._device)]
        return send(self._cache.gather(places), self._device)

    def _keep_on_device(self, places: Sequence[tuple[int, int]]) -> None:
        """Copy sentences to the memory of a GPU, if they fit."""
        n_words = sum(words for _, words in places)
        n_bytes = 2 * n_words * self.n_layers * self.dim
        if n_bytes > _SHARE_OF_GPU * free_memory(self._device):
            return
        shape = (n_words, self.n_layers, self.dim)
        self._resident = torch.empty(shape, dtype=torch.float16, device=self._device)
        done = 0
        for block in _blocks(places):
            rows = torch.from_numpy(self._cache.gather(block))
            self._resident[done : done + len(rows)] = rows.to(self._device)
            for start, words in block:
                self._resident_rows[start] = done
                done += words

    @cached_property
    def _elmo(self) -> ELMo:
        return ELMo(self._checkpoint, device=self._device)


class DirectLayers:
    """Layers of sentences, computed on request and not cached.

    Args:
        elmo: The model.
        device: Where layers are returned.
    """

    def __init__(self, elmo: ELMo, device: torch.device) -> None:
        self._elmo, self._device = elmo, device

    def prepare(self, sentences: Sequence[Words], repeatedly: bool = False) -> None:
        """Do nothing."""

    def compute(self, sentences: Sequence[Words]) -> Tensor:
        """Return layers of sentences, concatenated: `(n_words, n_layers, dim)` float16."""
        vectors = self._elmo.encode_tokens(sentences, dtype="float16", convert_to_tensor=True)
        if not vectors:
            return torch.zeros(0, self._elmo.n_layers, self._elmo.dim, device=self._device)
        return torch.cat(vectors, dim=1).transpose(0, 1).to(self._device)


LayerSource = CachedLayers | DirectLayers


class InputStore:
    """Looks up the inputs of `features` for sentences.

    Args:
        features: The module that receives them.
        source: Source of layers, if `features` has ELMo in it and the biLM is frozen.
        device: Where results are returned.
    """

    def __init__(
        self, features: WordFeatures, source: LayerSource | None, device: torch.device
    ) -> None:
        self._features, self._source, self._device = features, source, device
        self._rows: dict[tuple[str, ...], Array] = {}
        bilm = features.bilm
        self._ids = word_ids(bilm.config, bilm.vocabulary, bilm.alphabet) if bilm else None

    def prepare(self, sentences: Sequence[Words], repeatedly: bool = False) -> None:
        """Prepare sentences, before they are looked up.

        Args:
            sentences: All of them.
            repeatedly: Whether they will be looked up many times.
        """
        static = self._features.static
        if static is not None:
            static.add(word for words in sentences for word in words)
            for words in sentences:
                key = tuple(words)
                if key not in self._rows:
                    self._rows[key] = np.array([static.row(w) for w in words], dtype=np.int64)
        if self._source is not None:
            self._source.prepare(sentences, repeatedly)

    def unknown_share(self, sentences: Iterable[Words]) -> float:
        """Return the share of words without a static vector; duplicate sentences count once."""
        arrays = [self._rows[key] for key in {tuple(words) for words in sentences}]
        n_words = sum(map(len, arrays))
        return sum(int((rows == UNKNOWN).sum()) for rows in arrays) / max(1, n_words)

    def __call__(self, sentences: Sequence[Words]) -> FeatureInputs:
        """Look up the words of sentences, concatenated."""
        rows = layers = ids = None
        if self._features.static is not None:
            found = [self._rows[tuple(words)] for words in sentences]
            rows = send(np.concatenate(found or [np.zeros(0, np.int64)]), self._device)
        if self._source is not None:
            layers = self._source.compute(sentences)
        elif self._ids is not None:
            ids = self._ids.batch(list(sentences)).to(self._device)
        return FeatureInputs(rows, layers, ids)


def _blocks(places: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield sentences in blocks of a bounded number of words."""
    block: list[tuple[int, int]] = []
    size = 0
    for place in places:
        block.append(place)
        size += place[1]
        if size >= _BLOCK_WORDS:
            yield block
            block, size = [], 0
    yield block

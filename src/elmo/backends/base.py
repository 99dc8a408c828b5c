"""The contract of a backend: what computes the vectors of a biLM, on one device.

    words       context-free vectors of a batch's words, by a cache that asks the backend
    layers      `contextualize`: all recurrent layers over a batch; `run` for a padded one
    limits      how large a batch may be
    checkpoint  what can be saved, if no weight was rounded

`elmo.backends.choose` picks one of three: `plain.py`, the CPU kernel in `cpu`, the GPU in `gpu`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch

from elmo.backends.words import HostWordCache, WordCache, WordSource
from elmo.config import ElmoConfig
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM, BiLMBase
from elmo.model.checkpoint import Checkpoint, Tensors
from elmo.model.ids import word_ids
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import free_memory
from elmo.settings import Precision

if TYPE_CHECKING:  # reads HDF5
    from elmo.weights.token_file import TokenFile

SHARED_BYTES = 64 << 20
"""Results of a GPU's sentences share memory up to this size."""
_GATE_BYTES = 16 << 20
"""Size of the gates of one time step on a CPU. More rows in a batch are no faster."""
_GPU_ROWS = 8192
"""Sentences in a batch on a GPU, if its memory holds them. More are no faster."""
_OTHER_MEMORY = 4 << 30
"""Bytes that batches may share on a device which does not report its free memory."""


@dataclass
class Limits:
    """How large the batches of a backend are."""

    rows: int
    """Most sentences."""
    tokens: int
    """Most words."""
    fitting_tokens: int | None = None
    """Most words that the device's memory is known to hold, once a batch did not fit."""

    def hold(self, tokens: int) -> bool:
        """Return whether a batch of so many words is not known to be too large."""
        return self.fitting_tokens is None or tokens <= self.fitting_tokens


class Backend(BiLMBase, ABC):
    """A biLM made ready for inference on one device.

    Args:
        bilm: The model; its sizes, words and characters are taken over, its weights are not.
        precision: In which numbers weights are kept and multiplied.
        device: Where to compute.
    """

    cells: ClassVar[tuple[str, ...]] = ()
    """The cells, by their names in `CELLS`, that the backend computes; any if there is none."""
    cache_mb: ClassVar[float] = 64
    """Memory for the context-free vectors of words, by default."""

    def __init__(self, bilm: BiLM, precision: Precision, device: torch.device) -> None:
        if self.cells and bilm.config.cell not in self.cells:
            raise ConfigError(f"cell is {bilm.config.cell!r}, expected one of {self.cells}")
        self.config = bilm.config
        self.vocabulary = bilm.vocabulary
        self.alphabet = bilm.alphabet
        self.boundaries = bilm.boundaries.to(device)
        self.precision: Precision = precision
        self.device = device

    # `encode_words` and `contextualize` are those of `BiLMBase`, without gradients.

    def open_words(
        self,
        cache_mb: float | None = None,
        file: TokenFile | None = None,
        lookup: WordLookup | None = None,
    ) -> WordCache:
        """Create a cache of context-free word vectors.

        Args:
            cache_mb: Its memory; `cache_mb` of the class if None.
            file: Precomputed vectors.
            lookup: Terms of known words that are added to what their characters give.
        """
        ids = word_ids(self.config, self.vocabulary, self.alphabet)
        megabytes = self.cache_mb if cache_mb is None else cache_mb
        capacity = int(megabytes * 2**20 / (4 * self.config.projection_dim))
        return self._cache_words(WordSource(self, self.device, ids, lookup, file), capacity)

    def _cache_words(self, source: WordSource, capacity: int) -> WordCache:
        return HostWordCache(source, self.config.projection_dim, capacity)

    def computing(self) -> AbstractContextManager[None]:
        """Return a context manager to hold for the whole work on a batch."""
        return nullcontext()

    @cached_property
    def limits(self) -> Limits:
        """How large batches are, by the device and the size of the model."""
        if self.device.type == "cpu":
            rows = max(16, _GATE_BYTES // (16 * self.config.dim))
            return Limits(rows, max(1024, 8 * rows))
        cuda = self.device.type == "cuda"
        return limits_by_memory(self.config, free_memory(self.device) if cuda else _OTHER_MEMORY)

    @abstractmethod
    def tensors(self) -> Tensors:
        """Return the weights as they were, on the CPU, named as in `BiLM.state_dict()`."""

    def to_checkpoint(self) -> Checkpoint:
        """Return the weights in the form that can be saved."""
        if self.precision != "fp32":
            raise WeightsError(
                f"the weights were rounded to {self.precision} when they were loaded and cannot be "
                "saved; load the model with precision='fp32' to save or move it"
            )
        return Checkpoint(
            config=self.config,
            tensors=self.tensors(),
            vocabulary=self.vocabulary,
            alphabet=self.alphabet,
        )


def limits_by_memory(config: ElmoConfig, memory: int) -> Limits:
    """Return how large batches are on a device with so many bytes of free memory.

    A quarter of it is for what grows with the sentences, a quarter for what grows with the words;
    the rest is for results, and for others.
    """
    quarter = memory // 4
    # Gates, cells and memory of a step; the states of all layers before and after.
    row_bytes = 4 * 2 * config.dim * (6 + 2 * config.n_layers)
    # Every layer twice, and what the layer above reads.
    word_bytes = 4 * config.output_dim * (2 * config.n_layers + 3)
    rows = max(16, min(_GPU_ROWS, quarter // row_bytes))
    return Limits(rows, max(1024, min(32 * rows, quarter // word_bytes)))

"""The contract of a backend, which computes the vectors of a biLM on one device; what they share.

    words       context-free vectors of a batch's words, by a cache that asks the backend
    layers      `contextualize`: all recurrent layers over a batch; `run` for a padded one
    limits      how large a batch may be
    checkpoint  what can be saved, if no weight was rounded

`elmo.backends.choose` picks one of three: `plain.py`, the CPU kernel in `cpu`, the GPU in `gpu`.
Shared are `HostWordCache`, which keeps vectors in host memory (a backend may bring a cache of its
own), and how the filters of a character encoder become a table.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmo.config import ElmoConfig
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM, BiLMBase, Checkpoint, Tensors
from elmo.model.layers import CharacterEncoder
from elmo.model.word_lookup import WordLookup
from elmo.runtime.devices import exact_products, free_memory, send
from elmo.runtime.interrupts import interrupts_later
from elmo.settings import Precision
from elmo.text.characters import WordIds, word_ids
from elmo.text.sentences import Words

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
    """Sentences at most."""
    tokens: int
    """Words at most."""
    fitting_tokens: int | None = None
    """Words that the device's memory is known to hold, once a batch did not fit."""


class Backend(BiLMBase, ABC):
    """A biLM made ready for inference on one device.

    Args:
        bilm: The model; its sizes, words and characters are kept, its weights are not.
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
    the rest is for results, and for other processes.
    """
    quarter = memory // 4
    # Gates, cells and memory of a step; the states of all layers before and after.
    row_bytes = 4 * 2 * config.dim * (6 + 2 * config.n_layers)
    # Every layer twice, and what the layer above reads.
    word_bytes = 4 * config.output_dim * (2 * config.n_layers + 3)
    rows = max(16, min(_GPU_ROWS, quarter // row_bytes))
    return Limits(rows, max(1024, min(32 * rows, quarter // word_bytes)))


# --- words ----------------------------------------------------------------------------------------


class WordsOfBatch(NamedTuple):
    """The words of a batch, on a device."""

    vectors: Tensor
    """Vectors of the distinct words, `(m, projection_dim)`."""
    tokens: Tensor
    """Which of them stands at each place, one sentence after another, int64 `(n,)`."""
    n_cut: int
    """How many of the n are longer than the model reads and lose their end."""


class Sentences(Protocol):
    """Sentences, none of them empty, whose words can be looked up."""

    @property
    def sizes(self) -> list[int]:
        """Words of each sentence."""

    def subset(self, numbers: Sequence[int] | slice) -> Sentences:
        """Return some of the sentences."""

    def words(self) -> WordsOfBatch:
        """Look up the words of all these sentences."""


@dataclass(frozen=True)
class WordSource:
    """Computes the context-free vectors of words, or reads them from a file."""

    model: BiLMBase
    device: torch.device
    """Where the model computes."""
    ids: WordIds
    """Turns words into the ids that the model reads."""
    lookup: WordLookup | None = None
    """Terms of known words that are added to what their characters give."""
    file: TokenFile | None = None
    """Precomputed vectors."""

    def compute(self, words: Sequence[str]) -> Tensor:
        """Compute the vectors `(len(words), projection_dim)` of words, on the device."""
        with torch.no_grad(), exact_products(self.device):
            vectors = self.model.encode_words(send(self.ids.rows(words).numpy(), self.device))
        return vectors if self.lookup is None else self.lookup.add_to(vectors, words)


class WordCache(ABC):
    """Word vectors by word: cached, from a file, or computed.

    Args:
        source: Where vectors come from.
        capacity: How many vectors are kept; the least recently used go first.
    """

    checks_words: ClassVar[bool] = False
    """Whether `windows` raises an error that names what is not a word."""

    def __init__(self, source: WordSource, capacity: int) -> None:
        self.source = source
        self._capacity = capacity
        self._lock = threading.Lock()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def clear(self) -> None:
        """Remove all vectors."""

    @abstractmethod
    def lookup(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of distinct words, shape `(len(words), projection_dim)`."""

    @abstractmethod
    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Look up the words of a batch."""

    def windows(self, sentences: Sequence[Words], max_rows: int) -> Iterator[tuple[int, Sentences]]:
        """Cut a call into windows, the sentences of which are sorted into batches together.

        Args:
            sentences: The sentences of a call.
            max_rows: Sentences in a batch.

        Yields:
            The number of a window's first sentence, and its sentences.
        """
        yield 0, ListedSentences(self, sentences)


class ListedSentences:
    """Sentences as lists of words, which are looked up when the batch is run.

    Args:
        cache: Where words are looked up.
        sentences: Lists of words.
    """

    def __init__(self, cache: WordCache, sentences: Sequence[Words]) -> None:
        self._cache = cache
        self._sentences = sentences

    @property
    def sizes(self) -> list[int]:
        """Words of each sentence."""
        return list(map(len, self._sentences))

    def subset(self, numbers: Sequence[int] | slice) -> ListedSentences:
        """Return some of the sentences."""
        if isinstance(numbers, slice):
            return ListedSentences(self._cache, self._sentences[numbers])
        return ListedSentences(self._cache, [self._sentences[number] for number in numbers])

    def words(self) -> WordsOfBatch:
        """Look up the words of all these sentences."""
        return self._cache.read(self._sentences)


class HostWordCache(WordCache):
    """Word vectors in host memory: from a file if it has them, from the cache, else computed.

    Args:
        source: See `WordCache`.
        dim: Width of a vector.
        capacity: How many computed vectors are kept; the least recently used go first.
    """

    def __init__(self, source: WordSource, dim: int, capacity: int) -> None:
        super().__init__(source, capacity)
        self._slots: OrderedDict[str, int] = OrderedDict()
        self._table = torch.empty(capacity, dim)  # the system takes pages only as they are filled

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Remove all computed vectors."""
        with self._lock:
            self._slots.clear()

    def lookup(self, words: Sequence[str]) -> Tensor:
        """Return the vectors of distinct words, shape `(len(words), dim)`."""
        with interrupts_later(), self._lock:
            vectors = torch.empty(len(words), self._table.shape[1])
            missing = self._fill_known(words, vectors)
            if missing:
                new_words = [words[place] for place in missing]
                new = self.source.compute(new_words).cpu()
                vectors[torch.tensor(missing)] = new
                self._store(new_words, new)
            return vectors

    def read(self, sentences: Sequence[Words]) -> WordsOfBatch:
        """Look up the words of a batch."""
        places: dict[str, int] = {}
        tokens = [places.setdefault(word, len(places)) for s in sentences for word in s]
        words, device = list(places), self.source.device
        vectors = self.lookup(words).to(device)
        cut = {words[place] for place in self.source.ids.are_cut(words).nonzero()[0]}
        n_cut = sum(word in cut for sentence in sentences for word in sentence) if cut else 0
        return WordsOfBatch(vectors, torch.tensor(tokens).to(device), n_cut)

    def _fill_known(self, words: Sequence[str], vectors: Tensor) -> list[int]:
        """Fill in the vectors that are on file or cached; return the places of the others."""
        file = self.source.file
        cached: list[tuple[int, int]] = []
        on_file: list[tuple[int, int]] = []
        missing: list[int] = []
        for place, word in enumerate(words):
            row = file.row(word) if file is not None else None
            if row is not None:
                on_file.append((place, row))
            elif (slot := self._slots.get(word)) is not None:
                self._slots.move_to_end(word)
                cached.append((place, slot))
            else:
                missing.append(place)
        if cached:
            places, slots = torch.tensor(cached).T
            vectors[places] = self._table[slots]
        if on_file and file is not None:
            places, rows = torch.tensor(on_file).T
            vectors[places] = torch.from_numpy(file.vectors(rows.numpy()))
        return missing

    def _store(self, words: Sequence[str], vectors: Tensor) -> None:
        kept = words[-self._capacity :] if self._capacity else []
        if not kept:
            return
        filled = len(self._slots)
        slots = list(range(filled, min(self._capacity, filled + len(kept))))
        try:
            slots += [self._slots.popitem(last=False)[1] for _ in range(len(kept) - len(slots))]
            self._table[torch.tensor(slots)] = vectors[-len(kept) :]
            self._slots.update(zip(kept, slots, strict=True))
        except BaseException:  # such as too little memory: an empty cache rather than a wrong one
            self._slots.clear()
            raise


# --- filters of a character encoder ---------------------------------------------------------------
#
# A filter's response to a window is the sum, over the offsets in the window, of its response to the
# character there. With a table of these, a row for each (offset, character), a window costs as many
# row additions as it is wide.


def convolutions_of(encoder: CharacterEncoder) -> list[nn.Conv1d]:
    """Return the convolutions of all widths."""
    return [c for c in encoder.convolutions if isinstance(c, nn.Conv1d)]


def filter_weights(encoder: CharacterEncoder, widest: int) -> Tensor:
    """Return the filters of all widths, `(n_filters, char_dim, widest)`, zero beyond their width.

    Args:
        encoder: The plain encoder.
        widest: Width of the widest filter.
    """
    weights = [c.weight.detach() for c in convolutions_of(encoder)]
    return torch.cat([F.pad(weight, (0, widest - weight.shape[2])) for weight in weights])


def response_table(encoder: CharacterEncoder, widest: int) -> Tensor:
    """Compute each filter's response to each character at each offset of a window.

    Args:
        encoder: The plain encoder.
        widest: Width of the widest filter.

    Returns:
        Shape `(widest * n_characters, n_filters)`, zero at offsets beyond a filter's width.
    """
    characters = encoder.embedding.weight.detach().double()
    weight = filter_weights(encoder, widest).double()
    responses = torch.einsum("cd,fdo->ocf", characters, weight)
    return responses.float().reshape(-1, len(weight)).contiguous()


def count_windows(ids: Tensor, padding: int, widest: int) -> Tensor:
    """Return how many first windows of each word can differ from the others, int32 `(n,)`.

    One window wholly inside the padding stands for all of them. A word that has no such window
    needs every window of the shortest filter.

    Args:
        ids: Words as characters, `(n, max_characters)`.
        padding: The character behind their end.
        widest: Width of the widest filter.
    """
    longest = ids.shape[1]
    places = torch.arange(1, longest + 1, dtype=torch.int32, device=ids.device)
    lengths = torch.where(ids != padding, places, 0).amax(dim=1)
    return torch.where(lengths + widest <= longest, lengths + 1, longest).to(torch.int32)

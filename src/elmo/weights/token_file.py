"""Context-free word vectors: computed once for each distinct word, remembered, or read from a file.

The file is the classic one of bilm-tf: an HDF5 dataset `embedding` with a row for each line of a
vocabulary file. `write_token_file` makes it offline, `TokenFile` looks words up in it online.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import (
    ElmoError,
    InputError,
    MissingFileError,
    OutputExistsError,
    WeightsError,
)
from elmo.runtime.files import replacing
from elmo.runtime.interrupts import interrupts_later
from elmo.text.vocabulary import Vocabulary

ComputeVectors = Callable[[Sequence[str]], Tensor]

EMBEDDING = "embedding"
WORDS = "words"
FINGERPRINT = "model_sha256"

_CHECKED_WORDS = 8
_BATCH = 1024


class WordVectors:
    """Word vectors by word: from a file if it has them, from memory, else computed.

    Args:
        compute: Gives the vectors `(n, dim)` of n distinct words.
        dim: Width of a vector.
        capacity: How many computed vectors are kept; those not asked for longest go first.
        file: Precomputed vectors.
    """

    def __init__(
        self, compute: ComputeVectors, dim: int, capacity: int, file: TokenFile | None = None
    ) -> None:
        self._compute = compute
        self._capacity = capacity
        self._file = file
        self._slots: OrderedDict[str, int] = OrderedDict()
        self._table = torch.empty(capacity, dim)  # pages are taken only as they are filled
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def lookup(self, words: Sequence[str]) -> Tensor:
        """Give the vectors of distinct words, shape `(len(words), dim)`."""
        with interrupts_later(), self._lock:
            vectors = torch.empty(len(words), self._table.shape[1])
            missing = self._fill_known(words, vectors)
            if missing:
                new_words = [words[place] for place in missing]
                new = self._compute(new_words)
                vectors[torch.tensor(missing)] = new
                self._remember(new_words, new)
            return vectors

    def clear(self) -> None:
        """Forget all computed vectors."""
        with self._lock:
            self._slots.clear()

    def _fill_known(self, words: Sequence[str], vectors: Tensor) -> list[int]:
        """Fill in the vectors at hand; returns the places of the others."""
        remembered: list[tuple[int, int]] = []
        on_file: list[tuple[int, int]] = []
        missing: list[int] = []
        for place, word in enumerate(words):
            row = self._file.row(word) if self._file is not None else None
            if row is not None:
                on_file.append((place, row))
            elif (slot := self._slots.get(word)) is not None:
                self._slots.move_to_end(word)
                remembered.append((place, slot))
            else:
                missing.append(place)
        if remembered:
            places, slots = torch.tensor(remembered).T
            vectors[places] = self._table[slots]
        if on_file and self._file is not None:
            places, rows = torch.tensor(on_file).T
            vectors[places] = torch.from_numpy(self._file.vectors(rows.numpy()))
        return missing

    def _remember(self, words: Sequence[str], vectors: Tensor) -> None:
        kept = words[-self._capacity :] if self._capacity else []
        if not kept:
            return
        filled = len(self._slots)
        slots = list(range(filled, min(self._capacity, filled + len(kept))))
        try:
            slots += [self._slots.popitem(last=False)[1] for _ in range(len(kept) - len(slots))]
            self._table[torch.tensor(slots)] = vectors[-len(kept) :]
            self._slots.update(zip(kept, slots, strict=True))
        except BaseException:  # such as too little memory: better no words than wrong vectors
            self._slots.clear()
            raise


class TokenFile:
    """Precomputed word vectors in the classic token-embedding HDF5.

    Args:
        path: The HDF5 file, with a dataset `embedding` of shape `(words, projection_dim)`.
        vocabulary: The words of its rows. Files that `elmo cache` wrote carry them inside.
    """

    def __init__(self, path: Path | str, vocabulary: Vocabulary | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise MissingFileError(f"no such token file: {path}")
        try:
            with h5py.File(self.path, "r") as file:
                if EMBEDDING not in file:
                    raise WeightsError(f"{path} has no dataset '{EMBEDDING}'; is it a token file?")
                self._rows = _mapped(self.path, file[EMBEDDING])
                self.fingerprint: str | None = file.attrs.get(FINGERPRINT)
                if vocabulary is None:
                    vocabulary = _vocabulary_inside(self.path, file)
        except ElmoError:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"{path} is not a readable HDF5 file: {error}") from None
        if len(vocabulary) != len(self._rows):
            raise WeightsError(
                f"{path} has {len(self._rows)} rows, but the vocabulary has {len(vocabulary)} words"
            )
        self.vocabulary = vocabulary

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self._rows.shape[1])

    def row(self, word: str) -> int | None:
        """Give the row of a word, or None."""
        return self.vocabulary.place(word)

    def vectors(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Read the vectors of some rows, shape `(len(rows), dim)`."""
        return np.asarray(self._rows[rows], dtype=np.float32)

    def require_made_by(self, fingerprint: str, compute: ComputeVectors, dim: int) -> None:
        """Fail unless the file was made with a model.

        Files of other tools do not say which model made them: a few of their words are computed
        anew and compared.
        """
        if self.dim != dim:
            raise WeightsError(f"{self.path} has vectors of {self.dim} values, the model has {dim}")
        if self.fingerprint is not None:
            if self.fingerprint != fingerprint:
                raise WeightsError(
                    f"{self.path} was made with another model "
                    f"({self.fingerprint[:12]}..., not {fingerprint[:12]}...); make it anew"
                )
            return
        rows = np.unique(np.linspace(0, len(self._rows) - 1, _CHECKED_WORDS).astype(np.int64))
        words = [self.vocabulary.words[row] for row in rows]
        worst = (compute(words) - torch.from_numpy(self.vectors(rows))).abs().max().item()
        if not worst <= 1e-3:  # NaN is not, either
            raise WeightsError(
                f"{self.path} does not fit the model: its vectors of {words} differ by up to "
                f"{worst:.3g} from the model's. Other weights, or another vocabulary?"
            )


def write_token_file(
    path: Path | str,
    words: Sequence[str],
    compute: ComputeVectors,
    fingerprint: str,
    overwrite: bool = False,
    progress: Callable[[Iterable[int]], Iterable[int]] = lambda starts: starts,
) -> None:
    """Compute the vectors of words and write them as a classic token-embedding HDF5.

    Args:
        path: File to write.
        words: One word for each row.
        compute: Gives the vectors of words.
        fingerprint: Of the model, noted in the file.
        overwrite: Whether an existing file may be replaced.
        progress: Wraps the loop over slices of the words.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists; give --overwrite to replace it")
    if not words:
        raise InputError("the vocabulary is empty: nothing to compute")
    for line, word in enumerate(words, start=1):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise InputError(f"line {line}: {word!r} cannot be stored, it has no UTF-8 text form")
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        dim = compute(words[:1]).shape[1]
        dataset = file.create_dataset(EMBEDDING, (len(words), dim), dtype=np.float32)
        for start in progress(range(0, len(words), _BATCH)):
            dataset[start : start + _BATCH] = compute(words[start : start + _BATCH]).numpy()
        file.create_dataset(WORDS, data=list(words), dtype=h5py.string_dtype())
        file.attrs[FINGERPRINT] = fingerprint


def _mapped(path: Path, dataset: h5py.Dataset) -> npt.NDArray[np.float32]:
    """Map a dataset into memory instead of reading it, where its layout allows."""
    if dataset.ndim != 2:
        raise WeightsError(f"{path}: '{EMBEDDING}' has shape {dataset.shape}, expected two axes")
    offset = dataset.id.get_offset()
    if offset is None or dataset.dtype != np.float32:  # compressed, chunked or of another type
        return np.asarray(dataset[...], dtype=np.float32)
    return np.memmap(path, np.float32, mode="r", offset=offset, shape=dataset.shape)


def _vocabulary_inside(path: Path, file: h5py.File) -> Vocabulary:
    if WORDS not in file:
        raise MissingFileError(
            f"{path} does not say which words its rows are: give its vocabulary file too"
        )
    return Vocabulary(file[WORDS].asstr()[...].tolist())

"""Token files: precomputed context-free word vectors in the HDF5 layout of bilm-tf.

A dataset `embedding` has a row for each line of a vocabulary file. `write_token_file` writes it
offline, `TokenFile` looks words up in it online.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.config import MOST_CELLS, MOST_WORDS
from elmo.errors import (
    InputError,
    MissingFileError,
    OutputExistsError,
    WeightsError,
)
from elmo.runtime.hdf5_files import (
    dataset_of,
    reading_hdf5,
    texts_of,
    writing_hdf5,
)
from elmo.runtime.input_files import MOST_LIST_BYTES
from elmo.text.vocabulary import Vocabulary

EMBEDDING = "embedding"
WORDS = "words"
FINGERPRINT = "model_sha256"

_CHECKED_WORDS = 8


class TokenFile:
    """Precomputed word vectors in the classic token-embedding HDF5.

    Args:
        path: The HDF5 file, with a dataset `embedding` of shape `(words, projection_dim)`.
        vocabulary: The words of its rows. Files that `elmo cache` wrote carry them inside.
    """

    def __init__(self, path: Path | str, vocabulary: Vocabulary | None = None) -> None:
        self.path = Path(path)
        with reading_hdf5(self.path, "token file") as file:
            if EMBEDDING not in file:
                raise WeightsError(f"{path} has no dataset '{EMBEDDING}'; is it a token file?")
            dataset = dataset_of(self.path, file, EMBEDDING)
            self.fingerprint = _fingerprint(file)
            if vocabulary is None:
                vocabulary = _vocabulary_inside(self.path, file)
            _require_shape(self.path, dataset, vocabulary)
            self._rows = _mapped(self.path, dataset)
        self.vocabulary = vocabulary

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self._rows.shape[1])

    def row(self, word: str) -> int | None:
        """Return the row of a word, or None."""
        return self.vocabulary.place(word)

    def vectors(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Read the vectors of some rows, shape `(len(rows), dim)`."""
        return np.asarray(self._rows[rows], dtype=np.float32)

    def require_made_by(
        self, fingerprint: str, compute: Callable[[Sequence[str]], Tensor], dim: int
    ) -> None:
        """Raise an error unless the file was made with a model.

        Files of other tools do not say which model made them: a few of their words are computed
        again and compared.

        Args:
            fingerprint: That of the model.
            compute: Computes the vectors `(words, dim)` of a few words.
            dim: Width of the model's vectors.
        """
        if self.dim != dim:
            raise WeightsError(f"{self.path} has vectors of {self.dim} values, the model has {dim}")
        if self.fingerprint is not None:
            if self.fingerprint != fingerprint:
                raise WeightsError(
                    f"{self.path} was made with another model "
                    f"({self.fingerprint[:12]}..., not {fingerprint[:12]}...): run elmo cache again"
                )
            return
        rows = np.unique(np.linspace(0, len(self._rows) - 1, _CHECKED_WORDS).astype(np.int64))
        words = [self.vocabulary.words[row] for row in rows]
        difference = compute(words).cpu() - torch.from_numpy(self.vectors(rows))
        worst = difference.abs().max().item()
        if not worst <= 1e-3:  # NaN is not, either
            raise WeightsError(
                f"{self.path} does not fit the model: its vectors of {words} differ by up to "
                f"{worst:.3g} from the model's. Other weights, or another vocabulary?"
            )


def write_token_file(
    path: Path | str,
    words: Sequence[str],
    blocks: Iterable[npt.NDArray[np.float32]],
    fingerprint: str,
    overwrite: bool = False,
) -> None:
    """Write the vectors of words as a classic token-embedding HDF5.

    Args:
        path: File to write.
        words: One word for each row.
        blocks: Their vectors, some words at a time, `(words, projection_dim)` each.
        fingerprint: Of the model, stored in the file.
        overwrite: Whether an existing file may be replaced.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists; give --overwrite to replace it")
    if not words:
        raise InputError("the vocabulary is empty: nothing to compute")
    for line, word in enumerate(words, start=1):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise InputError(f"line {line}: {word!r} cannot be stored, it has no UTF-8 text form")
    with writing_hdf5(path) as (file, require_written):
        start = 0
        for block in blocks:
            if not start:
                dataset = file.create_dataset(EMBEDDING, (len(words), block.shape[1]), np.float32)
            dataset[start : start + len(block)] = block
            require_written()
            start += len(block)
        file.create_dataset(WORDS, data=list(words), dtype=h5py.string_dtype())
        file.attrs[FINGERPRINT] = np.bytes_(fingerprint)


def _fingerprint(file: h5py.File) -> str | None:
    """Return the fingerprint of the model that made a file, if the file has it as we write it.

    That is a text of fixed length: the HDF5 library loops forever over damaged texts of others.
    """
    if FINGERPRINT not in file.attrs:
        return None
    stored = file.attrs.get_id(FINGERPRINT)
    if stored.shape != () or stored.dtype.kind != "S":
        return None
    return bytes(file.attrs[FINGERPRINT]).decode("ascii", "replace")


def _require_shape(path: Path, dataset: h5py.Dataset, vocabulary: Vocabulary) -> None:
    """Raise an error unless a dataset has a row for each word; nothing is read."""
    shape = dataset.shape
    if len(shape) != 2 or not 1 <= shape[1] <= MOST_CELLS:
        raise WeightsError(
            f"{path}: '{EMBEDDING}' has shape {shape}, expected two axes: words, and up to "
            f"{MOST_CELLS:,} values of each"
        )
    if len(vocabulary) != shape[0]:
        raise WeightsError(
            f"{path} has {shape[0]} rows, but the vocabulary has {len(vocabulary)} words"
        )


def _mapped(path: Path, dataset: h5py.Dataset) -> npt.NDArray[np.float32]:
    """Map a dataset into memory instead of reading it, where its layout allows."""
    offset = dataset.id.get_offset()
    if offset is None or dataset.dtype != np.float32:  # compressed, chunked or of another type
        return np.asarray(dataset[...], dtype=np.float32)
    return np.memmap(path, np.float32, mode="r", offset=offset, shape=dataset.shape)


def _vocabulary_inside(path: Path, file: h5py.File) -> Vocabulary:
    """Read the words in a file of ours."""
    if WORDS not in file:
        raise MissingFileError(
            f"{path} does not say which words its rows are: give its vocabulary file too"
        )
    dataset = dataset_of(path, file, WORDS, kinds="O")
    if dataset.size > MOST_WORDS:
        raise WeightsError(
            f"{path}: '{WORDS}' has {dataset.size:,} entries, expected at most {MOST_WORDS:,}"
        )
    return Vocabulary(texts_of(path, WORDS, dataset, MOST_LIST_BYTES))

"""Words with one vector each: saved, mapped into memory, searched for similar ones.

Everything here is NumPy: a saved index answers without PyTorch and without a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.errors import InputError, MissingFileError
from elmo.runtime.array_files import map_arrays, pack_words, unpack_words, write_arrays

Vectors = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]
Allowed = npt.NDArray[np.bool_]
Search = Callable[[Vectors, int], tuple[npt.NDArray[np.int64], Vectors]]
"""Query `(dim,)` of length 1 and how many -> rows and cosines of near vectors, best first."""

_KIND = "elmo-word-index-2"
_CHUNK_ROWS = 1 << 17
_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Similar:
    """A word that is similar to another."""

    word: str
    cosine: float
    count: int
    """Occurrences in the corpus; 0 where there was none."""


class WordIndex:
    """One vector for each of many words.

    Args:
        words: The words, all different.
        counts: Occurrences of each, int64 `(n,)`; zeros if they are not from a corpus.
        vectors: Float32 `(n, dim)`, not scaled.
        facts: What they were made from.
    """

    def __init__(
        self, words: Sequence[str], counts: Counts, vectors: Vectors, facts: Mapping[str, Any]
    ) -> None:
        self.words = list(words)
        self.counts = counts
        self.vectors = vectors
        self.facts = dict(facts)
        self._norms: dict[bool, Vectors] = {}
        self._mean: Vectors | None = None

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    @property
    def mean(self) -> Vectors:
        """The mean of all vectors, float32 `(dim,)`."""
        if self._mean is None:
            total = np.zeros(self.vectors.shape[1], np.float64)
            for start in range(0, len(self), _CHUNK_ROWS):
                total += self.vectors[start : start + _CHUNK_ROWS].sum(axis=0, dtype=np.float64)
            self._mean = (total / max(1, len(self))).astype(np.float32)
        return self._mean

    def norms(self, remove_mean: bool) -> Vectors:
        """Return the lengths of all vectors, float32 `(n,)`, with or without their mean."""
        if remove_mean not in self._norms:
            shift = self.mean if remove_mean else np.zeros(1, np.float32)
            parts = [
                np.linalg.norm(self.vectors[start : start + _CHUNK_ROWS] - shift, axis=1)
                for start in range(0, len(self), _CHUNK_ROWS)
            ]
            lengths = np.concatenate([np.zeros(0, np.float32), *parts])
            self._norms[remove_mean] = np.maximum(lengths, _LEAST_NORM).astype(np.float32)
        return self._norms[remove_mean]

    def vector(self, word: str, remove_mean: bool = False) -> Vectors:
        """Return the vector of a word, scaled to length 1, float32 `(dim,)`."""
        row = self._rows.get(word)
        if row is None:
            raise InputError(self._unknown(word))
        shift = self.mean if remove_mean else np.zeros(1, np.float32)
        scaled: Vectors = (self.vectors[row] - shift) / self.norms(remove_mean)[row]
        return scaled

    def cosines(self, query: Vectors, remove_mean: bool = False) -> Vectors:
        """Return the cosine of a query of length 1, `(dim,)`, with every vector: `(n,)`.

        The mean need not be subtracted from every vector: its product with the query is one number.
        """
        products = self.vectors @ query
        if remove_mean:
            products = products - self.mean @ query
        cosines: Vectors = products / self.norms(remove_mean)
        return cosines

    def similar(
        self,
        word: str,
        top: int = 10,
        remove_mean: bool = False,
        *,
        allowed: Allowed | None = None,
        search: Search | None = None,
    ) -> list[Similar]:
        """List the words most similar to a word, best first, without itself.

        Args:
            word: One of the words.
            top: How many.
            remove_mean: Whether to subtract the mean of all vectors first.
            allowed: Which words may be listed, bool `(n,)`; all if None.
            search: Finds candidates instead of comparing with every vector.
        """
        query = self.vector(word, remove_mean)
        may = np.ones(len(self), np.bool_) if allowed is None else allowed.copy()
        may[self._rows[word]] = False
        if search is not None:
            return self._searched(query, top, may, search)
        cosines = np.where(may, self.cosines(query, remove_mean), -np.inf)
        number = min(top, int(may.sum()))
        if not number:
            return []
        best = np.argpartition(-cosines, list(range(number)))[:number]
        return [self._entry(row, float(cosines[row])) for row in best.tolist()]

    def _searched(self, query: Vectors, top: int, may: Allowed, search: Search) -> list[Similar]:
        """Request more and more candidates until enough of them are allowed."""
        wanted = min(top, int(may.sum()))
        asked = min(len(self), 2 * top + 16)
        while True:
            rows, cosines = search(query, asked)
            found = [
                self._entry(row, float(cosine))
                for row, cosine in zip(rows.tolist(), cosines, strict=True)
                if may[row]
            ]
            if len(found) >= wanted or asked >= len(self) or len(rows) < asked:
                return found[:top]
            asked = min(len(self), 4 * asked)

    def _entry(self, row: int, cosine: float) -> Similar:
        return Similar(self.words[row], min(1.0, max(-1.0, cosine)), int(self.counts[row]))

    def allowed(
        self, stop_words: frozenset[str], min_count: int = 0, max_count: int | None = None
    ) -> Allowed:
        """Return which words may be listed, bool `(n,)`.

        Args:
            stop_words: Never these, in lower case.
            min_count: None with fewer occurrences, unless nothing was counted.
            max_count: None with more occurrences.
        """
        may = np.ones(len(self), np.bool_)
        if self.counts.any():
            may &= self.counts >= min_count
        if max_count is not None:
            may &= self.counts <= max_count
        if stop_words:
            may &= np.array([word.lower() not in stop_words for word in self.words], np.bool_)
        return may

    def _unknown(self, word: str) -> str:
        folded = word.lower()
        close = [other for other in self.words if other.lower() == folded][:3]
        hint = f"; there is {', '.join(map(repr, close))}" if close else ""
        least = self.facts.get("min_count")
        source = self.facts.get("corpus") or self.facts.get("words") or "the list of words"
        rare = f", or fewer than {least} times" if least and least > 1 else ""
        return f"{word!r} never occurs in {source}{rare}: it has no vector{hint}"

    # --- files ------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write everything to one file; see docs/formats.md."""
        letters, starts = pack_words(self.words)
        arrays = {
            "letters": letters,
            "starts": starts,
            "counts": self.counts.astype(np.int64),
            "vectors": np.ascontiguousarray(self.vectors, np.float32).reshape(-1),
            "mean": self.mean,
            "norms": self.norms(remove_mean=False),
            "centered_norms": self.norms(remove_mean=True),
        }
        facts = json.dumps({**self.facts, "dim": self.vectors.shape[1]}, sort_keys=True)
        write_arrays(path, arrays, {"kind": _KIND, "facts": facts})

    @classmethod
    def load(cls, path: Path) -> WordIndex:
        """Map a saved index into memory."""
        if not path.is_file():
            raise MissingFileError(f"no such index: {path}; make it with --corpus and --index")
        arrays, metadata = map_arrays(path)
        if metadata.get("kind") != _KIND:
            raise InputError(f"{path} is not an index of words; elmo similar --index makes one")
        try:
            return cls._of_arrays(arrays, json.loads(metadata["facts"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path} is damaged: its arrays do not fit together ({error!r})"
            ) from None

    @classmethod
    def _of_arrays(cls, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> WordIndex:
        words = unpack_words(arrays["letters"], arrays["starts"])
        vectors = arrays["vectors"].reshape(len(words), facts["dim"])
        index = cls(words, arrays["counts"], vectors, facts)
        index._mean = arrays["mean"]
        index._norms = {False: arrays["norms"], True: arrays["centered_norms"]}
        lengths = {len(words), len(index.counts), *map(len, index._norms.values())}
        if lengths != {len(words)} or index._mean.shape != vectors.shape[1:]:
            raise ValueError(f"arrays of {sorted(lengths)} values")
        return index

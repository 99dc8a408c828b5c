"""Approximate search by faiss: only vectors in the cells nearest to a query are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.analysis.words.word_index import Search, WordIndex
from elmo.errors import InputError, MissingExtraError

Vectors = npt.NDArray[np.float32]

_FEW = 10_000
"""Up to so many vectors, all are compared."""
_CHUNK_ROWS = 1 << 16
_TRAINING_ROWS = 64
"""Vectors for each cell that the cells are trained on."""
_CELLS_PER_PROBE = 8
"""One of so many cells is searched."""


def require_faiss() -> Any:
    """Return the library; an error names the extra that installs it."""
    try:
        import faiss
    except ImportError:
        raise MissingExtraError("--search faiss", "search") from None
    return faiss


def faiss_search(
    index: WordIndex, remove_mean: bool, saved: Path | None, overwrite: bool = False
) -> Search:
    """Return a search in an index of words.

    Args:
        index: The words.
        remove_mean: Whether to subtract their mean.
        saved: Where the index is saved, and its cells beside it; trained each time if None.
        overwrite: Whether to train cells again that are saved.
    """
    faiss = require_faiss()
    cells = None
    ending = ".centered.faiss" if remove_mean else ".faiss"
    path = None if saved is None else saved.with_name(saved.name + ending)
    if path is not None and path.is_file() and not overwrite:
        cells = _read(faiss, path)
        if (cells.ntotal, cells.d) != index.vectors.shape:
            raise InputError(
                f"{path} holds {cells.ntotal:,} vectors of {cells.d} values, the index has "
                f"{len(index):,} of {index.vectors.shape[1]}; give --overwrite to make both anew"
            )
    if cells is None:
        cells = _build(faiss, index, remove_mean)
        if path is not None:
            faiss.write_index(cells, str(path))

    def search(query: Vectors, number: int) -> tuple[npt.NDArray[np.int64], Vectors]:
        cosines, rows = cells.search(np.ascontiguousarray(query[None]), number)
        found = rows[0] >= 0  # -1 where the cells had fewer
        return rows[0][found], cosines[0][found]

    return search


def _read(faiss: Any, path: Path) -> Any:
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"{path} cannot be read by faiss: {reason}") from None


def _build(faiss: Any, index: WordIndex, remove_mean: bool) -> Any:
    n, dim = index.vectors.shape
    if n <= _FEW:
        cells = faiss.IndexFlatIP(dim)
    else:
        n_cells = int(4 * n**0.5)
        kind = faiss.METRIC_INNER_PRODUCT
        cells = faiss.index_factory(dim, f"IVF{n_cells},Flat", kind)
        cells.nprobe = max(1, n_cells // _CELLS_PER_PROBE)
        step = max(1, n // (n_cells * _TRAINING_ROWS))
        cells.train(_scaled(index, np.arange(0, n, step), remove_mean))
    for start in range(0, n, _CHUNK_ROWS):
        rows = np.arange(start, min(n, start + _CHUNK_ROWS))
        cells.add(_scaled(index, rows, remove_mean))
    return cells


def _scaled(index: WordIndex, rows: npt.NDArray[np.int64], remove_mean: bool) -> Vectors:
    """Return some rows scaled to length 1, `(len(rows), dim)`."""
    shift = index.mean if remove_mean else np.zeros(1, np.float32)
    scaled = (index.vectors[rows] - shift) / index.norms(remove_mean)[rows][:, None]
    return np.ascontiguousarray(scaled, np.float32)

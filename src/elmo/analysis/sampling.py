"""Samples of a stream in bounded memory, independent of its order.

Every item has a key: a hash of its content and of the seed. The items with the smallest keys are a
uniform sample of all distinct items, since one that comes again has the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from elmo.text.characters import ragged_positions

Keys = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]

_LARGEST = np.uint64(2**64 - 1)
_FIRST_ROWS = 1024


def text_keys(texts: Iterable[str], seed: int) -> Keys:
    """Return keys of texts, uint64 `(n,)`."""
    salt = (seed % 2**64).to_bytes(8, "little")
    digests = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=salt).digest()
        for text in texts
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def joint_keys(first: Keys, second: Keys) -> Keys:
    """Return a key for each pair, uint64 `(n,)`: splitmix64 of both."""
    with np.errstate(over="ignore"):
        mixed = first ^ (second * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: Keys = mixed ^ (mixed >> np.uint64(31))
    return keys


class KeySample:
    """The rows with the smallest keys of each group.

    Args:
        size: Rows of a group at most.
        shape: Shape of a row.
    """

    def __init__(self, size: int, shape: tuple[int, ...]) -> None:
        self._size = size
        self.groups: Keys = np.zeros(0, np.uint64)
        """The group of each row, ascending, uint64 `(n,)`."""
        self.keys: Keys = np.zeros(0, np.uint64)
        """The key of each row, ascending within its group, uint64 `(n,)`."""
        self.notes: list[Any] = []
        """What was noted of each row, if anything was."""
        # Rows keep their slot of the table while others come and go, so that few are copied.
        self._slots: Integers = np.zeros(0, np.int64)
        self._table: Rows = np.empty((0, *shape), np.float32)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def rows(self) -> Rows:
        """The rows, float32 `(n, *shape)`."""
        return self._table[self._slots]

    def offer(
        self,
        groups: Keys,
        keys: Keys,
        rows: Callable[[Integers], Rows],
        note: Callable[[int], Any] | None = None,
    ) -> None:
        """Take in rows whose keys are small enough and not known yet.

        Args:
            groups: Of each of m rows, uint64 `(m,)`.
            keys: Likewise.
            rows: Returns the rows at some positions, `(len(positions), *shape)`; called for those
                that are taken in.
            note: Returns what to note of the row at a position.
        """
        small = np.flatnonzero(keys < self._limits(groups))
        if not len(small):
            return
        all_groups = np.concatenate([self.groups, groups[small]])
        all_keys = np.concatenate([self.keys, keys[small]])
        # Stable: of two with the same key, the one that was there first stays.
        order = np.lexsort((all_keys, all_groups))
        all_groups, all_keys = all_groups[order], all_keys[order]
        again = (np.diff(all_groups) == 0) & (np.diff(all_keys) == 0)
        new = np.concatenate([[True], ~again])
        order, all_groups, all_keys = order[new], all_groups[new], all_keys[new]
        _, counts = np.unique(all_groups, return_counts=True)
        kept = ragged_positions(counts)[1] < self._size
        self._replace(order[kept], small, rows)
        if note is not None:
            notes = [*self.notes, *map(note, small.tolist())]
            self.notes = [notes[number] for number in order[kept].tolist()]
        self.groups, self.keys = all_groups[kept], all_keys[kept]

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Keep only some rows; `wanted` is bool of shape `(n,)`."""
        if self.notes:
            self.notes = [self.notes[number] for number in np.flatnonzero(wanted).tolist()]
        self.groups, self.keys = self.groups[wanted], self.keys[wanted]
        self._slots = self._slots[wanted]

    def sizes(self) -> tuple[Keys, Integers]:
        """Return the groups, ascending, uint64 `(k,)`, and the rows of each, int64 `(k,)`."""
        names, counts = np.unique(self.groups, return_counts=True)
        return names, counts

    def _limits(self, groups: Keys) -> Keys:
        """Return for each group the largest key of it if it is full."""
        names, counts = self.sizes()
        if not len(names):
            return np.full(len(groups), _LARGEST)
        last = np.cumsum(counts) - 1
        limits = np.where(counts == self._size, self.keys[last], _LARGEST)
        place = np.minimum(np.searchsorted(names, groups), len(names) - 1)
        return np.where(names[place] == groups, limits[place], _LARGEST)

    def _replace(self, kept: Integers, small: Integers, rows: Callable[[Integers], Rows]) -> None:
        """Write new rows into the slots of those that are dropped.

        Args:
            kept: Numbers of rows, in their new order: of the n old ones, or n + places in `small`.
            small: Positions among the rows that are offered.
            rows: See `offer`.
        """
        n_old = len(self._slots)
        is_new = kept >= n_old
        slots = np.empty(len(kept), np.int64)
        slots[~is_new] = self._slots[kept[~is_new]]
        incoming = small[kept[is_new] - n_old]
        slots[is_new] = self._free_slots(slots[~is_new], len(incoming))
        self._table[slots[is_new]] = rows(incoming)
        self._slots = slots

    def _free_slots(self, taken: Integers, wanted: int) -> Integers:
        """Return unused slots; the table grows if there are too few."""
        if len(taken) + wanted > len(self._table):
            n_rows = max(_FIRST_ROWS, len(taken) + wanted, len(self._table) * 3 // 2)
            self._table.resize((n_rows, *self._table.shape[1:]), refcheck=False)
        is_free = np.ones(len(self._table), np.bool_)
        is_free[taken] = False
        return np.flatnonzero(is_free)[:wanted]

"""Samples of a stream in bounded memory, the same whatever the order of the stream.

Every thing has a key: a hash of what it is, and of the seed. The things with the smallest keys are
a uniform sample of all different things, and one that comes again has the same key and is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]

_LARGEST = np.uint64(2**64 - 1)
_FIRST_ROWS = 1024


def text_keys(texts: Iterable[str], seed: int) -> Keys:
    """Give keys of texts, uint64 `(n,)`."""
    salt = (seed % 2**64).to_bytes(8, "little")
    digests = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=salt).digest()
        for text in texts
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def joint_keys(first: Keys, second: Keys) -> Keys:
    """Give a key for each pair, uint64 `(n,)`: splitmix64 of both."""
    with np.errstate(over="ignore"):
        mixed = first ^ (second * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: Keys = mixed ^ (mixed >> np.uint64(31))
    return keys


class KeySample:
    """At most so many rows of each group: those with the smallest keys.

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
        self._slots: Integers = np.zeros(0, np.int64)
        self._table: Rows = np.empty((0, *shape), np.float32)
        self._notes: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def rows(self) -> Rows:
        """The rows, float32 `(n, *shape)`."""
        return self._table[self._slots]

    @property
    def notes(self) -> list[Any]:
        """What was noted with each row, as far as anything was."""
        return [self._notes.get(slot) for slot in self._slots.tolist()]

    def offer(
        self,
        groups: Keys,
        keys: Keys,
        rows: Callable[[Integers], Rows],
        note: Callable[[int], Any] | None = None,
    ) -> None:
        """Let rows in whose keys are small enough and not known yet.

        Args:
            groups: Of each row that is offered, uint64 `(m,)`.
            keys: Likewise.
            rows: Gives the rows of some places, `(len(places), *shape)`; called for those that are
                let in.
            note: Gives what is to be kept with the row of a place.
        """
        places = np.flatnonzero(keys < self._limits(groups))
        if not len(places):
            return
        all_groups = np.concatenate([self.groups, groups[places]])
        all_keys = np.concatenate([self.keys, keys[places]])
        # Stable: of two with the same key, the one that was there first stays.
        order = np.lexsort((all_keys, all_groups))
        all_groups, all_keys = all_groups[order], all_keys[order]
        again = (np.diff(all_groups) == 0) & (np.diff(all_keys) == 0)
        new = np.concatenate([[True], ~again])
        order, all_groups, all_keys = order[new], all_groups[new], all_keys[new]
        kept = _ranks(all_groups) < self._size
        self._replace(order[kept], places, rows, note)
        self.groups, self.keys = all_groups[kept], all_keys[kept]

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Keep only some rows; `wanted` is bool of shape `(n,)`."""
        for slot in self._slots[~wanted].tolist():
            self._notes.pop(slot, None)
        self.groups, self.keys = self.groups[wanted], self.keys[wanted]
        self._slots = self._slots[wanted]

    def sizes(self) -> tuple[Keys, Integers]:
        """Give the groups, ascending, uint64 `(k,)`, and how many rows each has, int64 `(k,)`."""
        names, counts = np.unique(self.groups, return_counts=True)
        return names, counts

    def _limits(self, groups: Keys) -> Keys:
        """Give for each group the key at which it is full."""
        names, counts = self.sizes()
        if not len(names):
            return np.full(len(groups), _LARGEST)
        last = np.cumsum(counts) - 1
        limits = np.where(counts == self._size, self.keys[last], _LARGEST)
        place = np.minimum(np.searchsorted(names, groups), len(names) - 1)
        return np.where(names[place] == groups, limits[place], _LARGEST)

    def _replace(
        self,
        kept: Integers,
        places: Integers,
        rows: Callable[[Integers], Rows],
        note: Callable[[int], Any] | None,
    ) -> None:
        """Write what is new into the slots of what goes.

        Args:
            kept: What stays or comes, in its new order: places in the old rows and, behind them,
                in `places`.
            places: See `offer`, whose other arguments these are.
            rows: See `offer`.
            note: See `offer`.
        """
        n_old = len(self._slots)
        is_new = kept >= n_old
        slots = np.empty(len(kept), np.int64)
        slots[~is_new] = self._slots[kept[~is_new]]
        incoming = places[kept[is_new] - n_old]
        free = self._free_slots(slots[~is_new], len(incoming))
        slots[is_new] = free
        self._table[free] = rows(incoming)
        gone = set(self._notes) - set(slots[~is_new].tolist())
        for slot in gone:
            del self._notes[slot]
        if note is not None:
            self._notes |= {
                slot: note(place)
                for slot, place in zip(free.tolist(), incoming.tolist(), strict=True)
            }
        self._slots = slots

    def _free_slots(self, taken: Integers, wanted: int) -> Integers:
        """Give slots that nothing needs, growing the table if there are too few."""
        if len(taken) + wanted > len(self._table):
            n_rows = max(_FIRST_ROWS, len(taken) + wanted, len(self._table) * 3 // 2)
            self._table.resize((n_rows, *self._table.shape[1:]), refcheck=False)
        is_free = np.ones(len(self._table), np.bool_)
        is_free[taken] = False
        return np.flatnonzero(is_free)[:wanted]


def _ranks(groups: Keys) -> Integers:
    """Number the rows of each group from 0 on; equal groups stand together."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(groups) != 0]))
    sizes = np.diff(np.concatenate([starts, [len(groups)]]))
    ranks: Integers = np.arange(len(groups)) - np.repeat(starts, sizes)
    return ranks

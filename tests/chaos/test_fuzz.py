"""A small part of `make chaos`: damaged and hostile files, read by processes of their own."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fuzz
from bombs import QUICK


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux")
def test_damaged_files_are_refused_or_read_soon_and_in_little_memory():
    rows, bad = fuzz.run(int(os.environ.get("ELMO_CHAOS_CASES", "600")), seed=4, bombs=QUICK)
    assert bad == []
    assert len(rows) == 15  # every kind of file had its turn
    assert all(row["refused"] for row in rows.values())


def test_what_may_not_be_is_counted():
    rows, bad = {}, []
    for report in (
        {"kind": "a", "outcome": "refused", "memory": 5},
        {"kind": "a", "outcome": "read", "differs": True},
        {"kind": "a", "outcome": "traceback"},
        {"kind": "b", "outcome": "hung"},
        {"kind": "b", "outcome": "signal"},
        {"kind": "b", "outcome": "read", "memory": 2**30 + 1},
    ):
        fuzz.count(rows, bad, report)
    assert len(bad) == 4
    last = fuzz.table(rows).splitlines()[-1].split()
    assert last == ["all", "6", "1", "2", "1", "1", "1", "1", "1"]

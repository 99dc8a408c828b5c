"""The approximate search finds what the exact one finds."""

import pytest

from elmo.analysis.words.faiss_search import faiss_search
from elmo.errors import InputError


@pytest.mark.parametrize("n", [40, 12_000])
@pytest.mark.parametrize("remove_mean", [False, True])
def test_faiss_finds_what_the_exact_search_finds(random_index, tmp_path, n, remove_mean):
    pytest.importorskip("faiss")
    index = random_index(n, dim=8)
    path = tmp_path / "cells.faiss"
    allowed = index.allowed(frozenset({"w7"}), min_count=n // 4)
    exact = index.similar("w1", 10, remove_mean=remove_mean, allowed=allowed)
    for _ in range(2):  # learned, then read
        search = faiss_search(index, remove_mean, path)
        found = index.similar("w1", 10, remove_mean=remove_mean, allowed=allowed, search=search)
        shared = {e.word for e in exact} & {e.word for e in found}
        assert len(shared) == 10 if n == 40 else len(shared) >= 8
    with pytest.raises(InputError, match="the index has 30"):
        faiss_search(random_index(30, dim=8), remove_mean, path)

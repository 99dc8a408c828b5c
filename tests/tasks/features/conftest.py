"""Static vectors of features."""

import pytest


@pytest.fixture
def vectors(tmp_path):
    """A small file of static vectors."""
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2\ncat 3 4\nsat 5 6\n", encoding="utf-8")
    return path

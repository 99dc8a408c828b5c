"""Fixtures of the benchmarks."""

import pytest


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, tiny_elmo):
    """A tiny model in our own layout."""
    folder = tmp_path_factory.mktemp("model")
    tiny_elmo.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def no_collections(monkeypatch):
    """Do not search the whole test process for garbage before each measurement."""
    monkeypatch.setattr("gc.collect", lambda: 0)

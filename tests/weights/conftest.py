"""What tests of weight formats share."""

import shutil

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects

from elmo import ElmoConfig
from elmo.weights.formats import save_checkpoint
from named_models import bundled, cache, language_model  # noqa: F401
from oracle import random_tensors, write_files


@pytest.fixture
def hub_of(monkeypatch, tmp_path):
    """Make a Hub of one folder; it brings only the files that are asked for.

    Returns the folder in which they arrive.
    """

    def make(repository):
        arrived = tmp_path / "from_the_hub"

        def download(name, allow_patterns, **_):
            arrived.mkdir()
            names = [path.name for path in repository.iterdir()]
            for file in filter_repo_objects(names, allow_patterns=allow_patterns):
                shutil.copy(repository / file, arrived)
            return str(arrived)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        return arrived

    return make


@pytest.fixture
def checkpoint(tiny_bilm):
    return tiny_bilm.to_checkpoint()


@pytest.fixture
def folder(tmp_path, checkpoint):
    """A model in our own layout."""
    save_checkpoint(checkpoint, tmp_path / "ours")
    return tmp_path / "ours"


@pytest.fixture
def published_folder(tmp_path):
    """A model in the published layout, written by the tests themselves."""
    drawn = ElmoConfig.preset("tiny").to_options()
    return write_files(tmp_path / "published", drawn, random_tensors(drawn))


@pytest.fixture
def word_folder(tmp_path, word_bilm):
    save_checkpoint(word_bilm.to_checkpoint(), tmp_path / "words")
    return tmp_path / "words"

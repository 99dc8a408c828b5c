"""What tests of weight formats share."""

import shutil

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects


@pytest.fixture
def hub_of(monkeypatch, tmp_path):
    """Make a Hub of one folder; it brings only the files that are asked for.

    Returns the folder in which they arrive.
    """

    def make(repository):
        cache = tmp_path / "from_the_hub"

        def download(name, allow_patterns, **_):
            cache.mkdir()
            names = [path.name for path in repository.iterdir()]
            for file in filter_repo_objects(names, allow_patterns=allow_patterns):
                shutil.copy(repository / file, cache)
            return str(cache)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        return cache

    return make

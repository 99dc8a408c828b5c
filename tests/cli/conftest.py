"""What tests of commands share."""

import pytest

from elmo import ELMo, ElmoConfig, random_bilm
from named_models import bundled, cache, hdf5, language_model, mirror  # noqa: F401


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    ELMo(random_bilm(ElmoConfig.preset("tiny")), device="cpu").save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The cat sat .\n\nA dog barked at the cat .\n")
    return path

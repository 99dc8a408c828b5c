"""Names of models: folders, files, pairs, untrained ones and the Hub."""

import fnmatch

import huggingface_hub
import numpy as np
import pytest
import torch

from elmo import ELMo, Elmo, ElmoConfig, ElmoWarning, batch_to_ids
from elmo.errors import ConfigError, MissingFileError
from elmo.hub.names import HubOptions, is_untrained, open_model
from elmo.weights.formats import patterns

SENTENCES = [["The", "cat"], ["No"]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_elmo):
    """The tiny model in both layouts."""
    base = tmp_path_factory.mktemp("models")
    tiny_elmo.save_pretrained(base / "ours")
    tiny_elmo.save_pretrained(base / "hdf5", format="hdf5")
    return base


def assert_tiny(elmo, tiny_elmo):
    for found, expected in zip(
        elmo.encode_tokens(SENTENCES), tiny_elmo.encode_tokens(SENTENCES), strict=True
    ):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("path", ["ours", "hdf5", "ours/model.safetensors", "hdf5/weights.hdf5"])
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_folder_or_its_weights_file_is_a_name(folders, tiny_elmo, path, kind):
    assert_tiny(ELMo.from_pretrained(kind(folders / path)), tiny_elmo)


def test_a_pair_of_options_and_weights_will_do(folders, tiny_elmo):
    pair = {
        "options": folders / "hdf5" / "options.json",
        "weights": str(folders / "hdf5" / "weights.hdf5"),
    }
    assert_tiny(ELMo.from_pretrained(**pair), tiny_elmo)


@pytest.mark.parametrize(
    "given",
    [
        {"options": "options.json"},
        {"weights": "weights.hdf5"},
        {"name": "here", "options": "options.json", "weights": "weights.hdf5"},
    ],
)
def test_half_a_pair_or_a_pair_with_a_name_is_refused(given):
    with pytest.raises(ConfigError, match="either a name or a pair"):
        open_model(**given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": 3}, "name_or_path is 3 of type int"),
        ({"options": 3, "weights": "weights.hdf5"}, "options is 3 of type int"),
        ({"options": "options.json", "weights": ["w"]}, r"weights is \['w'\] of type list"),
    ],
)
def test_what_is_no_path_is_refused(given, named):
    with pytest.raises(ConfigError, match=f"{named}, expected a text or a path"):
        open_model(**given)


def test_an_address_in_the_place_of_a_file_is_named():
    address = "https://models.org/elmo_weights.hdf5"
    with pytest.raises(MissingFileError, match=f"{address} is an address, expected a file"):
        open_model(options="options.json", weights=address)


def test_a_missing_folder_is_named(tmp_path):
    for name in (tmp_path / "gone", str(tmp_path / "gone"), "gone", "./gone/model"):
        with pytest.raises(MissingFileError, match=r"no such model folder or file: .*gone"):
            open_model(name)


@pytest.mark.parametrize("missing", ["options", "weights"])
def test_a_missing_part_of_a_pair_is_named(folders, tmp_path, missing):
    pair = {
        "options": folders / "hdf5" / "options.json",
        "weights": folders / "hdf5" / "weights.hdf5",
        missing: tmp_path / "gone",
    }
    with pytest.raises(MissingFileError, match=r"no such .*file: .*gone"):
        open_model(**pair)


def test_an_untrained_model_says_that_it_is_one():
    with pytest.warns(ElmoWarning, match="'random-tiny' has random weights"):
        elmo = ELMo.from_pretrained("random-tiny")
    assert elmo.config == ElmoConfig.preset("tiny")
    with pytest.warns(ElmoWarning, match="random weights"):
        again = ELMo.from_pretrained("random-tiny")
    assert again.fingerprint == elmo.fingerprint


def test_an_unknown_size_of_untrained_model_is_named():
    with pytest.raises(MissingFileError, match="'random-huge'; untrained models are random-tiny"):
        open_model("random-huge")


def test_a_folder_called_like_an_untrained_model_is_a_folder(
    folders, tiny_elmo, tmp_path, monkeypatch
):
    tiny_elmo.save_pretrained(tmp_path / "random-tiny")
    monkeypatch.chdir(tmp_path)
    assert_tiny(ELMo.from_pretrained("random-tiny"), tiny_elmo)


def test_names_of_untrained_models_are_known():
    assert is_untrained("random-small")
    assert not is_untrained("someone/elmo")


def test_a_repository_that_cannot_be_had_is_named(monkeypatch):
    def offline(name, **settings):
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline mode is on\nmore lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(
        MissingFileError, match=r"'someone/elmo' is no folder here.*offline mode is on$"
    ):
        open_model("someone/elmo")


def test_a_repository_is_not_asked_for_over_the_network_when_offline(monkeypatch, tmp_path):
    # Both switches lead through the real downloader, which finds nothing in an empty cache.
    with pytest.raises(MissingFileError, match="'someone/elmo' is no folder here"):
        open_model("someone/elmo", hub=HubOptions(cache_dir=tmp_path, local_files_only=True))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingFileError, match="'someone/elmo' is no folder here"):
        open_model("someone/elmo", hub=HubOptions(cache_dir=tmp_path))


def test_a_download_is_read_like_a_folder_and_settings_are_handed_on(
    monkeypatch, folders, tiny_elmo, tmp_path
):
    asked = {}

    def local(name, **settings):
        asked.update(settings, name=name)
        return str(folders / "ours")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", local)
    elmo = ELMo.from_pretrained(
        "someone/elmo", revision="v1", cache_dir=tmp_path, token="t", local_files_only=True
    )
    assert_tiny(elmo, tiny_elmo)
    assert asked["name"] == "someone/elmo"
    assert (asked["revision"], asked["cache_dir"]) == ("v1", tmp_path)
    assert (asked["token"], asked["local_files_only"]) == ("t", True)
    assert asked["force_download"] is False


@torch.no_grad()
def test_the_task_module_loads_by_the_same_names(folders, tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    expected = Elmo(tiny_bilm, dropout=0.0)(ids)["elmo_representations"][0]
    for module in (
        Elmo.from_pretrained(folders / "ours", dropout=0.0),
        Elmo.from_pretrained(
            options=folders / "hdf5" / "options.json",
            weights=folders / "hdf5" / "weights.hdf5",
            dropout=0.0,
        ),
    ):
        assert torch.equal(module(ids)["elmo_representations"][0], expected)
    two = Elmo.from_pretrained(folders / "ours", 2, mix="top", hub=HubOptions())
    assert len(two.mixes) == 2


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "softmax.safetensors",
        "elmo_2x4096_512_2048cnn_2xhighway_options.json",
        "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5",
        "vocab.txt",
        "characters.txt",
        "lookup.safetensors",
        "lookup.txt",
        "card.json",
        "encoder.pkl",
        "token_embedder.pkl",
        "char.dic",
        "word.dic",
        "cnn_50_100_512_4096_sample.json",
    ],
)
def test_the_hub_is_asked_for_every_file_that_a_model_may_have(name):
    assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns())

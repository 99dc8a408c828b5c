"""Published models in the cache: from a mirror, placed by hand, out of archives."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elmo import ELMo
from elmo.cli.main import main
from elmo.errors import ConfigError, MissingFileError, WeightsError
from elmo.hub.cache import cached_folder, folder_of, mirrored, network_options, obtain, remove
from elmo.hub.download import RemoteFile
from elmo.hub.names import HubOptions, find_published, open_model
from file_server import Faults
from named_models import assert_tiny, publish, zip_of


def test_a_published_model_is_downloaded_once_and_loaded(mirror, cache, hdf5, tiny_elmo, capsys):
    publish(mirror, "original", hdf5)
    assert_tiny(ELMo.from_pretrained("original"), tiny_elmo)
    assert "weights.hdf5" in capsys.readouterr().err  # progress
    n_requests = len(mirror.requests)
    assert_tiny(ELMo.from_pretrained("Original"), tiny_elmo)
    assert len(mirror.requests) == n_requests == 2
    assert {path.name for path in (cache / "original").iterdir() if path.name[0] != "."} == {
        "options.json",
        "options.json.sha256.json",
        "weights.hdf5",
        "weights.hdf5.sha256.json",
    }


def test_a_model_in_the_cache_needs_no_network(mirror, hdf5, tiny_elmo, monkeypatch):
    publish(mirror, "medium", hdf5)
    obtain(find_published("medium"))
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    monkeypatch.setenv("ELMO_MIRROR", "http://127.0.0.1:9")
    assert_tiny(ELMo.from_pretrained("medium"), tiny_elmo)
    monkeypatch.delenv("ELMO_OFFLINE")
    assert_tiny(ELMo.from_pretrained("medium", local_files_only=True), tiny_elmo)


def test_offline_the_file_and_its_place_are_named(cache, monkeypatch, capsys):
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    with pytest.raises(MissingFileError) as caught:
        open_model("original")
    place = cache / "original" / "options.json"
    assert f"place it at {place}. " in str(caught.value)
    assert f"place it at {place.with_name('weights.hdf5')}" in str(caught.value)
    assert "amazonaws.com" in str(caught.value)
    assert main(["info", "original"]) == 2
    assert str(place) in capsys.readouterr().err
    assert not cache.exists()


def test_offline_is_said_to_the_hub_too(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("ELMO_OFFLINE", "yes")
    with pytest.raises(MissingFileError, match="'someone/elmo' is no folder here"):
        open_model("someone/elmo", hub=HubOptions(cache_dir=tmp_path))


def test_files_that_a_person_placed_are_used(cache, hdf5, tiny_elmo, monkeypatch):
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    shutil.copytree(hdf5, cache / "pubmed")
    assert_tiny(ELMo.from_pretrained("pubmed"), tiny_elmo)


def test_a_wrong_file_in_the_place_of_a_known_one_is_refused(mirror, hdf5, cache):
    publish(mirror, "small", hdf5)
    with pytest.raises(WeightsError, match=r"expected 54,402,456"):
        ELMo.from_pretrained("small")
    assert not (cache / "small" / "weights.hdf5").exists()


def test_cache_dir_and_force_download_are_respected(mirror, hdf5, tmp_path, cache):
    publish(mirror, "original", hdf5)
    for _ in range(2):
        ELMo.from_pretrained("original", cache_dir=tmp_path / "mine", force_download=True)
    assert (tmp_path / "mine" / "original" / "weights.hdf5").is_file()
    assert not cache.exists()
    assert len(mirror.requests) == 4


def test_an_archive_is_unpacked_and_not_kept(mirror, hdf5, tmp_path, cache, tiny_elmo):
    (hdf5 / "run.sh").write_text("rm -rf /")
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json", "run.sh": "run.sh"}
    zip_of(hdf5, tmp_path / "195.zip", names)
    publish(mirror, "nlpl:195", tmp_path)
    assert_tiny(ELMo.from_pretrained("nlpl:195"), tiny_elmo)
    folder = cache / "nlpl-195"
    assert {path.name for path in (folder / "model").iterdir()} == {"model.hdf5", "options.json"}
    assert not (folder / "195.zip").exists()
    assert (folder / "195.zip.sha256.json").is_file()
    mirror.faults = Faults(status=404)
    assert_tiny(ELMo.from_pretrained("nlpl:195"), tiny_elmo)
    assert cached_folder(find_published("nlpl:195")) == folder / "model"


def test_an_archive_that_changed_since_the_first_time_is_refused(mirror, hdf5, tmp_path, cache):
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json"}
    zip_of(hdf5, tmp_path / "210.zip", names)
    publish(mirror, "nlpl:210", tmp_path)
    model = find_published("nlpl:210")
    obtain(model)
    assert remove(model) > 1000
    zip_of(hdf5, tmp_path / "210.zip", {**names, "LICENSE": "options.json"})
    publish(mirror, "nlpl:210", tmp_path)
    with pytest.raises(WeightsError, match="the first time"):
        obtain(model)


def test_a_zip_that_a_person_placed_is_unpacked_offline(hdf5, cache, monkeypatch, tiny_elmo):
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    (cache / "nlpl-7").mkdir(parents=True)
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json"}
    zip_of(hdf5, cache / "nlpl-7" / "7.zip", names)
    assert_tiny(ELMo.from_pretrained("nlpl:7"), tiny_elmo)


def test_two_processes_unpack_one_archive_from_one_download(mirror, hdf5, tmp_path):
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json"}
    zip_of(hdf5, tmp_path / "8.zip", names)
    publish(mirror, "nlpl:8", tmp_path)
    mirror.faults.stall = 1.0
    code = "from elmo.hub.cache import obtain; from elmo.hub.names import find_published\n"
    code += "obtain(find_published('nlpl:8'))"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    assert len(mirror.requests) == 1


# --- the environment ------------------------------------------------------------------------------


def test_models_are_kept_where_the_environment_or_the_caller_says(monkeypatch, tmp_path):
    model = find_published("original")
    monkeypatch.setenv("ELMO_CACHE", "~/models")
    assert folder_of(model) == Path.home() / "models" / "original"
    assert folder_of(model, tmp_path) == tmp_path / "original"


def test_a_mirror_has_the_tree_that_wget_makes(monkeypatch):
    file = RemoteFile(address="https://host.org/a/b.zip", size=3)
    monkeypatch.delenv("ELMO_MIRROR", raising=False)
    assert mirrored(file) == file
    monkeypatch.setenv("ELMO_MIRROR", "https://mirror.net/elmo/")
    assert mirrored(file).address == "https://mirror.net/elmo/host.org/a/b.zip"
    assert mirrored(file).size == 3
    for wrong in ("mirror.net", "file:///etc", "ftp://x"):
        monkeypatch.setenv("ELMO_MIRROR", wrong)
        with pytest.raises(ConfigError, match="ELMO_MIRROR"):
            mirrored(file)


def test_the_environment_says_how_the_network_is_used(monkeypatch):
    monkeypatch.setenv("ELMO_TIMEOUT", "2.5")
    monkeypatch.setenv("ELMO_OFFLINE", "0")
    options = network_options(force=True)
    assert (options.timeout, options.offline, options.force) == (2.5, False, True)
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("ELMO_TIMEOUT", wrong)
        with pytest.raises(ConfigError, match="ELMO_TIMEOUT"):
            network_options()

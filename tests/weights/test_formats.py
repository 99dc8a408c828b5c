"""The table of weight formats: one line more, here, and everything knows the new format."""

import ast
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import elmo.weights
from elmo import ELMo, ElmoConfig
from elmo.cli.main import main
from elmo.errors import ConfigError, MissingFileError, WeightsError
from elmo.hub.names import open_model
from elmo.model.bilm import Checkpoint
from elmo.runtime.input_files import read_json
from elmo.weights.files import make_folder
from elmo.weights.formats import FORMATS, Format, find_model, load_checkpoint, save_checkpoint

# --- a format that is made up: what its module has ------------------------------------------------

TOY = Format("toy", "toy.json", "toy.npz", __name__)
PATTERNS = ("toy.json", "*.npz")


def read(files):
    with np.load(files.weights) as arrays:
        tensors = {name: torch.from_numpy(arrays[name]) for name in arrays}
    return Checkpoint(config=ElmoConfig.from_dict(read_json(files.options)), tensors=tensors)


def write(checkpoint, folder, dtype):
    make_folder(folder)
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.tensors.items()}
    np.savez(folder / "toy.npz", **arrays)
    (folder / "toy.json").write_text(checkpoint.config.to_json())


# --------------------------------------------------------------------------------------------------


@pytest.fixture
def toy():
    FORMATS.append(TOY)
    yield TOY
    FORMATS.remove(TOY)


@pytest.fixture
def folder(toy, tmp_path, tiny_bilm):
    """A model in the made-up format, with a file that no model needs."""
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path / "model", "toy")
    (tmp_path / "model" / "setup.py").write_text("raise SystemExit")
    return tmp_path / "model"


def zip_folder(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"inside/{file.name}")
    return path


def tar_folder(folder, path):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "inside")
    return path


def test_a_new_format_is_found_and_read_wherever_a_model_is_named(folder, tmp_path, tiny_bilm):
    expected = tiny_bilm.to_checkpoint().fingerprint()
    shutil.move(shutil.copytree(folder, tmp_path / "pair") / "toy.json", tmp_path / "sizes")
    for found in (
        open_model(folder),
        open_model(folder / "toy.npz"),
        open_model(options=tmp_path / "sizes", weights=tmp_path / "pair" / "toy.npz"),
        open_model(zip_folder(folder, tmp_path / "model.zip")),
        open_model(tar_folder(folder, tmp_path / "model.tar.gz")),
    ):
        assert (found.format, found.fingerprint()) == ("toy", expected)


def test_a_new_format_comes_from_the_hub(folder, hub_of, tiny_elmo):
    cache = hub_of(folder)
    found = ELMo.from_pretrained("someone/toy", device="cpu")
    assert found.fingerprint == tiny_elmo.fingerprint
    assert {path.name for path in cache.iterdir()} == {"toy.json", "toy.npz"}


def test_a_new_format_is_described_and_converted_both_ways(folder, tmp_path, capsys):
    assert main(["info", str(folder), "--json"]) == 0
    fingerprint = json.loads(capsys.readouterr().out)["sha256"]
    assert main(["convert", str(folder), str(tmp_path / "ours")]) == 0
    assert find_model(tmp_path / "ours")[0].name == "elmo"
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "back"), "--to", "toy"]) == 0
    assert load_checkpoint(tmp_path / "back").fingerprint() == fingerprint
    capsys.readouterr()
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "back"), "--to", "toy"]) == 2
    assert "holds toy.json already" in capsys.readouterr().err
    assert main(["convert", str(folder), str(tmp_path / "x"), "--to", "toys"]) == 2
    written = ", ".join(format.name for format in FORMATS if format.is_written)
    assert f"format is 'toys', expected one of {written}" in capsys.readouterr().err


def test_messages_list_every_format(toy, tmp_path):
    (tmp_path / "notes.md").touch()
    for path in (tmp_path, tmp_path / "notes.md"):
        with pytest.raises(MissingFileError, match=r"toy\.json \+ toy\.npz \(toy\)"):
            find_model(path)
    with pytest.raises(MissingFileError, match=r"toy\.json \+ toy\.npz \(toy\)"):
        open_model("zzzz/yyyy/xxxx")


def test_the_help_of_commands_lists_every_format(capsys):
    assert main(["models", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for format in FORMATS:
        assert f"{format.name}: {format.files}" in text


def test_a_format_that_is_only_read_is_no_target(tmp_path, tiny_bilm):
    with pytest.raises(ConfigError, match="format is 'manylangs', expected one of elmo, hdf5"):
        save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path, "manylangs")


@pytest.mark.parametrize("format", [format for format in FORMATS if format.is_written])
def test_what_a_format_writes_is_found_by_it_and_comes_from_the_hub(
    format, hub_of, tmp_path, tiny_bilm
):
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path / "model", format.name)
    assert find_model(tmp_path / "model")[0] == format
    assert find_model(tmp_path / "model" / format.weights)[0] == format
    assert (tmp_path / "model" / format.options).is_file()
    hub_of(tmp_path / "model")
    assert open_model("someone/model").fingerprint() == tiny_bilm.to_checkpoint().fingerprint()


def test_an_archive_without_a_known_model_lists_what_it_has_and_what_is_expected(tmp_path, capsys):
    (tmp_path / "model").mkdir()
    for name in ("config.json", "weights.th"):
        (tmp_path / "model" / name).write_text("{}")
    archive = tar_folder(tmp_path / "model", tmp_path / "model.tar.gz")
    assert main(["info", str(archive)]) == 2
    text = capsys.readouterr().err
    assert "model.tar.gz holds no model of a known format: found inside/config.json" in text
    assert "expected config.json + model.safetensors (elmo)" in text
    archive.write_bytes(b"no archive")
    with pytest.raises(WeightsError, match="not a readable archive"):
        open_model(archive)


def test_an_archive_that_changed_is_read_anew(tmp_path, tiny_bilm, word_bilm):
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path / "first")
    save_checkpoint(word_bilm.to_checkpoint(), tmp_path / "second")
    for name, bilm in (("first", tiny_bilm), ("second", word_bilm)):
        archive = zip_folder(tmp_path / name, tmp_path / "model.zip")
        assert open_model(archive).fingerprint() == bilm.to_checkpoint().fingerprint()


def test_no_other_module_names_the_files_of_a_format():
    source = Path(elmo.weights.__file__).parents[1]
    # config.json and model.safetensors are names in other folders, too.
    names = {"encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic", "weights.hdf5"}
    names |= {"model.hdf5", "options.json", "lookup.txt", "softmax.safetensors", "*.hdf5", "*.pkl"}
    found = [
        f"{path.relative_to(source)}:{node.lineno} {node.value}"
        for path in source.rglob("*.py")
        if path.parent.name != "weights"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found == []

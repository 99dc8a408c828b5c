"""Checksums of models: recorded when they are saved, compared by `verify_model`."""

import json
import subprocess
from dataclasses import replace

import pytest

from elmo.errors import ElmoWarning, InputError
from elmo.hub.names import BUNDLED
from elmo.weights.formats import load_checkpoint, save_checkpoint
from elmo.weights.integrity import SUMS_FILE, read_sums, verify_model
from weight_files import edit_json


def test_a_saved_model_is_whole(folder, checkpoint):
    found = verify_model(folder)
    assert found.damaged == []
    assert found.is_recorded
    assert found.fingerprint == checkpoint.fingerprint()
    assert [finding.name for finding in found.findings] == [
        "config.json",
        "model.safetensors",
        "tensors",
    ]


def test_sha256sum_reads_the_record(folder):
    result = subprocess.run(
        ["sha256sum", "-c", SUMS_FILE], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result
    assert result.stdout == "config.json: OK\nmodel.safetensors: OK\n"


@pytest.mark.parametrize("place", [-1, -500, 2000])
def test_one_bit_of_the_weights_is_noticed(folder, place):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    found = verify_model(folder)
    assert "model.safetensors" in found.damaged
    [finding] = [f for f in found.findings if f.name == "model.safetensors"]
    assert read_sums(folder)["model.safetensors"] in finding.state


def test_without_the_record_the_fingerprint_of_the_readme_is_compared(folder):
    (folder / SUMS_FILE).unlink()
    assert verify_model(folder).damaged == []
    assert not verify_model(folder).is_recorded
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    assert verify_model(folder).damaged == ["tensors"]


def test_a_missing_file_is_named(folder):
    with (folder / SUMS_FILE).open("a") as sums:
        sums.write(f"{'0' * 64}  vocab.txt\n")
    found = verify_model(folder)
    assert found.damaged == ["vocab.txt"]


def test_loading_warns_of_a_description_that_changed(folder):
    edit_json(folder / "config.json", lambda content: content.update(cell_clip=1.0))
    with pytest.warns(ElmoWarning, match=r"config\.json changed since the model was saved"):
        load_checkpoint(folder)
    (folder / SUMS_FILE).unlink()
    assert load_checkpoint(folder).config.cell_clip == 1.0  # a folder without a record is old


def test_saving_again_records_what_is_there_now(folder, checkpoint):
    config = checkpoint.config.replace(cell_clip=1.0)
    save_checkpoint(replace(checkpoint, config=config), folder)
    assert verify_model(folder).damaged == []


@pytest.mark.parametrize(
    "line", ["x", f"{'0' * 63}  a", f"{'0' * 64}  ../a", f"{'0' * 64}  a/b", f"{'0' * 64}  .."]
)
def test_a_damaged_record_is_named(folder, line):
    (folder / SUMS_FILE).write_text(f"{line}\n")
    with pytest.raises(InputError, match="SHA256SUMS, line 1"):
        read_sums(folder)
    assert SUMS_FILE in verify_model(folder).damaged


def test_a_model_in_another_format_says_that_nothing_is_recorded(published_folder):
    found = verify_model(published_folder)
    assert found.damaged == []
    assert not found.is_recorded


@pytest.mark.parametrize("name", ["small-en", "small-zh"])
def test_the_models_that_ship_are_whole(name):
    found = verify_model(BUNDLED / name)
    assert found.damaged == []
    assert found.is_recorded
    card = json.loads((BUNDLED / name / "card.json").read_text())
    assert read_sums(BUNDLED / name) == card["files"]

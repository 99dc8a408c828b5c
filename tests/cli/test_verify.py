"""elmo verify: whole, damaged, not recorded."""

import json

from elmo.cli.main import DONE, REFUSED, main
from elmo.weights.formats import save_checkpoint


def test_a_whole_model_is_said_to_be_whole(tiny_bilm, tmp_path, capsys):
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path)
    assert main(["verify", str(tmp_path)]) == DONE
    printed = capsys.readouterr()
    assert "model.safetensors  whole, as SHA256SUMS says\n" in printed.out
    assert "the fingerprint is that of README.md" in printed.out
    assert printed.err == ""


def test_a_damaged_model_is_named_and_refused(tiny_bilm, tmp_path, capsys):
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    assert main(["verify", str(tmp_path), "--json"]) == REFUSED
    printed = capsys.readouterr()
    assert json.loads(printed.out)["damaged"] == ["model.safetensors", "tensors"]
    assert "is damaged or changed: model.safetensors, tensors" in printed.err


def test_a_model_without_a_record_says_so(tiny_bilm, tmp_path, capsys):
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path, "hdf5")
    assert main(["verify", str(tmp_path)]) == DONE
    printed = capsys.readouterr()
    assert "weights.hdf5  no checksum is recorded" in printed.out
    assert "not all files have a recorded checksum" in printed.err

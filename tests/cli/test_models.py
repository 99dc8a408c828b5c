"""`elmo models`, `elmo info` and `elmo convert`."""

import json
import subprocess
import sys
from functools import partial
from itertools import groupby

import numpy as np
import pytest

from command import elmo
from elmo import ELMo
from elmo.cli.main import main
from elmo.hub import cache as hub_cache
from elmo.hub.download import FetchOptions
from elmo.hub.names import PUBLISHED, find_published
from named_models import publish


def run(capsys, *arguments):
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_models_lists_all_and_filters(bundled, cache, capsys):
    code, out, _ = run(capsys, "models")
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if line and not line.startswith("--")]
    assert names[:2] == ["name", "small-en"]
    assert sorted(names[1:]) == sorted(["small-en", *PUBLISHED])
    languages = [line.split()[1] for line in lines[1 : len(names)]]
    assert len([code for code, _ in groupby(languages)]) == len(set(languages))
    _, out, _ = run(capsys, "models", "GERMAN")
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["name", "manylangs:de"]
    assert find_published("manylangs:de").files["142.zip"].address in out
    code, out, err = run(capsys, "models", "orignal")
    assert (code, out) == (0, "")
    assert "did you mean original" in err


@pytest.mark.parametrize("language", ["de", "German"])
def test_models_are_listed_for_one_language_by_its_code_or_name(bundled, cache, capsys, language):
    _, out, _ = run(capsys, "models", "--language", language, "--json")
    assert [row["name"] for row in json.loads(out)] == ["manylangs:de"]
    assert "language 'xx'" in run(capsys, "models", "--language", "xx")[2]


def test_the_long_list_has_formats_licenses_and_whole_descriptions(bundled, cache, capsys):
    _, out, _ = run(capsys, "models", "original-5.5B", "--long")
    header, row = out.splitlines()[:2]
    assert header.split() == ["name", "language", "size", "format", "license", "where", "what"]
    assert find_published("original-5.5B").description in row
    assert find_published("original-5.5B").license in row


def test_models_as_json_says_everything(bundled, mirror, hdf5, cache, capsys):
    publish(mirror, "original", hdf5)
    assert run(capsys, "models", "--download", "original")[0] == 0
    _, out, _ = run(capsys, "models", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["small-en"]["where"] == "bundled"
    assert rows["small-en"]["license"] == "CC BY-SA 4.0"
    assert rows["original"]["where"] == "cached"
    assert rows["original"]["folder"] == str(cache / "original")
    assert rows["medium"]["where"] == "network"
    assert rows["medium"]["addresses"][1].startswith(mirror.address)
    assert rows["small"]["bytes"] == 54_402_456


def test_models_downloads_ahead_and_frees_space(mirror, hdf5, cache, capsys):
    publish(mirror, "original", hdf5)
    code, out, err = run(capsys, "models", "--download", "original")
    assert (code, out) == (0, "")
    assert f"bytes in {cache / 'original'}" in err
    assert run(capsys, "models", "--download", "original", "--quiet")[2] == ""
    size = sum((hdf5 / name).stat().st_size for name in ("options.json", "weights.hdf5"))
    code, _, err = run(capsys, "models", "--remove", "original")
    assert code == 0
    assert f"{size:,} bytes freed" in err
    assert not (cache / "original" / "weights.hdf5").exists()
    assert "not here" in run(capsys, "models", "--remove", "original")[2]
    assert run(capsys, "models", "--download", "original")[0] == 0  # the checksum still holds


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--download", "orignal"], 2, "did you mean original"),
        (["--download", "small-en"], 2, "comes with the package"),
        (["--remove", "random-tiny"], 2, "no published model 'random-tiny'"),
        (["--remove", "a", "--download", "b"], 2, "exclude each other"),
        (["--download", "pt"], 2, "has no such file (404"),
    ],
)
def test_what_models_cannot_do_is_said_in_one_line(
    bundled, mirror, capsys, arguments, code, message
):
    found, out, err = run(capsys, "models", *arguments, "--quiet")
    assert (found, out) == (code, "")
    assert message in err


def test_a_download_that_breaks_off_is_no_mistake_of_the_user(mirror, hdf5, capsys, monkeypatch):
    publish(mirror, "original", hdf5)
    mirror.faults.stall = 20
    mirror.faults.cuts = [0] * 9
    monkeypatch.setenv("ELMO_TIMEOUT", "0.05")
    quick = partial(FetchOptions, attempts=2, wait=0)
    monkeypatch.setattr(hub_cache, "FetchOptions", quick)
    code, _, err = run(capsys, "models", "--download", "original", "--quiet")
    assert code == 1
    assert "sent nothing for 0.05 s" in err


def test_the_list_of_models_comes_without_torch():
    code = (
        "import sys; from elmo.cli.main import main\n"
        "assert main(['models']) == 0\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- elmo info, elmo convert ----------------------------------------------------------------------


def test_a_model_is_not_converted_into_its_own_folder(model_folder, capsys):
    before = (model_folder / "model.safetensors").read_bytes()
    source = model_folder / "model.safetensors"
    for given in (model_folder, source):
        assert main(["convert", str(given), str(model_folder), "--overwrite"]) == 2
        assert "the folder of the model that is to be converted" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_info_tells_sizes_and_fingerprint(model_folder):
    done = elmo("info", model_folder)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "words of up to 48 UTF-8 bytes" in done.stdout
    done = elmo("info", model_folder, "--long")
    facts = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert facts["projection_dim"] == "16"
    assert facts["values_in_a_vector"] == "32"
    as_json = json.loads(elmo("info", model_folder, "--json").stdout)
    model = ELMo.from_pretrained(model_folder, device="cpu")
    assert as_json["sha256"] == facts["sha256"] == model.fingerprint
    assert as_json["parameters"] == sum(t.numel() for t in model.to_checkpoint().tensors.values())
    assert as_json["config"]["dim"] == 64
    assert as_json["trained"]


def test_convert_there_and_back_is_bit_exact(tmp_path, model_folder):
    assert elmo("convert", model_folder, tmp_path / "hdf5").returncode == 0
    assert {p.name for p in (tmp_path / "hdf5").iterdir()} == {"options.json", "weights.hdf5"}
    assert elmo("convert", tmp_path / "hdf5", tmp_path / "back").returncode == 0
    for name in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "back" / name).read_bytes() == (model_folder / name).read_bytes()
    pair = [
        "--options",
        tmp_path / "hdf5/options.json",
        "--weights",
        tmp_path / "hdf5/weights.hdf5",
    ]
    assert elmo("convert", tmp_path / "pair", *pair).returncode == 0
    assert (tmp_path / "pair/model.safetensors").read_bytes() == (
        model_folder / "model.safetensors"
    ).read_bytes()
    again = elmo("convert", model_folder, tmp_path / "hdf5")
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


def test_convert_can_burn_a_warm_state_in(tmp_path, model_folder, text):
    done = elmo("convert", model_folder, tmp_path / "warm", "--to", "elmo", "--warm-up", text)
    assert done.returncode == 0, done.stderr
    assert json.loads(elmo("info", tmp_path / "warm", "--json").stdout)["warm_state"]
    by_hand = ELMo.from_pretrained(model_folder, device="cpu")
    by_hand.warm_up([line.split() for line in text.read_text().splitlines()])
    saved = ELMo.from_pretrained(tmp_path / "warm", device="cpu")
    for model in (by_hand, saved):
        model.vectors = model.encode_tokens([["Hello", "world"]], state="warm")[0]
    np.testing.assert_array_equal(by_hand.vectors, saved.vectors)

"""The command line as a new user meets it: real processes, exit codes, what goes where."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo import ELMo, ElmoConfig, TokenFile, random_bilm
from elmo.cli.main import main
from elmo.hub.names import is_untrained

EXAMPLES = Path(__file__).parents[2] / "examples"


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


def elmo(*arguments, stdin=None):
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "elmo", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_embed_writes_vectors_and_keeps_standard_output_clean(tmp_path, model_folder, text):
    done = elmo("embed", text, tmp_path / "out.h5", "--model", model_folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "3 sentences, 11 words" in done.stderr
    assert "words/s" in done.stderr
    expected = ELMo.from_pretrained(model_folder, device="cpu").encode_tokens(
        [line.split() for line in text.read_text().splitlines()]
    )
    with h5py.File(tmp_path / "out.h5", "r") as file:
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(file[str(number)], array)


def test_embed_reads_standard_input_and_every_flag(tmp_path, model_folder):
    flags = "--layers average --state warm --format npz --dtype float16 --batch-tokens 4".split()
    done = elmo(
        *("embed", "-", tmp_path / "out.npz", "--model", model_folder, "--device", "cpu", *flags),
        stdin="The cat sat .\nHello\n",
    )
    assert done.returncode == 0, done.stderr
    model = ELMo.from_pretrained(model_folder, device="cpu")
    expected = model.encode_tokens(
        [["The", "cat", "sat", "."], ["Hello"]], layers="average", state="warm"
    )
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_array_equal(file["0"], expected[0].astype(np.float16))
        np.testing.assert_array_equal(file["1"], expected[1].astype(np.float16))


def test_a_layer_can_be_named_by_its_number(tmp_path, model_folder, text):
    done = elmo("embed", text, tmp_path / "o", "--model", model_folder, "--layers", "0", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    with h5py.File(tmp_path / "o", "r") as file:
        assert file["0"].shape == (4, 32)
        assert file.attrs["layers"] == "0"


def test_an_untrained_model_says_that_it_is_one(tmp_path, text):
    done = elmo("embed", text, tmp_path / "out.h5", "--model", "random-tiny")
    assert done.returncode == 0
    assert "note: 'random-tiny' has random weights" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["embed", "missing.txt", "out.h5", "--model", "random-tiny"], "no such text file"),
        (["embed", "{text}", "out.h5", "--model", "./missing"], "no such model folder"),
        (["embed", "{text}", "{text}", "--model", "random-tiny"], "is the input, too"),
        (["embed", "{text}", "out.h5", "--layers", "7", "--model", "random-tiny"], "layers is 7"),
        (["embed", "{text}", "out.h5", "--layers", "bottom"], "--layers"),
        (["embed", "{text}", "out.h5", "--state", "hot"], "--state"),
        (
            ["embed", "{text}", "out.h5", "--batch-tokens", "0", "--model", "random-tiny"],
            "at least",
        ),
        (["embed", "{text}", "out.h5", "--bogus"], "--bogus"),
        (["embed", "{text}", "out.h5", "--resume", "--overwrite"], "give one"),
        (["embed", "{text}", "out.h5", "--device", "tpu9", "--model", "random-tiny"], "tpu9"),
        (["embed", "{text}"], "OUTPUT"),
        (
            ["embed", "{text}", "out.h5", "--options", "options.json"],
            "a pair of options and weights",
        ),
        (["info", "missing"], "no such model folder"),
        (["convert", "random-tiny"], "needs SRC and DST"),
        (["cache", "missing.txt", "out.h5", "--model", "random-tiny"], "no such vocabulary file"),
        (["cache", "{text}", "{text}", "--overwrite", "--model", "random-tiny"], "is the input"),
        (["embed", "{text}", "-"], "- stands for standard input, and cannot be given here"),
        (["embed", "{text}", "out.h5", "--bogus"], "See elmo embed --help."),
        (["task", "train", "tag", "--bogus"], "See elmo task train --help."),
        (["embed", ".", "out.h5"], "is a folder, expected a text file"),
        (["info", "--weights", "w.hdf5"], "--weights needs --options"),
        (["frobnicate"], "frobnicate"),
    ],
)
@pytest.mark.filterwarnings("ignore::elmo.errors.ElmoWarning")
def test_what_cannot_be_used_is_said_in_one_line_with_exit_code_2(
    arguments, expected, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code = main([argument.format(text=text) for argument in arguments])
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == [text]


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (
            PermissionError(13, "Permission denied", "secret.txt"),
            "secret.txt: Permission denied",
            2,
        ),
        (IsADirectoryError(21, "Is a directory", "folder"), "folder: Is a directory", 2),
        (OSError(28, "No space left on device", "out"), "out: no space left on the disk", 1),
        (OSError(28, "h5py's words,\nmany of them"), "no space left on the disk", 1),
        (OSError(5, "Input/output error"), "Input/output error", 1),
    ],
)
def test_what_the_system_refuses_is_said_in_one_line(monkeypatch, capsys, error, message, code):
    def refuse(*_):
        raise error

    monkeypatch.setattr("elmo.cli.embed.load_model", refuse)
    assert main(["embed", os.devnull, "out.h5"]) == code
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_that_is_full_is_told_in_one_line(model_folder):
    for command in (["models"], ["info", model_folder]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "elmo", *map(str, command)],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr == "error: cannot write to standard output: no space left on the disk\n"


LITTLE_DISK = """
import resource, sys
from elmo.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(sys.argv[1:]))
"""


def test_a_model_that_does_not_fit_on_the_disk_is_told_in_one_line(tmp_path, model_folder):
    command = ["convert", model_folder, tmp_path / "out", "--to", "elmo"]
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_DISK, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    path = tmp_path / "out" / "model.safetensors"
    assert done.returncode == 1
    assert done.stderr == f"error: cannot write {path}: no space left on the disk\n"


def test_what_hdf5_says_of_a_full_disk_is_told_in_one_line(
    tmp_path, model_folder, monkeypatch, capsys
):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "Can't synchronously write data (time = now\n, errno = 28)")

    monkeypatch.setattr(h5py, "File", refuse)
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    path = tmp_path / "out"
    given = ["cache", str(tmp_path / "words.txt"), str(path), "--model", str(model_folder)]
    assert main([*given, "--quiet"]) == 1
    told = capsys.readouterr().err
    assert told == f"error: cannot write {path}: no space left on the disk\n"


def test_a_model_is_not_converted_into_its_own_folder(model_folder, capsys):
    before = (model_folder / "model.safetensors").read_bytes()
    source = model_folder / "model.safetensors"
    for given in (model_folder, source):
        assert main(["convert", str(given), str(model_folder), "--overwrite"]) == 2
        assert "the folder of the model that is to be converted" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_what_there_is_one_of_is_told_in_the_singular(tmp_path, model_folder):
    for text, told in (
        ("Hello\n", "1 sentence, 1 word in"),
        ("Hello\n\n", "2 sentences, 1 word in"),
        ("", "standard input is empty"),
    ):
        done = elmo("embed", "-", tmp_path / f"{len(text)}", "--model", model_folder, stdin=text)
        assert done.returncode == 0, done.stderr
        assert told in done.stderr


def test_info_tells_sizes_and_fingerprint(model_folder):
    done = elmo("info", model_folder)
    assert done.returncode == 0
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


def test_cache_makes_a_token_file_that_embed_uses(tmp_path, model_folder, text):
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nThe\ncat\n.\n", encoding="utf-8")
    out = tmp_path / "tokens.hdf5"
    done = elmo("cache", tmp_path / "words.txt", out, "--model", model_folder)
    assert done.returncode == 0, done.stderr
    assert "6 words of" in done.stderr
    model = ELMo.from_pretrained(model_folder, device="cpu")
    np.testing.assert_array_equal(
        TokenFile(out).vectors(np.arange(6)),
        model.word_vectors(["<S>", "</S>", "<UNK>", "The", "cat", "."]),
    )
    for name, flags in (("plain", []), ("cached", ["--token-file", out])):
        run = elmo("embed", text, tmp_path / name, "--model", model_folder, *flags)
        assert run.returncode == 0, run.stderr
    with h5py.File(tmp_path / "plain") as plain, h5py.File(tmp_path / "cached") as cached:
        for key in ("0", "1", "2"):
            np.testing.assert_array_equal(plain[key], cached[key])
    wrong = elmo("embed", text, tmp_path / "x", "--model", "random-tiny", "--token-file", out)
    assert wrong.returncode == 0  # random-tiny is what the folder was made from
    other = elmo("embed", text, tmp_path / "y", "--model", "random-small", "--token-file", out)
    assert other.returncode == 2
    assert "16 values, the model has 128" in other.stderr


def test_the_demo_embeds_the_examples_and_compares_layers(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    bank = next(row for row in rows if row[:1] == ["bank"])
    assert float(bank[1]) == 1.0
    assert float(bank[3]) < 1.0
    assert ("RANDOM weights" in done.stdout) == is_untrained(None)
    assert (tmp_path / "build" / "demo.hdf5").exists()


@pytest.mark.parametrize(
    ("given", "arguments", "expected"),
    [
        ({}, ["models"], "1000"),
        ({}, ["bench", "--help"], None),
        ({"GOMP_SPINCOUNT": "7"}, ["models"], "7"),
        ({"OMP_WAIT_POLICY": "active"}, ["models"], None),
    ],
)
def test_threads_may_sleep_unless_the_user_or_a_benchmark_wants_otherwise(
    monkeypatch, capsys, given, arguments, expected
):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # put back whatever happens
    monkeypatch.delenv("GOMP_SPINCOUNT")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert main(arguments) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    assert capsys.readouterr().out

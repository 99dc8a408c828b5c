"""The command line as a new user meets it: real processes, exit codes, what goes where."""

import errno
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import h5py
import pytest

from elmo.bulk.writer import check_paths
from elmo.cli.main import App, Flags, main, print_panel
from elmo.errors import ConfigError, ElmoError, ElmoWarning, OutputExistsError
from elmo.hub.names import is_untrained
from elmo.settings import EmbedSettings, Group, Settings, at_least

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True, kw_only=True)
class Grouped(Settings):
    """Settings of a command with groups."""

    often: int = 1
    """What everybody needs."""
    rarely: Annotated[int, at_least(1), Group("Details")] = 1
    """What few need."""


def test_help_shows_flags_under_the_headings_of_their_fields_and_the_others_first(capsys):
    command = App(name="command", help_formatter=print_panel)

    @command.command
    def run(*, settings: Annotated[Grouped, Flags] = Grouped()):  # noqa: B008
        pass

    command(["run", "--help"], result_action="return_value")
    lines = capsys.readouterr().out.splitlines()
    found = [
        n for part in ("--often", "Details", "--rarely") for n, x in enumerate(lines) if part in x
    ]
    assert len(found) == 3
    assert found == sorted(found)


def test_mistyped_files_and_models_are_refused_before_torch_is_imported(text, tmp_path):
    out = tmp_path / "out.h5"
    commands = [
        ["embed", "nosuch.txt", out],
        ["embed", text, tmp_path / "out.xyz"],
        ["embed", text, tmp_path / "nosuch" / "out.h5"],
        ["embed", text, out, "--model", "smal-en"],
        ["cache", "nosuch.txt", out],
        ["cache", text, out, "--model", "smal-en"],
        ["info", "nosuch"],
        ["convert", "nosuch", tmp_path / "new"],
        ["bench", "nosuch"],
    ]
    code = (
        "import sys; from elmo.cli.main import main\n"
        f"for command in {[list(map(str, command)) for command in commands]!r}:\n"
        "    assert main(command) == 2, command\n"
        "    assert 'torch' not in sys.modules, command\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Did you mean small-en") == 2
    assert not (tmp_path / "nosuch").exists()


def test_elmo_alone_shows_three_lines_to_begin_with(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("elmo ") and len(line) <= 100 for line in lines)


def test_errors_name_flags_on_the_command_line_and_arguments_in_python(text, tmp_path, capsys):
    out = tmp_path / "out.h5"
    out.touch()
    assert main(["embed", str(text), str(out), "--batch-size", "0"]) == 2
    assert "--batch-size is 0" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"^batch_size is 0, expected at least 1$"):
        EmbedSettings(batch_size=0)
    assert main(["embed", str(text), str(out)]) == 2
    assert "give --overwrite" in capsys.readouterr().err
    with pytest.raises(OutputExistsError, match=r"give overwrite to replace it$"):
        check_paths(text, out, EmbedSettings())
    run = "a run begins with 'elmo train --data DATA'"  # commands stay as they are typed
    assert str(ElmoError(run)) == str(ElmoWarning(run)) == run


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

    monkeypatch.setattr("elmo.embedder.load_model", refuse)
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

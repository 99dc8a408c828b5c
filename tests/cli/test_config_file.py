"""`--config FILE`: flags from a TOML file."""

import pytest

from elmo.cli import task as task_command
from elmo.cli import train as train_command
from elmo.cli.main import main
from elmo.settings import EmbedSettings
from elmo.tasks.settings import TaskSettings
from elmo.training.settings import TrainSettings


@pytest.fixture
def received(monkeypatch):
    """Settings of the commands that were called, which do nothing else."""
    calls = []
    monkeypatch.setattr("elmo.training.trainer.train", calls.append)
    monkeypatch.setattr(
        "elmo.training.finetune.finetune",
        lambda model, corpus, settings, **rest: calls.append((settings, *rest.values())),
    )
    monkeypatch.setattr(
        "elmo.tasks.run.training.train_task", lambda kind, settings: calls.append(settings)
    )
    monkeypatch.setattr(train_command, "_show", lambda report: 0)
    monkeypatch.setattr(task_command, "_show_report", lambda report: 0)
    monkeypatch.setattr(task_command, "_require", lambda model, *files: None)
    return calls


@pytest.fixture
def written(tmp_path):
    """Writes the file."""

    def write(text):
        path = tmp_path / "run.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


TRAIN = """
preset = "tiny"
steps = 7
dropout = 0.3
tie-embeddings = true
quiet = false
log-every = 3
"""


@pytest.mark.parametrize("spelled", ["--config {}", "--config={}"])
def test_a_file_and_flags_give_the_same_settings(written, received, spelled):
    flags = spelled.format(written(TRAIN)).split()
    assert main(["train", *flags, "--data", "folder"]) == 0
    assert main("train --data folder --preset tiny --steps 7 --dropout 0.3 --tie-embeddings "
                "--log-every 3".split()) == 0  # fmt: skip
    assert received[0] == received[1] != TrainSettings()


def test_flags_take_precedence_over_the_file(written, received):
    assert main(["train", "--dropout", "0.1", "--config", written(TRAIN)]) == 0
    assert (received[0].dropout, received[0].steps) == (0.1, 7)


def test_a_length_on_the_command_line_replaces_the_one_in_the_file(written, received):
    assert main(["train", "--config", written(TRAIN), "--minutes", "2"]) == 0
    assert received[0].length == ("minutes", 2)


def test_names_in_the_file_may_have_dashes_or_underscores(written, received):
    assert main(["train", "--config", written("log_every = 3\nvalidate-every = 4")]) == 0
    assert (received[0].log_every, received[0].validate_every) == (3, 4)


def test_finetune_reads_its_own_flags_from_the_file_too(written, received):
    path = written('tokenizer = "english"\nepochs = 1')
    assert main(["finetune", "random-tiny", "text.txt", "--config", path]) == 0
    settings, tokenizer, vocab_size = received[0]
    assert (settings.epochs, tokenizer, vocab_size) == (1, "english", None)


def test_lists_and_switches_of_a_task_come_from_the_file(written, received):
    text = 'data = ["a.csv", "b c.csv"]\nfinetune-elmo = true\nmix = 1\nepochs = 7\n'
    assert main(["task", "train", "classify", "--config", written(text), "--epochs", "1"]) == 0
    assert received[0] == TaskSettings.from_dict(
        {"data": ["a.csv", "b c.csv"], "finetune-elmo": True, "mix": 1, "epochs": 1}, "here"
    )


@pytest.mark.parametrize("command", ["train", "task train classify"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepps = 3", "run.toml"),
        ("stepps = 3", "stepps"),
        ("seed = ", "run.toml is not a TOML file"),
        ('text = "\udcff"', "run.toml is not a TOML file"),
        ('seed = "many"', '"many"'),
        ("seed = true", "seed"),
        ("dropout = 1.5", "--dropout is 1.5, expected a share"),
    ],
)
def test_a_file_with_mistakes_is_refused(tmp_path, command, text, message, capsys):
    path = tmp_path / "run.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main([*command.split(), "--config", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "task train classify"])
def test_a_file_that_is_not_there_is_refused(command, capsys):
    assert main([*command.split(), "--config", "nowhere.toml"]) == 2
    assert "no such file: nowhere.toml" in capsys.readouterr().err
    assert main([*command.split(), "--config"]) == 2
    assert "--config" in capsys.readouterr().err


def test_commands_without_the_flag_do_not_know_it(capsys):
    assert EmbedSettings()
    assert main(["embed", "a.txt", "b.hdf5", "--config", "c.toml"]) == 2
    assert "--config" in capsys.readouterr().err

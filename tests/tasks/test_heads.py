"""The table of tasks: heads, settings, help texts and documents name the same ones."""

from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args

import pytest

from elmo.cli.main import main
from elmo.errors import ConfigError
from elmo.tasks.heads import TASKS, find_task
from elmo.tasks.readers.splits import SPLITS
from elmo.tasks.settings import SplitName, TaskName

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_a_class_in_a_module_of_its_name(name):
    kind = find_task(name)
    assert kind.__name__ == name.capitalize()
    assert kind.__module__ == f"elmo.tasks.heads.{name}"
    assert is_dataclass(kind)


def test_an_unknown_task_is_refused_with_all_names():
    with pytest.raises(ConfigError, match=f"expected one of {', '.join(TASKS)}"):
        find_task("parse")


def test_flags_take_the_names_of_the_tables():
    assert get_args(TaskName) == tuple(TASKS)
    assert set(get_args(SplitName)) == set(SPLITS)


def test_help_texts_name_every_task(capsys):
    assert main(["task", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} ({about})" in text for name, about in TASKS.items())
    assert main(["task", "train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(name in text for name in TASKS)


def test_documents_name_every_task_and_split():
    data = (ROOT / "docs" / "task-data.md").read_text(encoding="utf-8")
    for name in (*TASKS, *SPLITS):
        assert f"`{name}`" in data, name

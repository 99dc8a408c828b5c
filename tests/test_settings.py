"""Classes of settings: what they check, and how they come from files and go there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest

from elmo.errors import ConfigError
from elmo.settings import POSITIVE, SHARE, EmbedSettings, Settings, at_least


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    """Settings with a field of each kind."""

    count: Annotated[int | None, at_least(1_000)] = None
    rate: Annotated[float, POSITIVE] = 0.5
    share: Annotated[float, SHARE] = 0.0
    layer: Annotated[Literal["top", "all"] | int, at_least(0)] = "top"
    out: Path | None = None
    files: tuple[Path, ...] = ()
    name: str = "name"
    quiet: bool = False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 999}, "count is 999, expected at least 1,000"),
        ({"count": 1000.0}, "count is 1000.0, expected a whole number"),
        ({"count": True}, "count is True, expected a whole number"),
        ({"rate": 0}, "rate is 0, expected more than 0"),
        ({"rate": "fast"}, "rate is 'fast', expected a number"),
        ({"share": float("nan")}, "share is nan, expected a share from 0 to 1"),
        ({"layer": "best"}, "layer is 'best', expected one of top, all or a whole number"),
        ({"layer": -1}, "layer is -1, expected at least 0"),
        ({"out": 3}, "out is 3, expected a path"),
        ({"files": [3]}, "files is (3,), expected a list; each part a path"),
        ({"name": None}, "name is None, expected a text"),
        ({"quiet": 1}, "quiet is 1, expected true or false"),
    ],
)
def test_wrong_values_are_refused_by_the_name_of_their_field(values, message):
    with pytest.raises(ConfigError) as caught:
        Example(**values)
    assert str(caught.value) == message


def test_values_of_files_become_those_of_the_fields():
    values = {"out": "folder", "files": ["a", Path("b")], "layer": 2, "rate": 1, "count": None}
    assert Example(**values) == Example(
        out=Path("folder"), files=(Path("a"), Path("b")), layer=2, rate=1.0
    )
    assert Example(files="a").files == (Path("a"),)


def test_settings_come_back_from_json():
    settings = Example(count=1000, out=Path("folder"), files=(Path("a"),), layer=0, quiet=True)
    assert Example.from_dict(settings.to_dict(), "run.json") == settings
    assert settings.to_dict()["files"] == ["a"]


def test_keys_of_a_file_may_have_dashes_and_must_be_known():
    assert EmbedSettings.from_dict({"batch-size": 3}, "run.toml").batch_size == 3
    with pytest.raises(ConfigError, match=r"run.toml: unknown settings batchsize; known are batch"):
        EmbedSettings.from_dict({"batchsize": 3}, "run.toml")


def test_changes_are_what_differs_from_the_default():
    assert Example(rate=0.5, quiet=True).changes() == {"quiet": True}
    assert Example().replace(name="x").changes() == {"name": "x"}


def test_copies_are_checked_too():
    with pytest.raises(ConfigError, match="count"):
        Example().replace(count=0)

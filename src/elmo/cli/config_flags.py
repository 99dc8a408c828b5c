"""Settings from files among the flags of a command line; a flag that is given wins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError


def config_path(arguments: list[str]) -> Path | None:
    """Give the file of `--config FILE`, if it is among the arguments."""
    for place, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return Path(argument.split("=", 1)[1])
        if argument == "--config":
            if place + 1 == len(arguments):
                raise ConfigError("--config needs a file")
            return Path(arguments[place + 1])
    return None


def is_given(arguments: list[str], name: str) -> bool:
    """Tell whether a setting has its flag among the arguments."""
    flag = _flag(name)
    return any(a == flag or a.startswith(f"{flag}=") for a in arguments)


def with_values(arguments: list[str], values: Mapping[str, Any]) -> list[str]:
    """Add the flags of values, except those that are given."""
    flags = [
        part
        for name, value in values.items()
        if not is_given(arguments, name)
        for part in (_flag(name), *_words(value))
    ]
    return [*arguments, *flags]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _words(value: Any) -> list[str]:
    if value is True:
        return []
    return [str(part) for part in value] if isinstance(value, tuple) else [str(value)]

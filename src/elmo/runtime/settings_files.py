"""Frozen dataclasses of settings: checked, and read from and written to files."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from elmo.errors import ConfigError, MissingFileError

R = TypeVar("R")


def check_types(record: Any) -> None:
    """Refuse values of another type than their fields: a file may hold anything."""
    hints = _hints(type(record))  # type: ignore[arg-type]
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if not _fits(value, hints[field.name]):
            raise ConfigError(f"{field.name} is {value!r}, expected {_named(hints[field.name])}")


def require(name: str, value: object, expected: str, holds: bool) -> None:
    """Refuse a value unless a condition holds."""
    if not holds:
        raise ConfigError(f"{name} is {value!r}, expected {expected}")


def from_dict(kind: type[R], values: Mapping[str, Any], source: str) -> R:
    """Make a record; keys may have dashes as flags do, an unknown one is an error."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {key.replace("-", "_"): value for key, value in values.items()}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(
            f"{source}: unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    return kind(**given)


def from_toml(kind: type[R], path: Path) -> R:
    """Make a record of a TOML file whose keys are the names of the flags."""
    if not path.is_file():
        raise MissingFileError(f"no such file: {path}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    return from_dict(kind, values, str(path))


def changes(record: Any) -> dict[str, Any]:
    """Give the values of a record that are not the default."""
    return {
        field.name: getattr(record, field.name)
        for field in dataclasses.fields(record)
        if getattr(record, field.name) != field.default
    }


def to_json_values(record: Any) -> dict[str, Any]:
    """Give a record as values that JSON can hold; paths become texts."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(record), default=str))
    return values


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, kind) for kind in arguments)
    if origin is Literal:
        return value in arguments and not isinstance(value, bool)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(part, arguments[0]) for part in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _named(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_named(kind) for kind in arguments if kind is not type(None))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"a list of {_named(arguments[0])}"
    return {int: "a whole number", float: "a number", str: "a text", Path: "a path"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Give the types of the fields; finding them takes a while."""
    return get_type_hints(kind)

"""The table of tasks: a task is one line here and one module of `heads`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elmo.errors import ConfigError

if TYPE_CHECKING:
    from elmo.tasks.heads.base import Task

TASKS = {
    "classify": "texts with labels",
    "tag": "entities, parts of speech",
    "srl": "semantic roles",
    "nli": "entailment",
    "qa": "questions about a text",
    "coref": "coreference",
}
"""Names and what they stand for in help texts; the task `x` is the class `X` of `heads/x.py`."""


def find_task(name: str) -> type[Task[Any, Any, Any]]:
    """Import the class of a task."""
    if name not in TASKS:
        raise ConfigError(f"no task {name!r}: expected one of {', '.join(TASKS)}")
    kind: type[Task[Any, Any, Any]] = getattr(
        import_module(f"elmo.tasks.heads.{name}"), name.capitalize()
    )
    return kind

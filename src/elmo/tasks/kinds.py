"""The tasks by their names."""

from __future__ import annotations

from typing import Any

from elmo.tasks.base import Task
from elmo.tasks.classify import Classify
from elmo.tasks.coref import Coref
from elmo.tasks.nli import Nli
from elmo.tasks.qa import Qa
from elmo.tasks.srl import Srl
from elmo.tasks.tag import Tag

TASKS: dict[str, type[Task[Any, Any, Any]]] = {
    "classify": Classify,
    "tag": Tag,
    "srl": Srl,
    "nli": Nli,
    "qa": Qa,
    "coref": Coref,
}

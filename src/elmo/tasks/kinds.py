"""The tasks by their names."""

from __future__ import annotations

from typing import Any

from elmo.tasks.heads.base import Task
from elmo.tasks.heads.classify import Classify
from elmo.tasks.heads.coref import Coref
from elmo.tasks.heads.nli import Nli
from elmo.tasks.heads.qa import Qa
from elmo.tasks.heads.srl import Srl
from elmo.tasks.heads.tag import Tag

TASKS: dict[str, type[Task[Any, Any, Any]]] = {
    "classify": Classify,
    "tag": Tag,
    "srl": Srl,
    "nli": Nli,
    "qa": Qa,
    "coref": Coref,
}

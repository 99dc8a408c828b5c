"""The tasks: a task `x` is a line of the table here, and the class `X` of the module `x`.

- `base`: the contract of a task and its head.
- `classify`: texts with labels.
- `nli`: pairs of texts with labels.
- `labels`: what tasks with one label share; labels as numbers.
- `tag`: one tag for each word.
- `srl`: one tag for each word and predicate.
- `crf`: sequences of tags: transitions, Viterbi decoding, a CRF.
- `qa`: answers as spans of a paragraph.
- `passages`: questions and answers of `qa` as words.
- `coref`: clusters of spans.
- `span_scores`: vectors and scores of the spans of `coref`.
- `encoders`: recurrent encoders, attention, dropout and pooling.
"""

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

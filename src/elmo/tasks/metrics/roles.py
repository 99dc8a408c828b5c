"""Arguments of predicates, as the scorer of CoNLL-2005 (srl-eval) counts them.

An argument is right if its words and its role are. The pieces of an argument in several pieces
(`A1 ... C-A1`) are one argument, right if all of them are; a piece `C-A1` without an `A1` before it
is an `A1`. Roles of referring words (`R-A1`) are roles of their own. The predicate itself (`V`,
with its `C-V`) is given, and left out. Arguments of all predicates are counted together.
"""

from __future__ import annotations

from collections.abc import Sequence

from elmo.tasks.heads.tag_schemes import spans_of
from elmo.tasks.metrics.scores import Score, Tags, Tally

Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A role, and where the pieces of the argument are: first word, and the one behind the last."""

_VERB = "V"
_CONTINUED = "C-"


def arguments_of(tags: Tags) -> list[Argument]:
    """Give the arguments that the tags of one predicate stand for, without the predicate."""
    pieces: list[tuple[str, list[tuple[int, int]]]] = []
    for start, stop, role in spans_of(tags):
        heading = role.removeprefix(_CONTINUED)
        begun = [piece for piece in pieces if piece[0] == heading]
        if heading != role and begun:
            begun[-1][1].append((start, stop))
        else:
            pieces.append((heading, [(start, stop)]))
    return [(role, tuple(places)) for role, places in pieces if role != _VERB]


def role_score(gold: Sequence[Tags], predicted: Sequence[Tags]) -> Score:
    """Give precision, recall and F1 of all arguments.

    Args:
        gold: For every predicate the tags of its sentence.
        predicted: The same, predicted.
    """
    return Tally(gold, predicted, arguments_of).score()


def role_scores(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, Score]:
    """Do as `role_score` for each role, sorted by role."""
    return Tally(gold, predicted, arguments_of).scores()

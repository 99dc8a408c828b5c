"""Texts that are longer than wanted: cut or left out, and always told of."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TypeVar

from elmo.errors import ElmoWarning
from elmo.tasks.readers.examples import Frame, TaggedSentence, TextExample

S = TypeVar("S", TaggedSentence, Frame)


def shortened(examples: Sequence[TextExample], max_words: int) -> list[TextExample]:
    """Cut texts after `max_words` words."""
    long = [example for example in examples if len(example.words) > max_words]
    if long:
        _warn(f"{len(long)} texts have more than {max_words} words and are cut", long[0].place)
    return [dataclasses.replace(e, words=e.words[:max_words]) for e in examples]


def short_enough(examples: Sequence[S], max_words: int) -> list[S]:
    """Leave out sentences of more than `max_words` words: cut, their tags would be wrong."""
    long = [example for example in examples if len(example.words) > max_words]
    if long:
        what = f"{len(long)} sentences have more than {max_words} words and are left out"
        _warn(what, long[0].place)
    return [example for example in examples if len(example.words) <= max_words]


def _warn(what: str, place: str) -> None:
    warnings.warn(f"{what} (first: {place}); see --max-words", ElmoWarning, stacklevel=3)

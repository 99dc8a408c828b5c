"""PropBank as JSON lines: `{"words": [...], "frames": [{"pred": 3, "sense": ..., "tags": [...]}]}`.

One sentence a line, one frame for each of its predicates; `tags` has one a word, in any scheme.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmo.tasks.heads.tag_schemes import irregular_places, scheme_of, spans_of, to_iob2
from elmo.tasks.readers.examples import Frame, Words
from elmo.tasks.readers.files import Remarks, json_lines, not_empty, place, problem


def read_propbank(path: Path, *, encoding: str = "utf-8") -> list[Frame]:
    """Read the frames of all sentences, tags in IOB2.

    Sentences without a predicate have nothing to label and give nothing.

    Args:
        path: A file, packed or not.
        encoding: Of the file.
    """
    remarks = Remarks(path)
    frames = []
    for number, record in json_lines(path, encoding):
        words = record.get("words")
        if not _are_strings(words) or not words:
            raise problem(path, number, "no 'words' that is a list of strings")
        items = record.get("frames")
        if not isinstance(items, list):
            raise problem(path, number, "no 'frames' that is a list")
        frames += [_frame(path, number, words, item, remarks) for item in items]
    remarks.tell()
    return not_empty(frames, path, "frames")


def _frame(path: Path, number: int, words: Words, item: Any, remarks: Remarks) -> Frame:
    predicate = item.get("pred") if isinstance(item, dict) else None
    if not isinstance(predicate, int) or not 0 <= predicate < len(words):
        raise problem(
            path, number, f"'pred' is {predicate!r}, expected a word from 0 to {len(words) - 1}"
        )
    tags = item.get("tags")
    if not _are_strings(tags) or len(tags) != len(words):
        raise problem(
            path, number, f"the frame of word {predicate}: expected {len(words)} tags, one a word"
        )
    if scheme_of([tags]) == "labels":
        raise problem(
            path, number, f"the frame of word {predicate}: tags are not O, B-ARG, I-ARG and so on"
        )
    if irregular_places(tags):
        remarks.add("frames have tags that go on with nothing; they begin an argument", number)
    tags = to_iob2(spans_of(tags), len(tags))
    sense = str(item.get("sense") or "")
    return Frame(words, predicate, tags, sense, place(path, number))


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)

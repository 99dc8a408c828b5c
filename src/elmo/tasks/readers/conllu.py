"""CoNLL-U, the format of Universal Dependencies: ten columns, a word on each line.

Words that are written together and split in the annotation (`3-4 don't`) come as their parts; words
that are not in the text (`8.1`, empty nodes) and comments are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from elmo.errors import InputError
from elmo.tasks.readers.examples import TaggedSentence
from elmo.tasks.readers.files import Line, Remarks, blocks, not_empty, place, problem

Field = Literal["lemma", "upos", "xpos", "feats", "deprel"]
_COLUMNS = 10
_NUMBERS: dict[str, int] = {"lemma": 2, "upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
_NOTHING = "_"


def read_conllu(
    path: Path, *, field: Field = "upos", encoding: str = "utf-8"
) -> list[TaggedSentence]:
    """Read sentences of words and one of their fields.

    A sentence that lacks the field for a word is left out, with a counted warning.

    Args:
        path: A file, packed or not.
        field: What the tags are; parts of speech by default.
        encoding: Of the file.
    """
    if field not in _NUMBERS:
        raise InputError(f"no field {field!r} in CoNLL-U: expected one of {get_args(Field)}")
    remarks = Remarks(path)
    sentences = []
    for block in blocks(path, encoding):
        rows = _words(path, block)
        tags = [columns[_NUMBERS[field]] for _, columns in rows]
        missing = [k for k, tag in enumerate(tags) if tag == _NOTHING and field != "feats"]
        if missing:
            what = f"sentences have a word without {field} and are left out"
            remarks.add(what, rows[missing[0]][0])
        elif rows:
            words = [columns[1] for _, columns in rows]
            sentences.append(TaggedSentence(words, tags, place(path, rows[0][0])))
    remarks.tell()
    return not_empty(sentences, path, f"sentences with {field}")


def _words(path: Path, block: list[Line]) -> list[tuple[int, list[str]]]:
    """Give the lines of a sentence that are words, checked."""
    rows: list[tuple[int, list[str]]] = []
    for number, text in block:
        if text.startswith("#"):
            continue
        columns = text.split("\t")
        if len(columns) != _COLUMNS:
            raise problem(
                path, number, f"{len(columns)} columns, expected the {_COLUMNS} of CoNLL-U"
            )
        if not columns[0].isdecimal():
            _check_special(path, number, columns[0])
        elif int(columns[0]) != len(rows) + 1:
            raise problem(path, number, f"word {columns[0]}, expected word {len(rows) + 1}")
        else:
            rows.append((number, columns))
    return rows


def _check_special(path: Path, number: int, name: str) -> None:
    first, _, second = name.partition("-" if "-" in name else ".")
    if not (first.isdecimal() and second.isdecimal()):
        raise problem(path, number, f"{name!r} is no number of a word, of words (1-2) or of a gap")

"""The reader of each task: detects the format of a file by `format`, its name or its content.

Every reader takes files, compressed or not, and `ReadOptions`: it looks at those that concern it.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from elmo.errors import ElmoWarning, InputError
from elmo.tasks.readers.columns import read_columns, read_conllu
from elmo.tasks.readers.coreference import find_documents, read_coreference
from elmo.tasks.readers.entailment import read_pairs
from elmo.tasks.readers.examples import (
    Document,
    EntailmentPair,
    Frame,
    Question,
    TaggedSentence,
    TextExample,
)
from elmo.tasks.readers.files import JSON_LINES, numbered_lines, suffix_of
from elmo.tasks.readers.frames import read_propbank, read_props
from elmo.tasks.readers.squad import read_squad
from elmo.tasks.readers.tables import read_label_lines, read_table
from elmo.tasks.readers.trees import read_trees
from elmo.tasks.recipe import ReadOptions
from elmo.text.files import get_tokenizer

S = TypeVar("S", TaggedSentence, Frame)

TEXT_FORMATS = ("csv", "tsv", "jsonl", "trees", "lines")
TAG_FORMATS = ("conll", "conllu")
FRAME_FORMATS = ("jsonl", "props")
PAIR_FORMATS = ("jsonl", "tsv")
QUESTION_FORMATS = ("squad",)
DOCUMENT_FORMATS = ("conll",)
_TREE = re.compile(r"\s*\(\S+ ")


def read_texts(paths: Sequence[Path], options: ReadOptions) -> list[TextExample]:
    """Read texts with labels: csv, tsv, JSON lines, sentiment trees, lines that begin with a label.

    Long texts are truncated, with a counted warning.
    """
    examples: list[TextExample] = []
    tokenizer, encoding = get_tokenizer(options.tokenizer), options.encoding
    for path in paths:
        kind = _given(options, TEXT_FORMATS) or _text_format(path, encoding)
        if kind == "trees":
            examples += read_trees(path, phrases=options.phrases, encoding=encoding)
        elif kind == "lines":
            examples += read_label_lines(path, tokenizer, encoding=encoding)
        else:
            examples += read_table(
                path,
                tokenizer,
                text_column=options.text_column,
                label_column=options.label_column,
                kind=kind,
                encoding=encoding,
            )
    limit = options.max_words
    long = [example.place for example in examples if len(example.words) > limit]
    _warn_of_long(long, f"texts have more than {limit} words and are cut")
    return [dataclasses.replace(e, words=e.words[:limit]) for e in examples]


def read_tagged(paths: Sequence[Path], options: ReadOptions) -> list[TaggedSentence]:
    """Read words with tags: CoNLL columns or CoNLL-U (`.conllu`); skip long sentences.

    In CoNLL files, the options `text_column` and `label_column` are numbers of columns, from 0; in
    CoNLL-U the label may be `upos` (by default), `xpos`, `deprel`, `feats` or `lemma`.
    """
    examples: list[TaggedSentence] = []
    for path in paths:
        kind = _given(options, TAG_FORMATS) or suffix_of(path).removeprefix(".")
        if kind == "conllu":
            field = options.label_column or "upos"
            examples += read_conllu(path, field=field, encoding=options.encoding)
        else:
            word = _number(options.text_column, "--text-column", 0)
            tag = _number(options.label_column, "--label-column", -1)
            examples += read_columns(
                path, word_column=word, tag_column=tag, encoding=options.encoding
            )
    return _short_enough(examples, options.max_words)


def read_frames(paths: Sequence[Path], options: ReadOptions) -> list[Frame]:
    """Read predicates with arguments: PropBank's JSON lines, or bracket columns; skip long ones."""
    examples: list[Frame] = []
    for path in paths:
        kind = _given(options, FRAME_FORMATS)
        as_json = kind == "jsonl" or (kind is None and suffix_of(path) in JSON_LINES)
        read = read_propbank if as_json else read_props
        examples += read(path, encoding=options.encoding)
    return _short_enough(examples, options.max_words)


def read_entailment(paths: Sequence[Path], options: ReadOptions) -> list[EntailmentPair]:
    """Read pairs of texts: SNLI's JSON lines, or tsv; truncate long texts."""
    kind = _given(options, PAIR_FORMATS)
    tokenizer = get_tokenizer(options.tokenizer)
    pairs: list[EntailmentPair] = []
    for path in paths:
        pairs += read_pairs(
            path,
            tokenizer,
            label_column=options.label_column,
            kind=kind,
            encoding=options.encoding,
        )
    limit = options.max_words
    long = [p.place for p in pairs if max(len(p.premise), len(p.hypothesis)) > limit]
    _warn_of_long(long, f"pairs have a text of more than {limit} words, which is cut")
    return [
        dataclasses.replace(p, premise=p.premise[:limit], hypothesis=p.hypothesis[:limit])
        for p in pairs
    ]


def read_questions(paths: Sequence[Path], options: ReadOptions) -> list[Question]:
    """Read questions about paragraphs: SQuAD's JSON."""
    _given(options, QUESTION_FORMATS)
    return [q for path in paths for q in read_squad(path, encoding=options.encoding)]


def read_documents(paths: Sequence[Path], options: ReadOptions) -> list[Document]:
    """Read documents with coreference: files of CoNLL-2012 or LitBank, or folders of them."""
    _given(options, DOCUMENT_FORMATS)
    files = [f for path in paths for f in (find_documents(path) if path.is_dir() else [path])]
    return [d for file in files for d in read_coreference(file, encoding=options.encoding)]


def _given(options: ReadOptions, known: Sequence[str]) -> str | None:
    """Return the format that the user gave, if any; refuse one that the task does not have."""
    if options.format is not None and options.format not in known:
        raise InputError(
            f"no format {options.format!r} for this task: expected {' or '.join(known)}"
        )
    return options.format


def _number(given: str | None, flag: str, default: int) -> int:
    if given is None:
        return default
    try:
        return int(given)
    except ValueError:
        raise InputError(f"{flag} is {given!r}, expected the number of a column, from 0") from None


def _text_format(path: Path, encoding: str) -> str:
    suffix = suffix_of(path)
    if suffix in (".csv", ".tsv"):
        return suffix.removeprefix(".")
    if suffix in JSON_LINES:
        return "jsonl"
    first = next((line.text for line in numbered_lines(path, encoding) if line.text.strip()), "")
    return "trees" if _TREE.match(first) else "lines"


def _short_enough(examples: list[S], limit: int) -> list[S]:
    """Skip sentences of more than `limit` words: truncated, their tags would be wrong."""
    long = [example.place for example in examples if len(example.words) > limit]
    _warn_of_long(long, f"sentences have more than {limit} words and are left out")
    return [example for example in examples if len(example.words) <= limit]


def _warn_of_long(places: Sequence[str], what: str) -> None:
    if places:
        warnings.warn(
            f"{len(places)} {what} (first: {places[0]}); see --max-words",
            ElmoWarning,
            stacklevel=3,
        )

"""The reader of each task: chooses the format by `format`, the file's name or its content.

Every reader takes files, compressed or not, and looks at the `ReadOptions` that concern it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from elmo.errors import InputError
from elmo.tasks.readers.columns import read_columns, read_conllu
from elmo.tasks.readers.coreference import find_documents, read_coreference
from elmo.tasks.readers.examples import (
    Document,
    EntailmentPair,
    Frame,
    Question,
    TaggedSentence,
    TextExample,
)
from elmo.tasks.readers.files import JSON_LINES, numbered_lines, suffix_of, warn_of
from elmo.tasks.readers.frames import read_propbank, read_props
from elmo.tasks.readers.squad import read_squad
from elmo.tasks.readers.tables import read_label_lines, read_pairs, read_table
from elmo.tasks.readers.trees import read_trees
from elmo.tasks.settings import ReadOptions

E = TypeVar("E")
S = TypeVar("S", TaggedSentence, Frame)
_TREE = re.compile(r"\s*\(\S+ ")


def read_texts(paths: Sequence[Path], options: ReadOptions) -> list[TextExample]:
    """Read texts with labels: csv, tsv, JSON lines, sentiment trees, lines that begin with a label.

    Long texts are truncated, with a counted warning.
    """
    tables = dict.fromkeys(("csv", "tsv", "jsonl"), read_table)
    readers = {**tables, "trees": read_trees, "lines": read_label_lines}
    examples = _read(paths, options, readers, lambda path: _text_format(path, options.encoding))
    limit = options.max_words
    long = [example.place for example in examples if len(example.words) > limit]
    warn_of(f"texts have more than {limit} words and are cut; see --max-words", long)
    return [dataclasses.replace(e, words=e.words[:limit]) for e in examples]


def read_tagged(paths: Sequence[Path], options: ReadOptions) -> list[TaggedSentence]:
    """Read words with tags: CoNLL columns or CoNLL-U (`.conllu`); skip long sentences."""
    readers = {"conll": read_columns, "conllu": read_conllu}
    examples = _read(
        paths, options, readers, lambda path: "conllu" if suffix_of(path) == ".conllu" else "conll"
    )
    return _short_enough(examples, options.max_words)


def read_frames(paths: Sequence[Path], options: ReadOptions) -> list[Frame]:
    """Read predicates with arguments: PropBank's JSON lines, or bracket columns; skip long ones."""
    readers = {"jsonl": read_propbank, "props": read_props}
    examples = _read(
        paths, options, readers, lambda path: "jsonl" if suffix_of(path) in JSON_LINES else "props"
    )
    return _short_enough(examples, options.max_words)


def read_entailment(paths: Sequence[Path], options: ReadOptions) -> list[EntailmentPair]:
    """Read pairs of texts: SNLI's JSON lines, tsv or csv; truncate long texts."""
    readers = dict.fromkeys(("jsonl", "tsv", "csv"), read_pairs)
    pairs = _read(paths, options, readers, lambda path: "tsv")
    limit = options.max_words
    long = [p.place for p in pairs if max(len(p.premise), len(p.hypothesis)) > limit]
    warn_of(f"pairs have a text of more than {limit} words, which is cut; see --max-words", long)
    return [
        dataclasses.replace(p, premise=p.premise[:limit], hypothesis=p.hypothesis[:limit])
        for p in pairs
    ]


def read_questions(paths: Sequence[Path], options: ReadOptions) -> list[Question]:
    """Read questions about paragraphs: SQuAD's JSON."""
    return _read(paths, options, {"squad": read_squad}, lambda path: "squad")


def read_documents(paths: Sequence[Path], options: ReadOptions) -> list[Document]:
    """Read documents with coreference: files of CoNLL-2012 or LitBank, or folders of them."""
    files = [f for path in paths for f in (find_documents(path) if path.is_dir() else [path])]
    return _read(files, options, {"conll": read_coreference}, lambda path: "conll")


def _read(
    paths: Sequence[Path],
    options: ReadOptions,
    readers: Mapping[str, Callable[[Path, ReadOptions], list[E]]],
    detect: Callable[[Path], str],
) -> list[E]:
    """Read files with the readers of a task, by the names of their formats."""
    if options.format not in (None, *readers):
        raise InputError(
            f"no format {options.format!r} for this task: expected {' or '.join(readers)}"
        )
    return [
        example
        for path in paths
        for example in readers[options.format or detect(path)](path, options)
    ]


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
    warn_of(f"sentences have more than {limit} words and are left out; see --max-words", long)
    return [example for example in examples if len(example.words) <= limit]

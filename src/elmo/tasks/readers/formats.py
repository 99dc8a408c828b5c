"""Which reader a file needs: one function a task, told by names and content or by `format`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from elmo.errors import InputError
from elmo.tasks.readers.columns import read_columns
from elmo.tasks.readers.conllu import Field, read_conllu
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
from elmo.tasks.readers.propbank import read_propbank
from elmo.tasks.readers.props import read_props
from elmo.tasks.readers.squad import read_squad
from elmo.tasks.readers.tables import read_label_lines, read_table
from elmo.tasks.readers.trees import read_trees
from elmo.tasks.recipe import ReadOptions
from elmo.text.files import get_tokenizer

TEXT_FORMATS = ("csv", "tsv", "jsonl", "trees", "lines")
TAG_FORMATS = ("conll", "conllu")
FRAME_FORMATS = ("jsonl", "props")
PAIR_FORMATS = ("jsonl", "tsv")
QUESTION_FORMATS = ("squad",)
DOCUMENT_FORMATS = ("conll",)
_TREE = re.compile(r"\s*\(\S+ ")


def read_texts(paths: Sequence[Path], options: ReadOptions) -> list[TextExample]:
    """Read texts with labels: csv, tsv, JSON lines, sentiment trees, lines that begin with a label.

    Args:
        paths: Files, packed or not.
        options: Tokenizer of raw texts, columns, whether phrases of trees are wanted.
    """
    examples: list[TextExample] = []
    tokenizer = get_tokenizer(options.tokenizer)
    for path in paths:
        kind = _kind(options, TEXT_FORMATS) or _text_format(path, options.encoding)
        if kind == "trees":
            examples += read_trees(path, phrases=options.phrases, encoding=options.encoding)
        elif kind == "lines":
            examples += read_label_lines(path, tokenizer, encoding=options.encoding)
        else:
            examples += read_table(
                path,
                tokenizer,
                text_column=options.text_column,
                label_column=options.label_column,
                kind=kind,
                encoding=options.encoding,
            )
    return examples


def read_tagged(paths: Sequence[Path], options: ReadOptions) -> list[TaggedSentence]:
    """Read words with tags: CoNLL columns or CoNLL-U (`.conllu`).

    Args:
        paths: Files, packed or not.
        options: `text_column` and `label_column` are numbers of columns, from 0, of CoNLL files;
            in CoNLL-U the label may be `upos` (by default), `xpos`, `deprel`, `feats` or `lemma`.
    """
    examples: list[TaggedSentence] = []
    for path in paths:
        kind = _kind(options, TAG_FORMATS) or suffix_of(path).removeprefix(".")
        if kind == "conllu":
            field: Field = options.label_column or "upos"  # type: ignore[assignment]
            examples += read_conllu(path, field=field, encoding=options.encoding)
        else:
            word = _number(options.text_column, "--text-column", 0)
            tag = _number(options.label_column, "--label-column", -1)
            examples += read_columns(
                path, word_column=word, tag_column=tag, encoding=options.encoding
            )
    return examples


def read_frames(paths: Sequence[Path], options: ReadOptions) -> list[Frame]:
    """Read predicates with arguments: PropBank's JSON lines, or columns of brackets."""
    examples: list[Frame] = []
    for path in paths:
        kind = _kind(options, FRAME_FORMATS)
        as_json = kind == "jsonl" or (kind is None and suffix_of(path) in JSON_LINES)
        read = read_propbank if as_json else read_props
        examples += read(path, encoding=options.encoding)
    return examples


def read_entailment(paths: Sequence[Path], options: ReadOptions) -> list[EntailmentPair]:
    """Read pairs of texts: SNLI's JSON lines, or tsv."""
    examples: list[EntailmentPair] = []
    tokenizer = get_tokenizer(options.tokenizer)
    for path in paths:
        kind = _kind(options, PAIR_FORMATS)
        examples += read_pairs(
            path,
            tokenizer,
            label_column=options.label_column,
            kind=kind,
            encoding=options.encoding,
        )
    return examples


def read_questions(paths: Sequence[Path], options: ReadOptions) -> list[Question]:
    """Read questions about paragraphs: SQuAD's JSON."""
    _kind(options, QUESTION_FORMATS)
    return [q for path in paths for q in read_squad(path, encoding=options.encoding)]


def read_documents(paths: Sequence[Path], options: ReadOptions) -> list[Document]:
    """Read documents with coreference: files of CoNLL-2012 or LitBank, or folders of them."""
    _kind(options, DOCUMENT_FORMATS)
    documents: list[Document] = []
    for path in paths:
        for file in find_documents(path) if path.is_dir() else [path]:
            documents += read_coreference(file, encoding=options.encoding)
    return documents


def _kind(options: ReadOptions, known: Sequence[str]) -> str | None:
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

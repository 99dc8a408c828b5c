"""Pairs of texts for textual entailment: SNLI's JSON lines, or tsv.

Both have `sentence1` (the premise), `sentence2` (the hypothesis) and `gold_label`. Pairs without
agreement of the annotators (label `-`) are left out, with a counted warning.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from elmo.tasks.readers.examples import EntailmentPair, Words
from elmo.tasks.readers.files import Remarks, listed, not_empty, place, problem, table_kind
from elmo.tasks.readers.tables import table_records
from elmo.text.files import Tokenizer

_PREMISE, _HYPOTHESIS = "sentence1", "sentence2"
_LABELS = ("gold_label", "label")
_NO_AGREEMENT = "-"


def read_pairs(
    path: Path,
    tokenizer: Tokenizer,
    *,
    label_column: str | None = None,
    kind: str | None = None,
    encoding: str = "utf-8",
) -> list[EntailmentPair]:
    """Read pairs of texts.

    Args:
        path: A .jsonl or .tsv file, compressed or not; a tsv file begins with the names of its
            columns.
        tokenizer: Splits texts into words. The parses of SNLI are not used, so that all files of a
            task are split alike.
        label_column: Name of the label; `gold_label` or `label` by default.
        kind: `jsonl` or `tsv`; by the file's name if None.
        encoding: Of the file.
    """
    remarks = Remarks(path)
    pairs = []
    kind = "jsonl" if (kind or table_kind(path)) == "jsonl" else "tsv"
    for number, record in table_records(path, kind, encoding):
        name = _label_name(path, number, record, label_column)
        label = record[name].strip()
        if label == _NO_AGREEMENT:
            remarks.add(
                "pairs have no label ('-': annotators did not agree) and are left out", number
            )
            continue
        premise, hypothesis = (
            _words(path, number, record, key, tokenizer) for key in (_PREMISE, _HYPOTHESIS)
        )
        if not (label and premise and hypothesis):
            remarks.add("pairs lack a text or a label and are left out", number)
            continue
        pairs.append(EntailmentPair(premise, hypothesis, label, place(path, number)))
    remarks.warn()
    return not_empty(pairs, path, "pairs of texts with labels")


def _label_name(path: Path, number: int, record: dict[str, str], given: str | None) -> str:
    wanted = _LABELS if given is None else (given,)
    for name in wanted:
        if isinstance(record.get(name), str):
            return name
    raise problem(
        path,
        number,
        f"no {' or '.join(wanted)} that is a string; there are: {listed(list(record))}",
    )


def _words(
    path: Path, number: int, record: dict[str, str], key: str, tokenizer: Tokenizer
) -> Words:
    text = record.get(key)
    if not isinstance(text, str):
        raise problem(
            path, number, f"no {key!r} that is a string; there are: {listed(list(record))}"
        )
    return list(chain.from_iterable(tokenizer.sentences(text)))

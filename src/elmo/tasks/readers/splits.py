"""Data sets that come in one piece, or without a training part, cut into train, dev and test.

Each function reads the published files, compressed or not, and writes `train`, `dev` and `test` to
a folder, in the formats that the readers read. The same files give the same parts, byte for byte:
sampling has a fixed seed, by groups that belong together (pairs of a premise, questions of an
article), so that no part shares texts with another.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmo.errors import InputError, MissingFileError
from elmo.runtime.files import write_text
from elmo.tasks.readers.coreference import find_documents
from elmo.tasks.readers.files import numbered_lines
from elmo.tasks.readers.tables import table_rows
from elmo.tasks.settings import ReadOptions
from elmo.text.files import COMPRESSED, TextFile

TUNED_PAIRS = 1_000
"""Pairs of SNLI's dev set that are held out."""
TUNED_ARTICLES = 0.05
"""Share of SQuAD's training articles that is held out."""
TUNED_QUESTIONS = 0.1
"""Share of TREC's training questions that is held out."""
_AGNEWS_PARTS = (0.8, 0.1, 0.1)
_LITBANK_PARTS = (80, 10, 10)


class Parts(NamedTuple):
    """The files of a data set that was cut."""

    train: Path
    dev: Path
    test: Path


def split_snli(source: Path, out: Path) -> Parts:
    """Build a small training set of SNLI; the published one is not needed.

    Train: SNLI's dev set without `TUNED_PAIRS` pairs, and the counterfactual `cad-train`, without
    pairs whose premise is in test or in the pairs held out. Dev: the pairs held out. Test: SNLI's.

    From `snli_1.0_dev.jsonl`, `snli_1.0_test.jsonl` and `cad-train.tsv`.
    """
    given = _pairs(_find(source, "snli_1.0_dev.jsonl"))
    test = _pairs(_find(source, "snli_1.0_test.jsonl"))
    dev = _drawn_premises(given, TUNED_PAIRS)
    known = {_key(pair["sentence1"]) for pair in (*dev, *test)}
    more = _pairs(_find(source, "cad-train.tsv"))
    train = [pair for pair in (*given, *more) if _key(pair["sentence1"]) not in known]
    return _write_parts(
        out,
        ".jsonl",
        [train, dev, test],
        lambda part: "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in part),
    )


def split_squad(source: Path, out: Path) -> Parts:
    """Hold out articles of SQuAD's training set; its dev set becomes test.

    From `train-v1.1*.json` and `dev-v1.1*.json`.
    """
    content = json.loads(_text(_find(source, "train-v1.1*.json")))
    articles = content["data"]
    order = np.random.default_rng(0).permutation(len(articles))
    tuned = set(order[: max(1, round(TUNED_ARTICLES * len(articles)))].tolist())
    parts = [
        {**content, "data": [a for k, a in enumerate(articles) if (k in tuned) == held]}
        for held in (False, True)
    ]
    test = json.loads(_text(_find(source, "dev-v1.1*.json")))
    return _write_parts(out, ".json", [*parts, test], lambda part: json.dumps(part) + "\n")


def split_litbank(source: Path, out: Path) -> Parts:
    """Split LitBank by document, sorted by name: the first 80, the next 10, the last 10.

    From 100 files `*.conll`.
    """
    files = find_documents(source)
    if len(files) != sum(_LITBANK_PARTS):
        raise InputError(f"{source}: {len(files)} documents, expected {sum(_LITBANK_PARTS)}")
    parts = _cut(files, _LITBANK_PARTS)
    return _write_parts(out, ".conll", parts, lambda part: "".join(map(_text, part)))


def split_agnews(source: Path, out: Path) -> Parts:
    """Split AG News, which is one file here, at random: 80, 10 and 10 %.

    From one file `*.csv` whose first line has the names of the columns.
    """
    text = _text(_find(source, "*.csv"))
    header, *rows = list(csv.reader(text.splitlines(keepends=True)))
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    sizes = [round(share * len(rows)) for share in _AGNEWS_PARTS[:2]]
    parts = _cut([rows[k] for k in order], (*sizes, len(rows) - sum(sizes)))
    return _write_parts(out, ".csv", parts, lambda part: _as_csv([header, *part]))


def split_trec(source: Path, out: Path) -> Parts:
    """Hold out a tenth of TREC's training questions; write tsv in UTF-8.

    From `TREC.train.all` and `TREC.test.all`, in Latin-1.
    """
    given = [
        [
            tuple(line.split(maxsplit=1))
            for _, line in numbered_lines(_find(source, name), "latin-1")
        ]
        for name in ("TREC.train.all", "TREC.test.all")
    ]
    order = np.random.default_rng(0).permutation(len(given[0])).tolist()
    n_dev = round(TUNED_QUESTIONS * len(order))
    dev, train = ([given[0][k] for k in sorted(part)] for part in (order[:n_dev], order[n_dev:]))
    parts = [[("label", "text"), *part] for part in (train, dev, given[1])]
    return _write_parts(out, ".tsv", parts, lambda part: "".join("\t".join(r) + "\n" for r in part))


SPLITS: dict[str, Callable[[Path, Path], Parts]] = {
    "snli": split_snli,
    "squad": split_squad,
    "litbank_coref": split_litbank,
    "agnews": split_agnews,
    "trec": split_trec,
}
"""By the names of `elmo task split`."""


def _find(folder: Path, pattern: str) -> Path:
    found = [
        path
        for suffix in ("", *COMPRESSED)
        for path in sorted(folder.glob(f"{pattern}{suffix}"))
        if path.is_file()
    ]
    if not found:
        raise MissingFileError(f"{folder} has no file {pattern} (it may be compressed)")
    return found[0]


def _text(path: Path) -> str:
    with TextFile(path) as lines:
        return "".join(f"{line}\n" for line in lines)


def _pairs(path: Path) -> list[dict[str, str]]:
    keys = ("sentence1", "sentence2", "gold_label")
    return [{key: row[key] for key in keys} for _, row in table_rows(path, ReadOptions())]


def _key(text: str) -> str:
    """Normalize a premise: its white space, case and final full stop do not matter."""
    return " ".join(text.lower().split()).rstrip(" .")


def _drawn_premises(pairs: Iterable[dict[str, str]], count: int) -> list[dict[str, str]]:
    """Draw premises with all of their pairs until there are at least `count` pairs."""
    groups: dict[str, list[dict[str, str]]] = {}
    for pair in pairs:
        groups.setdefault(_key(pair["sentence1"]), []).append(pair)
    order = np.random.default_rng(0).permutation(len(groups)).tolist()
    drawn = [list(groups.values())[k] for k in order]
    ends = accumulate(map(len, drawn), initial=0)
    return [
        pair for group, before in zip(drawn, ends, strict=False) if before < count for pair in group
    ]


def _cut(items: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [items[start:end] for start, end in pairwise(ends)]


def _as_csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _write_parts(
    out: Path, suffix: str, parts: Sequence[Any], as_text: Callable[[Any], str]
) -> Parts:
    """Write the three files."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, part in zip(Parts._fields, parts, strict=True):
        path = out / f"{name}{suffix}"
        write_text(path, as_text(part))
        written.append(path)
    return Parts(*written)

"""results.md and results.json: the tables of the report with what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.task_report.plots import (
    MAIN_PICTURE,
    SHARES_PICTURE,
    WEIGHTS_PICTURE,
    draw_report,
)
from benchmarks.task_report.runs import read_cells
from benchmarks.task_report.tables import (
    BOTH,
    GLOVE,
    Cells,
    main_table,
    share_table,
    times_table,
    variants_table,
    weights_table,
)
from elmo.errors import MissingExtraError
from elmo.runtime.files import write_text

SHARES = (0.01, 0.1, 1.0)
PICTURES_FOLDER = "results"
PAGE_FILE, JSON_FILE = "results.md", "results.json"

_INTRODUCTION = """\
# What ELMo does for the tasks

Test figures in percent, mean and standard deviation over seeds; a figure without a deviation is
that of a single run. *Error reduction* is relative to the baseline, (b - a) / (100 - a), as in the
paper. The baseline is the same model with the same sizes and training on GloVe (6 B words, 50
values) instead of GloVe and ELMo. The paper's columns are about other models, larger data and a
larger biLM; only the relative reductions can be compared.
"""
_SECTIONS: tuple[tuple[str, str, Mapping[str, Mapping[str, Any]]], ...] = (
    (
        "Features of a word",
        "`random` vectors are learned from scratch; `ELMo` alone reads characters only.",
        {
            "random": {"features": "random"},
            "GloVe": GLOVE,
            "ELMo": {"features": "elmo"},
            "GloVe + ELMo": BOTH,
        },
    ),
    (
        "Where ELMo enters",
        "Before the encoder, after it, or both with a mix each (the paper's table 3).",
        {
            "GloVe": GLOVE,
            "input": BOTH,
            "output": {"elmo_at": "output"},
            "both": {"elmo_at": "both"},
        },
    ),
    (
        "How layers are mixed",
        "The top layer alone, the plain average, and learned weights with a weak or a strong pull "
        "towards the average (the paper's table 2).",
        {
            "GloVe": GLOVE,
            "top": {"mix": "top"},
            "average": {"mix": "average"},
            "learned, λ = 1": {"mix_l2": 1.0},
            "learned": BOTH,
        },
    ),
)


def write_report(out: Path, copy: Path | None = None) -> list[str]:
    """Write tables and pictures from the runs that are there.

    Args:
        out: Folder of the report.
        copy: Second file for the page; pictures and figures go to a folder `results` next to it.

    Returns:
        Messages: what was written, and what could not be.
    """
    found = read_cells(out)
    lines = ",\n".join(json.dumps(cell) for cell in found)  # one run a line, so that changes show
    notes = []
    for file in [out / JSON_FILE] + ([copy.parent / PICTURES_FOLDER / JSON_FILE] if copy else []):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, f"[\n{lines}\n]\n")
        notes.append(f"{file}: {len(found)} runs")
    for page in [out / PAGE_FILE] + ([copy] if copy else []):
        page.parent.mkdir(parents=True, exist_ok=True)
        try:
            pictures = draw_report(found, page.parent / PICTURES_FOLDER, SHARES)
        except MissingExtraError as error:
            notes.append(f"no pictures: {error}")
            pictures = []
        write_text(page, render_page(found, pictures))
        notes.append(f"{page}: written, with {len(pictures)} pictures")
    return notes


def render_page(found: Cells, pictures: list[str]) -> str:
    """Return the page as Markdown."""

    def shown(name: str, text: str) -> list[str]:
        return [f"![{text}]({PICTURES_FOLDER}/{name})"] if name in pictures else []

    parts = [_INTRODUCTION, main_table(found), *shown(MAIN_PICTURE, "gain of ELMo on every task")]
    weights = weights_table(found)
    if weights is not None:
        parts += ["## Learned weights of layers", "As in the paper's figure 2."]
        parts += [weights, *shown(WEIGHTS_PICTURE, "weights of layers as a heat map")]
    for title, text, variants in _SECTIONS:
        table = variants_table(found, variants)
        if table is not None:
            parts += [f"## {title}", text, table]
    shares = share_table(found, SHARES)
    if shares is not None:
        parts += ["## Shares of the training data", shares]
        parts += shown(SHARES_PICTURE, "figures over the share of the training data")
    parts += ["## Size and time", _machine(found), times_table(found), _commands()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _machine(found: Cells) -> str:
    devices = sorted({str(cell["report"]["device"]) for cell in found})
    models = {
        f"{cell['model'] or 'the default model'} ({cell['report']['elmo'][:12]})"
        for cell in found
        if cell["report"]["elmo"]
    }
    return (
        f"{len(found)} runs on {', '.join(devices)}; "
        f"biLM: {', '.join(sorted(models))}. "
        "Times are those of runs with ELMo and all training data; preparing is reading and, where "
        "layers are not in the cache yet, embedding."
    )


def _commands() -> str:
    return """\
## Reproducing it

```
# resumes where it stopped
python -m benchmarks.task_report --data DATA --out REPORT --seeds 3
# on one large GPU
python -m benchmarks.task_report --data DATA --out REPORT --seeds 3 --device cuda --workers 16
python -m benchmarks.task_report --out REPORT --only-write --write docs/results.md
```

One run by hand, here SST-5:

```
elmo task train classify --data sst/train.txt --dev sst/dev.txt --test sst/test.txt \\
    --features glove+elmo --seed 0 --out head
```"""

"""The settings of the report, its data sets, its studies and the list of runs.

Nothing here imports PyTorch, so that help texts are printed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from elmo.settings import DEFAULT_VECTORS, POSITIVE, Settings, at_least
from elmo.tasks.settings import TaskName

DatasetName = Literal["squad", "snli", "srl", "coref", "wnut17", "sst", "pos", "agnews", "trec"]
Study = Literal["main", "features", "placement", "mix", "share"]
"""GloVe against GloVe + ELMo; other features; ELMo at input or output; how layers are mixed; parts
of the training data."""

_Several = Parameter(consume_multiple=True, show_default=False)


@dataclass(frozen=True)
class Dataset:
    """A data set of the report."""

    title: str
    task: TaskName
    folder: str
    """Of the data, inside of `--data`."""
    parts: tuple[str, str, str] | None = None
    """Files for training, development and test; None if the data set is split first."""
    metric: str = "accuracy"
    """Name of the main figure."""
    paper: tuple[float, float] | None = None
    """What the paper reports for its data: without and with ELMo."""
    choices: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the defaults of the task."""


DATASETS: dict[DatasetName, Dataset] = {
    "squad": Dataset("SQuAD 1.1", "qa", "squad", metric="F1", paper=(81.1, 85.8)),
    "snli": Dataset("SNLI (small)", "nli", "snli", metric="accuracy", paper=(88.0, 88.7)),
    "srl": Dataset(
        "PropBank EWT",
        "srl",
        "srl_ewt",
        ("train.jsonl", "dev.jsonl", "test.jsonl"),
        metric="F1",
        paper=(81.4, 84.6),
    ),
    "coref": Dataset("LitBank", "coref", "litbank_coref", metric="average F1", paper=(67.2, 70.4)),
    "wnut17": Dataset(
        "WNUT-17",
        "tag",
        "wnut17",
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        metric="F1",
        paper=(90.15, 92.22),
    ),
    "sst": Dataset(
        "SST-5",
        "classify",
        "sst",
        ("train.txt", "dev.txt", "test.txt"),
        paper=(51.4, 54.7),
    ),
    "pos": Dataset(
        "UD-EWT POS",
        "tag",
        "pos_ewt",
        ("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu"),
        choices={"batch_size": 32, "epochs": 10},
    ),
    "agnews": Dataset("AG News", "classify", "agnews"),
    "trec": Dataset("TREC", "classify", "trec", choices={"tokenizer": "whitespace"}),
}
"""The six tasks of the paper first, in its order."""

_SMALL: tuple[DatasetName, ...] = ("snli", "wnut17", "sst")
"""Those that train in two minutes: they are run many times."""
STUDIES: dict[Study, tuple[tuple[DatasetName, ...], tuple[dict[str, Any], ...]]] = {
    "main": (tuple(DATASETS), ({"features": "glove"}, {"features": "glove+elmo"})),
    "features": (_SMALL, ({"features": "random"}, {"features": "elmo"})),
    "placement": ((*_SMALL, "srl"), ({"elmo_at": "output"}, {"elmo_at": "both"})),
    "mix": (_SMALL, ({"mix": "top"}, {"mix": "average"}, {"mix_l2": 1.0})),
    "share": (
        _SMALL,
        tuple(
            {"features": features, "train_share": share}
            for share in (0.01, 0.1)
            for features in ("glove", "glove+elmo")
        ),
    ),
}
"""Data sets of each study, and what is varied; all else is as in `main` with ELMo."""


@dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """What the report runs and where it writes."""

    data: Path | None = None
    """Folder of the task data, one folder for each data set in it."""
    out: Path = Path("task-report")
    """Folder for everything: one JSON file for each run (cells/), results.json, results.md,
    pictures. A run that is recorded is not repeated."""
    tasks: Annotated[tuple[DatasetName, ...], _Several] = ()
    """Data sets; all by default."""
    studies: Annotated[tuple[Study, ...], _Several] = ()
    """What is compared; all by default."""
    seeds: Annotated[int, at_least(1)] = 3
    """Runs of each kind, with different seeds."""
    workers: Annotated[int, at_least(1)] = 1
    """Processes that do runs side by side, on one device: heads are small. On an NVIDIA GPU they
    take turns unless its MPS is running (nvidia-cuda-mps-control -d). Several commands with the
    same --out share the work, too."""
    minutes: Annotated[float | None, POSITIVE] = None
    """Start no run after so many minutes; the same command continues later."""
    only_write: bool = False
    """Run nothing: write tables and pictures from the runs that are there."""
    keep: bool = False
    """Keep the trained heads (in runs/)."""
    quick: bool = False
    """Smoke test: a few examples, tiny models; in a folder quick of --out."""
    write: Path | None = None
    """Write results.md here, too, such as docs/results.md; pictures and results.json next to it."""

    model: str | None = None
    """The biLM; else the default model."""
    vectors: str = DEFAULT_VECTORS
    """Static vectors."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: products of the heads in bfloat16; for GPUs."""
    cache: Path | None = None
    """Folder for the layers of sentences; by default the user's cache folder."""
    quiet: bool = False
    """No progress."""

    @property
    def folder(self) -> Path:
        """Folder of the records: figures of quick runs do not mix with others."""
        return self.out / "quick" if self.quick else self.out


@dataclass(frozen=True)
class Cell:
    """One run of the report."""

    dataset: DatasetName
    changes: tuple[tuple[str, Any], ...]
    """What differs from GloVe + ELMo at the input with a learned mix."""
    seed: int

    @property
    def name(self) -> str:
        """A name for files."""
        changed = "".join(f"-{key}_{value}" for key, value in self.changes)
        return f"{self.dataset}{changed}-seed{self.seed}".replace("+", "_and_")


def cells(settings: ReportSettings) -> list[Cell]:
    """List the runs, each once."""
    wanted = settings.tasks or tuple(DATASETS)
    listed = [
        Cell(dataset, normalized(change), seed)
        for seed in range(settings.seeds)
        for study in settings.studies or tuple(STUDIES)
        for dataset in STUDIES[study][0]
        if dataset in wanted
        for change in STUDIES[study][1]
    ]
    return list(dict.fromkeys(listed))


def normalized(change: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return what is varied as sorted pairs, without defaults."""
    default = {"features": "glove+elmo", "elmo_at": "input", "mix": "learned", "train_share": 1.0}
    return tuple(sorted((k, v) for k, v in change.items() if default.get(k) != v))

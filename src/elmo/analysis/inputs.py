"""What the functions of this package take: a model, a corpus and settings, in any form.

Each takes the settings of its command, either as keywords or as the dataclass itself, and returns a
report: `text()`, `json()`, and for reports on a model `figure()`. A notebook shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from elmo.analysis.settings import CorpusSettings, ReportSettings
from elmo.errors import OutputExistsError
from elmo.runtime.files import output_errors
from elmo.settings import ModelChoice, Settings

if TYPE_CHECKING:
    from elmo.analysis.reports import Report
    from elmo.embedder import ELMo

    Model = ELMo | ModelChoice | str | Path | None
    """A model, or how to load one: a name, a folder; None for the default model."""
    Text = CorpusSettings | str | Path | Iterable[str | Path]
    """One or several text files, or all settings of a corpus."""

S = TypeVar("S", bound=Settings)
R = TypeVar("R", bound="Report")


def divided(
    kind: type[S], settings: S | None, corpus: Text, fields: dict[str, Any]
) -> tuple[S, CorpusSettings]:
    """Divide keywords between the settings of a command and those of its corpus."""
    if not isinstance(corpus, CorpusSettings):
        paths = (corpus,) if isinstance(corpus, str | Path) else corpus
        corpus = CorpusSettings(corpus=tuple(map(Path, paths)))
    names = {field.name for field in dataclasses.fields(CorpusSettings)}
    of_corpus = {name: value for name, value in fields.items() if name in names}
    others = {name: value for name, value in fields.items() if name not in names}
    chosen = kind(**others) if settings is None else settings.replace(**others)
    return chosen, corpus.replace(**of_corpus)


def choice_of(model: Model) -> ModelChoice:
    """Return the choice of a model; one in memory has no name."""
    if isinstance(model, ModelChoice):
        return model
    return ModelChoice(model=str(model) if isinstance(model, str | Path) else None)


def load(model: Model) -> tuple[ELMo, dict[str, str]]:
    """Load a model, unless it is in memory; return it with its name and fingerprint."""
    from elmo.embedder import ELMo, load_model

    loaded = model if isinstance(model, ELMo) else load_model(choice_of(model))
    name = "in memory" if loaded.name is None else Path(loaded.name).name
    return loaded, {"model": name, "model_sha256": loaded.fingerprint}


def prepare(settings: ReportSettings, kind: type[Report], stem: str) -> None:
    """Create the folder of a report; refuse to replace one, before anything is computed."""
    folder = settings.out
    if folder is None:
        return
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    there = [path for path in (folder / f"{stem}{e}" for e in kind.endings()) if path.exists()]
    if there and not settings.overwrite:
        raise OutputExistsError(f"{there[0]} exists already; give --overwrite to replace it")


def saved(report: R, settings: ReportSettings, **facts: str) -> R:
    """Add what was measured to a report, and save it if a folder was given."""
    report = dataclasses.replace(report, **facts)  # type: ignore[arg-type]
    if settings.out is not None:
        report.save(settings.out)
    return report

"""The functions behind `elmo similar`, `neighbors` and `analyze`.

Each takes the settings of its command, either as keywords or as the dataclass itself, and returns a
report: `text()`, `json()`, and for reports on a model `figure()`. A notebook shows it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm.auto import tqdm

from elmo.analysis.settings import (
    ContextualitySettings,
    CorpusSettings,
    CorrelationSettings,
    LayerSettings,
    NeighborSettings,
    ReportSettings,
    SenseSettings,
    SimilarSettings,
)
from elmo.errors import InputError
from elmo.settings import ModelChoice, Settings

if TYPE_CHECKING:
    from elmo.analysis.contextual.report import ContextualityReport
    from elmo.analysis.occurrences.report import SenseReport
    from elmo.analysis.probing.report import LayerReport
    from elmo.analysis.reports import Report
    from elmo.analysis.words.correlation import CorrelationReport
    from elmo.analysis.words.neighbors import NeighborReport
    from elmo.analysis.words.similar import SimilarReport
    from elmo.embedder import ELMo

    Model = ELMo | ModelChoice | str | Path | None
    """A model, or how to load one: a name, a folder; None for the default model."""
    Text = CorpusSettings | str | Path | Iterable[str | Path]
    """One or several text files, or all settings of a corpus."""

S = TypeVar("S", bound=Settings)
R = TypeVar("R", bound="Report")


def similar(
    *words: str,
    model: Model = None,
    corpus: Text = (),
    settings: SimilarSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> SimilarReport:
    """List the words most similar to some words, as `elmo similar` does.

    Args:
        words: Each gets a list of its own.
        model: A model, or its name or folder; not loaded where a saved index answers.
        corpus: Text files in which the words occur; without them, context-free vectors are used.
        settings: How, as the dataclass of the command.
        show_progress: Whether to show progress bars.
        fields: Fields of `SimilarSettings` and `CorpusSettings`, such as `top=5`.
    """
    from elmo.analysis.words.similar import find_similar

    settings, text = _divided(SimilarSettings, settings, corpus, fields)
    if not words and settings.index is None:
        raise InputError("similar needs a WORD, or --index FILE to make an index")
    choice = model if isinstance(model, ModelChoice) else _choice(model)
    return find_similar(words, choice, lambda: _load(model)[0], text, settings, show_progress)


def neighbors(
    *sentences: str,
    model: Model = None,
    corpus: Text = (),
    settings: NeighborSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> NeighborReport:
    """Find the occurrences nearest to a word in its context, as `elmo neighbors` does.

    Args:
        sentences: Each with one or more words in square brackets: `The [bank] of the river .`
        model: A model, or its name or folder.
        corpus: Text files that are searched.
        settings: How, as the dataclass of the command.
        show_progress: Whether to show progress bars.
        fields: Fields of `NeighborSettings` and `CorpusSettings`, such as `same_word=True`.
    """
    from elmo.analysis.corpus import Corpus
    from elmo.analysis.words.neighbors import MarkedWord, find_neighbors
    from elmo.text.sentences import marked_words

    if not sentences:
        raise InputError('neighbors needs a SENTENCE, such as "The [bank] of the river ."')
    settings, text = _divided(NeighborSettings, settings, corpus, fields)
    searched = Corpus(text, show_progress)
    marked = [marked_words(sentence, searched.tokenizer) for sentence in sentences]
    queries = [MarkedWord(words, place) for words, places in marked for place in places]
    return find_neighbors(_load(model)[0], searched, queries, settings)


def contextuality(
    *,
    model: Model = None,
    corpus: Text = (),
    settings: ContextualitySettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> ContextualityReport:
    """Measure how contextual vectors are, as `elmo analyze contextuality` does.

    Args:
        model: A model, or its name or folder.
        corpus: Text files.
        settings: How, as the dataclass of the command.
        show_progress: Whether to show progress bars.
        fields: Fields of `ContextualitySettings` and `CorpusSettings`.
    """
    from elmo.analysis.contextual.measure import measure_contextuality
    from elmo.analysis.contextual.report import ContextualityReport
    from elmo.analysis.corpus import Corpus

    settings, text = _divided(ContextualitySettings, settings, corpus, fields)
    _prepare(settings, ContextualityReport, ContextualityReport.stem)
    read = Corpus(text, show_progress)
    elmo, facts = _load(model)
    report = measure_contextuality(read.windows(elmo), elmo.n_layers, elmo.dim, settings)
    return _saved(report, settings, corpus=read.title, **facts)


def layers(
    *,
    model: Model = None,
    settings: LayerSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> LayerReport:
    """Measure what each layer knows, as `elmo analyze layers` does.

    Args:
        model: A model, or its name or folder.
        settings: Tasks and data, as the dataclass of the command.
        show_progress: Whether to show progress bars.
        fields: Fields of `LayerSettings`, such as `data="DATA"`.
    """
    from elmo.analysis.probing.report import LayerReport
    from elmo.analysis.probing.tasks import measure_layers, read_layer_data

    def tell(line: str) -> None:
        if show_progress:
            tqdm.write(line, file=sys.stderr)

    settings, _ = _divided(LayerSettings, settings, (), fields)
    _prepare(settings, LayerReport, LayerReport.stem)
    data = read_layer_data(settings, tell)
    elmo, facts = _load(model)
    return _saved(measure_layers(elmo, data, tell, show_progress), settings, **facts)


def senses(
    word: str,
    *,
    model: Model = None,
    corpus: Text = (),
    settings: SenseSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> SenseReport:
    """Cluster the occurrences of a word, as `elmo analyze senses` does.

    Args:
        word: The word.
        model: A model, or its name or folder.
        corpus: Text files in which it occurs.
        settings: How, as the dataclass of the command.
        show_progress: Whether to show progress bars.
        fields: Fields of `SenseSettings` and `CorpusSettings`.
    """
    from elmo.analysis.corpus import Corpus
    from elmo.analysis.occurrences.report import SenseReport
    from elmo.analysis.occurrences.senses import find_senses

    settings, text = _divided(SenseSettings, settings, corpus, fields)
    _prepare(settings, SenseReport, SenseReport(word=word).stem)
    read = Corpus(text, show_progress)
    elmo, facts = _load(model)
    report = find_senses(elmo, read, word, settings)
    return _saved(report, settings, corpus=read.title, **facts)


def correlation(
    *files: str | Path,
    model: Model = None,
    corpus: Text = (),
    settings: CorrelationSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> CorrelationReport:
    """Correlate similarities with human judgments, as `elmo analyze correlation` does.

    Args:
        files: Files with two words and a score a line.
        model: A model, or its name or folder.
        corpus: Text files in which the words occur; without them, words are compared in isolation.
        settings: How, as the dataclass of the command.
        show_progress: Whether to show progress bars.
        fields: Fields of `CorrelationSettings` and `CorpusSettings`.
    """
    from elmo.analysis.corpus import Corpus
    from elmo.analysis.words.correlation import CorrelationReport, correlate, read_judged_pairs

    if not files:
        raise InputError("correlation needs a FILE with two words and a score a line")
    settings, text = _divided(CorrelationSettings, settings, corpus, fields)
    _prepare(settings, CorrelationReport, CorrelationReport.stem)
    judged = [read_judged_pairs(Path(path)) for path in files]
    read = Corpus(text, show_progress) if text.corpus else None
    elmo, facts = _load(model)
    title = "" if read is None else read.title
    return _saved(correlate(elmo, judged, read, settings), settings, corpus=title, **facts)


# --- what all of them share -----------------------------------------------------------------------


def _divided(
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


def _choice(model: ELMo | str | Path | None) -> ModelChoice:
    """Return the choice of a model by its name; one in memory has none."""
    return ModelChoice(model=str(model) if isinstance(model, str | Path) else None)


def _load(model: Model) -> tuple[ELMo, dict[str, str]]:
    """Load a model, and return it with its name and fingerprint for reports."""
    from elmo.embedder import ELMo
    from elmo.hub.names import default_model

    if isinstance(model, ELMo):
        return model, {"model": "in memory", "model_sha256": model.fingerprint}
    choice = model if isinstance(model, ModelChoice) else _choice(model)
    given = dataclasses.asdict(choice)
    loaded = ELMo.from_pretrained(given.pop("model"), **given)
    name = Path(str(choice.model or choice.weights or default_model())).name
    return loaded, {"model": name, "model_sha256": loaded.fingerprint}


def _prepare(settings: ReportSettings, kind: type[Report], stem: str) -> None:
    """Refuse to replace a report, before anything is computed."""
    from elmo.analysis.reports import prepare_outputs

    if settings.out is not None:
        names = [stem + ending for ending in kind.endings()]
        prepare_outputs(settings.out, names, settings.overwrite)


def _saved(report: R, settings: ReportSettings, **facts: str) -> R:
    """Add what was measured to a report, and save it if a folder was given."""
    report = dataclasses.replace(report, **facts)  # type: ignore[arg-type]
    if settings.out is not None:
        report.save(settings.out)
    return report

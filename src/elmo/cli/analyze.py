"""Commands that analyze a model: similar, neighbors, analyze."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

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
from elmo.cli.main import DONE, STOPPED, App, Flags, Quiet, app, require_model, say, show
from elmo.runtime.tables import counted
from elmo.settings import ModelChoice

if TYPE_CHECKING:
    from elmo.analysis.reports import Report

_MODEL = ModelChoice()
_CORPUS = CorpusSettings()
_SIMILAR = SimilarSettings()
_NEIGHBORS = NeighborSettings()
_CONTEXTUALITY = ContextualitySettings()
_LAYERS = LayerSettings()
_SENSES = SenseSettings()
_CORRELATION = CorrelationSettings()

analyze = App(name="analyze", help="Measure contextuality, layers, senses, correlation.")
app.command(analyze)


@app.command
def similar(
    *words: Annotated[str, Parameter(name="WORD")],
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    corpus: Annotated[CorpusSettings, Flags] = _CORPUS,
    settings: Annotated[SimilarSettings, Flags] = _SIMILAR,
    quiet: Quiet = False,
) -> int:
    """List the words most similar to some words.

    With --corpus, the vector of a word is the mean over its occurrences there; without, it is the
    context-free one. With --index FILE, vectors are saved, and further questions answered at once.

    Parameters
    ----------
    words
        Words; each gets a list of its own. None, to make an index only.
    """
    require_model(choice)
    from elmo import analysis

    path = settings.index
    is_new = path is not None and (settings.overwrite or not path.exists())
    found = analysis.similar(
        *words, model=choice, corpus=corpus, settings=settings, show_progress=not quiet
    )
    if is_new:
        say(f"{path}: {counted(found.n_words, 'word')} of {found.dim} values")
    if words:
        show(found.render(settings.format))
    return DONE


@app.command
def neighbors(
    *sentences: Annotated[str, Parameter(name="SENTENCE")],
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    corpus: Annotated[CorpusSettings, Flags] = _CORPUS,
    settings: Annotated[NeighborSettings, Flags] = _NEIGHBORS,
    quiet: Quiet = False,
) -> int:
    """Find the occurrences in a corpus nearest to a word in its context; needs --corpus.

    For instance: elmo neighbors "The [bank] of the river ." --corpus text.txt

    Beside them are the neighbors of the word by static vectors: the same whatever the context.

    Parameters
    ----------
    sentences
        Sentences with one or more words in square brackets; all are searched in one pass.
    """
    require_model(choice)
    from elmo import analysis

    found = analysis.neighbors(
        *sentences, model=choice, corpus=corpus, settings=settings, show_progress=not quiet
    )
    show(found.render(settings.format))
    return DONE


@analyze.command
def contextuality(
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    corpus: Annotated[CorpusSettings, Flags] = _CORPUS,
    settings: Annotated[ContextualitySettings, Flags] = _CONTEXTUALITY,
    quiet: Quiet = False,
) -> int:
    """Measure how contextual vectors are, layer by layer; needs --corpus.

    Self-similarity, intra-sentence similarity and maximum explainable variance, raw and corrected
    for anisotropy, and measures of isotropy, in one pass in bounded memory. Definitions are those
    of Ethayarajh (2019); see docs/analysis.md. Interrupted, it reports on what it has read.
    """
    require_model(choice)
    from elmo import analysis

    report = analysis.contextuality(
        model=choice, corpus=corpus, settings=settings, show_progress=not quiet
    )
    if report.interrupted:
        say(f"interrupted: the report is on the first {counted(report.n_sentences, 'sentence')}")
    _show(report, settings)
    return STOPPED if report.interrupted else DONE


@analyze.command
def layers(
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    settings: Annotated[LayerSettings, Flags] = _LAYERS,
    quiet: Quiet = False,
) -> int:
    """Measure what each layer, and the mix, knows of parts of speech and of senses.

    A linear probe for parts of speech; word sense disambiguation by the nearest mean of SemCor's
    senses, with WordNet's first sense for words that SemCor lacks; and word in context by a
    threshold on cosines.
    """
    from elmo import analysis

    return _show(
        analysis.layers(model=choice, settings=settings, show_progress=not quiet), settings
    )


@analyze.command
def senses(
    word: Annotated[str, Parameter(name="WORD")],
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    corpus: Annotated[CorpusSettings, Flags] = _CORPUS,
    settings: Annotated[SenseSettings, Flags] = _SENSES,
    quiet: Quiet = False,
) -> int:
    """Cluster the occurrences of a word in a corpus, as a page and as a figure; needs --corpus.

    Only sentences with the word are embedded, so that large corpora are searched quickly. Files go
    to the current folder, if there is no --out.

    Parameters
    ----------
    word
        The word.
    """
    require_model(choice)
    from elmo import analysis

    settings = settings.replace(out=settings.out or Path())
    report = analysis.senses(
        word, model=choice, corpus=corpus, settings=settings, show_progress=not quiet
    )
    return _show(report, settings)


@analyze.command
def correlation(
    *files: Annotated[Path, Parameter(name="FILE")],
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    corpus: Annotated[CorpusSettings, Flags] = _CORPUS,
    settings: Annotated[CorrelationSettings, Flags] = _CORRELATION,
    quiet: Quiet = False,
) -> int:
    """Compare the similarity of words with human judgments (Spearman's correlation).

    In isolation, each word is a sentence of its own; with --corpus also in context, as the mean
    over its occurrences.

    Parameters
    ----------
    files
        Files with two words and a score a line, between tabs, commas or spaces.
    """
    require_model(choice)
    from elmo import analysis

    report = analysis.correlation(
        *files, model=choice, corpus=corpus, settings=settings, show_progress=not quiet
    )
    return _show(report, settings)


def _show(report: Report, settings: ReportSettings) -> int:
    """Show a report, and where it was saved."""
    show(report.json() if settings.json else report.text())
    if settings.out is not None:
        endings = report.endings()
        say(f"{settings.out / report.stem}: {', '.join(endings)}")
        if ".png" not in endings:
            say("no pictures; they need matplotlib: pip install matplotlib")
    return DONE

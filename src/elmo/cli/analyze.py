"""Commands that look inside: similar, neighbors, analyze."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmo.analysis.settings import (
    ContextualitySettings,
    CorpusSettings,
    CorrelationSettings,
    LayerSettings,
    NeighborSettings,
    SenseSettings,
    SimilarSettings,
)
from elmo.cli.main import DONE, STOPPED, App, Flags, Quiet, app, load_model, say, show
from elmo.errors import ElmoError
from elmo.runtime.tables import counted
from elmo.settings import ModelChoice

if TYPE_CHECKING:
    from elmo.embedder import ELMo

_MODEL = ModelChoice()
_CORPUS = CorpusSettings()
_SIMILAR = SimilarSettings()
_NEIGHBORS = NeighborSettings()
_CONTEXTUALITY = ContextualitySettings()
_LAYERS = LayerSettings()
_SENSES = SenseSettings()
_CORRELATION = CorrelationSettings()

analyze = App(name="analyze", help="Measure what vectors hold: contextuality, layers, senses.")
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
    context-free one. With --index FILE, vectors are kept and found again: the next question is
    answered at once.

    Parameters
    ----------
    words
        Words; each gets a list of its own. None, to make an index only.
    """
    from elmo.analysis.contextuality.stop_words import read_stop_words
    from elmo.analysis.words.faiss_search import cells_path, faiss_search, require_faiss
    from elmo.analysis.words.similar import render_similar

    if not words and settings.index is None:
        raise ElmoError("elmo similar needs a WORD, or --index FILE to make an index")
    stop_words = read_stop_words(settings.stop_words)
    if settings.search == "faiss":
        require_faiss()
    index = _word_index(choice, corpus, settings, words, quiet)
    search = None
    if settings.search == "faiss":
        kept = settings.index and cells_path(settings.index, settings.remove_mean)
        if kept and settings.overwrite:
            kept.unlink(missing_ok=True)
        search = faiss_search(index, settings.remove_mean, kept or None)
    allowed = index.allowed(stop_words, settings.min_count, settings.max_count)
    forms = [word.lower() if index.facts.get("ignore_case") else word for word in words]
    found = {
        word: index.similar(
            word,
            settings.top,
            remove_mean=settings.remove_mean,
            allowed=allowed,
            search=search,
        )
        for word in forms
    }
    if found:
        show(render_similar(found, settings.format))
    return DONE


def _word_index(
    choice: ModelChoice,
    corpus: CorpusSettings,
    settings: SimilarSettings,
    words: Sequence[str],
    quiet: bool,
) -> Any:
    """Read the index, or make it."""
    from elmo.analysis.words.similar import facts_of, require_same
    from elmo.analysis.words.word_index import WordIndex
    from elmo.text.files import refuse_to_replace

    facts = facts_of(choice, corpus, settings)
    path = settings.index
    if path is not None:
        for source in corpus.corpus:
            refuse_to_replace(source, path)
    if path is not None and path.exists() and not settings.overwrite:
        index = WordIndex.load(path)
        require_same(path, index.facts, facts)
        return index
    from elmo.analysis.words.similar import make_index

    index = make_index(lambda: load_model(choice), corpus, settings, facts, not quiet, words)
    if path is not None:
        index.save(path)
        say(f"{path}: {counted(len(index), 'word')} of {index.vectors.shape[1]} values")
    return index


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

    Beside them stands what a static vector of the word gives: the same whatever the context.

    Parameters
    ----------
    sentences
        Sentences with one or more words in square brackets; all are looked for in one pass.
    """
    from elmo.analysis.passages import Corpus
    from elmo.analysis.words.neighbor_report import render_neighbors
    from elmo.analysis.words.neighbors import MarkedWord, find_neighbors
    from elmo.cli.language import marked_words

    if not sentences:
        raise ElmoError('elmo neighbors needs a SENTENCE, such as "The [bank] of the river ."')
    text = Corpus(corpus, show_progress=not quiet)
    marked = [marked_words(sentence, text.tokenizer) for sentence in sentences]
    queries = [MarkedWord(words, place) for words, places in marked for place in places]
    found = find_neighbors(load_model(choice), text, queries, settings)
    show(render_neighbors(found, settings.format))
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
    from elmo.analysis.contextuality.measure import measure_contextuality
    from elmo.analysis.contextuality.report import draw_contextuality, render_contextuality
    from elmo.analysis.passages import Corpus

    output = _Output.of(settings, "contextuality")
    text = Corpus(corpus, show_progress=not quiet)
    model = load_model(choice)
    report = measure_contextuality(text.passages(model), model.n_layers, model.dim, settings)
    report.corpus = text.title
    _name_model(report, model, choice)
    if report.interrupted:
        say(f"interrupted: the report is about the first {counted(report.n_sentences, 'sentence')}")
    output.finish(report, render_contextuality, draw_contextuality)
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
    from elmo.analysis.layers.report import draw_layers, render_layers
    from elmo.analysis.layers.tasks import measure_layers, read_layer_data

    output = _Output.of(settings, "layers")
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    data = read_layer_data(settings, tell)
    model = load_model(choice)
    report = measure_layers(model, data, tell, show_progress=not quiet)
    if settings.sentences is not None:
        report.notes.append(f"SemCor and WiC's training were cut to {settings.sentences:,}")
    _name_model(report, model, choice)
    output.finish(report, render_layers, draw_layers)
    return DONE


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
    """Group the occurrences of a word in a corpus, as a page and as a picture; needs --corpus.

    Only sentences with the word are embedded, so that large corpora are quick to look through.

    Parameters
    ----------
    word
        The word.
    """
    from elmo.analysis.passages import Corpus
    from elmo.analysis.senses.occurrences import find_senses
    from elmo.analysis.senses.page import draw_senses, render_senses, senses_page
    from elmo.runtime.files import write_text

    stem = "senses-" + (re.sub(r"[^\w-]+", "_", word) or "_")
    folder = settings.out or Path()
    settings = dataclasses.replace(settings, out=folder)
    output = _Output.of(settings, stem, (".html", ".json", ".png", ".svg"))
    text = Corpus(corpus, show_progress=not quiet)
    model = load_model(choice)
    report = find_senses(model, text, word, settings)
    _name_model(report, model, choice)
    output.finish(report, lambda found, markdown: render_senses(found), draw_senses)
    write_text(folder / f"{stem}.html", senses_page(report))
    return DONE


@analyze.command
def correlation(
    *files: Annotated[Path, Parameter(name="FILE")],
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    corpus: Annotated[CorpusSettings, Flags] = _CORPUS,
    settings: Annotated[CorrelationSettings, Flags] = _CORRELATION,
    quiet: Quiet = False,
) -> int:
    """Compare the similarity of words with the judgement of people (Spearman).

    In isolation, each word is a sentence of its own; with --corpus also in context, as the mean
    over its occurrences.

    Parameters
    ----------
    files
        Files with two words and a score a line, between tabs, commas or spaces.
    """
    from elmo.analysis.passages import Corpus
    from elmo.analysis.words.correlation import compare_with_people, read_judged_pairs
    from elmo.analysis.words.correlation_report import draw_correlation, render_correlation

    if not files:
        raise ElmoError("elmo analyze correlation needs a FILE with two words and a score a line")
    output = _Output.of(settings, "correlation")
    judged = [read_judged_pairs(path) for path in files]
    text = Corpus(corpus, show_progress=not quiet) if corpus.corpus else None
    model = load_model(choice)
    report = compare_with_people(model, judged, text, settings)
    _name_model(report, model, choice)
    output.finish(report, render_correlation, draw_correlation)
    return DONE


# --- what comes out -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Output:
    """Where a report goes: to standard output, and into a folder if there is one."""

    folder: Path | None
    stem: str
    as_json: bool
    suffixes: tuple[str, ...]

    @classmethod
    def of(
        cls, settings: Any, stem: str, suffixes: tuple[str, ...] = (".json", ".md", ".png", ".svg")
    ) -> _Output:
        """Read the settings, and fail if a file must not be replaced, before anything is done."""
        from elmo.analysis.report_files import prepare_outputs

        if settings.out is not None:
            names = [stem + suffix for suffix in suffixes]
            prepare_outputs(settings.out, names, settings.overwrite)
        return cls(settings.out, stem, settings.json, suffixes)

    def finish(
        self, report: Any, render: Callable[[Any, bool], str], draw: Callable[[Any, Path], None]
    ) -> None:
        """Write everything."""
        from elmo.analysis.report_files import as_json, can_draw
        from elmo.runtime.files import write_text

        show(as_json(report) if self.as_json else render(report, False))
        if self.folder is None:
            return
        path = self.folder / self.stem
        write_text(path.with_name(path.name + ".json"), as_json(report) + "\n")
        if ".md" in self.suffixes:
            write_text(path.with_name(path.name + ".md"), render(report, True) + "\n")
        drawn = self.suffixes
        if can_draw():
            draw(report, path)
        else:
            drawn = tuple(suffix for suffix in drawn if suffix not in (".png", ".svg"))
            say("no pictures; they need matplotlib: pip install matplotlib")
        say(f"{path}: {', '.join(drawn)}")


def _name_model(report: Any, model: ELMo, choice: ModelChoice) -> None:
    from elmo.hub.names import default_model

    report.model = Path(str(choice.model or choice.weights or default_model())).name
    report.model_sha256 = model.fingerprint

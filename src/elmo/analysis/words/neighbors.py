"""Occurrences in a corpus nearest to a word in its context, beside its static neighbors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elmo.analysis.corpus import Corpus, Window, require_corpus
from elmo.analysis.geometry import unit_rows
from elmo.analysis.inputs import divided, load
from elmo.analysis.reports import Listing, as_json
from elmo.analysis.settings import NeighborSettings
from elmo.analysis.words.word_index import WordIndex
from elmo.analysis.words.word_means import index_of_words
from elmo.embed.pipeline import require_layer
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.lm.reading import split_marked
from elmo.text.sentences import Words
from elmo.text.static_vectors import read_static_vectors

if TYPE_CHECKING:
    from elmo.analysis.inputs import Model, Text

Vectors = npt.NDArray[np.float32]

_CONTEXT = 10
"""Words shown on either side."""


class MarkedWord(NamedTuple):
    """A word of a sentence whose neighbors are searched."""

    sentence: Words
    position: int

    @property
    def word(self) -> str:
        """The word itself."""
        return self.sentence[self.position]


@dataclass(frozen=True)
class NearOccurrence:
    """An occurrence in the corpus."""

    cosine: float
    sentence: Words
    position: int


@dataclass(frozen=True)
class NearWord:
    """A word whose static vector is near."""

    cosine: float
    word: str


@dataclass
class Neighborhood:
    """The neighbors of one marked word."""

    sentence: Words
    position: int
    in_context: list[NearOccurrence] = field(default_factory=list)
    static: list[NearWord] = field(default_factory=list)
    static_source: str = ""
    n_compared: int = 0
    """Occurrences of words that were compared."""
    n_occurrences: int = 0
    """Occurrences of the marked word in the corpus."""

    def lines(self) -> Iterator[str]:
        """Yield the neighborhood as lines of text."""
        word = self.sentence[self.position]
        yield _marked(self.sentence, self.position)
        yield (
            f"compared with {self.n_compared:,} occurrences; {word!r} itself occurs "
            f"{self.n_occurrences:,} times in the corpus"
        )
        yield f"\nstatic, by {self.static_source}, whatever the context:"
        static = ", ".join(f"{near.word} {near.cosine:.3f}" for near in self.static)
        yield f"  {static or f'there is no vector of {word!r}'}"
        yield "\nin context:"
        for near in self.in_context:
            yield f"  {near.cosine:.3f}  {_marked(near.sentence, near.position, _CONTEXT)}"
        if not self.in_context:
            yield f"  {word!r} never occurs in the corpus"


@dataclass(frozen=True)
class NeighborReport(Listing):
    """The neighbors of each marked word."""

    neighborhoods: list[Neighborhood]

    def parts(self) -> Iterator[str]:
        """Yield the neighborhoods as text."""
        return ("\n".join(found.lines()) for found in self.neighborhoods)

    def json(self) -> str:
        """Return the neighborhoods as a list."""
        return as_json(self.neighborhoods)

    def csv_rows(self) -> Iterator[Sequence[object]]:
        """Yield a row for each neighbor."""
        yield ("query", "kind", "rank", "cosine", "word", "sentence")
        for found in self.neighborhoods:
            query = _marked(found.sentence, found.position)
            for rank, near in enumerate(found.in_context, start=1):
                sentence, word = _marked(near.sentence, near.position), near.sentence[near.position]
                yield (query, "context", rank, f"{near.cosine:.6f}", word, sentence)
            for rank, other in enumerate(found.static, start=1):
                yield (query, "static", rank, f"{other.cosine:.6f}", other.word, "")


def _marked(words: Words, position: int, context: int | None = None) -> str:
    """Return a sentence with brackets around one word, or only so many words around it."""
    start = 0 if context is None else max(0, position - context)
    stop = len(words) if context is None else position + 1 + context
    shown = [*words[start:position], f"[{words[position]}]", *words[position + 1 : stop]]
    before, after = ["..."] * (start > 0), ["..."] * (stop < len(words))
    return " ".join([*before, *shown, *after])


def neighbors(
    *sentences: str,
    model: Model = None,
    corpus: Text = (),
    settings: NeighborSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> NeighborReport:
    """Find the occurrences nearest to words in their context, as `elmo neighbors` does.

    The corpus is read once. A sentence that occurs several times in it counts once, and the
    sentence of the marked word not at all.

    Args:
        sentences: Each with one or more words in square brackets: `The [bank] of the river .`
        model: A model, or its name or folder.
        corpus: Text files that are searched.
        settings: How.
        show_progress: Whether to show progress bars.
        fields: Fields of `NeighborSettings` and `CorpusSettings`, instead of these.
    """
    if not sentences:
        raise InputError('neighbors needs a SENTENCE, such as "The [bank] of the river ."')
    settings, text = divided(NeighborSettings, settings, corpus, fields)
    require_corpus(text)
    elmo, _ = load(model)
    read = Corpus(text, elmo, show_progress)
    marked = [split_marked(sentence, read.tokenizer, elmo.warn_of_texts) for sentence in sentences]
    queries = [MarkedWord(words, place) for words, places in marked for place in places]
    return _search(elmo, read, queries, settings)


def _search(
    model: ELMo, corpus: Corpus, queries: Sequence[MarkedWord], settings: NeighborSettings
) -> NeighborReport:
    """Find the nearest occurrences and the static neighbors of each query."""
    require_layer(settings.layer, model.config)
    vectors = [
        model.encode_tokens([query.sentence], layers=settings.layer)[0][query.position]
        for query in queries
    ]
    found = [Neighborhood(*query) for query in queries]
    directions = unit_rows(np.stack(vectors)).astype(np.float32)
    counts: Counter[str] = Counter()
    sentences = _counted(corpus, counts)
    if settings.same_word:
        words = {corpus.word(query.word) for query in queries}
        sentences = (s for s in sentences if not words.isdisjoint(map(corpus.word, s)))
    for window in corpus.windows(model, settings.layer, sentences):
        cosines = unit_rows(window.vectors).astype(np.float32) @ directions.T
        for query, neighborhood, own in zip(queries, found, cosines.T, strict=True):
            _merge(neighborhood, window, own, corpus.word(query.word), settings)
    if not any(neighborhood.n_compared for neighborhood in found):
        raise InputError(_nothing(corpus, queries, settings))
    _add_static(found, _static_index(model, counts, queries, settings), settings.top)
    return NeighborReport(found)


def _nothing(corpus: Corpus, queries: Sequence[MarkedWord], settings: NeighborSettings) -> str:
    if not settings.same_word:
        return f"{corpus.name} has no words"
    words = ", ".join(repr(query.word) for query in queries)
    return (
        f"{words} never occurs in {corpus.name} outside the sentence that was given: search all "
        "words by leaving --same-word out, or give more text"
    )


def _counted(corpus: Corpus, counts: Counter[str]) -> Iterator[Words]:
    """Yield the sentences of a corpus, counting their words."""
    for sentence in corpus:
        counts.update(map(corpus.word, sentence))
        yield sentence


def _merge(
    found: Neighborhood, window: Window, cosines: Vectors, word: str, settings: NeighborSettings
) -> None:
    """Merge the nearest occurrences of a window with those found before.

    Args:
        found: What was found before; changed in place.
        window: Sentences of n words.
        cosines: Of the words with the marked one, `(n,)`.
        word: The marked word as the corpus counts it.
        settings: How many, and which words.
    """
    names, ids = window.numbered
    sentence, position = window.positions
    own = np.array([name == word for name in names], np.bool_)[ids]
    others = np.array([words != found.sentence for words in window.sentences], np.bool_)[sentence]
    compared = others & own if settings.same_word else others
    found.n_compared += int(compared.sum())
    found.n_occurrences += int((others & own).sum())
    places = np.flatnonzero(compared)
    best = places[np.argsort(-cosines[places], kind="stable")]
    known = {(tuple(o.sentence), o.position) for o in found.in_context}
    taken: list[NearOccurrence] = []
    for place in best.tolist():
        if len(taken) == settings.top:
            break
        words, at = window.sentences[int(sentence[place])], int(position[place])
        if (tuple(words), at) not in known:
            known.add((tuple(words), at))
            cosine = float(np.clip(cosines[place], -1.0, 1.0))
            taken.append(NearOccurrence(cosine, words, at))
    together = found.in_context + taken
    found.in_context = sorted(together, key=lambda o: -o.cosine)[: settings.top]


def _static_index(
    model: ELMo, counts: Counter[str], queries: Sequence[MarkedWord], settings: NeighborSettings
) -> WordIndex:
    """Return the static vectors of the frequent words of a corpus, and of the marked ones."""
    frequent = [word for word, count in counts.items() if count >= settings.min_count]
    words = [*sorted(frequent or counts), *(query.word for query in queries)]
    if settings.static_vectors is None:
        return index_of_words(model, words, "the model's context-free vectors")
    read = read_static_vectors(settings.static_vectors, dict.fromkeys(_forms(words)))
    rows = read.vectors[list(read.found.values())]
    facts = {"words": settings.static_vectors.name}
    return WordIndex(list(read.found), np.zeros(len(read.found), np.int64), rows, facts)


def _add_static(found: Sequence[Neighborhood], index: WordIndex, top: int) -> None:
    known = set(index.words)
    for neighborhood in found:
        neighborhood.static_source = index.facts["words"]
        word = neighborhood.sentence[neighborhood.position]
        form = next((form for form in _forms([word]) if form in known), None)
        if form is not None:
            near = index.similar(form, top)
            neighborhood.static = [NearWord(entry.cosine, entry.word) for entry in near]


def _forms(words: Iterable[str]) -> Iterator[str]:
    """Yield words as they are, and in lower case: GloVe has only lower case."""
    for word in words:
        yield word
        yield word.lower()

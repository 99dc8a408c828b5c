"""Occurrences of a corpus nearest to a word in its context, beside what a static vector gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from elmo.analysis.contextuality.geometry import unit_rows
from elmo.analysis.passages import Corpus, Passage
from elmo.analysis.settings import NeighborSettings
from elmo.analysis.words.word_index import WordIndex
from elmo.analysis.words.word_means import index_of_words
from elmo.embed.selection import require_layer
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.text.sentences import Words
from elmo.text.static_vectors import read_static_vectors

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MarkedWord:
    """A word of a sentence that is asked about."""

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
    """What was found for one marked word."""

    query: MarkedWord
    occurrences: list[NearOccurrence] = field(default_factory=list)
    static: list[NearWord] = field(default_factory=list)
    static_source: str = ""
    n_occurrences: int = 0
    """How many occurrences were compared."""
    n_word: int = 0
    """How often the marked word itself occurs in the corpus."""


def find_neighbors(
    model: ELMo, corpus: Corpus, queries: Sequence[MarkedWord], settings: NeighborSettings
) -> list[Neighborhood]:
    """Find the nearest occurrences of each query in one pass over a corpus.

    Sentences that stand in the corpus several times count once, and the query's own sentence not at
    all.

    Args:
        model: What embeds.
        corpus: What is searched.
        queries: Marked words.
        settings: How.
    """
    require_layer(settings.layer, model.config)
    vectors = [
        model.encode_tokens([query.sentence], layers=settings.layer)[0][query.position]
        for query in queries
    ]
    found = [Neighborhood(query) for query in queries]
    directions = unit_rows(np.stack(vectors)).astype(np.float32)
    counts: Counter[str] = Counter()
    sentences = _counted(corpus, counts)
    if settings.same_word:
        words = {corpus.word(query.word) for query in queries}
        sentences = (s for s in sentences if not words.isdisjoint(map(corpus.word, s)))
    for passage in corpus.passages(model, settings.layer, sentences):
        cosines = unit_rows(passage.vectors).astype(np.float32) @ directions.T
        for neighborhood, own in zip(found, cosines.T, strict=True):
            _merge(neighborhood, passage, own, corpus, settings)
    if not any(neighborhood.n_occurrences for neighborhood in found):
        raise InputError(_nothing(corpus, queries, settings))
    _add_static(found, _static_index(model, counts, queries, settings), settings.top)
    return found


def _nothing(corpus: Corpus, queries: Sequence[MarkedWord], settings: NeighborSettings) -> str:
    if not settings.same_word:
        return f"{corpus.name} has no words"
    words = ", ".join(repr(query.word) for query in queries)
    return (
        f"{words} never occurs in {corpus.name} outside the sentence that was given: look at all "
        "words by leaving --same-word out, or give more text"
    )


def _counted(corpus: Corpus, counts: Counter[str]) -> Iterator[Words]:
    """Yield the sentences of a corpus, counting their words."""
    for sentence in corpus:
        counts.update(map(corpus.word, sentence))
        yield sentence


def _merge(
    neighborhood: Neighborhood,
    passage: Passage,
    cosines: Vectors,
    corpus: Corpus,
    settings: NeighborSettings,
) -> None:
    """Put the nearest occurrences of a passage among those found before."""
    query = neighborhood.query
    names, ids = passage.numbered
    sentence, position = passage.places
    own = np.array([name == corpus.word(query.word) for name in names], np.bool_)[ids]
    others = np.array([words != query.sentence for words in passage.sentences], np.bool_)[sentence]
    may = others & own if settings.same_word else others
    neighborhood.n_occurrences += int(may.sum())
    neighborhood.n_word += int((others & own).sum())
    places = np.flatnonzero(may)
    best = places[np.argsort(-cosines[places], kind="stable")]
    known = {(tuple(o.sentence), o.position) for o in neighborhood.occurrences}
    taken: list[NearOccurrence] = []
    for place in best.tolist():
        if len(taken) == settings.top:
            break
        words, at = passage.sentences[int(sentence[place])], int(position[place])
        if (tuple(words), at) not in known:
            known.add((tuple(words), at))
            cosine = float(np.clip(cosines[place], -1.0, 1.0))
            taken.append(NearOccurrence(cosine, words, at))
    together = neighborhood.occurrences + taken
    neighborhood.occurrences = sorted(together, key=lambda o: -o.cosine)[: settings.top]


def _static_index(
    model: ELMo, counts: Counter[str], queries: Sequence[MarkedWord], settings: NeighborSettings
) -> WordIndex:
    """Give the static vectors of the frequent words of a corpus, and of the marked ones."""
    frequent = [word for word, count in counts.items() if count >= settings.min_count]
    words = [*sorted(frequent or counts), *(query.word for query in queries)]
    if settings.static is None:
        return index_of_words(model, words, "the model's context-free vectors")
    read = read_static_vectors(settings.static, dict.fromkeys(_forms(words)))
    rows = read.vectors[list(read.found.values())]
    facts = {"words": settings.static.name}
    return WordIndex(list(read.found), np.zeros(len(read.found), np.int64), rows, facts)


def _add_static(found: Sequence[Neighborhood], index: WordIndex, top: int) -> None:
    known = set(index.words)
    for neighborhood in found:
        neighborhood.static_source = index.facts["words"]
        form = next((w for w in _forms([neighborhood.query.word]) if w in known), None)
        if form is not None:
            near = index.similar(form, top)
            neighborhood.static = [NearWord(entry.cosine, entry.word) for entry in near]


def _forms(words: Iterable[str]) -> Iterator[str]:
    """Yield words as they are, and in lower case: GloVe has nothing else."""
    for word in words:
        yield word
        yield word.lower()

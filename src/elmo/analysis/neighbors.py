"""Occurrences of a corpus nearest to a word in its context, beside what a static vector gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.analysis.analysis_settings import NeighborSettings
from elmo.analysis.geometry import unit_rows
from elmo.analysis.passages import Corpus, Passage
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.selection import select_layers
from elmo.sentences import Words
from elmo.static_vectors import read_static_vectors

Vectors = npt.NDArray[np.float32]

_BATCH = 4096
"""Words whose static vectors are computed at once."""


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
    select_layers(settings.layer, model.config)  # fails here rather than after a long look
    vectors = [
        model.encode_tokens([query.sentence], layers=settings.layer)[0][query.position]
        for query in queries
    ]
    found = [Neighborhood(query) for query in queries]
    directions = unit_rows(np.stack(vectors)).astype(np.float32)
    statics = _OwnStatic(model, queries) if settings.static is None else None
    seen: set[str] = set()
    wanted = _sentences_with(corpus, queries, seen) if settings.same_word else None
    for passage in corpus.passages(model, settings.layer, wanted):
        cosines = unit_rows(passage.vectors).astype(np.float32) @ directions.T
        for neighborhood, own in zip(found, cosines.T, strict=True):
            _merge(neighborhood, passage, own, corpus, settings)
        if settings.same_word:
            continue
        if statics is not None:
            statics.look(passage.numbered[0], settings.top)
        else:
            seen.update(passage.numbered[0])
    if not any(neighborhood.n_occurrences for neighborhood in found):
        raise InputError(_nothing(corpus, queries, settings))
    if settings.static is not None:
        _read_static(found, settings.static, seen, settings.top)
    elif statics is not None:
        names = sorted(seen)
        for start in range(0, len(names), _BATCH):
            statics.look(names[start : start + _BATCH], settings.top)
        statics.tell(found)
    return found


def _nothing(corpus: Corpus, queries: Sequence[MarkedWord], settings: NeighborSettings) -> str:
    if not settings.same_word:
        return f"{corpus.name} has no words"
    words = ", ".join(repr(query.word) for query in queries)
    return (
        f"{words} never occurs in {corpus.name} outside the sentence that was given: look at all "
        "words by leaving --same-word out, or give more text"
    )


def _sentences_with(
    corpus: Corpus, queries: Sequence[MarkedWord], seen: set[str]
) -> Iterator[Words]:
    """Yield sentences with a marked word; the words of all are noted, to be compared, too."""
    words = {corpus.word(query.word) for query in queries}
    for sentence in corpus:
        own = set(map(corpus.word, sentence))
        seen |= own
        if own & words:
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


class _OwnStatic:
    """Nearest words by the model's own context-free vectors, found as the corpus passes.

    Args:
        model: Whose vectors.
        queries: The marked words.
    """

    def __init__(self, model: ELMo, queries: Sequence[MarkedWord]) -> None:
        self._model = model
        self._queries = [query.word for query in queries]
        self._directions = unit_rows(model.word_vectors(self._queries)).astype(np.float32)
        self._best: list[dict[str, float]] = [{} for _ in queries]

    def look(self, names: Sequence[str], top: int) -> None:
        """Compare some words."""
        cosines = unit_rows(self._model.word_vectors(names)).astype(np.float32) @ self._directions.T
        for word, best, own in zip(self._queries, self._best, cosines.T, strict=True):
            chosen = [k for k in np.argsort(-own, kind="stable")[: top + 1] if names[k] != word]
            best |= {names[k]: float(np.clip(own[k], -1.0, 1.0)) for k in chosen}
            for name in sorted(best, key=lambda name: -best[name])[top:]:
                del best[name]

    def tell(self, found: Sequence[Neighborhood]) -> None:
        """Note what was found."""
        for neighborhood, best in zip(found, self._best, strict=True):
            neighborhood.static_source = "the model's context-free vectors"
            ordered = sorted(best.items(), key=lambda pair: -pair[1])
            neighborhood.static = [NearWord(cosine, word) for word, cosine in ordered]


def _read_static(found: Sequence[Neighborhood], path: Path, words: Iterable[str], top: int) -> None:
    """Find the nearest words of the corpus by the vectors of a file."""
    wanted = dict.fromkeys(_forms([*words, *(n.query.word for n in found)]))
    read = read_static_vectors(path, wanted)
    names = list(read.found)
    rows = unit_rows(read.vectors[list(read.found.values())]).astype(np.float32)
    for neighborhood in found:
        neighborhood.static_source = path.name
        form = next((w for w in _forms([neighborhood.query.word]) if w in read.found), None)
        if form is None:
            continue
        cosines = rows @ rows[names.index(form)]
        order = np.argsort(-cosines, kind="stable")[: top + 1]
        neighborhood.static = [
            NearWord(float(np.clip(cosines[k], -1.0, 1.0)), names[k])
            for k in order
            if names[k] != form
        ][:top]


def _forms(words: Iterable[str]) -> Iterator[str]:
    """Yield words as they are, and in lower case: GloVe has nothing else."""
    for word in words:
        yield word
        yield word.lower()

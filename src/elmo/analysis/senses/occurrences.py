"""The occurrences of one word in a corpus: drawn, grouped, laid out, with examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from elmo.analysis.contextuality.geometry import Integers, self_similarity, unit_rows
from elmo.analysis.passages import Corpus, Passage
from elmo.analysis.sampling import Keys, KeySample, joint_keys, text_keys
from elmo.analysis.senses.clusters import cluster
from elmo.analysis.senses.projection import chosen_projections, project
from elmo.analysis.settings import Projection, SenseSettings
from elmo.embed.selection import require_layer
from elmo.embedder import ELMo
from elmo.errors import InputError
from elmo.runtime.tables import counted
from elmo.text.sentences import Words

_GROUP = np.zeros(1, np.uint64)


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of the word."""

    words: Words
    position: int
    cluster: int
    """Its group, from 0 on."""
    closeness: float
    """Cosine to the centre of its group."""
    points: dict[str, list[float]]
    """Its place in each projection."""


@dataclass(frozen=True)
class SenseCluster:
    """A group of occurrences."""

    size: int
    self_similarity: float | None
    """Mean cosine of its occurrences; None if there is one."""
    examples: list[int]
    """Numbers of the occurrences nearest to its centre."""


@dataclass
class SenseReport:
    """All that was found of one word."""

    word: str
    model: str = ""
    model_sha256: str = ""
    corpus: str = ""
    layer: str = ""
    n_occurrences: int = 0
    """Occurrences in the corpus."""
    silhouette: float | None = None
    projections: list[Projection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clusters: list[SenseCluster] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)


class _OccurrenceSample:
    """Occurrences of a word, drawn from a stream; the same sentence counts once.

    Args:
        settings: How many.
        word: The form under which the word is counted.
        dim: Width of a vector.
    """

    def __init__(self, settings: SenseSettings, word: str, dim: int) -> None:
        self._settings = settings
        self._word = word
        self.sample = KeySample(settings.occurrences, (dim,))
        self.n_occurrences = 0

    def offer(self, passage: Passage) -> None:
        """Let the occurrences of a passage in."""
        names, ids = passage.numbered
        if self._word not in names:
            return
        places = np.flatnonzero(ids == names.index(self._word))
        self.n_occurrences += len(places)
        sentence, position = passage.places
        keys = self._keys(passage, sentence[places], position[places])

        def note(chosen: int) -> tuple[Words, int]:
            place = places[chosen]
            return passage.sentences[int(sentence[place])], int(position[place])

        self.sample.offer(
            np.repeat(_GROUP, len(places)),
            keys,
            lambda chosen: passage.vectors[places[chosen]],
            note,
        )

    def _keys(self, passage: Passage, sentence: Integers, position: Integers) -> Keys:
        texts = ("\0".join(passage.sentences[number]) for number in sentence.tolist())
        keys = text_keys(texts, self._settings.seed)
        return joint_keys(keys, position.astype(np.uint64) + np.uint64(1))


def find_senses(model: ELMo, corpus: Corpus, word: str, settings: SenseSettings) -> SenseReport:
    """Group the occurrences of a word by their vectors.

    Args:
        model: What embeds.
        corpus: Where the word occurs; only sentences with it are embedded.
        word: The word.
        settings: How.
    """
    require_layer(settings.layer, model.config)
    projections = chosen_projections(settings.projection)
    form = corpus.word(word)
    sample = _OccurrenceSample(settings, form, model.dim)
    for passage in corpus.passages(model, settings.layer, _sentences_with(corpus, form)):
        sample.offer(passage)
    _require_occurrences(word, corpus, sample)
    report = SenseReport(
        word=word,
        corpus=corpus.title,
        layer=str(settings.layer),
        n_occurrences=sample.n_occurrences,
        projections=list(projections),
    )
    drawn = len(sample.sample)
    if drawn < sample.n_occurrences:
        report.notes.append(
            f"{drawn:,} of {sample.n_occurrences:,} occurrences are shown: drawn at random, the "
            "same sentence once"
        )
    _fill(report, sample.sample, settings)
    return report


def _sentences_with(corpus: Corpus, word: str) -> Iterator[Words]:
    return (s for s in corpus if word in (map(corpus.word, s)))


def _require_occurrences(word: str, corpus: Corpus, sample: _OccurrenceSample) -> None:
    if not sample.n_occurrences:
        hint = "" if corpus.settings.ignore_case else ", or give --ignore-case"
        raise InputError(f"{word!r} never occurs in {corpus.name}: try another form of it{hint}")
    if len(sample.sample) < 2:
        times = "once" if sample.n_occurrences == 1 else "only in one and the same sentence"
        raise InputError(
            f"{word!r} occurs {times} in {corpus.name}: there is nothing to group, give more text"
        )


def _fill(report: SenseReport, sample: KeySample, settings: SenseSettings) -> None:
    """Group what was drawn, and find examples of each group."""
    vectors = sample.rows
    found = cluster(vectors, settings.clusters, settings.max_clusters, settings.seed)
    report.silhouette = found.silhouette
    if settings.clusters is not None and len(found.centres) < settings.clusters:
        report.notes.append(
            f"only {counted(len(found.centres), 'group')}: {settings.clusters} were asked for, but "
            "not so many occurrences differ"
        )
    points = {kind: project(vectors, kind, settings.seed) for kind in report.projections}
    closeness = (unit_rows(vectors) * found.centres[found.labels]).sum(axis=1)
    for number, (words, position) in enumerate(sample.notes):
        report.occurrences.append(
            Occurrence(
                words=words,
                position=position,
                cluster=int(found.labels[number]),
                closeness=float(np.clip(closeness[number], -1.0, 1.0)),
                points={kind: at[number].tolist() for kind, at in points.items()},
            )
        )
    for label in range(len(found.centres)):
        members = np.flatnonzero(found.labels == label)
        nearest = members[np.argsort(-closeness[members], kind="stable")]
        report.clusters.append(
            SenseCluster(
                size=len(members),
                self_similarity=self_similarity(vectors[members]),
                examples=nearest[: settings.examples].tolist(),
            )
        )

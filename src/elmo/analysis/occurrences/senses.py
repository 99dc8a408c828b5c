"""The occurrences of one word in a corpus: sampled, clustered, projected, with examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.analysis.corpus import Corpus, Window, require_corpus
from elmo.analysis.geometry import Floats, Integers, Vectors, self_similarity, unit_rows
from elmo.analysis.inputs import divided, load, prepare, saved
from elmo.analysis.occurrences.grouping import cluster, project, require_sklearn
from elmo.analysis.occurrences.report import Occurrence, SenseCluster, SenseReport
from elmo.analysis.sampling import Keys, KeySample, joint_keys, text_keys
from elmo.analysis.settings import SenseSettings
from elmo.embed.pipeline import require_layer
from elmo.errors import InputError
from elmo.runtime.tables import counted
from elmo.text.sentences import Words

if TYPE_CHECKING:
    from elmo.analysis.inputs import Model, Text

_GROUP = np.zeros(1, np.uint64)


class _OccurrenceSample:
    """Occurrences of a word, sampled from a stream; the same sentence counts once.

    Args:
        settings: How many.
        word: The form under which the word is counted.
        dim: Width of a vector.
    """

    def __init__(self, settings: SenseSettings, word: str, dim: int) -> None:
        self._settings = settings
        self._word = word
        self.sample = KeySample(settings.max_occurrences, (dim,))
        self.n_occurrences = 0

    def offer(self, window: Window) -> None:
        """Sample the occurrences in a window."""
        names, ids = window.numbered
        if self._word not in names:
            return
        places = np.flatnonzero(ids == names.index(self._word))
        self.n_occurrences += len(places)
        sentence, position = window.positions
        keys = self._keys(window, sentence[places], position[places])

        def note(chosen: int) -> tuple[Words, int]:
            place = places[chosen]
            return window.sentences[int(sentence[place])], int(position[place])

        self.sample.offer(
            np.repeat(_GROUP, len(places)),
            keys,
            lambda chosen: window.vectors[places[chosen]],
            note,
        )

    def _keys(self, window: Window, sentence: Integers, position: Integers) -> Keys:
        texts = ("\0".join(window.sentences[number]) for number in sentence.tolist())
        keys = text_keys(texts, self._settings.seed)
        return joint_keys(keys, position.astype(np.uint64) + np.uint64(1))


def senses(
    word: str,
    *,
    model: Model = None,
    corpus: Text = (),
    settings: SenseSettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> SenseReport:
    """Cluster the occurrences of a word by their vectors, as `elmo analyze senses` does.

    Args:
        word: The word.
        model: A model, or its name or folder.
        corpus: Text files in which it occurs; only sentences with it are embedded.
        settings: How.
        show_progress: Whether to show progress bars.
        fields: Fields of `SenseSettings` and `CorpusSettings`, instead of these.
    """
    settings, text = divided(SenseSettings, settings, corpus, fields)
    prepare(settings, SenseReport, SenseReport(word=word).stem)
    require_sklearn()
    require_corpus(text)
    elmo, facts = load(model)
    read = Corpus(text, elmo, show_progress)
    require_layer(settings.layer, elmo.config)
    form = read.word(word)
    found = _OccurrenceSample(settings, form, elmo.dim)
    sentences = (s for s in read if form in map(read.word, s))
    for window in read.windows(elmo, settings.layer, sentences):
        found.offer(window)
    _require_occurrences(word, read, found)
    report = _clustered(word, found, settings)
    return saved(report, settings, **facts, **read.facts)


def _clustered(word: str, found: _OccurrenceSample, settings: SenseSettings) -> SenseReport:
    """Cluster a sample of the occurrences of a word."""
    sample = found.sample
    vectors = sample.rows
    clusters = cluster(vectors, settings.clusters, settings.max_clusters, settings.seed)
    cosines = np.clip((unit_rows(vectors) * clusters.centers[clusters.labels]).sum(axis=1), -1, 1)
    points = {kind: project(vectors, kind, settings.seed) for kind in settings.projection}
    return SenseReport(
        word=word,
        layer=str(settings.layer),
        n_occurrences=found.n_occurrences,
        silhouette=clusters.silhouette,
        projections=list(points),
        notes=_shortfalls(len(sample), found.n_occurrences, len(clusters.centers), settings),
        clusters=[
            _cluster(np.flatnonzero(clusters.labels == label), vectors, cosines, settings)
            for label in range(len(clusters.centers))
        ],
        occurrences=[
            Occurrence(
                words=words,
                position=position,
                cluster=int(clusters.labels[number]),
                cosine_to_center=float(cosines[number]),
                points={kind: at[number].tolist() for kind, at in points.items()},
            )
            for number, (words, position) in enumerate(sample.notes)
        ],
    )


def _require_occurrences(word: str, corpus: Corpus, found: _OccurrenceSample) -> None:
    if not found.n_occurrences:
        hint = "" if corpus.settings.ignore_case else ", or give --ignore-case"
        raise InputError(f"{word!r} never occurs in {corpus.name}: try another form of it{hint}")
    if len(found.sample) < 2:
        times = "once" if found.n_occurrences == 1 else "only in one and the same sentence"
        raise InputError(
            f"{word!r} occurs {times} in {corpus.name}: there is nothing to cluster, give more text"
        )


def _shortfalls(
    drawn: int, n_occurrences: int, clusters: int, settings: SenseSettings
) -> list[str]:
    notes = []
    if drawn < n_occurrences:
        notes.append(
            f"{drawn:,} of {n_occurrences:,} occurrences are shown: a random sample, the same "
            "sentence once"
        )
    if settings.clusters is not None and clusters < settings.clusters:
        notes.append(
            f"only {counted(clusters, 'cluster')}: {settings.clusters} were requested, but not so "
            "many occurrences differ"
        )
    return notes


def _cluster(
    members: Integers, vectors: Vectors, cosines: Floats, settings: SenseSettings
) -> SenseCluster:
    """Describe a cluster by its members, whose examples are the nearest to its center."""
    nearest = members[np.argsort(-cosines[members], kind="stable")]
    return SenseCluster(
        size=len(members),
        self_similarity=self_similarity(vectors[members]),
        examples=nearest[: settings.examples].tolist(),
    )

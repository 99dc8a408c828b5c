"""How contextual vectors are: one pass over a corpus, then measures of what was drawn from it.

What is kept is bounded by the settings, whatever the size of the corpus: some occurrences of some
words, some sentences, some occurrences of any words. See `sampling` for why the words are a uniform
sample of all that have enough contexts although nothing is known of them beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from elmo.analysis.contextuality.geometry import (
    Floats,
    Integers,
    Vectors,
    effective_dimension,
    explained_variance,
    intra_sentence_similarities,
    mean_cosine,
    partition_ratio,
    self_similarity,
)
from elmo.analysis.intervals import (
    Estimate,
    difference_estimate,
    jackknife_error,
    mean_estimate,
    normal_estimate,
    resampled_means,
)
from elmo.analysis.passages import Passage
from elmo.analysis.sampling import Keys, KeySample, joint_keys, text_keys
from elmo.analysis.settings import ContextualitySettings
from elmo.errors import InputError

_CANDIDATES = 50
"""Words that may wait for enough contexts, for each word that is wanted."""
_ONE_GROUP = np.uint64(0)


@dataclass(frozen=True)
class Measure:
    """A figure of a layer as it is, its value for unrelated words, and the difference."""

    raw: Estimate
    baseline: Estimate
    corrected: Estimate


@dataclass(frozen=True)
class LayerContextuality:
    """All measures of one layer."""

    layer: int
    self_similarity: Measure
    intra_sentence_similarity: Measure
    explained_variance: Measure
    """Share of the first singular value, as in the paper's formula: vectors are not centred."""
    centred_explained_variance: Measure
    """The same without the mean: what the first principal component explains."""
    mean_cosine: Estimate
    """Of random words from different sentences."""
    partition_ratio: Estimate
    effective_dimension: Estimate
    mean_norm: Estimate
    """Length of the vectors of random words."""


@dataclass(frozen=True)
class WordContextuality:
    """What was found of one word."""

    word: str
    contexts: int
    """How many different sentences were looked at."""
    self_similarity: list[float | None]
    """For each layer."""
    explained_variance: list[float | None]
    """For each layer."""


@dataclass
class ContextualityReport:
    """All that was measured of one model on one corpus."""

    model: str = ""
    model_sha256: str = ""
    corpus: str = ""
    n_sentences: int = 0
    n_words: int = 0
    """Words of the corpus."""
    sampled_words: int = 0
    """Different words that were drawn."""
    sampled_occurrences: int = 0
    """Their occurrences."""
    sampled_sentences: int = 0
    random_words: int = 0
    interrupted: bool = False
    """Whether it is about a part of the corpus, because somebody stopped the reading."""
    notes: list[str] = field(default_factory=list)
    layers: list[LayerContextuality] = field(default_factory=list)
    words: list[WordContextuality] = field(default_factory=list)
    """From the least self-similar at the top layer to the most."""


class WordSample:
    """Some occurrences of some words: a uniform sample of all that have enough contexts.

    A word has a key, and only words with keys below a limit are followed. The limit falls as more
    words than wanted prove to have enough contexts; a word that is dropped never comes back, so
    that every word that is there in the end was followed from the beginning.

    Args:
        settings: How many.
        shape: Shape of the vectors of one occurrence, `(n_layers, dim)`.
    """

    def __init__(self, settings: ContextualitySettings, shape: tuple[int, int]) -> None:
        self._settings = settings
        self._sample = KeySample(settings.occurrences, shape)
        self._names: dict[int, str] = {}
        self._limit: int = 2**64

    def offer(self, passage: Passage, sentence_keys: Keys) -> None:
        """Let the words of a passage in; `sentence_keys` are uint64 `(n_sentences,)`."""
        names, ids = passage.numbered
        keys = text_keys(names, self._settings.seed)
        followed = np.array([key < self._limit for key in keys.tolist()], np.bool_)
        places = np.flatnonzero(followed[ids])
        words = keys[ids[places]]
        contexts = sentence_keys[passage.places[0][places]]
        self._sample.offer(
            words,
            joint_keys(words, contexts),
            lambda chosen: passage.vectors[:, places[chosen]].swapaxes(0, 1),
        )
        numbers = np.flatnonzero(followed)
        self._names |= {int(keys[number]): names[number] for number in numbers.tolist()}
        self._drop()

    def _drop(self) -> None:
        """Stop following words, if there are more than are wanted."""
        words, counts = self._sample.sizes()
        enough = words[counts >= self._settings.min_contexts]
        limit = self._limit
        if len(enough) > self._settings.words:
            limit = int(enough[self._settings.words])
        if len(words) > _CANDIDATES * self._settings.words:
            limit = min(limit, int(words[_CANDIDATES * self._settings.words]))
        if limit < self._limit:
            self._limit = limit
            self._sample.keep(self._sample.groups < np.uint64(limit))
            self._names = {key: name for key, name in self._names.items() if key < limit}

    def words(self) -> list[tuple[str, Vectors]]:
        """Give the words with enough contexts and their vectors `(n, n_layers, dim)`."""
        keys, counts = self._sample.sizes()
        starts = np.cumsum(counts) - counts
        rows = self._sample.rows
        found = [
            (self._names[int(key)], rows[start : start + count])
            for key, start, count in zip(keys, starts, counts, strict=True)
            if count >= self._settings.min_contexts
        ]
        return sorted(found, key=lambda word: word[0])


class CorpusSamples:
    """All that is kept of a corpus while it passes.

    Args:
        settings: How much.
        n_layers: Layers of vectors.
        dim: Width of a vector.
    """

    def __init__(self, settings: ContextualitySettings, n_layers: int, dim: int) -> None:
        self._settings = settings
        self._n_layers = n_layers
        self.words = WordSample(settings, (n_layers, dim))
        self._random = KeySample(settings.random_words, (n_layers, dim))
        self._sentences = KeySample(settings.sampled_sentences, (n_layers,))
        self.n_sentences = 0
        self.n_words = 0

    def offer(self, passage: Passage) -> None:
        """Look at some more sentences."""
        texts = ("\0".join(sentence) for sentence in passage.sentences)
        keys = text_keys(texts, self._settings.seed)
        self.n_sentences += len(passage.sentences)
        self.n_words += len(passage.places[0])
        self.words.offer(passage, keys)
        self._offer_random_words(passage, keys)
        self._offer_sentences(passage, keys)

    def random_words(self) -> tuple[Vectors, Integers]:
        """Give vectors of random words, `(n, n_layers, dim)`, and their sentences, int64 `(n,)`."""
        _, sentences = np.unique(np.array(self._random.notes, np.uint64), return_inverse=True)
        return self._random.rows, sentences

    def sentence_similarities(self) -> Vectors:
        """Give the intra-sentence similarities of random sentences, `(n, n_layers)`."""
        return self._sentences.rows

    def _offer_random_words(self, passage: Passage, keys: Keys) -> None:
        sentence, place = passage.places
        of_sentence = keys[sentence]
        self._random.offer(
            np.full(len(sentence), _ONE_GROUP),
            joint_keys(of_sentence, place.astype(np.uint64) + np.uint64(1)),
            lambda chosen: passage.vectors[:, chosen].swapaxes(0, 1),
            lambda chosen: int(of_sentence[chosen]),
        )

    def _offer_sentences(self, passage: Passage, keys: Keys) -> None:
        # In a sentence of one word, that word is the mean: there is nothing to learn from it.
        longer = np.flatnonzero(passage.sizes > 1)
        starts = np.cumsum(passage.sizes) - passage.sizes

        def similarities(chosen: Integers) -> Vectors:
            numbers = longer[chosen]
            sizes = passage.sizes[numbers]
            of_chosen = np.repeat(np.arange(len(numbers)), sizes)
            within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            rows = starts[numbers][of_chosen] + within
            by_layer = [
                intra_sentence_similarities(layer[rows], of_chosen, len(numbers))
                for layer in passage.vectors
            ]
            return np.stack(by_layer, axis=1).astype(np.float32)

        groups = np.full(len(longer), _ONE_GROUP)
        self._sentences.offer(groups, keys[longer], similarities)


def measure_contextuality(
    passages: Iterable[Passage], n_layers: int, dim: int, settings: ContextualitySettings
) -> ContextualityReport:
    """Measure how contextual the vectors of a corpus are.

    Args:
        passages: The corpus, with vectors of all layers, as `Corpus.passages` gives them.
        n_layers: Layers of vectors.
        dim: Width of a vector.
        settings: How much is looked at.
    """
    samples = CorpusSamples(settings, n_layers, dim)
    interrupted = _read(passages, samples)
    words = samples.words.words()
    if not words:
        raise InputError(
            f"the corpus is too small: of its {samples.n_words:,} words in {samples.n_sentences:,} "
            f"sentences, none occurs in {settings.min_contexts} different sentences; give more "
            "text, or a smaller --min-contexts"
        )
    vectors, sentences = samples.random_words()
    similarities = samples.sentence_similarities()
    report = ContextualityReport(
        n_sentences=samples.n_sentences,
        n_words=samples.n_words,
        sampled_words=len(words),
        sampled_occurrences=sum(len(rows) for _, rows in words),
        sampled_sentences=len(similarities),
        random_words=len(vectors),
        interrupted=interrupted,
        notes=_shortfalls(settings, len(words), len(similarities), len(vectors)),
    )
    for name, rows in words:
        by_layer = rows.swapaxes(0, 1)
        found = [self_similarity(layer) for layer in by_layer]
        shares = [explained_variance(layer) for layer in by_layer]
        report.words.append(WordContextuality(name, len(rows), found, shares))
    for layer in range(n_layers):
        centred = [explained_variance(rows[:, layer], centred=True) for _, rows in words]
        report.layers.append(
            _measure_layer(
                layer,
                report.words,
                np.array([share for share in centred if share is not None]),
                similarities[:, layer].astype(np.float64),
                (vectors[:, layer], sentences),
                settings,
            )
        )
    report.words.sort(key=lambda word: (word.self_similarity[-1] or 0.0, word.word))
    return report


def _read(passages: Iterable[Passage], samples: CorpusSamples) -> bool:
    """Read a corpus; tells whether it was interrupted: what was drawn so far is a sample, too."""
    try:
        for passage in passages:
            samples.offer(passage)
    except KeyboardInterrupt:
        if not samples.n_sentences:
            raise
        return True
    return False


def _shortfalls(
    settings: ContextualitySettings, words: int, sentences: int, random_words: int
) -> list[str]:
    """Say which samples are smaller than was asked for."""
    found = (
        (words, settings.words, f"words occur in {settings.min_contexts} different sentences"),
        (sentences, settings.sampled_sentences, "different sentences have two words or more"),
        (random_words, settings.random_words, "words stand in different sentences or places"),
    )
    return [
        f"only {number:,} {what}: {wanted:,} were asked for, all of them were taken"
        for number, wanted, what in found
        if number < wanted
    ]


def _measure_layer(
    layer: int,
    words: list[WordContextuality],
    centred: Floats,
    sentences: Floats,
    random: tuple[Vectors, Integers],
    settings: ContextualitySettings,
) -> LayerContextuality:
    """Measure one layer.

    Args:
        layer: Its number.
        words: What was found of each word.
        centred: Share of the first principal component of each word that has variance, `(k,)`.
        sentences: Intra-sentence similarities, `(m,)`.
        random: Vectors `(n, dim)` of random words, and their sentences, int64 `(n,)`.
        settings: Of the bootstrap.
    """
    vectors, contexts = random
    cosine = mean_cosine(vectors, contexts)
    cosine_error = jackknife_error(
        lambda some: mean_cosine(vectors[some], contexts[some]), contexts
    )
    alike = _known([word.self_similarity[layer] for word in words])
    explained = _known([word.explained_variance[layer] for word in words])
    return LayerContextuality(
        layer=layer,
        self_similarity=_measure(alike, cosine, cosine_error, settings),
        intra_sentence_similarity=_measure(sentences, cosine, cosine_error, settings),
        explained_variance=_measure(
            explained,
            explained_variance(vectors),
            jackknife_error(lambda some: explained_variance(vectors[some]), contexts),
            settings,
        ),
        centred_explained_variance=_measure(
            centred,
            explained_variance(vectors, centred=True),
            jackknife_error(lambda some: explained_variance(vectors[some], centred=True), contexts),
            settings,
        ),
        mean_cosine=normal_estimate(cosine, cosine_error),
        partition_ratio=normal_estimate(
            partition_ratio(vectors),
            jackknife_error(lambda some: partition_ratio(vectors[some]), contexts),
            least=0.0,
        ),
        effective_dimension=normal_estimate(
            effective_dimension(vectors),
            jackknife_error(lambda some: effective_dimension(vectors[some]), contexts),
            least=0.0,
        ),
        mean_norm=mean_estimate(
            np.linalg.norm(vectors.astype(np.float64), axis=1), settings.resamples, settings.seed
        ),
    )


def _measure(
    values: Floats, baseline: float | None, error: float, settings: ContextualitySettings
) -> Measure:
    raw = mean_estimate(values, settings.resamples, settings.seed)
    draws = resampled_means(values, settings.resamples, settings.seed)
    return Measure(
        raw=raw,
        baseline=normal_estimate(baseline, error),
        corrected=difference_estimate(raw.value, draws, baseline, error, settings.seed),
    )


def _known(values: list[float | None]) -> Floats:
    return np.array([value for value in values if value is not None], np.float64)

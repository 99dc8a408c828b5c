"""How contextual vectors are: one pass over a corpus, then measures of samples of it.

Memory is bounded by the settings, whatever the size of the corpus: some occurrences of some words,
some sentences, some occurrences of any words. `sampling` says why the words are a uniform sample of
all that have enough contexts although nothing is known of them beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.analysis.contextual.report import (
    ContextualityReport,
    LayerContextuality,
    Measure,
    WordContextuality,
)
from elmo.analysis.corpus import Corpus, Window, require_corpus
from elmo.analysis.geometry import (
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
from elmo.analysis.inputs import divided, load, prepare, saved
from elmo.analysis.intervals import (
    bootstrapped_means,
    difference_estimate,
    estimate,
    jackknife_error,
    mean_estimate,
    normal_estimate,
)
from elmo.analysis.sampling import Keys, KeySample, joint_keys, text_keys
from elmo.analysis.settings import ContextualitySettings
from elmo.errors import InputError
from elmo.text.characters import ragged_positions

if TYPE_CHECKING:
    from elmo.analysis.inputs import Model, Text

_CANDIDATES = 50
"""Words that may wait for enough contexts, for each word that is wanted."""
_ONE_GROUP = np.uint64(0)


class WordSample:
    """Occurrences of a uniform sample of all words that have enough contexts.

    Only words with keys below a limit are followed. The limit falls as more words than wanted
    prove to have enough contexts; a word that is dropped never comes back, so that every word that
    remains in the end was followed from the beginning.

    Args:
        settings: Sizes of the sample.
        shape: Shape of the vectors of one occurrence, `(n_layers, dim)`.
    """

    def __init__(self, settings: ContextualitySettings, shape: tuple[int, int]) -> None:
        self._settings = settings
        self._sample = KeySample(settings.max_occurrences, shape)
        self._names: dict[int, str] = {}
        self._limit: int = 2**64

    def offer(self, window: Window, sentence_keys: Keys) -> None:
        """Sample the words of a window; `sentence_keys` are uint64 `(n_sentences,)`."""
        names, ids = window.numbered
        keys = text_keys(names, self._settings.seed)
        followed = np.array([key < self._limit for key in keys.tolist()], np.bool_)
        places = np.flatnonzero(followed[ids])
        words = keys[ids[places]]
        contexts = sentence_keys[window.positions[0][places]]
        self._sample.offer(
            words,
            joint_keys(words, contexts),
            lambda chosen: window.vectors[:, places[chosen]].swapaxes(0, 1),
        )
        numbers = np.flatnonzero(followed)
        self._names |= {int(keys[number]): names[number] for number in numbers.tolist()}
        self._drop()

    def _drop(self) -> None:
        """Stop following words if there are more than are wanted."""
        words, counts = self._sample.sizes()
        enough = words[counts >= self._settings.min_contexts]
        limit = self._limit
        if len(enough) > self._settings.sample_words:
            limit = int(enough[self._settings.sample_words])
        if len(words) > _CANDIDATES * self._settings.sample_words:
            limit = min(limit, int(words[_CANDIDATES * self._settings.sample_words]))
        if limit < self._limit:
            self._limit = limit
            self._sample.keep(self._sample.groups < np.uint64(limit))
            self._names = {key: name for key, name in self._names.items() if key < limit}

    def words(self) -> list[tuple[str, Vectors]]:
        """Return the words with enough contexts and their vectors `(n, n_layers, dim)`."""
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
    """The samples of a corpus that is read once.

    Args:
        settings: Their sizes.
        n_layers: Layers of vectors.
        dim: Width of a vector.
    """

    def __init__(self, settings: ContextualitySettings, n_layers: int, dim: int) -> None:
        self._settings = settings
        self.words = WordSample(settings, (n_layers, dim))
        self._random = KeySample(settings.baseline_words, (n_layers, dim))
        self._sentences = KeySample(settings.sample_sentences, (n_layers,))
        self.n_sentences = 0
        self.n_words = 0

    def offer(self, window: Window) -> None:
        """Sample from some more sentences."""
        texts = ("\0".join(sentence) for sentence in window.sentences)
        keys = text_keys(texts, self._settings.seed)
        self.n_sentences += len(window.sentences)
        self.n_words += len(window.positions[0])
        self.words.offer(window, keys)
        self._offer_random_words(window, keys)
        self._offer_sentences(window, keys)

    def random_words(self) -> tuple[Vectors, Integers]:
        """Return vectors of random words `(n, n_layers, dim)` and their sentences, int64 `(n,)`."""
        _, sentences = np.unique(np.array(self._random.notes, np.uint64), return_inverse=True)
        return self._random.rows, sentences

    def sentence_similarities(self) -> Vectors:
        """Return the intra-sentence similarities of random sentences, `(n, n_layers)`."""
        return self._sentences.rows

    def _offer_random_words(self, window: Window, keys: Keys) -> None:
        sentence, place = window.positions
        of_sentence = keys[sentence]
        self._random.offer(
            np.full(len(sentence), _ONE_GROUP),
            joint_keys(of_sentence, place.astype(np.uint64) + np.uint64(1)),
            lambda chosen: window.vectors[:, chosen].swapaxes(0, 1),
            lambda chosen: int(of_sentence[chosen]),
        )

    def _offer_sentences(self, window: Window, keys: Keys) -> None:
        # In a sentence of one word, that word is the mean: its similarity is always 1.
        longer = np.flatnonzero(window.sizes > 1)
        starts = np.cumsum(window.sizes) - window.sizes

        def similarities(chosen: Integers) -> Vectors:
            numbers = longer[chosen]
            of_chosen, within = ragged_positions(window.sizes[numbers])
            rows = starts[numbers][of_chosen] + within
            by_layer = [intra_sentence_similarities(v[rows], of_chosen) for v in window.vectors]
            return np.stack(by_layer, axis=1).astype(np.float32)

        groups = np.full(len(longer), _ONE_GROUP)
        self._sentences.offer(groups, keys[longer], similarities)


def contextuality(
    *,
    model: Model = None,
    corpus: Text = (),
    settings: ContextualitySettings | None = None,
    show_progress: bool = False,
    **fields: Any,
) -> ContextualityReport:
    """Measure how contextual the vectors of a corpus are, as `elmo analyze contextuality` does.

    Args:
        model: A model, or its name or folder.
        corpus: Text files.
        settings: How much is sampled.
        show_progress: Whether to show progress bars.
        fields: Fields of `ContextualitySettings` and `CorpusSettings`, instead of these.
    """
    settings, text = divided(ContextualitySettings, settings, corpus, fields)
    prepare(settings, ContextualityReport, ContextualityReport.stem)
    require_corpus(text)
    elmo, facts = load(model)
    read = Corpus(text, elmo, show_progress)
    report = measure_windows(read.windows(elmo), elmo.n_layers, elmo.dim, settings)
    return saved(report, settings, **facts, **read.facts)


def measure_windows(
    windows: Iterable[Window],
    n_layers: int,
    dim: int,
    settings: ContextualitySettings,
) -> ContextualityReport:
    """Measure how contextual vectors are that were computed window by window.

    Args:
        windows: The corpus, with vectors of all layers, as `Corpus.windows` yields them.
        n_layers: Layers of vectors.
        dim: Width of a vector.
        settings: How much is sampled.
    """
    samples = CorpusSamples(settings, n_layers, dim)
    interrupted = _read(windows, samples)
    words = samples.words.words()
    if not words:
        raise InputError(
            f"the corpus is too small: of its {samples.n_words:,} words in {samples.n_sentences:,} "
            f"sentences, none occurs in {settings.min_contexts} different sentences; give more "
            "text, or a smaller --min-contexts"
        )
    random, sentences = samples.random_words()
    similarities = samples.sentence_similarities().astype(np.float64)
    found = [_measure_word(name, rows) for name, rows in words]
    return ContextualityReport(
        n_sentences=samples.n_sentences,
        n_words=samples.n_words,
        sampled_words=len(words),
        sampled_occurrences=sum(len(rows) for _, rows in words),
        sampled_sentences=len(similarities),
        baseline_words=len(random),
        interrupted=interrupted,
        notes=_shortfalls(settings, len(words), len(similarities), len(random)),
        layers=[
            _measure_layer(
                layer,
                found,
                [explained_variance(rows[:, layer], centered=True) for _, rows in words],
                similarities[:, layer],
                (random[:, layer], sentences),
                settings,
            )
            for layer in range(n_layers)
        ],
        words=sorted(found, key=lambda word: (word.self_similarity[-1] or 0.0, word.word)),
    )


def _read(windows: Iterable[Window], samples: CorpusSamples) -> bool:
    """Read a corpus; return whether it was interrupted, for what was read is a sample, too."""
    try:
        for window in windows:
            samples.offer(window)
    except KeyboardInterrupt:
        if not samples.n_sentences:
            raise
        return True
    return False


def _shortfalls(
    settings: ContextualitySettings, words: int, sentences: int, random_words: int
) -> list[str]:
    """Return a note for each sample that is smaller than requested."""
    found = (
        (words, settings.sample_words, f"words occur in {settings.min_contexts} sentences"),
        (sentences, settings.sample_sentences, "distinct sentences have two words or more"),
        (random_words, settings.baseline_words, "words are in distinct sentences or positions"),
    )
    return [
        f"only {number:,} {what}: {wanted:,} were requested, all of them were taken"
        for number, wanted, what in found
        if number < wanted
    ]


def _measure_word(name: str, rows: Vectors) -> WordContextuality:
    """Measure a word by its vectors `(n, n_layers, dim)`."""
    layers = rows.swapaxes(0, 1)
    similarities = [self_similarity(layer) for layer in layers]
    return WordContextuality(name, len(rows), similarities, list(map(explained_variance, layers)))


def _measure_layer(
    layer: int,
    words: list[WordContextuality],
    centered: list[float | None],
    sentences: Floats,
    random: tuple[Vectors, Integers],
    settings: ContextualitySettings,
) -> LayerContextuality:
    """Measure one layer.

    Args:
        layer: Its number.
        words: The measures of each word.
        centered: Share of the first principal component of each word.
        sentences: Intra-sentence similarities, `(m,)`.
        random: Vectors `(n, dim)` of random words, and their sentences, int64 `(n,)`.
        settings: Of the bootstrap.
    """
    vectors, contexts = random

    def of_random(statistic: Callable[[Vectors, Integers], float | None]) -> _Baseline:
        error = jackknife_error(lambda some: statistic(vectors[some], contexts[some]), contexts)
        return statistic(vectors, contexts), error

    cosine = of_random(mean_cosine)
    share = of_random(lambda rows, _: explained_variance(rows))
    centered_share = of_random(lambda rows, _: explained_variance(rows, centered=True))
    ratio = of_random(lambda rows, _: partition_ratio(rows))
    dimension = of_random(lambda rows, _: effective_dimension(rows))
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    return LayerContextuality(
        layer=layer,
        self_similarity=_measure([w.self_similarity[layer] for w in words], cosine, settings),
        intra_sentence_similarity=_measure(sentences.tolist(), cosine, settings),
        explained_variance=_measure([w.explained_variance[layer] for w in words], share, settings),
        centered_explained_variance=_measure(centered, centered_share, settings),
        mean_cosine=normal_estimate(*cosine),
        partition_ratio=normal_estimate(*ratio, lowest=0.0),
        effective_dimension=normal_estimate(*dimension, lowest=0.0),
        mean_norm=mean_estimate(norms, settings.resamples, settings.seed),
    )


_Baseline = tuple[float | None, float]
"""A figure of random words and its standard error."""


def _measure(
    values: list[float | None], baseline: _Baseline, settings: ContextualitySettings
) -> Measure:
    """Average the values that are defined, and correct the mean by a baseline."""
    known = np.array([value for value in values if value is not None], np.float64)
    mean = float(known.mean()) if len(known) else None
    draws = bootstrapped_means(known, settings.resamples, settings.seed)
    return Measure(
        raw=estimate(mean, draws),
        baseline=normal_estimate(*baseline),
        corrected=difference_estimate(mean, draws, *baseline, settings.seed),
    )

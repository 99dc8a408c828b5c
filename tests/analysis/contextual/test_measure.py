"""How contextual vectors are: against a direct computation, on extremes, in real runs."""

import dataclasses
import json
import math
from collections import defaultdict

import numpy as np
import pytest

from elmo.analysis.contextual.measure import measure_windows
from elmo.analysis.corpus import Window
from elmo.analysis.settings import ContextualitySettings
from elmo.errors import ConfigError, InputError
from elmo.text.made_up import make_sentences

FEW = ContextualitySettings(
    sample_words=10_000, min_contexts=3, max_occurrences=1000, baseline_words=10_000,
    sample_sentences=10_000, resamples=50,
)  # fmt: skip


@pytest.fixture(scope="module")
def sentences():
    """Zipf's words in 120 sentences, some of which come again."""
    made = [words[:12] for words in make_sentences(120, seed=1)]
    return made + made[:10]


def embedded(model, sentences, size):
    """Embed sentences in windows of a size."""
    for start in range(0, len(sentences), size):
        some = sentences[start : start + size]
        yield Window(some, np.concatenate(model.encode_tokens(some), axis=1))


def cosines(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    products = unit @ unit.T
    return products[np.triu_indices(len(rows), 1)]


def numbers(report):
    """All figures of a report, however deep."""

    def walk(value):
        if isinstance(value, dict):
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)
        elif isinstance(value, float):
            yield value

    return list(walk(dataclasses.asdict(report)))


def test_every_measure_is_that_of_a_direct_computation(tiny_elmo, sentences):
    report = measure_windows(
        embedded(tiny_elmo, sentences, 25), tiny_elmo.n_layers, tiny_elmo.dim, FEW
    )
    different = [list(words) for words in dict.fromkeys(map(tuple, sentences))]
    vectors = [v.astype(np.float64) for v in tiny_elmo.encode_tokens(different)]
    occurrences = defaultdict(dict)
    for number, words in enumerate(different):
        for place, word in enumerate(words):
            occurrences[word].setdefault(number, vectors[number][:, place])
    kept = {w: np.stack(list(o.values())) for w, o in occurrences.items() if len(o) >= 3}
    assert {word.word for word in report.words} == set(kept)
    assert report.sampled_words == len(kept)
    assert report.n_sentences == len(sentences)
    longer = [v for v in vectors if v.shape[1] > 1]
    contexts = np.repeat(np.arange(len(vectors)), [v.shape[1] for v in vectors])
    everything = np.concatenate(vectors, axis=1)
    for k, layer in enumerate(report.layers):
        alike = np.mean([cosines(rows[:, k]).mean() for rows in kept.values()])
        assert layer.self_similarity.raw.value == pytest.approx(alike, abs=1e-5)
        within = []
        for v in longer:
            mean = v[k].mean(axis=0)
            products = v[k] @ mean / (np.linalg.norm(v[k], axis=1) * np.linalg.norm(mean))
            within.append(products.mean())
        intra = layer.intra_sentence_similarity
        assert intra.raw.value == pytest.approx(np.mean(within), abs=1e-5)
        values = [np.linalg.svd(rows[:, k], compute_uv=False) ** 2 for rows in kept.values()]
        shares = np.mean([v[0] / v.sum() for v in values])
        assert layer.explained_variance.raw.value == pytest.approx(shares, abs=1e-5)
        unit = everything[k] / np.linalg.norm(everything[k], axis=1, keepdims=True)
        other = contexts[:, None] != contexts[None, :]
        base = (unit @ unit.T)[other].mean()
        assert layer.mean_cosine.value == pytest.approx(base, abs=1e-5)
        assert layer.self_similarity.corrected.value == pytest.approx(alike - base, abs=1e-5)
        assert intra.corrected.value == pytest.approx(np.mean(within) - base, abs=1e-5)
        all_values = np.linalg.svd(everything[k], compute_uv=False) ** 2
        share = all_values[0] / all_values.sum()
        measured = layer.explained_variance
        assert measured.baseline.value == pytest.approx(share, abs=1e-5)
        assert measured.corrected.value == pytest.approx(shares - share, abs=1e-5)


def test_layer_zero_does_not_depend_on_the_context(tiny_elmo, sentences):
    report = measure_windows(
        embedded(tiny_elmo, sentences, 25), tiny_elmo.n_layers, tiny_elmo.dim, FEW
    )
    first, top = report.layers[0], report.layers[-1]
    assert first.self_similarity.raw.value == pytest.approx(1.0)
    assert first.explained_variance.raw.value == pytest.approx(1.0)
    assert first.centered_explained_variance.raw.value is None  # nothing varies
    assert top.self_similarity.raw.value < 0.999


def test_samples_do_not_depend_on_the_order_of_the_corpus_or_on_windows(tiny_elmo, sentences):
    settings = dataclasses.replace(
        FEW, sample_words=20, max_occurrences=6, baseline_words=50, sample_sentences=30
    )
    reports = [
        measure_windows(embedded(tiny_elmo, s, size), tiny_elmo.n_layers, 32, settings)
        for s, size in ((sentences, 10), (sentences[::-1], 37))
    ]
    assert reports[0].sampled_words == 20
    assert [w.word for w in reports[0].words] == [w.word for w in reports[1].words]
    # Which occurrence of a word in a sentence counts is its first; sums differ by rounding only.
    np.testing.assert_allclose(numbers(reports[0]), numbers(reports[1]), atol=1e-5)


def test_another_seed_draws_other_words(tiny_elmo, sentences):
    drawn = []
    for seed in (0, 1):
        settings = dataclasses.replace(FEW, sample_words=10, seed=seed)
        passages = embedded(tiny_elmo, sentences, 50)
        report = measure_windows(passages, tiny_elmo.n_layers, 32, settings)
        drawn.append({word.word for word in report.words})
    assert drawn[0] != drawn[1]


def test_words_are_drawn_uniformly_from_those_with_enough_contexts():
    """Frequent words are no likelier: 12 words, half of them in many more sentences."""
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(12)]
    sentences = [[w, f"x{n}"] for k, w in enumerate(words) for n in range(3 if k < 6 else 30)]
    rng.shuffle(sentences)
    counts = dict.fromkeys(words, 0)
    vectors = rng.standard_normal((1, 2 * len(sentences), 4)).astype(np.float32)
    for seed in range(150):
        settings = dataclasses.replace(
            FEW, sample_words=4, resamples=1, seed=seed, baseline_words=10
        )
        report = measure_windows([Window(sentences, vectors)], 1, 4, settings)
        for word in report.words:
            counts[word.word] = counts.get(word.word, 0) + 1
    rare = sum(counts[word] for word in words[:6])
    common = sum(counts[word] for word in words[6:])
    rest = sum(counts.values()) - rare - common  # x0, x1, ... have enough contexts, too
    assert rare + common + rest == 4 * 150
    assert abs(rare - common) < 0.35 * (rare + common)


def test_made_up_vectors_give_the_values_that_they_must(sentences):
    n = sum(map(len, sentences))
    rng = np.random.default_rng(0)
    constant = np.ones((n, 16), np.float32)
    gaussian = rng.standard_normal((n, 16)).astype(np.float32)
    dominated = gaussian.copy()
    dominated[:, 0] += 50
    passage = Window(sentences, np.stack([constant, gaussian, dominated]))
    report = measure_windows([passage], 3, 16, FEW)
    same, free, one = report.layers
    assert same.mean_cosine.value == pytest.approx(1.0)
    assert same.self_similarity.corrected.value == pytest.approx(0.0, abs=1e-6)
    assert same.effective_dimension.value == 0.0
    assert abs(free.mean_cosine.value) < 0.01
    assert abs(free.self_similarity.raw.value) < 0.05
    assert free.effective_dimension.value > 14
    assert one.mean_cosine.value > 0.98
    assert one.explained_variance.raw.value > 0.98
    assert abs(one.self_similarity.corrected.value) < 0.02
    assert all(map(math.isfinite, numbers(report)))
    json.loads(report.json())  # which refuses NaN


def test_intervals_hold_their_values(tiny_elmo, sentences):
    settings = dataclasses.replace(FEW, resamples=300)
    report = measure_windows(embedded(tiny_elmo, sentences, 60), 3, 32, settings)
    for layer in report.layers:
        for measure in (layer.self_similarity, layer.intra_sentence_similarity):
            for figure in (measure.raw, measure.baseline, measure.corrected):
                assert figure.low - 1e-9 <= figure.value <= figure.high + 1e-9


def test_a_corpus_that_is_too_small_is_reported(tiny_elmo):
    passages = embedded(tiny_elmo, [["a", "b"], ["c", "d"]], 2)
    with pytest.raises(InputError, match="none occurs in 3 different sentences"):
        measure_windows(passages, 3, 32, FEW)


def test_an_interruption_leaves_a_report_on_what_was_read(tiny_elmo, sentences):
    def interrupted():
        yield from embedded(tiny_elmo, sentences[:80], 40)
        raise KeyboardInterrupt

    report = measure_windows(interrupted(), 3, 32, FEW)
    whole = measure_windows(embedded(tiny_elmo, sentences[:80], 40), 3, 32, FEW)
    assert report.interrupted
    assert report.n_sentences == 80
    assert report.layers == whole.layers
    with pytest.raises(KeyboardInterrupt):
        measure_windows((_ for _ in _interrupt()), 3, 32, FEW)


def _interrupt():
    raise KeyboardInterrupt
    yield


def test_samples_that_are_smaller_than_asked_are_reported(tiny_elmo, sentences):
    report = measure_windows(embedded(tiny_elmo, sentences, 60), 3, 32, FEW)
    assert len(report.notes) == 3
    assert "10,000 were requested" in report.notes[0]


def test_the_text_names_every_layer_and_the_published_figures(tiny_elmo, sentences):
    report = measure_windows(embedded(tiny_elmo, sentences, 60), 3, 32, FEW)
    for text in (report.text(), report.markdown()):
        assert "0.506" in text  # 0.642 - 0.136, the top layer of the original
        assert text.count("layer 2") >= 2
        assert "nan" not in text.lower().split()
        assert report.words[0].word in text


def test_the_same_report_makes_the_same_pictures(tmp_path, tiny_elmo, sentences):
    pytest.importorskip("matplotlib")
    report = measure_windows(embedded(tiny_elmo, sentences, 60), 3, 32, FEW)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        report.save(tmp_path / name)
    for ending in (".png", ".svg"):
        one, two = (
            (tmp_path / name / f"contextuality{ending}").read_bytes() for name in ("one", "two")
        )
        assert one == two
        assert len(one) > 10_000


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="min_contexts is 1"):
        ContextualitySettings(min_contexts=1)
    with pytest.raises(ConfigError, match="max_occurrences is 3, fewer than the 5"):
        ContextualitySettings(max_occurrences=3)

"""The path of the data on a GPU, run on CPU tensors: the results of the path on a CPU."""

import copy
import gc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo.embed.pipeline
from elmo import ELMo, ElmoConfig
from elmo.backends.base import limits_by_memory
from elmo.backends.gpu import word_table
from elmo.backends.gpu.model import GPUBackend
from elmo.embed.pipeline import Pipeline, deliver_tensors, select_layers
from elmo.errors import ConfigError, ElmoError, InputError
from elmo.runtime.devices import is_out_of_memory
from elmo.text.sentences import collector_paused, listed_sentences
from strategies import batches, seeded_bilm

CONFIG = ElmoConfig.preset("tiny", dim=8, projection_dim=4, filters=((1, 3), (3, 5)))
SENTENCES = [["The", "cat", "sat", "."], ["No"], ["Öl", "河", "x" * 60, "The"], [], ["a"] * 7]


@pytest.fixture(scope="module")
def plain():
    return seeded_bilm(CONFIG)


@pytest.fixture(scope="module")
def on_cpu(plain):
    return ELMo(plain)


def gpu_pipeline(plain, capacity=100):
    """Build what a GPU gets: a fused model, and words that stay on its device."""
    megabytes = capacity * 4 * CONFIG.projection_dim / 2**20
    return Pipeline(GPUBackend(copy.deepcopy(plain)), word_cache_mb=megabytes)


def embed(pipeline, sentences, layers="all", **settings):
    selection = select_layers(layers, pipeline.config)
    results = {}
    for batch, parts in deliver_tensors(pipeline.batches(sentences, selection, **settings)):
        results |= zip(batch.numbers, parts, strict=True)
    assert sorted(results) == list(range(len(sentences)))
    return [results[number].numpy() for number in range(len(sentences))]


def assert_close(found, expected):
    for vectors, others in zip(found, expected, strict=True):
        assert vectors.shape == others.shape
        np.testing.assert_allclose(vectors, others, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")
@pytest.mark.parametrize("state", ["zero", "warm"])
@settings(max_examples=15)
@given(
    batch=batches(max_size=6),
    in_windows=st.booleans(),
    batch_size=st.one_of(st.none(), st.integers(1, 3)),
    batch_tokens=st.one_of(st.none(), st.integers(1, 9)),
    capacity=st.integers(0, 8),
)
def test_the_path_of_a_gpu_gives_the_same_vectors(
    plain, on_cpu, state, batch, in_windows, batch_size, batch_tokens, capacity
):
    expected = on_cpu.encode_tokens(batch, state=state)
    limits = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    pipeline = gpu_pipeline(plain, capacity)
    pipeline.words._products_of_a_word = 1 << 40 if in_windows else 0
    assert_close(embed(pipeline, batch, policy=state, **limits), expected)


@pytest.mark.parametrize("layers", ["all", "top", "mix", 0, 1])
def test_every_choice_of_layers_is_the_same(plain, on_cpu, layers):
    with pytest.warns(match="words longer"):
        expected = ELMo(plain).encode_tokens(SENTENCES, layers=layers)
    assert_close(embed(gpu_pipeline(plain), SENTENCES, layers), expected)


@pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")
def test_carried_state_is_the_same(plain):
    pipeline, elmo = gpu_pipeline(plain), ELMo(plain)
    for call in (SENTENCES, SENTENCES[:2], SENTENCES[::-1]):
        expected = elmo.encode_tokens(call, state="carry", batch_size=3)
        assert_close(embed(pipeline, call, policy="carry", batch_size=3), expected)
    torch.testing.assert_close(
        pipeline.carried.state.memory, elmo.carried_state.memory, rtol=0, atol=1e-5
    )


def test_a_call_is_read_in_windows_that_double_and_each_is_computed_before_the_next(
    plain, monkeypatch
):
    pipeline = gpu_pipeline(plain)
    steps = []
    read_ahead, contextualize = pipeline.words.read_ahead, pipeline.backend.contextualize

    def watched_reading(sentences, first):
        steps.append((first, len(sentences)))
        return read_ahead(sentences, first)

    def watched_computing(*arguments):
        steps.append("computed")
        return contextualize(*arguments)

    monkeypatch.setattr(word_table, "_GPU_BOUND_WEIGHTS", 0)
    monkeypatch.setattr(pipeline.words, "read_ahead", watched_reading)
    monkeypatch.setattr(pipeline.backend, "contextualize", watched_computing)
    pipeline.start("zero")
    steps.clear()
    embed(pipeline, [["a"]] * 9, batch_size=1)
    windows = [(0, 1), (1, 2), (3, 4), (7, 2)]
    assert steps == [step for window in windows for step in (window, *["computed"] * window[1])]
    steps.clear()
    monkeypatch.setattr(word_table, "_GPU_BOUND_WEIGHTS", 10**9)
    embed(pipeline, [["a"]] * 9, batch_size=1)
    assert steps == [(0, 9), *["computed"] * 9]


def test_what_is_no_word_is_named_by_its_place_in_the_call(plain, monkeypatch):
    monkeypatch.setattr(word_table, "_GPU_BOUND_WEIGHTS", 0)
    with pytest.raises(InputError, match="sentence 5, word 1 is 7"):
        embed(gpu_pipeline(plain), [["a"]] * 5 + [["b", 7]], batch_size=1)
    with pytest.raises(InputError, match="sentence 0, word 1 is 7"):
        embed(gpu_pipeline(plain), [["b", 7]])


def test_cut_words_are_counted_wherever_they_stand(plain):
    pipeline = gpu_pipeline(plain)
    embed(pipeline, [["x" * 60, "a"], ["x" * 60], ["y" * 99]])
    assert pipeline.n_cut_words == 3
    embed(pipeline, [["x" * 60, "a"]])
    assert pipeline.n_cut_words == 4


def test_words_of_a_batch_that_is_run_again_are_counted_once(plain, monkeypatch):
    pipeline = gpu_pipeline(plain)
    contextualize = pipeline.backend.contextualize

    def small(vectors, tokens, *others):
        if len(tokens) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return contextualize(vectors, tokens, *others)

    monkeypatch.setattr(pipeline.backend, "contextualize", small)
    embed(pipeline, [["x" * 60, "a"], ["x" * 60], ["y" * 99]])
    assert pipeline.n_cut_words == 3


# --- too little memory ----------------------------------------------------------------------------


class SmallGPU:
    """Stands in for `Pipeline._run` where memory holds so many words and no more."""

    def __init__(self, pipeline, most_words):
        self._run = pipeline._run
        self.most_words = most_words
        self.tried = []

    def __call__(self, window, places, sizes, start, depth):
        words = sum(sizes)
        self.tried.append(words)
        if words > self.most_words:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self._run(window, places, sizes, start, depth)


@pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")
@pytest.mark.parametrize("state", ["zero", "carry"])
@pytest.mark.parametrize("most_words", [9, 12, 20])
def test_a_batch_that_does_not_fit_is_halved(plain, monkeypatch, state, most_words):
    pipeline, elmo = gpu_pipeline(plain), ELMo(plain)
    monkeypatch.setattr(pipeline, "_run", SmallGPU(pipeline, most_words))
    for _ in range(2):
        expected = elmo.encode_tokens(SENTENCES, state=state)
        assert_close(embed(pipeline, SENTENCES, policy=state), expected)


def test_what_did_not_fit_once_is_not_tried_again(plain, monkeypatch):
    pipeline = gpu_pipeline(plain)
    small = SmallGPU(pipeline, 8)
    monkeypatch.setattr(pipeline, "_run", small)
    sentences = [["a"] * 4] * 8
    embed(pipeline, sentences)
    assert small.tried[:3] == [32, 16, 8]
    small.tried.clear()
    embed(pipeline, sentences)
    assert small.tried == [8] * 4


def test_a_sentence_that_does_not_fit_alone_is_named(plain, monkeypatch):
    pipeline = gpu_pipeline(plain)
    monkeypatch.setattr(pipeline, "_run", SmallGPU(pipeline, 3))
    with pytest.raises(
        ElmoError, match=r"too little memory for a sentence of 5 words.*device='cpu'"
    ):
        embed(pipeline, [["a"] * 5, ["b"]])


def test_other_errors_are_not_taken_for_too_little_memory(plain, monkeypatch):
    pipeline = gpu_pipeline(plain)

    def broken(*arguments):
        raise RuntimeError("something else")

    monkeypatch.setattr(pipeline, "_run", broken)
    with pytest.raises(RuntimeError, match="something else"):
        embed(pipeline, SENTENCES)
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))  # of pinned memory
    assert not is_out_of_memory(RuntimeError("CUDA error: unspecified launch failure"))


def test_batches_of_a_gpu_fit_its_memory():
    config = CONFIG.replace(dim=4096)
    found = [limits_by_memory(config, int(gb * 2**30)) for gb in (0.001, 1, 16, 1000)]
    limits = [(limit.rows, limit.tokens) for limit in found]
    assert limits == sorted(limits)
    assert limits[0][0] == 16
    assert limits[-1] == (8192, 32 * 8192)


# --- sentences in, numbers out --------------------------------------------------------------------


def test_the_collector_is_paused_only_while_results_are_cut():
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize("container", [list, tuple, iter])
@pytest.mark.parametrize("inner", [list, tuple, iter])
def test_sentences_are_listed_from_any_container(container, inner):
    found = listed_sentences(container([inner(sentence) for sentence in SENTENCES]))
    assert found == SENTENCES
    assert all(type(sentence) is list for sentence in found)


@pytest.mark.parametrize("bad", [["a", 1], ["a", None], ["a", ["b"]], ["a", b"b"]])
def test_what_is_no_word_is_named_with_its_place(bad):
    with pytest.raises(InputError, match=r"sentence 1, word 1 is .* expected a string"):
        listed_sentences([["x"], bad])
    with pytest.raises(InputError, match="sentence 0 is 'text', expected a list of words"):
        listed_sentences(["text"])


@pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")
@pytest.mark.parametrize("convert_to_tensor", [False, True])
def test_half_as_wide_numbers_are_the_same_rounded(on_cpu, convert_to_tensor):
    settings = {"convert_to_tensor": convert_to_tensor}
    exact = on_cpu.encode_tokens(SENTENCES, **settings)
    for half, vectors in zip(
        on_cpu.encode_tokens(SENTENCES, dtype="float16", **settings), exact, strict=True
    ):
        expected = np.asarray(vectors).astype(np.float16)
        assert np.asarray(half).dtype == np.float16
        assert np.array_equal(np.asarray(half), expected)


def test_other_numbers_are_refused(on_cpu):
    with pytest.raises(ConfigError, match="dtype is 'float8'"):
        on_cpu.encode_tokens(SENTENCES, dtype="float8")


def test_windows_of_a_stream_have_bounded_vectors(plain, monkeypatch):
    pipeline = gpu_pipeline(plain)
    assert pipeline.window_tokens(100) == 400
    assert pipeline.window_tokens(None) == 4 * pipeline.batch_tokens(None)
    monkeypatch.setattr(elmo.embed.pipeline, "_WINDOW_BYTES", 1)
    assert pipeline.window_tokens(None) == 1024
    assert pipeline.window_tokens(10_000) == 40_000

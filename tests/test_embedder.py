"""`ELMo`: what a vector may depend on, the three state policies, and every door in and out."""

import copy
import dataclasses
import inspect
import itertools
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import (
    ELMo,
    ElmoConfig,
    ElmoError,
    ElmoLayer,
    ElmoWarning,
    LanguageModelScorer,
    State,
    TokenFile,
    batch_to_ids,
)
from elmo.backends.cpu.products import runs_natively
from elmo.embed.pipeline import burn_in_sentences
from elmo.errors import ConfigError, InputError, WeightsError
from elmo.model.bilm import zero_state
from elmo.text.characters import word_ids
from elmo.weights.token_file import write_token_file
from strategies import VOCABULARY, batches, plain_batches, rows_are_exact, seeded_bilm

pytestmark = pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")

SENTENCES = [["The", "cat", "sat", "."], ["No"], ["Öl", "河", "🤗", "The"], [], ["a"] * 7]

EVEN = ElmoConfig.preset("tiny", dim=32, filters=((1, 16), (2, 16), (3, 32)))
ODD = ElmoConfig.preset("tiny", dim=7, projection_dim=3, filters=((1, 3), (3, 4)))


@pytest.fixture(scope="module")
def models():
    """Plain models by name: widths that are multiples of 16, and odd ones."""
    named = {"even": EVEN, "odd": ODD, "even-gru": EVEN.replace(cell="gru")}
    return {name: seeded_bilm(config) for name, config in named.items()}


@pytest.fixture(scope="module")
def elmos(models):
    return {name: ELMo(model) for name, model in models.items()}


def assert_same(name, found, expected):
    """Compare vectors: bit for bit where rows of products are blind to their neighbors."""
    assert len(found) == len(expected)
    for vectors, others in zip(found, expected, strict=True):
        assert vectors.shape == others.shape
        if name.startswith("even") and rows_are_exact():
            assert np.array_equal(vectors, others)
        else:
            np.testing.assert_allclose(vectors, others, rtol=0, atol=1e-5)


def one_by_one(elmo, sentences, **settings):
    return [elmo.encode_tokens([sentence], **settings)[0] for sentence in sentences]


every_model = pytest.mark.parametrize("name", ["even", "odd", "even-gru"])
both_models = pytest.mark.parametrize("name", ["even", "odd"])

# --- what a vector may not depend on --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the text looks raw")
@every_model
@settings(max_examples=15)
@given(
    batch=batches(max_size=8),
    batch_size=st.one_of(st.none(), st.integers(1, 4)),
    batch_tokens=st.one_of(st.none(), st.integers(1, 12)),
)
def test_the_size_of_a_batch_does_not_change_vectors(elmos, name, batch, batch_size, batch_tokens):
    found = elmos[name].encode_tokens(batch, batch_size=batch_size, batch_tokens=batch_tokens)
    assert_same(name, found, one_by_one(elmos[name], batch))


@both_models
@settings(max_examples=12)
@given(batch=batches(min_size=1, max_size=6), data=st.data())
def test_the_order_of_sentences_does_not_change_vectors(elmos, name, batch, data):
    order = data.draw(st.permutations(range(len(batch))))
    expected = elmos[name].encode_tokens(batch)
    found = elmos[name].encode_tokens([batch[number] for number in order])
    assert_same(name, found, [expected[number] for number in order])


@both_models
@settings(max_examples=12)
@given(batch=batches(max_size=3), before=batches(max_size=3), after=batches(max_size=3))
def test_neighbors_do_not_change_vectors(elmos, name, batch, before, after):
    found = elmos[name].encode_tokens(before + batch + after)
    kept = found[len(before) : len(before) + len(batch)]
    assert_same(name, kept, elmos[name].encode_tokens(batch))


@both_models
def test_many_neighbors_do_not_change_vectors(elmos, name):
    # More rows than any kernel's block, and sentences that end at every step.
    crowd = [[f"w{n % 7}", *["x"] * (n % 11)] for n in range(150)]
    found = elmos[name].encode_tokens(crowd)
    assert_same(name, found[:20], one_by_one(elmos[name], crowd[:20]))


@pytest.mark.filterwarnings("ignore:the text looks raw")
@both_models
@settings(max_examples=15)
@given(calls=st.lists(batches(max_size=3), max_size=4))
def test_what_is_remembered_of_words_does_not_change_vectors(models, elmos, name, calls):
    forgetful = ELMo(models[name], word_cache_mb=0)
    narrow = ELMo(models[name], word_cache_mb=3 * 4 * models[name].config.projection_dim / 2**20)
    for batch in calls:
        expected = elmos[name].encode_tokens(batch)
        assert_same(name, forgetful.encode_tokens(batch), expected)
        assert_same(name, narrow.encode_tokens(batch), expected)


@both_models
def test_a_token_file_does_not_change_vectors(tmp_path, models, elmos, name):
    elmo = elmos[name]
    path = tmp_path / "tokens.h5"
    words = ["The", "cat", "Öl", "never used"]
    write_token_file(path, words, [elmo.word_vectors(words)], elmo.fingerprint)
    with_file = ELMo(models[name], token_file=TokenFile(path))
    assert_same(name, with_file.encode_tokens(SENTENCES), elmo.encode_tokens(SENTENCES))


@pytest.mark.parametrize(
    "container",
    [
        lambda batch: tuple(tuple(sentence) for sentence in batch),
        lambda batch: (iter(sentence) for sentence in batch),
        lambda batch: [np.array(sentence, dtype=str) for sentence in batch],
        lambda batch: [np.array(sentence, dtype=object) for sentence in batch],
        lambda batch: dict.fromkeys(map(tuple, batch)).keys(),
    ],
)
def test_the_kind_of_container_does_not_change_vectors(elmos, container):
    expected = elmos["even"].encode_tokens(SENTENCES)
    assert_same("even", elmos["even"].encode_tokens(container(SENTENCES)), expected)


def test_a_table_of_words_is_a_batch(elmos):
    table = np.array([["a", "b"], ["c", "d"]])
    expected = elmos["even"].encode_tokens([["a", "b"], ["c", "d"]])
    assert_same("even", elmos["even"].encode_tokens(table), expected)


@torch.no_grad()
def test_a_long_sentence_is_read_to_its_end():
    model = seeded_bilm(EVEN.replace(n_layers=1))
    words = [f"w{n % 50}" for n in range(3000)]
    (found,) = ELMo(model).encode_tokens([words])
    expected = model.run(batch_to_ids([words])).layers[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_results_own_their_memory(elmos):
    # Keeping the vectors of one sentence must not keep those of its whole batch alive.
    for vectors in elmos["even"].encode_tokens(SENTENCES, convert_to_tensor=True):
        assert vectors.untyped_storage().nbytes() == vectors.nbytes
        assert vectors.is_contiguous()
    first, second, *_ = elmos["even"].encode_tokens(SENTENCES)
    before = second.copy()
    first[:] = 0
    assert np.array_equal(second, before)


# --- state ----------------------------------------------------------------------------------------


def test_zero_state_does_not_depend_on_history(models):
    elmo = ELMo(models["even"])
    expected = elmo.encode_tokens(SENTENCES)
    elmo.encode_tokens(SENTENCES, state="carry")
    elmo.encode_tokens(SENTENCES, state="warm")
    assert_same("even", elmo.encode_tokens(SENTENCES, state="zero"), expected)


def run_rows(model, sentences, state):
    """Run the plain model over a batch from a state; returns layers by sentence and the end."""
    ids = word_ids(model.config, model.vocabulary).batch(sentences)
    with torch.no_grad():
        output = model.run(ids, state)
    layers = [output.layers[:, row, : len(s)].numpy() for row, s in enumerate(sentences)]
    return layers, output.state


def assert_close(found, expected):
    for vectors, others in zip(found, expected, strict=True):
        np.testing.assert_allclose(vectors, others, rtol=0, atol=1e-5)


def test_warm_state_is_what_running_text_leaves_behind(models):
    model = models["even"]
    state = None
    for sentence in burn_in_sentences():
        _, state = run_rows(model, [sentence], state)
    expected = [run_rows(model, [sentence], state)[0][0] for sentence in SENTENCES]
    found = ELMo(model).encode_tokens(SENTENCES, state="warm")
    assert_close(found, expected)
    zero = ELMo(model).encode_tokens(SENTENCES)
    assert np.abs(found[0] - zero[0]).max() > 1e-3


@both_models
def test_warm_state_is_the_same_every_time_and_for_every_batch(models, name):
    elmo, other = ELMo(models[name]), ELMo(models[name])
    first = elmo.encode_tokens(SENTENCES, state="warm")
    assert_same(name, elmo.encode_tokens(SENTENCES, state="warm", batch_size=2), first)
    other.encode_tokens(SENTENCES, state="carry")
    assert_same(name, one_by_one(other, SENTENCES, state="warm"), first)


def test_warm_state_is_saved_with_the_model(tmp_path, models):
    elmo = ELMo(models["even"])
    elmo.warm_up([["another", "text"], ["to", "begin", "with"]])
    expected = elmo.encode_tokens(SENTENCES, state="warm")
    elmo.save_pretrained(tmp_path)
    loaded = ELMo.from_pretrained(tmp_path)
    assert_same("even", loaded.encode_tokens(SENTENCES, state="warm"), expected)
    default = ELMo(models["even"]).encode_tokens(SENTENCES, state="warm")
    assert np.abs(default[0] - expected[0]).max() > 1e-4


def test_warming_up_again_replaces_the_state(models):
    elmo = ELMo(models["even"])
    first = elmo.encode_tokens(SENTENCES, state="warm")
    elmo.warm_up([["something", "else"]])
    second = elmo.encode_tokens(SENTENCES, state="warm")
    assert np.abs(first[0] - second[0]).max() > 1e-4
    elmo.warm_up()
    assert_same("even", elmo.encode_tokens(SENTENCES, state="warm"), first)


def test_a_model_that_was_never_warm_is_saved_without_a_state(tmp_path, models):
    ELMo(models["even"]).save_pretrained(tmp_path)
    assert ELMo.from_pretrained(tmp_path).to_checkpoint().warm_state is None


@every_model
def test_carried_state_follows_rows_as_batches_grow_and_shrink(models, name):
    model = models[name]
    elmo = ELMo(model)
    rows = {}
    for call in ([["a"], ["b", "c"]], [["d"], [], ["e"]], [["f"]], [["g"], ["h"], ["i", "j"]]):
        found = elmo.encode_tokens(call, state="carry")
        # By hand: each row alone; rows that are not in a batch wait.
        for row, sentence in enumerate(call):
            expected, rows[row] = run_rows(model, [sentence], rows.get(row))
            assert_close([found[row]], expected)


@settings(max_examples=12)
@given(batch=plain_batches(max_size=7), batch_size=st.integers(1, 3))
def test_one_call_with_carried_state_equals_a_call_for_each_batch(models, batch, batch_size):
    together, apart = ELMo(models["even"]), ELMo(models["even"])
    expected = []
    for first in range(0, len(batch), batch_size):
        expected += apart.encode_tokens(batch[first : first + batch_size], state="carry")
    found = together.encode_tokens(batch, state="carry", batch_size=batch_size)
    assert_same("even", found, expected)


def test_resetting_forgets_what_was_carried(models):
    elmo = ELMo(models["even"])
    assert elmo.carried_state is None
    first = elmo.encode_tokens(SENTENCES, state="carry")
    second = elmo.encode_tokens(SENTENCES, state="carry")
    assert np.abs(first[0] - second[0]).max() > 1e-3
    assert elmo.carried_state.rows == len(SENTENCES)
    elmo.reset()
    assert_same("even", elmo.encode_tokens(SENTENCES, state="carry"), first)
    # From nothing, carrying is the same as not carrying.
    assert_close(first, elmo.encode_tokens(SENTENCES))


def test_carried_state_can_be_taken_and_put_back(models):
    elmo = ELMo(models["even"])
    elmo.encode_tokens([["a", "b"], ["c"]], state="carry")
    kept = elmo.carried_state
    expected = elmo.encode_tokens([["d"], ["e"]], state="carry")
    elmo.encode_tokens([["f"]], state="carry")
    elmo.carried_state = State(*kept)
    assert_same("even", elmo.encode_tokens([["d"], ["e"]], state="carry"), expected)


def test_an_empty_sentence_moves_carried_state(models):
    elmo, other = ELMo(models["even"]), ELMo(models["even"])
    elmo.encode_tokens([["a"]], state="carry")
    other.encode_tokens([["a"]], state="carry")
    (empty,) = elmo.encode_tokens([[]], state="carry")
    assert empty.shape == (3, 0, 32)
    assert not torch.equal(elmo.carried_state.memory, other.carried_state.memory)


def test_carried_state_runs_64_rows_unless_told(models):
    elmo = ELMo(models["even"])
    elmo.encode_tokens([["a"]] * 70, state="carry")
    assert elmo.carried_state.rows == 64


def test_an_unknown_state_is_named(elmos):
    with pytest.raises(ConfigError, match="state is 'cold'"):
        elmos["even"].encode_tokens(SENTENCES, state="cold")


# --- layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["zero", "warm"])
def test_every_choice_of_layers_is_made_from_all_of_them(elmos, state):
    elmo = elmos["even"]

    def encode(layers):
        return elmo.encode_tokens(SENTENCES, layers=layers, state=state)

    for number, everything in enumerate(encode("all")):
        n = len(SENTENCES[number])
        assert everything.shape == (3, n, 32)
        for k in range(3):
            assert np.array_equal(encode(k)[number], everything[k])
            assert np.array_equal(encode(k - 3)[number], everything[k])
        assert np.array_equal(encode("top")[number], everything[2])
        for name in ("average", "mix"):  # equal weights unless the model says otherwise
            np.testing.assert_allclose(
                encode(name)[number], everything.mean(axis=0), rtol=0, atol=1e-6
            )


def test_fewer_layers_carry_the_state_of_all_of_them(models):
    shallow, deep = ELMo(models["even"]), ELMo(models["even"])
    shallow.encode_tokens(SENTENCES, layers=0, state="carry")
    deep.encode_tokens(SENTENCES, state="carry")
    assert torch.equal(shallow.carried_state.memory, deep.carried_state.memory)
    found = shallow.encode_tokens(SENTENCES, layers=1, state="carry")
    expected = deep.encode_tokens(SENTENCES, state="carry")
    assert_same("even", found, [layers[1] for layers in expected])


def test_the_mix_uses_the_weights_of_the_model(models):
    raw, gamma = (0.5, -1.0, 2.0), 0.3
    model = seeded_bilm(EVEN.replace(mix_weights=raw, mix_gamma=gamma))
    elmo = ELMo(model)
    everything = elmo.encode_tokens(SENTENCES)
    weights = np.exp(raw) / np.exp(raw).sum()
    for vectors, layers in zip(
        elmo.encode_tokens(SENTENCES, layers="mix"), everything, strict=True
    ):
        expected = gamma * np.tensordot(weights, layers, axes=1)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layers", ["most", 3, -4, 1.0, True, None, "0"])
def test_an_impossible_choice_of_layers_is_named(elmos, layers):
    with pytest.raises(ConfigError, match="layers is"):
        elmos["even"].encode_tokens(SENTENCES, layers=layers)


def test_numbers_of_layers_from_the_top_are_told(elmos):
    elmo = elmos["even"]
    assert np.array_equal(
        elmo.encode_tokens(SENTENCES, layers=-1)[0], elmo.encode_tokens(SENTENCES, layers="top")[0]
    )
    with pytest.raises(ConfigError, match=r"from 0 to 2 \(from -1 to -3: counted from the top\)"):
        elmo.encode_tokens(SENTENCES, layers=-4)


@pytest.mark.parametrize("limit", [{"batch_size": 0}, {"batch_size": -2}, {"batch_tokens": 0}])
def test_an_impossible_limit_is_named(elmos, limit):
    (name,) = limit
    with pytest.raises(ConfigError, match=f"{name} is {limit[name]}, expected a whole number"):
        elmos["even"].encode_tokens(SENTENCES, **limit)


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), torch.float16])
def test_a_type_of_numbers_may_be_numpys_or_pytorchs(elmos, dtype):
    expected = elmos["even"].encode_tokens(SENTENCES, dtype="float16")
    found = elmos["even"].encode_tokens(SENTENCES, dtype=dtype)
    ((_, streamed),) = elmos["even"].stream_windows(SENTENCES, dtype=dtype)
    for vectors in (found, streamed):
        assert all(part.dtype == np.float16 for part in vectors)
        assert all(np.array_equal(*pair) for pair in zip(vectors, expected, strict=True))


@pytest.mark.parametrize("dtype", [np.float64, torch.bfloat16, float, None, "half", 16])
def test_a_type_of_numbers_that_is_not_written_is_named(elmos, dtype):
    for ask in (elmos["even"].encode_tokens, elmos["even"].stream_windows):
        with pytest.raises(ConfigError, match=r"dtype is .*expected one of"):
            ask(SENTENCES, dtype=dtype)


# --- encode: one vector for each text -------------------------------------------------------------


def test_one_text_gives_one_vector_and_many_give_rows(elmos):
    elmo = elmos["even"]
    one = elmo.encode("The cat sat .")
    many = elmo.encode(["The cat sat .", "No"])
    assert one.shape == (32,)
    assert many.shape == (2, 32)
    assert one.dtype == many.dtype == np.float32
    assert np.array_equal(many[0], one)
    assert elmo.encode([]).shape == (0, 32)


def test_a_text_is_the_mean_of_its_words(elmos):
    elmo = elmos["even"]
    words = elmo.encode("The cat sat .", output_value="token_embeddings")
    assert words.shape == (4, 32)
    np.testing.assert_allclose(elmo.encode("The cat sat ."), words.mean(axis=0), atol=1e-6)
    (expected,) = elmo.encode_tokens([["The", "cat", "sat", "."]], layers="mix")
    assert np.array_equal(words, expected)
    for layers in ("top", 0, "average"):
        (expected,) = elmo.encode_tokens([["The", "cat", "sat", "."]], layers=layers)
        found = elmo.encode("The cat sat .", output_value="token_embeddings", layers=layers)
        assert np.array_equal(found, expected)


def test_a_text_without_words_is_zero_and_not_nan(elmos):
    elmo = elmos["even"]
    assert not elmo.encode("").any()
    assert not elmo.encode("  \n ", normalize_embeddings=True).any()
    rows = elmo.encode(["", "cat", ""])
    assert not rows[[0, 2]].any()
    assert np.array_equal(rows[1], elmo.encode("cat"))
    assert elmo.encode("", output_value="token_embeddings").shape == (0, 32)


def test_texts_may_be_split_into_words_beforehand(elmos):
    elmo = elmos["even"]
    expected = elmo.encode(["The cat", "No", ""])
    assert np.array_equal(elmo.encode([["The", "cat"], "No", []]), expected)
    assert np.array_equal(elmo.encode(iter([("The", "cat"), np.array(["No"]), ""])), expected)


def test_normalized_vectors_have_length_one(elmos):
    elmo = elmos["even"]
    plain = elmo.encode(["The cat", "No"])
    found = elmo.encode(["The cat", "No"], normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(found, plain / lengths, atol=1e-6)
    words = elmo.encode("The cat", output_value="token_embeddings", normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(words, axis=1), 1, atol=1e-6)


def test_results_come_as_the_kind_that_was_asked_for(elmos):
    elmo = elmos["even"]
    texts = ["The cat", "No"]
    expected = elmo.encode(texts)
    stacked = elmo.encode(texts, convert_to_tensor=True)
    assert isinstance(stacked, torch.Tensor)
    assert np.array_equal(stacked.numpy(), expected)
    assert elmo.encode([], convert_to_tensor=True).shape == (0, 32)
    single = elmo.encode("No", convert_to_tensor=True)
    assert torch.equal(single, stacked[1])
    listed = elmo.encode(texts, convert_to_numpy=False)
    assert [type(vector) for vector in listed] == [torch.Tensor] * 2
    assert torch.equal(torch.stack(listed), stacked)
    words = elmo.encode(texts, output_value="token_embeddings")
    assert [vectors.shape for vectors in words] == [(2, 32), (1, 32)]
    tensors = elmo.encode_tokens(SENTENCES, convert_to_tensor=True)
    arrays = elmo.encode_tokens(SENTENCES)
    assert all(np.array_equal(t.numpy(), array) for t, array in zip(tensors, arrays, strict=True))


def test_the_tokenizer_decides_what_the_words_are(models):
    class Letters:
        name = "letters"

        def sentences(self, text):
            return [list(part) for part in text.split()] or [[]]

    elmo = ELMo(models["even"], tokenizer=Letters())
    words = elmo.encode("ab c", output_value="token_embeddings")
    first, second = elmo.encode_tokens([["a", "b"], ["c"]], layers="mix")
    # Sentences are read apart and put together again.
    assert np.array_equal(words, np.concatenate([first, second]))


def test_english_texts_are_split_by_the_tokenizer(models):
    english, plain = ELMo(models["even"], tokenizer="english"), ELMo(models["even"])
    assert np.array_equal(english.encode("Don't!"), plain.encode("Do n't !"))


def test_an_impossible_argument_of_encode_is_refused(elmos):
    elmo = elmos["even"]
    with pytest.raises(TypeError, match="pooling"):
        elmo.encode("text", pooling="max")
    with pytest.raises(ConfigError, match="encode_tokens"):
        elmo.encode("text", layers="all")
    with pytest.raises(ConfigError, match="output_value is 'words'"):
        elmo.encode("text", output_value="words")


def test_cosines_of_rows(elmos):
    vectors = elmos["even"].encode(["The cat", "No", "The cat"])
    found = elmos["even"].similarity(vectors, torch.from_numpy(vectors))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(found, unit @ unit.T, rtol=0, atol=1e-6)


# --- habits of sentence-transformers and Hugging Face ---------------------------------------------


def test_encode_takes_what_sentence_transformers_takes_in_the_same_order():
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer
    for name in ("encode", "encode_query", "encode_document"):
        expected = [
            parameter.name
            for parameter in inspect.signature(getattr(theirs, name)).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        assert list(inspect.signature(getattr(ELMo, name)).parameters)[: len(expected)] == expected
    for name in ("similarity", "similarity_pairwise", "get_max_seq_length"):
        assert list(inspect.signature(getattr(ELMo, name)).parameters) == list(
            inspect.signature(getattr(theirs, name)).parameters
        )
    for name in ("get_embedding_dimension", "get_sentence_embedding_dimension", "max_seq_length"):
        assert hasattr(theirs, name)
        assert hasattr(ELMo, name)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ({"prompt_name": "query"}, "prompt_name is 'query', expected None: .* give prompt"),
        ({"precision": "int8"}, "precision is 'int8', expected 'float32': quantize_embeddings"),
        ({"precision": "ubinary"}, "precision is 'ubinary'"),
        ({"pool": {}}, "pool is {}, expected None: one process"),
        ({"chunk_size": 3}, "chunk_size is 3, expected None: it belongs to pool"),
        ({"device": ["cpu", "cpu"]}, "expected one device"),
        ({"truncate_dim": 0}, "truncate_dim is 0, expected a whole number from 1 to 32"),
        ({"truncate_dim": 99}, "truncate_dim is 99"),
    ],
)
def test_what_an_elmo_cannot_follow_is_refused_by_name_with_the_reason(elmos, argument, reason):
    with pytest.raises(ConfigError, match=reason):
        elmos["even"].encode("The cat", **argument)


def test_a_prompt_comes_before_each_raw_text(elmos):
    elmo = elmos["even"]
    found = elmo.encode(["cat sat", ["The", "cat"]], prompt="The ")
    assert np.array_equal(found, elmo.encode(["The cat sat", "The cat"]))


def test_vectors_are_cut_to_their_first_values_before_they_are_normalized(elmos):
    elmo = elmos["even"]
    whole = elmo.encode(["The cat", "No"])
    assert np.array_equal(elmo.encode(["The cat", "No"], truncate_dim=5), whole[:, :5])
    unit = elmo.encode("The cat", truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(unit, whole[0, :5] / np.linalg.norm(whole[0, :5]), atol=1e-6)
    assert elmo.encode([], truncate_dim=5).shape == (0, 5)


def test_texts_may_be_called_sentences_and_all_results_come_at_once(elmos):
    elmo = elmos["even"]
    texts = ["The cat", "No"]
    assert np.array_equal(elmo.encode(sentences=texts), elmo.encode(texts))
    first, _ = elmo.encode(texts, output_value=None)
    assert np.array_equal(first["sentence_embedding"], elmo.encode("The cat"))
    words = elmo.encode("The cat", output_value="token_embeddings")
    assert np.array_equal(first["token_embeddings"], words)
    assert elmo.encode("No", output_value=None)["token_embeddings"].shape == (1, 32)


def test_sizes_are_asked_for_as_there(elmos):
    elmo = elmos["even"]
    assert elmo.get_sentence_embedding_dimension() == elmo.get_embedding_dimension() == 32
    assert elmo.max_seq_length is None
    assert elmo.get_max_seq_length() is None
    elmo.max_seq_length = None
    with pytest.raises(ConfigError, match="sentences of any length are read"):
        elmo.max_seq_length = 128


def test_cosines_of_pairs_and_of_lists(elmos):
    elmo = elmos["even"]
    rows = elmo.encode(["The cat", "No"])
    pairs = elmo.similarity_pairwise(rows, rows[::-1].copy())
    np.testing.assert_allclose(pairs, elmo.similarity(rows, rows)[[0, 1], [1, 0]], atol=1e-6)
    listed = elmo.encode(["The cat", "No"], convert_to_numpy=False)
    assert torch.equal(elmo.similarity(listed, list(rows)), elmo.similarity(rows, rows))


def test_all_classes_load_a_model_with_the_same_arguments():
    of_elmo = inspect.signature(ELMo.from_pretrained).parameters
    for other in (ElmoLayer, LanguageModelScorer):
        found = inspect.signature(other.from_pretrained).parameters
        for name in (
            *("name_or_path", "options", "weights", "precision", "dtype", "device"),
            *("revision", "cache_dir", "token", "local_files_only", "force_download"),
        ):
            assert str(found[name]) == str(of_elmo[name]), (other, name)


def test_a_precision_may_be_a_type_as_in_transformers(tmp_path, models):
    ELMo(models["even"]).save_pretrained(tmp_path)
    for dtype, precision in ((torch.bfloat16, "bf16"), ("float16", "fp16"), ("auto", "fp32")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this machine has no instructions for it
            assert ELMo.from_pretrained(tmp_path, dtype=dtype).precision == precision
    with pytest.raises(ConfigError, match="dtype is 'int4', expected one of auto, float32"):
        ELMo.from_pretrained(tmp_path, dtype="int4")
    with pytest.raises(ConfigError, match="give one of them"):
        ELMo.from_pretrained(tmp_path, dtype="float16", precision="bf16")


EDITOR = """
from elmo import ELMo
elmo = ELMo.from_pretrained()
reveal_type(elmo.encode_tokens([["a"]]))
reveal_type(elmo.encode_tokens([["a"]], convert_to_tensor=True, layers="top"))
reveal_type(elmo.encode("a"))
reveal_type(elmo.encode(["a"], normalize_embeddings=True))
reveal_type(elmo.encode(["a"], convert_to_tensor=True))
reveal_type(elmo.encode(["a", "b"], output_value="token_embeddings"))
elmo.encode_tokens([["a"]], layer="top")
elmo.encod(["a"])
"""


def test_an_editor_knows_what_comes_back(tmp_path):
    api = pytest.importorskip("mypy.api")
    root = Path(__file__).parents[1]
    config = [
        "--config-file",
        str(root / "pyproject.toml"),
        "--cache-dir",
        str(root / ".mypy_cache"),
    ]
    (tmp_path / "editor.py").write_text(EDITOR)
    out, err, _ = api.run([*config, str(tmp_path / "editor.py")])
    assert not err
    array, tensor = r"numpy\.ndarray.*32Bit.*", r"torch\._tensor\.Tensor"
    notes = [line.split(": ", 2)[-1] for line in out.splitlines()]
    for note, expected in zip(
        notes,
        (
            rf'Revealed type is "list\[{array}\]"',
            rf'Revealed type is "list\[{tensor}\]"',
            rf'Revealed type is "{array}"',
            rf'Revealed type is "{array}"',
            rf'Revealed type is "{tensor}"',
            rf'Revealed type is "list\[{array}\]"',
            'Unexpected keyword argument "layer"',
        ),
        strict=False,
    ):
        assert re.match(expected, note), out
    assert '"ELMo" has no attribute "encod"' in out


# --- what a model is, and what text it expects ----------------------------------------------------


def test_a_model_shows_what_it_is(models):
    shown = repr(ELMo(models["even"], name="mine", tokenizer="english"))
    assert shown == (
        "ELMo(model='mine', parameters=29,992, layers=3, dim=32, tokenizer='english', "
        "device='cpu', precision='fp32')"
    )


def test_what_belongs_to_the_layer_is_answered_with_its_name(elmos):
    with pytest.raises(ConfigError, match=r"model is 'weights.hdf5'.*ELMo.from_pretrained"):
        ELMo("weights.hdf5")
    for name in ("forward", "parameters", "batch_to_ids"):
        with pytest.raises(AttributeError, match=f"ELMo has no '{name}'.*elmo.ElmoLayer"):
            getattr(elmos["even"], name)
    with pytest.raises(AttributeError, match="no attribute 'encod'"):
        elmos["even"].encod  # noqa: B018


def test_raw_text_is_split_as_the_models_own_text_was(models):
    trained = models["even"].to_checkpoint()
    config = trained.config.replace(tokenizer="english")
    knows = ELMo(dataclasses.replace(trained, config=config))
    assert knows.tokenizer.name == "english"
    assert np.array_equal(knows.encode("Don't!"), ELMo(models["even"]).encode("Do n't !"))
    told = ELMo(dataclasses.replace(trained, config=config), tokenizer="whitespace")
    assert told.tokenizer.name == "whitespace"
    assert pickle.loads(pickle.dumps(knows)).tokenizer.name == "english"


RAW = ["The river bank isn't far, he said.", 'She had brown hair, and a "new" coat.']
SPLIT = ["The river bank is n't far , he said .", "She had brown hair , and a new coat ."]


@pytest.mark.parametrize(
    ("tokenizer", "call", "note"),
    [
        (None, lambda elmo: elmo.encode(RAW), "looks raw .*tokenizer='english'"),
        (None, lambda elmo: elmo.encode(SPLIT), None),
        ("english", lambda elmo: elmo.encode(RAW), None),
        ("english", lambda elmo: elmo.encode(SPLIT), "split into words already .*'whitespace'"),
        (
            None,
            lambda elmo: elmo.encode_tokens([text.split() for text in RAW]),
            r"looks raw .*tokenizer='english'\)\.encode",
        ),
        (None, lambda elmo: elmo.encode_tokens([text.split() for text in SPLIT]), None),
        (
            None,
            lambda elmo: list(elmo.stream_tokens(text.split() for text in RAW)),
            "looks raw",
        ),
        (
            None,
            lambda elmo: elmo.encode(["林黛玉听了便说道好的宝玉笑道我不去"]),
            "looks raw .*'chinese'",
        ),
    ],
)
def test_text_that_is_not_what_the_model_expects_is_noted_once(models, tokenizer, call, note):
    elmo = ELMo(models["even"], tokenizer=tokenizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            call(elmo)
    notes = [str(warning.message) for warning in caught if "the text" in str(warning.message)]
    assert len(notes) == (note is not None)
    if note is not None:
        assert re.search(note, notes[0])


# --- outputs: the names of TensorFlow Hub ---------------------------------------------------------


def test_outputs_have_the_names_and_values_of_the_hub_module(elmos):
    elmo = elmos["even"]
    found = elmo.outputs(SENTENCES)
    assert {name: array.shape for name, array in found.items()} == {
        "word_emb": (5, 7, 16),
        "lstm_outputs1": (5, 7, 32),
        "lstm_outputs2": (5, 7, 32),
        "elmo": (5, 7, 32),
        "default": (5, 32),
    }
    mixed = elmo.encode_tokens(SENTENCES, layers="mix")
    for row, layers in enumerate(elmo.encode_tokens(SENTENCES)):
        n = len(SENTENCES[row])
        assert np.array_equal(found["word_emb"][row, :n], layers[0, :, :16])
        assert np.array_equal(found["lstm_outputs1"][row, :n], layers[1])
        assert np.array_equal(found["lstm_outputs2"][row, :n], layers[2])
        np.testing.assert_allclose(found["elmo"][row, :n], mixed[row], atol=1e-6)
        mean = mixed[row].mean(axis=0) if n else np.zeros(32)
        np.testing.assert_allclose(found["default"][row], mean, atol=1e-6)
        for name in ("word_emb", "lstm_outputs1", "lstm_outputs2", "elmo"):
            assert not found[name][row, n:].any()


def test_sequence_lengths_cut_padding_off(elmos):
    elmo = elmos["even"]
    padded = [["The", "cat", ""], ["No", "", ""], ["", "", ""]]
    found = elmo.outputs(padded, sequence_len=[2, 1, 0])
    expected = elmo.outputs([["The", "cat"], ["No"], []])
    for name, array in expected.items():
        assert np.array_equal(found[name][:, :2] if array.ndim == 3 else found[name], array)


@pytest.mark.parametrize("lengths", [[1], [1, 2, 3], [1, 4], [-1, 1]])
def test_impossible_sequence_lengths_are_refused(elmos, lengths):
    with pytest.raises(InputError, match="sequence_len"):
        elmos["even"].outputs([["a", "b"], ["c", "d", "e"]], sequence_len=lengths)


def test_no_sentences_give_empty_outputs(elmos):
    found = elmos["even"].outputs([])
    assert found["elmo"].shape == (0, 0, 32)
    assert found["default"].shape == (0, 32)


# --- streams --------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(batch=batches(max_size=8), batch_tokens=st.integers(1, 6))
def test_a_stream_gives_what_a_list_gives(elmos, batch, batch_tokens):
    elmo = elmos["even"]
    found = list(elmo.stream_tokens((s for s in batch), batch_tokens=batch_tokens))
    assert_same("even", found, elmo.encode_tokens(batch))


@settings(max_examples=15)
@given(batch=plain_batches(max_size=9), batch_size=st.integers(1, 3))
def test_a_carried_stream_gives_what_a_list_gives(models, batch, batch_size):
    settings = {"state": "carry", "batch_size": batch_size, "layers": "top"}
    found = list(ELMo(models["even"]).stream_tokens(iter(batch), batch_tokens=1, **settings))
    assert_same("even", found, ELMo(models["even"]).encode_tokens(batch, **settings))


def test_a_stream_may_never_end(elmos):
    taken = 0

    def endless():
        nonlocal taken
        for number in itertools.count():
            taken += 1
            yield [f"w{number}", "x"]

    stream = elmos["even"].stream_tokens(endless(), layers="top", batch_tokens=4)
    assert taken == 0
    found = list(itertools.islice(stream, 10))
    assert taken < 40
    expected = elmos["even"].encode_tokens([[f"w{n}", "x"] for n in range(10)], layers="top")
    assert_same("even", found, expected)


# --- what users get wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("The cat sat", r"received the text 'The cat sat'.*encode\(text\)"),
        (b"The cat", "received the text"),
        (["The", "cat"], r"sentence 0 is 'The', expected a list.*\[words\]"),
        ([["The"], "cat"], "sentence 1 is 'cat'"),
        ([[["The", "cat"]]], r"sentence 0, word 0 is \['The', 'cat'\] of type list"),
        ([[1, 2]], "sentence 0, word 0 is 1 of type int, expected a string"),
        ([["a", None]], "sentence 0, word 1 is None of type NoneType"),
        ([["a", b"b"]], "word 1 is b'b' of type bytes"),
        ([None], "sentence 0: received None of type NoneType, expected a list"),
        ([3], "sentence 0: received 3 of type int"),
        (None, "sentences: received None"),
        (7, "sentences: received 7 of type int"),
        ([["a"], ["b", float("nan")]], "sentence 1, word 1 is nan of type float"),
    ],
)
def test_wrong_nesting_is_told_with_its_place(elmos, wrong, told):
    with pytest.raises(ElmoError, match=told):
        elmos["even"].encode_tokens(wrong)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (None, "texts: received None"),
        (5, "texts: received 5"),
        ([b"bytes"], "text 0 is bytes, expected a string: decode it first"),
        (["fine", None], "text 1 is None, expected a string"),
        ([["The", 3]], "word 1 is 3 of type int"),
        ([[["too", "deep"]]], r"\['too', 'deep'\] of type list"),
    ],
)
def test_wrong_texts_are_told_with_their_place(elmos, wrong, told):
    with pytest.raises(ElmoError, match=told):
        elmos["even"].encode(wrong)


def test_long_wrong_values_are_shown_in_part(elmos):
    with pytest.raises(ElmoError) as caught:
        elmos["even"].encode_tokens([[["x" * 500]]])
    assert len(str(caught.value)) < 200


def test_an_error_leaves_the_model_usable(elmos):
    with pytest.raises(ElmoError):
        elmos["even"].encode_tokens([["a"], [1]])
    assert len(elmos["even"].encode_tokens([["a"]])) == 1


def test_words_that_lose_their_end_are_counted_and_told_once(models):
    elmo = ELMo(models["even"])
    elmo.encode_tokens([["x" * 48, "fine"]])
    assert elmo.n_cut_words == 0
    with pytest.warns(ElmoWarning, match=r"longer than the 48 bytes.*\(3 so far") as caught:
        elmo.encode_tokens([["x" * 49, "fine", "x" * 49], ["ü" * 25]])
    assert len(caught) == 1
    assert elmo.n_cut_words == 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        elmo.encode_tokens([["y" * 100]])
    assert caught == []
    assert elmo.n_cut_words == 4


def test_a_cut_word_is_read_like_its_beginning(models):
    elmo = ELMo(models["even"])
    long, cut = elmo.word_vectors(["x" * 48 + "tail", "x" * 48])
    assert np.array_equal(long, cut)


# --- what it is -----------------------------------------------------------------------------------


def test_sizes_are_told(elmos):
    elmo = elmos["odd"]
    assert elmo.dim == 6
    assert elmo.get_embedding_dimension() == elmo.get_sentence_embedding_dimension() == 6
    assert elmo.n_layers == 3
    assert elmo.max_seq_length is None
    assert elmo.device == torch.device("cpu")


def test_word_vectors_are_layer_zero(elmos):
    elmo = elmos["even"]
    words = ["The", "cat", "The", ""]
    found = elmo.word_vectors(words)
    assert found.shape == (4, 16)
    (layers,) = elmo.encode_tokens([words])
    assert np.array_equal(found, layers[0, :, :16])
    assert np.array_equal(found, layers[0, :, 16:])
    assert elmo.word_vectors([]).shape == (0, 16)
    with pytest.raises(InputError, match="expected a list of words"):
        elmo.word_vectors("The")


def test_moving_to_the_same_device_changes_nothing(models):
    elmo = ELMo(models["even"])
    elmo.encode_tokens(SENTENCES, state="carry")
    carried = elmo.carried_state
    assert elmo.to("cpu") is elmo
    assert elmo.to(torch.device("cpu")) is elmo
    assert elmo.carried_state is carried
    expected = elmo.encode("The cat")
    assert np.array_equal(elmo.encode("The cat", device="cpu"), expected)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "no such device"])
def test_a_device_that_cannot_be_used_is_named(models, device):
    with pytest.raises(ConfigError, match=f"device '{device}' cannot be used"):
        ELMo(models["even"], device=device)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "no such device"])
def test_what_is_no_name_of_a_device_is_answered_with_those_that_are(models, device):
    with pytest.raises(ConfigError, match="used: expected auto, cpu, cuda, cuda:1"):
        ELMo(models["even"], device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_cpu_is_advised(models):
    with pytest.raises(ConfigError, match="use device='cpu', or install a CUDA build of PyTorch"):
        ELMo(models["even"], device="cuda")


def test_the_model_that_was_given_stays_as_it_was(tiny_config):
    model = seeded_bilm(tiny_config)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ELMo(model).encode_tokens(SENTENCES)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore:the format hdf5 has no place for a warm state")
@pytest.mark.parametrize("format", ["elmo", "hdf5"])
def test_a_saved_model_gives_the_same_vectors(tmp_path, elmos, format):
    elmo = elmos["even"]
    elmo.save_pretrained(tmp_path / "model", format=format)
    loaded = ELMo.from_pretrained(tmp_path / "model")
    assert_same("even", loaded.encode_tokens(SENTENCES), elmo.encode_tokens(SENTENCES))
    assert loaded.fingerprint == elmo.fingerprint


def test_an_unknown_format_is_named(tmp_path, elmos):
    with pytest.raises(ConfigError, match="format is 'onnx'"):
        elmos["even"].save_pretrained(tmp_path, format="onnx")


def test_mix_weights_and_softmax_are_saved_with_the_model(tmp_path):
    config = EVEN.replace(mix_weights=(1.0, 0.0, -1.0), mix_gamma=2.0)
    checkpoint = seeded_bilm(config).to_checkpoint()
    checkpoint.softmax.update(weight=torch.ones(4, 16), bias=torch.arange(4.0))
    ELMo(checkpoint).save_pretrained(tmp_path)
    loaded = ELMo.from_pretrained(tmp_path)
    assert loaded.config == config
    assert torch.equal(loaded.to_checkpoint().softmax["bias"], torch.arange(4.0))


def test_a_rounded_model_embeds_but_cannot_be_saved(tmp_path, models):
    if runs_natively("bf16"):
        rounded = ELMo(models["even"], precision="bf16")
    else:
        with pytest.warns(ElmoWarning, match="no faster here"):
            rounded = ELMo(models["even"], precision="bf16")
    exact = ELMo(models["even"])
    found, expected = rounded.encode_tokens(SENTENCES), exact.encode_tokens(SENTENCES)
    assert 0 < np.abs(found[0] - expected[0]).max() < 0.2
    # It knows which weights it was made from.
    assert rounded.fingerprint == exact.fingerprint
    with pytest.raises(WeightsError, match="cannot be saved"):
        rounded.save_pretrained(tmp_path)


def test_an_unknown_precision_is_named(models):
    with pytest.raises(ConfigError, match="precision is 'fp8'"):
        ELMo(models["even"], precision="fp8")


def test_progress_is_shown_when_asked_for(elmos, capsys):
    elmos["even"].encode_tokens(SENTENCES, show_progress_bar=True)
    assert "16/16" in capsys.readouterr().err.replace(".0", "")
    elmos["even"].encode_tokens(SENTENCES)
    assert capsys.readouterr().err == ""


# --- models that read words -----------------------------------------------------------------------


def test_a_word_model_reads_unknown_words_as_the_unknown_word(word_bilm):
    elmo = ELMo(word_bilm)
    found = elmo.encode_tokens([["the", "unheard-of", "cat"], ["the", "<UNK>", "cat"]])
    assert np.array_equal(found[0], found[1])
    vectors = elmo.word_vectors([*VOCABULARY, "dog"])
    table = word_bilm.words.embedding.weight.detach().numpy()
    assert np.array_equal(vectors[:-1], table[1:])
    assert np.array_equal(vectors[-1], table[3])
    assert elmo.n_cut_words == 0


def test_a_word_model_carries_and_warms_like_any_other(word_bilm):
    elmo = ELMo(word_bilm)
    batch = [["the", "cat"], [], ["sat"]]
    rows = zero_state(word_bilm.config, 3, torch.empty(0))
    for _ in range(2):
        expected, rows = run_rows(word_bilm, batch, rows)
        assert_close(elmo.encode_tokens(batch, state="carry"), expected)
    warm = elmo.encode_tokens(batch, state="warm")
    assert np.abs(warm[0] - elmo.encode_tokens(batch)[0]).max() > 1e-4


def test_a_word_model_without_vocabulary_is_refused():
    bilm = seeded_bilm(ElmoConfig.preset("tiny", n_words=len(VOCABULARY)))
    bilm.vocabulary = None
    with pytest.raises(InputError, match="needs its vocabulary"):
        ELMo(bilm)


@pytest.mark.skipif(not rows_are_exact(), reason="oneDNN rounds differently for few rows here")
@pytest.mark.parametrize("threads", [2, 5, 7])
def test_neighbors_do_not_change_a_bit_whatever_the_number_of_threads(models, threads):
    """A thread's share of a batch ends in the middle of a row: no function may round there."""
    crowd = [[f"w{(n * 7 + k) % 97}" for k in range(1 + n % 11)] for n in range(900)]
    torch.set_num_threads(threads)
    try:
        together = ELMo(models["even"]).encode_tokens(crowd)
        alone = ELMo(models["even"])
        for number in range(0, 900, 9):
            assert np.array_equal(alone.encode_tokens([crowd[number]])[0], together[number])
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("limit", [0, 2.5, "3", True])
def test_an_impossible_batch_is_named_when_state_is_carried(elmos, limit):
    with pytest.raises(ConfigError, match=r"batch_size is .*, expected a whole number"):
        elmos["even"].encode_tokens(SENTENCES, state="carry", batch_size=limit)


def test_vectors_of_words_come_as_tensors_too(tiny_elmo):
    found = tiny_elmo.encode(["a b", "c"], output_value="token_embeddings", convert_to_tensor=True)
    assert [tuple(vectors.shape) for vectors in found] == [(2, 32), (1, 32)]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))])
def test_an_elmo_can_be_copied_and_sent_to_other_processes(tiny_bilm, copied):
    elmo = ELMo(tiny_bilm)
    elmo.warm_up([["Warm", "words"]])
    twin = copied(elmo)
    np.testing.assert_array_equal(
        twin.encode("a b", state="warm"), elmo.encode("a b", state="warm")
    )
    assert twin.fingerprint == elmo.fingerprint


def test_bad_texts_are_told_by_their_number(tiny_elmo):
    with pytest.raises(InputError, match="text 2, word 0"):
        tiny_elmo.encode([["a"], ["b"], [["c"]]])


def test_a_negative_cache_is_refused(tiny_bilm):
    with pytest.raises(ConfigError, match="word_cache_mb is -1"):
        ELMo(tiny_bilm, word_cache_mb=-1)


def test_single_vectors_are_compared_as_one_row(tiny_elmo):
    a, b = tiny_elmo.encode(["a b", "c"])
    assert tiny_elmo.similarity(a, np.stack([a, b])).shape == (1, 2)
    assert tiny_elmo.similarity(a, a).item() == pytest.approx(1.0)


def test_texts_come_with_their_words_if_everything_is_asked_for(tiny_elmo):
    for found in tiny_elmo.encode(["a b", "c"], output_value=None):
        assert len(found["tokens"]) == len(found["token_embeddings"])
    assert tiny_elmo.encode("a b", output_value=None)["tokens"] == ["a", "b"]


@pytest.mark.parametrize("texts", [[{"text": "a b"}], {"text": ["a b"]}])
def test_rows_of_a_table_are_refused_in_place_of_texts(tiny_elmo, texts):
    with pytest.raises(InputError, match=r"received a dict, expected a list: give its text"):
        tiny_elmo.encode(texts)


@pytest.mark.parametrize("missing", [None, float("nan"), 3])
def test_a_missing_text_is_named(tiny_elmo, missing):
    with pytest.raises(InputError, match=r"text 1 is .*, expected a string, or a list of words"):
        tiny_elmo.encode(["a", missing])

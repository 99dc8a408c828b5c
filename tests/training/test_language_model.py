"""The objective: both directions' likelihood against a float64 oracle, and where gradients go."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import BiLM
from elmo.hub.names import open_model
from elmo.lm.softmax import make_output_layer
from elmo.text.characters import word_ids
from elmo.text.vocabulary import Vocabulary
from elmo.training.language_model import LanguageModel, measure
from elmo.training.streams import Streams
from list_shards import ListShard
from oracle import Oracle, random_tensors, write_files
from strategies import ALPHABET, options

CPU = torch.device("cpu")
WORDS = ("the", "cat", "sat", "on", "mat", "naïve", "x" * 70)
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", *WORDS[:5]])
texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("oracle")


def make_models(folder, drawn, seed, kind="full"):
    """Return the oracle and a language model with the same numbers, in float64."""
    reads_characters = "char_cnn" in drawn
    alphabet = reads_characters and drawn["char_cnn"].get("n_characters") == ALPHABET.n_characters
    characters = ALPHABET.characters if alphabet else None
    if not reads_characters:
        drawn = drawn | {"n_tokens_vocab": len(VOCABULARY)}
    words = None if reads_characters else VOCABULARY.words
    tensors = random_tensors(drawn, seed)
    write_files(folder, drawn, tensors, words, characters)
    bilm = BiLM.from_checkpoint(open_model(folder))
    torch.manual_seed(seed)
    output = make_output_layer(kind, len(VOCABULARY), bilm.config.projection_dim, n_samples=4)
    model = LanguageModel(bilm, output).double().eval()
    return Oracle(drawn, tensors, words, characters), model


def streams(model, text, **changes):
    bilm = model.bilm
    ids = word_ids(bilm.config, VOCABULARY, bilm.alphabet)
    given = {"rows": 1, "unroll": 1, "shuffle": "none", "reset_prob": 1.0, **changes}
    return Streams([ListShard([text], VOCABULARY)], VOCABULARY, ids, **given)


def expected_nll(oracle, model, text):
    """Sum of both directions' negative log-likelihoods, sentence by sentence from nothing."""
    weight, bias = (t.detach().numpy() for t in (model.output.weight, model.output.bias))
    totals = [0.0, 0.0]
    for sentence in text:
        layers, _ = oracle.read(sentence, boundaries=True)
        known = [VOCABULARY.place(w) if w in VOCABULARY else 2 for w in sentence]
        width = oracle.width
        for direction, (hidden, told) in enumerate(
            (
                (layers[-1][:-1, :width], [*known, 1]),
                (layers[-1][1:, width:], [0, *known]),
            )
        ):
            logits = hidden @ weight.T + bias
            top = logits.max(axis=1, keepdims=True)
            logs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
            totals[direction] -= logs[np.arange(len(told)), told].sum()
    return totals


def nll(found):
    """Sum of both directions' negative log-likelihoods."""
    perplexity = found.perplexity
    return perplexity.n_predictions * np.log([perplexity.forward, perplexity.backward])


@settings(max_examples=30)
@given(
    drawn=options(cells=("lstm", "gru"), spells=("bytes", "code points")),
    text=texts,
    seed=st.integers(0, 9),
    unroll=st.integers(1, 6),
)
def test_the_likelihood_equals_the_oracle(folder, drawn, text, seed, unroll):
    oracle, model = make_models(folder, drawn, seed)
    reader = streams(model, text)
    reader.unroll = unroll
    result = measure(model, reader.one_pass(), CPU)
    assert result.perplexity.n_predictions == sum(len(sentence) + 1 for sentence in text)
    np.testing.assert_allclose(nll(result), expected_nll(oracle, model, text), rtol=1e-6)


def tiny_model(folder, kind="full", seed=0, **changes):
    lstm = {
        "dim": 6,
        "projection_dim": 4,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
        **changes,
    }
    cnn = {
        "embedding": {"dim": 3},
        "filters": [[1, 3], [2, 4]],
        "n_highway": 1,
        "activation": "relu",
        "max_characters_per_token": 8,
        "n_characters": 262,
    }
    return make_models(folder, {"lstm": lstm, "char_cnn": cnn}, seed, kind)[1]


TEXT = [["the", "cat", "sat"], ["on", "naïve"], ["mat"], ["the", "mat", "sat", "on", "cat"]]


@given(unroll=st.integers(1, 14))
def test_state_is_carried_from_window_to_window(folder, unroll):
    model = tiny_model(folder)
    whole = measure(model, streams(model, TEXT, unroll=14, reset_prob=0.0).one_pass(), CPU)
    reader = streams(model, TEXT, reset_prob=0.0)
    reader.unroll = unroll
    parts = measure(model, reader.one_pass(), CPU)
    np.testing.assert_allclose(nll(parts), nll(whole), rtol=1e-9)
    alone = measure(model, streams(model, TEXT, unroll=14, reset_prob=1.0).one_pass(), CPU)
    assert not np.allclose(nll(alone), nll(whole), rtol=1e-9)


def training_losses(model, batch, seed=0):
    state = model.start(batch.resets.shape[1], CPU)
    parts = (batch.types, batch.inputs, batch.targets, batch.resets)
    return model(*parts, *state, seed)[0]


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_every_weight_are_those_of_finite_differences(folder, cell):
    model = tiny_model(folder, cell=cell)
    batch = next(streams(model, TEXT, rows=2, unroll=7, reset_prob=0.5).one_pass())
    names, parameters = zip(*model.named_parameters(), strict=True)

    def loss(*values):
        named = dict(zip(names, values, strict=True))
        state = model.start(2, CPU)
        inputs = (batch.types, batch.inputs, batch.targets, batch.resets)
        arguments = (*inputs, *state, 0)
        return torch.func.functional_call(model, named, arguments)[0].sum()

    loss(*parameters).backward()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in zip(names, parameters, strict=True):
            direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            changed = []
            for sign in (1, -1):
                moved = [p + sign * 1e-6 * direction if p is parameter else p for p in parameters]
                changed.append(float(loss(*moved)))
            slope = (changed[0] - changed[1]) / 2e-6
            assert parameter.grad is not None, name
            assert float((parameter.grad * direction).sum()) == pytest.approx(slope, abs=1e-6), name


@pytest.mark.parametrize("kind", ["full", "sampled", "adaptive"])
def test_every_weight_learns_with_every_softmax(folder, kind):
    model = tiny_model(folder, kind)
    batch = next(streams(model, TEXT, unroll=14).one_pass())
    training_losses(model, batch).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_the_directions_do_not_share_their_layers(folder):
    model = tiny_model(folder)
    batch = next(streams(model, TEXT, unroll=14).one_pass())
    training_losses(model, batch)[0].backward()
    assert all(p.grad.any() for p in model.bilm.forward_layers.parameters())
    assert not any(p.grad.any() for p in model.bilm.backward_layers.parameters())
    assert model.bilm.words.embedding.weight.grad.any()


def test_dropout_is_on_every_input_and_on_the_top_and_only_in_training(folder):
    model = tiny_model(folder)
    batch = next(streams(model, TEXT, unroll=14).one_pass())
    seen = []
    plain = torch.nn.functional.dropout

    def count(values, share, training):
        seen.append((share, training))
        return plain(values, share, training)

    model.dropout = 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "dropout", count)
        training_losses(model.eval(), batch)
        training_losses(model.train(), batch)
    # Two layers' inputs and the top, both directions at once: three in each reading.
    assert seen == [(0.5, False)] * 3 + [(0.5, True)] * 3

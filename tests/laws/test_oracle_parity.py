"""Every layer equals an independent float64 computation, whatever the sizes and switches."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import elmo.backends.cpu.characters
from elmo import BiLM, ELMo, ElmoConfig
from elmo.backends.cpu.model import CPUBackend
from elmo.hub.names import open_model
from elmo.model.bilm import State, pack
from elmo.model.cells import GRU, LSTM, LayerState
from elmo.model.layers import run_packed
from elmo.text.characters import word_ids
from oracle import CELLS, Oracle, random_tensors, write_files
from strategies import ALPHABET, VOCABULARY, batches, options, plain_batches

pytestmark = pytest.mark.filterwarnings("ignore:words longer:elmo.errors.ElmoWarning")

EXACT = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder that each example writes its files over."""
    return tmp_path_factory.mktemp("oracle")


def models_of(folder, drawn, seed, recurrent_scale=1.0):
    """Give the oracle and the checkpoint that the package reads from the same numbers."""
    vocabulary = None if "char_cnn" in drawn else VOCABULARY
    alphabet = drawn.get("char_cnn", {}).get("n_characters") == ALPHABET.n_characters
    characters = ALPHABET.characters if alphabet else None
    tensors = random_tensors(drawn, seed, recurrent_scale)
    write_files(folder, drawn, tensors, vocabulary, characters)
    return Oracle(drawn, tensors, vocabulary, characters), open_model(folder)


def backends_of(plain):
    """Return the plain model, and the CPU backend where it computes the model's cell."""
    return [plain, *([CPUBackend(plain)] if plain.config.cell in CPUBackend.cells else [])]


SPELLINGS = ("bytes", "code points")


def state_arrays(state, n_layers):
    """Stack an oracle's state as `State` does, without rows."""
    return [
        np.array([[state[d, layer][part] for d in (0, 1)] for layer in range(n_layers)])
        for part in (0, 1)
    ]


@settings(max_examples=30)
@given(
    drawn=options(cells=tuple(CELLS), spells=SPELLINGS),
    batch=batches(max_size=4),
    seed=st.integers(0, 9),
)
def test_every_model_that_reads_characters_equals_the_oracle(folder, drawn, batch, seed):
    oracle, checkpoint = models_of(folder, drawn, seed)
    expected = oracle.read_all(batch)
    for vectors, layers in zip(ELMo(checkpoint).encode_tokens(batch), expected, strict=True):
        np.testing.assert_allclose(vectors, layers, **EXACT)
    assume(batch)
    plain = BiLM.from_checkpoint(checkpoint)
    ids = word_ids(plain.config, None, plain.alphabet).batch(batch)
    for model in backends_of(plain):
        output = model.run(ids)
        for row, layers in enumerate(expected):
            n = layers.shape[1]
            assert output.mask[row].sum() == n
            np.testing.assert_allclose(output.layers[:, row, :n].detach(), layers, **EXACT)
            assert not output.layers[:, row, n:].any()


@settings(max_examples=20)
@given(drawn=options(cells=tuple(CELLS), reads=("words",)), batch=plain_batches())
def test_every_model_that_reads_words_equals_the_oracle(folder, drawn, batch):
    oracle, checkpoint = models_of(folder, drawn, seed=3)
    model = ELMo(checkpoint)
    for vectors, layers in zip(model.encode_tokens(batch), oracle.read_all(batch), strict=True):
        np.testing.assert_allclose(vectors, layers, **EXACT)


@settings(max_examples=30)
@given(
    drawn=options(cells=tuple(CELLS), spells=SPELLINGS),
    batch=batches(max_size=6),
    rows=st.integers(1, 3),
)
def test_carried_state_equals_the_oracle(folder, drawn, batch, rows):
    oracle, checkpoint = models_of(folder, drawn, seed=4)
    states = [{} for _ in range(rows)]
    model = ELMo(checkpoint)
    found = model.encode_tokens(batch, state="carry", batch_size=rows)
    for number, sentence in enumerate(batch):
        expected, states[number % rows] = oracle.read(sentence, states[number % rows])
        np.testing.assert_allclose(found[number], expected, **EXACT)
    assume(batch)
    for row in range(min(rows, len(batch))):
        hidden, memory = state_arrays(states[row], oracle.n_layers)
        np.testing.assert_allclose(model.carried_state.hidden[:, :, row], hidden, **EXACT)
        np.testing.assert_allclose(model.carried_state.memory[:, :, row], memory, **EXACT)


@settings(max_examples=20)
@given(drawn=options(cells=tuple(CELLS)), batch=batches(min_size=1, max_size=4))
def test_a_given_state_is_continued_row_by_row(folder, drawn, batch):
    oracle, checkpoint = models_of(folder, drawn, seed=5)
    first = [["row", str(number)] for number in range(len(batch))]
    plain = BiLM.from_checkpoint(checkpoint)
    ids = word_ids(plain.config, None)
    for model in backends_of(plain):
        with torch.no_grad():
            middle = model.run(ids.batch(first)).state
            output = model.run(ids.batch(batch), middle)
        for row, sentence in enumerate(batch):
            layers, end = oracle.read(sentence, oracle.read(first[row])[1])
            found = output.layers[:, row, : len(sentence)]
            np.testing.assert_allclose(found, layers, **EXACT)
            for part, expected in zip(
                output.state, state_arrays(end, oracle.n_layers), strict=True
            ):
                np.testing.assert_allclose(part[:, :, row], expected, **EXACT)


@pytest.mark.parametrize("cell", CELLS)
def test_the_oracle_agrees_where_both_clips_bite(folder, cell):
    drawn = ElmoConfig.preset("tiny", cell=cell, cell_clip=0.4, proj_clip=0.3).to_options()
    oracle, checkpoint = models_of(folder, drawn, seed=6, recurrent_scale=3.0)
    batch = [["The", "cat", "sat", "."], ["x" * 48, "x" * 49, "é" * 30], ["no"]]
    expected = oracle.read_all(batch)
    assert oracle.clipped["cell"] > 100
    assert oracle.clipped["proj"] > 100
    unclipped = ElmoConfig.preset("tiny", cell=cell, cell_clip=None, proj_clip=None).to_options()
    free = Oracle(unclipped, oracle.tensors).read_all(batch)
    for vectors, layers, other in zip(
        ELMo(checkpoint).encode_tokens(batch), expected, free, strict=True
    ):
        np.testing.assert_allclose(vectors, layers, **EXACT)
        assert np.abs(layers - other).max() > 0.1


@pytest.mark.parametrize("n_characters", [262, ALPHABET.n_characters])
@pytest.mark.parametrize("max_characters", [3, 4, 5, 6, 7, 12, 50])
def test_words_below_at_and_above_the_character_limit_equal_the_oracle(
    folder, max_characters, n_characters
):
    drawn = ElmoConfig.preset(
        "tiny",
        max_characters=max_characters,
        filters=((1, 3), (2, 5), (3, 4)),
        n_characters=n_characters,
    ).to_options()
    oracle, checkpoint = models_of(folder, drawn, seed=7)
    lengths = range(max_characters + 3)
    words = ["a" * n for n in lengths] + ["z" + "é" * n for n in lengths] + ["<S>", "</S>"]
    expected = np.stack([oracle.word_vector(word) for word in words])
    np.testing.assert_allclose(ELMo(checkpoint).word_vectors(words), expected, **EXACT)


@settings(max_examples=20)
@given(drawn=options(spells=SPELLINGS), batch=batches(max_size=4), seed=st.integers(0, 9))
def test_the_table_for_large_alphabets_equals_the_oracle(folder, drawn, batch, seed):
    oracle, checkpoint = models_of(folder, drawn, seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(elmo.backends.cpu.characters, "_TABLE_BYTES", 1)
        model = ELMo(checkpoint)
    for vectors, layers in zip(model.encode_tokens(batch), oracle.read_all(batch), strict=True):
        np.testing.assert_allclose(vectors, layers, **EXACT)


def packed_run(layer, sequences):
    """Run a recurrent layer over sequences from zero; returns outputs by sequence."""
    lengths = [len(sequence) for sequence in sequences]
    packing = pack(lengths)
    rows = len(sequences)
    memory_dim = layer.bias.shape[0] // len(layer.gates)
    start = LayerState(
        torch.zeros(rows, layer.input_weight.shape[1]), torch.zeros(rows, memory_dim)
    )
    outputs, _ = run_packed(
        layer, torch.cat(sequences), packing.forward, packing.batch_sizes, start
    )
    flat = torch.empty_like(outputs)
    flat[packing.forward] = outputs
    return torch.split(flat, lengths)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("dim", "width"), [(7, 3), (16, 5), (6, 6)])
@torch.no_grad()
def test_the_lstm_without_clips_is_torchs_lstm(dim, width):
    config = ElmoConfig.preset(
        "tiny", dim=dim, projection_dim=width, cell_clip=None, proj_clip=None
    )
    layer = LSTM(config)
    theirs = torch.nn.LSTM(width, dim, proj_size=width if width < dim else 0)
    torch.manual_seed(0)
    for parameter in layer.parameters():
        parameter.normal_()
    theirs.weight_ih_l0.copy_(layer.input_weight)
    theirs.weight_hh_l0.copy_(layer.recurrent_weight)
    theirs.bias_hh_l0.zero_()
    theirs.bias_ih_l0.copy_(layer.bias)
    theirs.bias_ih_l0[dim : 2 * dim] += 1.0  # torch has no forget bias of its own
    if width < dim:
        theirs.weight_hr_l0.copy_(layer.projection_weight)
    sequences = [torch.randn(n, width) for n in (4, 1, 6)]
    for sequence, outputs in zip(sequences, packed_run(layer, sequences), strict=True):
        torch.testing.assert_close(outputs, theirs(sequence)[0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_gru_without_clips_and_projection_is_torchs_gru():
    dim = 6
    config = ElmoConfig.preset(
        "tiny", dim=dim, projection_dim=dim, cell="gru", cell_clip=None, proj_clip=None
    )
    layer = GRU(config)
    theirs = torch.nn.GRU(dim, dim)
    torch.manual_seed(0)
    for parameter in layer.parameters():
        parameter.normal_()
    theirs.weight_ih_l0.copy_(layer.input_weight)
    theirs.weight_hh_l0.copy_(layer.recurrent_weight)
    theirs.bias_ih_l0.copy_(layer.bias)
    theirs.bias_hh_l0.zero_()
    theirs.bias_hh_l0[2 * dim :] = layer.candidate_bias
    sequences = [torch.randn(n, dim) for n in (4, 1, 6)]
    for sequence, outputs in zip(sequences, packed_run(layer, sequences), strict=True):
        torch.testing.assert_close(outputs, theirs(sequence)[0], rtol=0, atol=1e-5)


def test_the_state_after_a_boundary_is_the_oracles_after_one_mark(folder):
    drawn = ElmoConfig.preset("tiny", n_layers=3).to_options()
    oracle, checkpoint = models_of(folder, drawn, seed=8)
    plain = BiLM.from_checkpoint(checkpoint)
    with torch.no_grad():
        before = plain.run(word_ids(plain.config, None).batch([["some", "words"]])).state
        found = plain.after_boundary(State(*before))
    _, state = oracle.read(["some", "words"])
    for direction, mark in enumerate(("<S>", "</S>")):
        inputs = [oracle.word_vector(mark)]
        for layer in range(3):
            outputs, end = oracle._run_layer(direction, layer, inputs, state[direction, layer])
            np.testing.assert_allclose(found.hidden[layer, direction, 0], end[0], **EXACT)
            np.testing.assert_allclose(found.memory[layer, direction, 0], end[1], **EXACT)
            inputs = [outputs[0] + inputs[0]] if layer else outputs

"""The biLM fused for a GPU, run on a CPU: the numbers of the plain one, with kernels or without."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo.backends.gpu.characters
import elmo.backends.gpu.layer
from elmo import BiLM, ElmoConfig, batch_to_ids
from elmo.backends.cpu.model import CPUBackend
from elmo.backends.gpu.kernels.gpu import is_interpreted
from elmo.backends.gpu.kernels.inference_graphs import GraphCache
from elmo.backends.gpu.model import GPUBackend
from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import pack, pack_on, padded_places, step_runs
from elmo.text.characters import word_ids
from strategies import (
    alphabet_config,
    batches,
    configs,
    plain_batches,
    seeded_bilm,
    word_config,
)

SENTENCES = [["The", "cat", "sat", "."], ["x" * 60, "é", "The"], [], ["a"] * 9]
CPU = torch.device("cpu")

with_and_without_kernels = pytest.mark.parametrize(
    "compiled",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(not is_interpreted(), reason="Triton is not installed")
        ),
    ],
)


def fuse(bilm, **settings):
    """Fuse a copy: the model that is given is emptied."""
    return GPUBackend(copy.deepcopy(bilm), **settings)


def assert_same(found, expected, atol=1e-5):
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=atol)
    assert torch.equal(found.mask, expected.mask)
    for part, other in zip(found.state, expected.state, strict=True):
        torch.testing.assert_close(part, other, rtol=0, atol=atol)


@settings(max_examples=25)
@given(config=configs(spells=("bytes", "code points")), batch=batches(min_size=1))
@torch.no_grad()
def test_fused_equals_plain_for_models_that_read_characters(config, batch):
    plain = seeded_bilm(config)
    ids = word_ids(config, None, plain.alphabet).batch(batch)
    assert_same(fuse(plain).run(ids), plain.run(ids))


@settings(max_examples=15)
@given(config=configs(reads=("words",)), batch=plain_batches())
@torch.no_grad()
def test_fused_equals_plain_for_models_that_read_words(config, batch):
    plain = seeded_bilm(config)
    ids = word_ids(config, plain.vocabulary).batch(batch)
    assert_same(fuse(plain).run(ids), plain.run(ids))


@pytest.mark.skipif(not is_interpreted(), reason="Triton is not installed")
@settings(max_examples=6)
@given(
    config=configs(reads=("words",)),
    batch=st.lists(st.lists(st.sampled_from(["the", "cat"]), max_size=3), min_size=1, max_size=3),
)
@torch.no_grad()
def test_fused_with_kernels_equals_plain(config, batch):
    plain = seeded_bilm(config)
    ids = word_ids(config, plain.vocabulary).batch(batch)
    assert_same(fuse(plain, compiled=True).run(ids), plain.run(ids))


@with_and_without_kernels
@torch.no_grad()
def test_fused_equals_packed_where_both_clips_bite(clipping_bilm, compiled):
    ids = batch_to_ids(SENTENCES)
    expected = CPUBackend(clipping_bilm).run(ids)
    bound = clipping_bilm.config.cell_clip
    assert (expected.state.memory.abs() == bound).float().mean() > 0.1
    assert_same(fuse(clipping_bilm, compiled=compiled).run(ids), expected)


@with_and_without_kernels
@torch.no_grad()
def test_fused_equals_plain_from_a_given_state(clipping_bilm, compiled):
    ids = batch_to_ids([["a", "b"], ["c"]])
    state = clipping_bilm.run(ids).state
    before = copy.deepcopy(state)
    fused = fuse(clipping_bilm, compiled=compiled)
    assert_same(fused.run(ids, state), clipping_bilm.run(ids, state))
    assert torch.equal(state.memory, before.memory)
    assert torch.equal(state.hidden, before.hidden)


@torch.no_grad()
def test_the_state_after_a_boundary_is_that_of_the_plain_model(tiny_bilm):
    fused = fuse(tiny_bilm)
    expected = tiny_bilm.after_boundary()
    for part, other in zip(fused.after_boundary(), expected, strict=True):
        torch.testing.assert_close(part, other, rtol=0, atol=1e-5)
    # One row for all sentences of a batch, as the pipeline hands it over.
    vectors, tokens = tiny_bilm.encode_words(batch_to_ids([["a", "b"]])[0]), torch.tensor([0, 1, 1])
    arguments = vectors, tokens, [2, 1], expected.repeat(2)
    for found, other in zip(
        fused.contextualize(*arguments)[0], tiny_bilm.contextualize(*arguments)[0], strict=True
    ):
        torch.testing.assert_close(found, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("depth", [0, 1, 2])
@torch.no_grad()
def test_fewer_layers_are_the_lower_ones(tiny_bilm, depth):
    vectors = torch.randn(3, 16)
    tokens, lengths = torch.tensor([0, 1, 2, 2, 0]), [2, 3]
    found, state = fuse(tiny_bilm).contextualize(vectors, tokens, lengths, depth=depth)
    expected, other = tiny_bilm.contextualize(vectors, tokens, lengths, depth=depth)
    assert len(found) == depth
    for layer, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(layer, plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(state.memory, other.memory, rtol=0, atol=1e-5)


@pytest.mark.parametrize("slice_bytes", [1, 5000, 20000])
@pytest.mark.parametrize("table_bytes", [0, 1 << 30])
@torch.no_grad()
def test_slices_and_tables_change_no_number(monkeypatch, tiny_bilm, slice_bytes, table_bytes):
    ids = batch_to_ids(SENTENCES)
    expected = tiny_bilm.run(ids)
    monkeypatch.setattr(elmo.backends.gpu.layer, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(elmo.backends.gpu.layer, "_TABLE_BYTES", table_bytes)
    assert_same(fuse(tiny_bilm).run(ids), expected)


def test_an_empty_batch_gives_nothing(tiny_bilm):
    fused = fuse(tiny_bilm)
    layers, state = fused.contextualize(torch.empty(0, 16), torch.empty(0, dtype=torch.int64), [])
    assert [tuple(layer.shape) for layer in layers] == [(0, 32)] * 2
    assert state.rows == 0
    assert fused.encode_words(batch_to_ids([[]])[0]).shape == (0, 16)
    assert fused.run(batch_to_ids([[], []])).layers.shape == (3, 2, 0, 32)


@with_and_without_kernels
@torch.no_grad()
def test_words_that_fill_their_row_see_only_whole_windows(tiny_config, compiled):
    plain = seeded_bilm(tiny_config.replace(max_characters=8))
    ids = word_ids(plain.config, None).rows(["a" * n for n in range(9)])
    found = fuse(plain, compiled=compiled).encode_words(ids)
    torch.testing.assert_close(found, plain.encode_words(ids), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["_MOST_TABLE_BYTES", "_MOST_WORDS"])
@torch.no_grad()
def test_large_alphabets_and_many_words_change_no_vector(monkeypatch, name):
    plain = seeded_bilm(alphabet_config())
    ids = word_ids(plain.config, None, plain.alphabet).rows(["the", "cat", "🤗", "", "x" * 60])
    monkeypatch.setattr(elmo.backends.gpu.characters, name, 2)
    found = fuse(plain).encode_words(ids)
    torch.testing.assert_close(found, plain.encode_words(ids), rtol=0, atol=1e-5)


@pytest.mark.parametrize("reads", ["characters", "code points", "words"])
def test_the_weights_come_back_bit_for_bit(reads):
    config = {
        "characters": ElmoConfig.preset("tiny", n_highway=2),
        "code points": alphabet_config(),
        "words": word_config(dim=16),  # no projection
    }[reads]
    plain = seeded_bilm(config)
    checkpoint = fuse(plain).to_checkpoint()
    expected = plain.state_dict()
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(checkpoint.tensors[name], tensor), name
    assert (checkpoint.vocabulary is None) == (plain.vocabulary is None)
    again = BiLM.from_checkpoint(checkpoint)
    assert all(torch.equal(again.state_dict()[name], t) for name, t in expected.items())


# --- other precisions -----------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "largest"), [("bf16", 0.2), ("fp16", 0.02)])
@torch.no_grad()
def test_rounded_products_are_close(tiny_bilm, precision, largest):
    ids = batch_to_ids(SENTENCES)
    found = fuse(tiny_bilm, precision=precision).run(ids)
    expected = tiny_bilm.run(ids)
    assert found.layers.dtype == found.state.memory.dtype == torch.float32
    # The vectors of words are float32 in any precision.
    torch.testing.assert_close(found.layers[0], expected.layers[0], rtol=0, atol=1e-5)
    difference = (found.layers - expected.layers).abs()
    assert 0 < difference.max() < largest
    assert difference.mean() < largest / 10


def test_rounded_weights_are_not_given_back(tiny_bilm):
    with pytest.raises(WeightsError, match=r"rounded to bf16.*precision='fp32'"):
        fuse(tiny_bilm, precision="bf16").to_checkpoint()


def test_what_cannot_be_fused_is_named(tiny_bilm, tiny_config):
    with pytest.raises(ConfigError, match="precision is 'int8', expected one of fp32, bf16, fp16"):
        fuse(tiny_bilm, precision="int8")
    config = tiny_config.replace(cell="gru")
    with pytest.raises(ConfigError, match="cell is 'gru'"):
        fuse(seeded_bilm(config))


# --- graphs ---------------------------------------------------------------------------------------


def test_where_graphs_cannot_be_recorded_functions_are_called(caplog):
    if torch.cuda.is_available():
        pytest.skip("graphs can be recorded here")
    cache = GraphCache()
    calls = []

    def double(values):
        calls.append(values)
        return (2 * values,)

    for _ in range(3):
        (doubled,) = cache.run("key", double, (torch.ones(2),))
        assert torch.equal(doubled, torch.full((2,), 2.0))
    assert len(calls) == 3
    assert not cache.works
    assert len(cache) == 0
    assert caplog.text.count("CUDA graphs are not used") == 1


@torch.no_grad()
def test_one_sentence_is_read_as_in_a_batch(tiny_bilm, caplog):
    if torch.cuda.is_available():
        pytest.skip("graphs can be recorded here")
    fused = fuse(tiny_bilm)
    fused._graphs = GraphCache()
    state = tiny_bilm.run(batch_to_ids([["a", "b"]])).state
    for length in (1, 2, 5, 5, 5):
        vectors, tokens = torch.randn(3, 16), torch.randint(3, (length,))
        for depth in (1, 2):
            found, end = fused.contextualize(vectors, tokens, [length], state, depth)
            expected, other = tiny_bilm.contextualize(vectors, tokens, [length], state, depth)
            for layer, plain in zip(found, expected, strict=True):
                torch.testing.assert_close(layer, plain, rtol=0, atol=1e-5)
            torch.testing.assert_close(end.memory, other.memory, rtol=0, atol=1e-5)
            torch.testing.assert_close(end.hidden, other.hidden, rtol=0, atol=1e-5)


class Unrecorded(GraphCache):
    """Calls what would be recorded."""

    def __init__(self):
        super().__init__()
        self.keys = set()

    def run(self, key, function, inputs):
        self.keys.add(key)
        return function(*inputs)


@pytest.mark.skipif(not is_interpreted(), reason="Triton is not installed")
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 10), min_size=2, max_size=5), depth=st.integers(1, 2))
@torch.no_grad()
def test_a_few_sentences_are_read_as_in_a_batch_of_their_own(tiny_bilm, lengths, depth):
    fused = fuse(tiny_bilm, compiled=True)
    fused._graphs = Unrecorded()
    generator = torch.Generator().manual_seed(len(lengths))
    vectors = torch.randn(4, 16, generator=generator)
    tokens = torch.randint(4, (sum(lengths),), generator=generator)
    ids = batch_to_ids([["a", "b"]] * len(lengths))
    state = tiny_bilm.run(ids).state
    found, end = fused.contextualize(vectors, tokens, lengths, state, depth)
    expected, other = tiny_bilm.contextualize(vectors, tokens, lengths, state, depth)
    rows, steps = (2 if len(lengths) == 2 else 4 if len(lengths) < 5 else 8), 8
    assert fused._graphs.keys == {(rows, steps if max(lengths) <= 8 else 16, depth)}
    for layer, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(layer, plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(end.memory, other.memory, rtol=0, atol=1e-5)
    torch.testing.assert_close(end.hidden, other.hidden, rtol=0, atol=1e-5)


@torch.no_grad()
def test_rows_that_have_ended_stay_as_they_are_without_kernels(clipping_bilm):
    fused = fuse(clipping_bilm, compiled=False)
    lengths, vectors = [3, 1, 4], torch.randn(12, 16, generator=torch.Generator().manual_seed(0))
    places = torch.from_numpy(padded_places(np.asarray(lengths), steps=4))
    start = clipping_bilm.run(batch_to_ids([["a"], ["b", "c"], ["d"]])).state
    outputs, *end = fused._read_padded(vectors, places, torch.tensor(lengths), start, 2)
    expected, other = clipping_bilm.contextualize(vectors, torch.arange(8), lengths, start)
    torch.testing.assert_close(outputs[:, :8], torch.stack(expected), rtol=0, atol=1e-5)
    for part, plain in zip(end, other, strict=True):
        torch.testing.assert_close(part, plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "longest", "precision", "expected"),
    [
        (2, 20, "bf16", (2, 24)),
        (33, 8, "bf16", (64, 8)),
        (128, 64, "bf16", (128, 64)),
        (128, 65, "bf16", None),  # too much memory
        (129, 8, "bf16", None),
        (4, 129, "bf16", None),
        (4, 20, "fp32", (4, 24)),
        (5, 20, "fp32", None),  # products take longer than launches
    ],
)
def test_what_is_recorded_of_the_original_size(tiny_bilm, rows, longest, precision, expected):
    fused = fuse(tiny_bilm, precision=precision, compiled=False)
    fused._graphs, fused._compiled = GraphCache(), True
    fused.config = ElmoConfig.preset("original")
    assert fused._recorded_shape([longest, *[1] * (rows - 1)]) == expected
    fused._graphs.works = False
    assert fused._recorded_shape([longest, *[1] * (rows - 1)]) is None


# --- packing --------------------------------------------------------------------------------------


@given(lengths=st.lists(st.integers(1, 6), max_size=6))
def test_packing_on_a_device_is_packing(lengths):
    expected, found = pack(lengths), pack_on(CPU, lengths)
    assert found.batch_sizes == expected.batch_sizes
    for name in ("order", "forward", "backward"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


@given(lengths=st.lists(st.integers(1, 6), max_size=6), more=st.integers(0, 2))
def test_sentences_side_by_side_are_read_in_both_directions(lengths, more):
    rows, steps = len(lengths) + more, max(lengths, default=0) + more
    sizes = np.asarray([*lengths, *[0] * more], dtype=np.int64)
    forward, backward = padded_places(sizes, steps).reshape(2, steps, rows)
    start = 0
    for row, length in enumerate(lengths):
        words = list(range(start, start + length))
        assert forward[:length, row].tolist() == words
        assert backward[:length, row].tolist() == words[::-1]
        assert not forward[length:, row].any()
        assert not backward[length:, row].any()
        start += length


@given(sizes=st.lists(st.integers(1, 6), max_size=6), max_rows=st.integers(1, 9))
def test_runs_of_steps_hold_every_step_within_the_budget(sizes, max_rows):
    runs = list(step_runs(sizes, max_rows))
    assert [size for run in runs for size in run] == sizes
    assert all(len(run) == 1 or sum(run) <= max_rows for run in runs)

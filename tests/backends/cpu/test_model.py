"""The biLM on a CPU: the numbers of the plain one, whatever is sliced where."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo.backends.cpu.characters
import elmo.backends.cpu.model
import elmo.backends.cpu.products
from elmo import ElmoConfig, batch_to_ids
from elmo.backends.cpu.model import CPUBackend
from elmo.backends.cpu.native import Format, native_format
from elmo.backends.cpu.products import onednn_works, runs_natively
from elmo.backends.gpu.model import GPUBackend
from elmo.errors import ConfigError, InputError, WeightsError
from elmo.model.cells import LayerState
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

needs_onednn = pytest.mark.skipif(
    not onednn_works(torch.float32), reason="this PyTorch has no oneDNN for this CPU"
)


def assert_same(found, expected, atol=1e-5):
    torch.testing.assert_close(found.layers, expected.layers, rtol=0, atol=atol)
    assert torch.equal(found.mask, expected.mask)
    for part, other in zip(found.state, expected.state, strict=True):
        torch.testing.assert_close(part, other, rtol=0, atol=atol)


@settings(max_examples=30)
@given(
    config=configs(cells=("lstm", "gru"), spells=("bytes", "code points")),
    batch=batches(min_size=1),
    table_bytes=st.sampled_from([1, 10_000, 1 << 30]),
)
@torch.no_grad()
def test_the_backend_equals_plain_for_models_that_read_characters(config, batch, table_bytes):
    plain = seeded_bilm(config)
    ids = word_ids(config, None, plain.alphabet).batch(batch)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(elmo.backends.cpu.characters, "_TABLE_BYTES", table_bytes)
        packed = CPUBackend(plain)
    assert_same(packed.run(ids), plain.run(ids))
    assert all(
        torch.equal(packed.to_checkpoint().tensors[n], t) for n, t in plain.state_dict().items()
    )


@settings(max_examples=20)
@given(config=configs(cells=("lstm", "gru"), reads=("words",)), batch=plain_batches())
@torch.no_grad()
def test_the_backend_equals_plain_for_models_that_read_words(config, batch):
    plain = seeded_bilm(config)
    ids = word_ids(config, plain.vocabulary).batch(batch)
    assert_same(CPUBackend(plain).run(ids), plain.run(ids))


@torch.no_grad()
def test_the_backend_equals_plain_where_both_clips_bite(clipping_bilm):
    ids = batch_to_ids(SENTENCES)
    expected = clipping_bilm.run(ids)
    bound = clipping_bilm.config.cell_clip
    assert (expected.state.memory.abs() == bound).float().mean() > 0.1
    assert (expected.layers[1].abs() == clipping_bilm.config.proj_clip).float().mean() > 0.1
    assert_same(CPUBackend(clipping_bilm).run(ids), expected)


@torch.no_grad()
def test_the_backend_equals_plain_from_a_given_state(clipping_bilm):
    ids = batch_to_ids(SENTENCES)
    state = clipping_bilm.run(ids).state
    before = copy.deepcopy(state)
    packed = CPUBackend(clipping_bilm)
    assert_same(packed.run(ids, state), clipping_bilm.run(ids, state))
    # Cells are updated in place, but not those of the caller.
    assert torch.equal(state.memory, before.memory)
    assert torch.equal(state.hidden, before.hidden)
    one_row = state.take(slice(0, 1))
    for part, other in zip(
        packed.after_boundary(one_row), clipping_bilm.after_boundary(one_row), strict=True
    ):
        torch.testing.assert_close(part, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_a_layer_does_not_write_into_what_it_was_given(tiny_config, cell):
    packed = CPUBackend(seeded_bilm(tiny_config.replace(cell=cell)))
    given_state = LayerState(torch.randn(2, 16), torch.randn(2, 64))
    inputs = torch.randn(5, 16)
    before = copy.deepcopy((inputs, *given_state))
    packed.layers_of(0)[0](inputs, None, [2, 2, 1], given_state)
    assert all(torch.equal(*pair) for pair in zip((inputs, *given_state), before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.bool])
@pytest.mark.parametrize("kind", [CPUBackend, GPUBackend])
def test_ids_of_another_type_do_not_reach_a_kernel(tiny_bilm, kind, dtype):
    frozen = kind(copy.deepcopy(tiny_bilm))
    ids = torch.ones(3, 50, dtype=dtype)
    with pytest.raises(InputError, match=f"ids are {str(dtype)[6:]}, expected a tensor of whole"):
        frozen.encode_words(ids)
    with pytest.raises(InputError, match="expected a tensor of whole numbers"):
        frozen.run(ids[None])


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
@pytest.mark.parametrize("kind", [CPUBackend, GPUBackend])
def test_ids_of_fewer_bits_are_the_same_ids(tiny_bilm, kind, dtype):
    frozen = kind(copy.deepcopy(tiny_bilm))
    ids = word_ids(frozen.config, None).rows(["a", "Öl", "<S>"])
    assert torch.equal(frozen.encode_words(ids.to(dtype)), frozen.encode_words(ids))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("reads", ["characters", "code points", "words"])
def test_the_weights_come_back_bit_for_bit(cell, reads):
    config = {
        "characters": ElmoConfig.preset("tiny", cell=cell, n_highway=2),
        "code points": alphabet_config(cell=cell),
        "words": word_config(cell=cell),
    }[reads]
    plain = seeded_bilm(config)
    checkpoint = CPUBackend(plain).to_checkpoint()
    expected = plain.state_dict()
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(checkpoint.tensors[name], tensor), name
    assert checkpoint.config == plain.config
    assert checkpoint.vocabulary is plain.vocabulary
    assert checkpoint.alphabet is plain.alphabet


@settings(max_examples=15)
@given(config=configs(cells=("lstm", "gru"), reads=("characters", "words")))
def test_the_weights_of_any_size_come_back_bit_for_bit(config):
    plain = seeded_bilm(config)
    tensors = CPUBackend(plain).to_checkpoint().tensors
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        name: tuple(t.shape) for name, t in plain.state_dict().items()
    }
    assert all(torch.equal(tensors[name], t) for name, t in plain.state_dict().items())


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_consuming_frees_the_plain_weights_and_changes_no_number(tiny_config, cell):
    plain = seeded_bilm(tiny_config.replace(cell=cell))
    ids = batch_to_ids(SENTENCES)
    expected = CPUBackend(plain).run(ids)
    assert not any(parameter.is_meta for parameter in plain.parameters())
    packed = CPUBackend(plain, consume=True)
    assert all(parameter.is_meta for parameter in plain.parameters())
    assert torch.equal(packed.run(ids).layers, expected.layers)


@torch.no_grad()
def test_changing_the_plain_model_afterwards_changes_nothing(tiny_config):
    plain = seeded_bilm(tiny_config)
    packed = CPUBackend(plain)
    ids = batch_to_ids(SENTENCES)
    before = packed.run(ids).layers
    for parameter in plain.parameters():
        parameter.zero_()
    assert torch.equal(packed.run(ids).layers, before)


@needs_onednn
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(
    ("slice_bytes", "table_bytes"), [(1, 0), (1, 1 << 30), (4096, 0), (20_000, 1 << 30)]
)
@torch.no_grad()
def test_slicing_changes_no_bit(monkeypatch, tiny_config, cell, slice_bytes, table_bytes):
    packed = CPUBackend(seeded_bilm(tiny_config.replace(cell=cell)))
    # More places than distinct words, so that the first layer may tabulate its products.
    ids = batch_to_ids([["a", "b", "a", "c"] * 3, ["b", "x" * 49], ["a"] * 20, []])
    expected = packed.run(ids)
    monkeypatch.setattr(elmo.backends.cpu.model, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(elmo.backends.cpu.model, "_TABLE_BYTES", table_bytes)
    found = packed.run(ids)
    assert torch.equal(found.layers, expected.layers)
    assert torch.equal(found.state.memory, expected.state.memory)


@torch.no_grad()
def test_the_plain_products_serve_where_onednn_does_not_work(monkeypatch, tiny_config):
    monkeypatch.setattr(elmo.backends.cpu.products, "onednn_works", lambda dtype: False)
    for cell in ("lstm", "gru"):
        plain = seeded_bilm(tiny_config.replace(cell=cell))
        ids = batch_to_ids(SENTENCES)
        packed = CPUBackend(plain)
        assert_same(packed.run(ids), plain.run(ids))
        for name, tensor in packed.to_checkpoint().tensors.items():
            assert torch.equal(tensor, plain.state_dict()[name])


# --- bfloat16 -------------------------------------------------------------------------------------

PRODUCTS = ("transform.weight", "gate.weight", "projection.weight", "input_weight")
PRODUCTS += ("recurrent_weight", "projection_weight")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_bf16_without_instructions_is_float32_with_rounded_weights(tiny_config, cell):
    if native_format("bf16") not in (None, Format.BFLOAT16) or onednn_works(torch.bfloat16):
        pytest.skip("this CPU computes in bfloat16")
    plain = seeded_bilm(tiny_config.replace(cell=cell))
    ids = batch_to_ids(SENTENCES)
    found = CPUBackend(plain, "bf16").run(ids)
    exact = CPUBackend(plain).run(ids)
    rounded = copy.deepcopy(plain)
    for name, parameter in rounded.named_parameters():
        if name.endswith(PRODUCTS):
            parameter.copy_(parameter.bfloat16().float())
    assert torch.equal(found.layers, CPUBackend(rounded).run(ids).layers)
    assert not torch.equal(found.layers, exact.layers)


@torch.no_grad()
def test_bf16_is_close_to_fp32(tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    found = CPUBackend(tiny_bilm, "bf16").run(ids)
    expected = CPUBackend(tiny_bilm).run(ids)
    assert found.layers.dtype == torch.float32
    difference = (found.layers - expected.layers).abs()
    assert difference.max() < 0.2
    assert difference.mean() < 0.02


def test_rounded_weights_are_not_given_back(tiny_bilm):
    with pytest.raises(WeightsError, match=r"rounded to bf16.*precision='fp32'"):
        CPUBackend(tiny_bilm, "bf16").to_checkpoint()


def test_an_unknown_precision_is_named(tiny_bilm):
    with pytest.raises(ConfigError, match="precision is 'fp8', expected one of fp32, fp16, bf16"):
        CPUBackend(tiny_bilm, "fp8")
    with pytest.raises(ConfigError, match="'int4'"):
        runs_natively("int4")


def test_float32_always_runs_natively():
    assert runs_natively("fp32")


def test_consuming_frees_a_word_model_too():
    plain = seeded_bilm(word_config())
    CPUBackend(plain, consume=True)
    assert all(parameter.is_meta for parameter in plain.parameters())

"""The layers in plain PyTorch: gradients of the encoder, packed recurrences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import ElmoConfig, batch_to_ids
from elmo.model.bilm import pack
from elmo.model.cells import CELLS, LayerState
from elmo.model.layers import CharacterEncoder, Highway, run_packed
from strategies import seeded_bilm


def test_the_gradient_of_the_maximum_goes_to_one_position():
    config = ElmoConfig(
        dim=2, projection_dim=1, char_dim=1, filters=((1, 1),), n_highway=0, max_characters=6
    )
    encoder = CharacterEncoder(config)
    ids = batch_to_ids([["ab"]], max_characters=6)[0]
    with torch.no_grad():
        encoder.embedding.weight.fill_(-1.0)
        encoder.embedding.weight[ids[0, 1:3]] = 1.0  # "a" and "b" tie for the maximum
        encoder.convolutions[0].weight.fill_(1.0)
        encoder.convolutions[0].bias.zero_()
    encoder(ids).sum().backward()
    moved = encoder.embedding.weight.grad.flatten().nonzero().flatten()
    assert len(moved) == 1
    assert moved.item() in ids[0, 1:3].tolist()


def test_padding_inside_a_word_takes_part_in_the_maximum():
    config = ElmoConfig.preset("tiny", max_characters=8)
    encoder = seeded_bilm(config).words
    ids = batch_to_ids([["ab"]], max_characters=8)[0]
    before = encoder(ids)
    with torch.no_grad():
        encoder.embedding.weight[261] += 5.0
    assert not torch.allclose(encoder(ids), before)


def test_the_masked_character_learns_nothing():
    encoder = seeded_bilm(ElmoConfig.preset("tiny")).words
    encoder(torch.zeros(2, 50, dtype=torch.int64)).sum().backward()
    assert not encoder.embedding.weight.grad.any()


def test_a_new_highway_is_nearly_closed():
    highway = Highway(8)
    highway.reset_parameters()
    inputs = torch.randn(3, 8) * 0.01
    torch.testing.assert_close(highway(inputs), inputs, rtol=0.5, atol=0.01)
    assert (highway.gate.bias == -2).all()


def random_layer(cell, dim=5, width=3):
    config = ElmoConfig.preset(
        "tiny", dim=dim, projection_dim=width, cell=cell, cell_clip=0.6, proj_clip=0.4
    )
    layer = CELLS[cell](config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4))
@torch.no_grad()
def test_a_packed_batch_equals_its_sequences_one_by_one(cell, lengths):
    layer = random_layer(cell)
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(sum(lengths), 3, generator=generator)
    start = LayerState(
        torch.randn(len(lengths), 3, generator=generator),
        torch.randn(len(lengths), 5, generator=generator),
    )
    packing = pack(lengths)
    ordered = LayerState(*(part[packing.order] for part in start))
    outputs, end = run_packed(layer, inputs, packing.forward, packing.batch_sizes, ordered)
    flat = torch.empty_like(outputs)
    flat[packing.forward] = outputs
    for row, number in enumerate(packing.order.tolist()):
        first = sum(lengths[:number])
        alone = LayerState(*(part[number : number + 1] for part in start))
        n = lengths[number]
        expected, last = run_packed(layer, inputs[first : first + n], None, [1] * n, alone)
        torch.testing.assert_close(flat[first : first + n], expected, rtol=0, atol=1e-6)
        # A sentence that ended early keeps the state of its own last word.
        for part, own in zip(end, last, strict=True):
            torch.testing.assert_close(part[row : row + 1], own, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_clips_bound_cells_and_outputs(cell):
    layer = random_layer(cell)
    start = LayerState(torch.zeros(1, 3), torch.zeros(1, 5))
    outputs, end = run_packed(layer, torch.randn(40, 3) * 10, None, [1] * 40, start)
    assert outputs.abs().max() == pytest.approx(0.4)
    assert end.memory.abs().max() <= 0.6 + 1e-6


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_of_a_recurrence_are_those_of_finite_differences(cell):
    layer = random_layer(cell).double()
    start = LayerState(torch.zeros(2, 3).double(), torch.zeros(2, 5).double())
    inputs = (torch.randn(5, 3, dtype=torch.float64) * 0.1).requires_grad_()
    for parameter in layer.parameters():
        parameter.data *= 0.2  # below the clips, which have corners
    assert torch.autograd.gradcheck(
        lambda x: run_packed(layer, x, None, [2, 2, 1], start)[0], (inputs,), atol=1e-6
    )

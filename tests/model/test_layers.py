"""The bricks in plain PyTorch: mixing, gradients, packed recurrences, masks and state."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import BiLM, ElmoConfig, ScalarMix, State, batch_to_ids, random_bilm
from elmo.errors import ConfigError, InputError
from elmo.model.bilm import CarriedState, zero_state
from elmo.model.layers import CharacterEncoder, GRULayer, Highway, LayerState, LSTMLayer
from elmo.model.packing import pack
from strategies import seeded_bilm

# --- the mix --------------------------------------------------------------------------------------


def random_layers(n_layers=3, batch=2, time=4, dim=6, seed=0):
    return torch.randn(n_layers, batch, time, dim, generator=torch.Generator().manual_seed(seed))


def test_a_new_mix_is_the_average():
    layers = random_layers()
    torch.testing.assert_close(ScalarMix(3)(layers), layers.mean(dim=0))


@given(raw=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=4), gamma=st.floats(-3, 3))
def test_a_mix_is_the_formula_of_the_paper(raw, gamma):
    layers = random_layers(len(raw))
    mix = ScalarMix(len(raw), initial_scalar_parameters=raw)
    with torch.no_grad():
        mix.gamma.fill_(gamma)
        found = mix(list(layers)).numpy()
    weights = np.exp(raw) / np.exp(raw).sum()
    np.testing.assert_allclose(mix.weights().detach(), weights, rtol=0, atol=1e-6)
    expected = gamma * np.tensordot(weights, layers.numpy(), axes=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_one_large_weight_selects_a_layer_exactly():
    layers = random_layers()
    mix = ScalarMix(3, initial_scalar_parameters=[0.0, 1e4, 0.0])
    assert torch.equal(mix(layers), layers[1])


def test_weights_and_gamma_learn_unless_the_mix_is_frozen():
    layers = random_layers()
    learning = ScalarMix(3)
    learning(layers).sum().backward()
    assert all(p.grad is not None for p in learning.parameters())
    assert len(list(learning.parameters())) == 4
    frozen = ScalarMix(3, trainable=False)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_parameter_names_are_those_of_allennlp():
    assert set(ScalarMix(2).state_dict()) == {"gamma", "scalar_parameters.0", "scalar_parameters.1"}


def test_the_layer_norm_has_one_mean_and_variance_over_all_unmasked_values():
    layers = random_layers() * 3 + 1
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)
    raw = [0.3, -0.5, 1.0]
    found = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=raw)(layers, mask)
    weights = np.exp(raw) / np.exp(raw).sum()
    expected = np.zeros(layers.shape[1:])
    for weight, layer in zip(weights, layers.double().numpy(), strict=True):
        words = layer[mask.numpy()]
        expected += weight * (layer - words.mean()) / np.sqrt(words.var() + 1e-13)
    np.testing.assert_allclose(found.detach(), expected, rtol=0, atol=1e-5)


def test_masked_values_do_not_move_the_layer_norm():
    layers = random_layers()
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)
    mix = ScalarMix(3, do_layer_norm=True)
    disturbed = layers.clone()
    disturbed[:, ~mask] = 1e3
    torch.testing.assert_close(mix(layers, mask)[mask], mix(disturbed, mask)[mask])


def test_a_constant_layer_is_normed_to_zero_not_to_nan():
    layers = torch.full((3, 1, 2, 4), 5.0)
    mixed = ScalarMix(3, do_layer_norm=True)(layers, torch.ones(1, 2, dtype=torch.bool))
    assert torch.equal(mixed, torch.zeros(1, 2, 4))


def test_the_layer_norm_needs_a_mask():
    with pytest.raises(ConfigError, match="mask"):
        ScalarMix(3, do_layer_norm=True)(random_layers())


def test_the_penalty_is_the_squared_norm_of_the_raw_weights():
    mix = ScalarMix(3, initial_scalar_parameters=[1.0, -2.0, 0.5], l2=0.1)
    assert mix.penalty().item() == pytest.approx(0.1 * (1 + 4 + 0.25))
    assert ScalarMix(3, initial_scalar_parameters=[1.0, -2.0, 0.5]).penalty().item() == 0


def test_descending_the_penalty_pulls_the_mix_to_the_average():
    mix = ScalarMix(3, initial_scalar_parameters=[2.0, -1.0, 0.5], l2=0.5)
    optimizer = torch.optim.SGD(mix.parameters(), lr=0.1)
    distances = []
    for _ in range(30):
        distances.append((mix.weights() - 1 / 3).abs().max().item())
        optimizer.zero_grad()
        mix.penalty().backward()
        optimizer.step()
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.1 * distances[0]
    assert mix.gamma.item() == 1.0


def test_a_mix_of_the_wrong_size_is_refused():
    with pytest.raises(ConfigError, match="has 2 weights, expected 3"):
        ScalarMix(3, initial_scalar_parameters=[0.0, 0.0])
    with pytest.raises(ConfigError, match="got 2 layers to mix, expected 3"):
        ScalarMix(3)(random_layers(2))


# --- words ----------------------------------------------------------------------------------------


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


def test_random_models_are_reproducible_and_leave_the_global_generator_alone():
    config = ElmoConfig.preset("tiny")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = random_bilm(config), random_bilm(config), random_bilm(config, seed=1)
    assert torch.equal(torch.rand(3), expected)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert not torch.equal(first.words.embedding.weight, other.words.embedding.weight)
    assert not first.words.embedding.weight[0].any()
    assert not first.training


# --- recurrences ----------------------------------------------------------------------------------


def random_layer(cell, dim=5, width=3):
    config = ElmoConfig.preset(
        "tiny", dim=dim, projection_dim=width, cell=cell, cell_clip=0.6, proj_clip=0.4
    )
    layer = {"lstm": LSTMLayer, "gru": GRULayer}[cell](config)
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
    outputs, end = layer(inputs, packing.forward, packing.batch_sizes, ordered)
    flat = torch.empty_like(outputs)
    flat[packing.forward] = outputs
    for row, number in enumerate(packing.order.tolist()):
        first = sum(lengths[:number])
        alone = LayerState(*(part[number : number + 1] for part in start))
        n = lengths[number]
        expected, last = layer(inputs[first : first + n], None, [1] * n, alone)
        torch.testing.assert_close(flat[first : first + n], expected, rtol=0, atol=1e-6)
        # A sentence that ended early keeps the state of its own last word.
        for part, own in zip(end, last, strict=True):
            torch.testing.assert_close(part[row : row + 1], own, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_clips_bound_cells_and_outputs(cell):
    layer = random_layer(cell)
    start = LayerState(torch.zeros(1, 3), torch.zeros(1, 5))
    outputs, end = layer(torch.randn(40, 3) * 10, None, [1] * 40, start)
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
        lambda x: layer(x, None, [2, 2, 1], start)[0], (inputs,), atol=1e-6
    )


# --- masks and boundaries -------------------------------------------------------------------------

SENTENCES = [["The", "cat", "sat", "."], ["No"], []]


@torch.no_grad()
def test_padding_does_not_change_vectors(tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    wider = torch.cat([ids, torch.zeros(3, 5, 50, dtype=torch.int64)], dim=1)
    narrow, wide = tiny_bilm(ids), tiny_bilm(wider)
    assert torch.equal(wide.layers[:, :, :4], narrow.layers)
    assert not wide.layers[:, :, 4:].any()
    assert torch.equal(wide.mask[:, :4], narrow.mask)
    assert not wide.mask[:, 4:].any()


@torch.no_grad()
def test_the_mask_tells_words_and_padding_is_zero_in_every_layer(tiny_bilm):
    output = tiny_bilm(batch_to_ids(SENTENCES))
    assert output.mask.sum(dim=1).tolist() == [4, 1, 0]
    assert not output.layers[:, ~output.mask].any()
    assert output.layers[:, output.mask].any(dim=-1).all()


@torch.no_grad()
def test_boundaries_can_be_kept(tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    with_boundaries = tiny_bilm(ids, keep_boundaries=True)
    assert with_boundaries.mask.sum(dim=1).tolist() == [6, 3, 2]
    without = tiny_bilm(ids)
    for row, sentence in enumerate(SENTENCES):
        n = len(sentence)
        assert torch.equal(with_boundaries.layers[:, row, 1 : n + 1], without.layers[:, row, :n])
    # Their context-free vectors are those of the marks.
    marks = tiny_bilm.encode_words(tiny_bilm.boundaries)
    found = with_boundaries.layers[0, 1, [0, 2], :16]
    torch.testing.assert_close(found, marks, rtol=0, atol=1e-6)


def test_a_hole_between_words_is_refused(tiny_bilm):
    ids = batch_to_ids([["a", "b", "c"]])
    ids[0, 1] = 0
    with pytest.raises(InputError, match="padding on the right"):
        tiny_bilm(ids)


@torch.no_grad()
def test_layer_zero_is_the_word_vector_twice(tiny_bilm):
    layers = tiny_bilm(batch_to_ids(SENTENCES)).layers[0]
    assert torch.equal(layers[..., :16], layers[..., 16:])


@torch.no_grad()
def test_fewer_layers_are_the_first_of_all(tiny_bilm):
    vectors = tiny_bilm.encode_words(batch_to_ids([["a", "b", "c"]])[0])
    tokens = torch.tensor([0, 1, 2, 1, 0])
    full, state = tiny_bilm.contextualize(vectors, tokens, [3, 2])
    first, shallow = tiny_bilm.contextualize(vectors, tokens, [3, 2], depth=1)
    assert len(first) == 1
    assert torch.equal(first[0], full[0])
    assert torch.equal(shallow.hidden[0], state.hidden[0])
    assert not shallow.hidden[1].any()


def test_a_model_that_reads_words_without_vocabulary_takes_the_first_two_as_boundaries():
    bilm = BiLM(ElmoConfig.preset("tiny", n_words=7))
    assert bilm.boundaries.tolist() == [1, 2]


# --- state ----------------------------------------------------------------------------------------


def test_states_are_taken_repeated_and_split_by_row(tiny_config):
    shape = (tiny_config.n_layers, 2, 3)
    state = State(torch.randn(*shape, 16), torch.randn(*shape, 64))
    assert state.rows == 3
    assert torch.equal(state.take(torch.tensor([2, 0])).hidden, state.hidden[:, :, [2, 0]])
    repeated = state.take(slice(1, 2)).repeat(4)
    assert repeated.rows == 4
    assert torch.equal(repeated.memory[:, :, 3], state.memory[:, :, 1])
    layer = state.layer(1, 0)
    assert torch.equal(layer.hidden, state.hidden[1, 0])
    assert torch.equal(layer.memory, state.memory[1, 0])


def test_carried_state_grows_by_zero_rows_and_keeps_rows_beyond_a_smaller_batch(tiny_config):
    carried = CarriedState(tiny_config)
    cpu = torch.device("cpu")
    assert not carried.first_rows(2, cpu).hidden.any()
    ones = zero_state(tiny_config, 2, torch.empty(0))
    ones.hidden.fill_(1.0)
    carried.keep(ones)
    grown = carried.first_rows(3, cpu)
    assert grown.hidden[0, 0, :, 0].tolist() == [1.0, 1.0, 0.0]
    twos = zero_state(tiny_config, 1, torch.empty(0))
    twos.hidden.fill_(2.0)
    carried.first_rows(1, cpu)
    carried.keep(twos)
    assert carried.first_rows(3, cpu).hidden[0, 0, :, 0].tolist() == [2.0, 1.0, 0.0]


def test_carried_state_does_not_write_into_what_it_was_given(tiny_config):
    carried = CarriedState(tiny_config)
    given_state = zero_state(tiny_config, 1, torch.empty(0))
    carried.state = given_state
    carried.first_rows(1, torch.device("cpu"))
    new = zero_state(tiny_config, 1, torch.empty(0))
    new.memory.fill_(7.0)
    carried.keep(new)
    assert not given_state.memory.any()

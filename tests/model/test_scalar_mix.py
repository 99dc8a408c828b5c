"""The learned mix of layers against the formula of the paper and AllenNLP's conventions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo import ScalarMix
from elmo.errors import ConfigError


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

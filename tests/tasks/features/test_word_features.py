"""Words -> vectors for heads: sources of layers, mixes, dropout."""

import numpy as np
import pytest
import torch

from elmo.errors import ConfigError
from elmo.module import fixed_mix_weights
from elmo.tasks.features.inputs import CachedLayers, DirectLayers, InputStore
from elmo.tasks.features.static_words import StaticWords
from elmo.tasks.features.word_features import ElmoChoice, FeatureInputs, WordFeatures
from elmo.text.static_vectors import VectorFile
from strategies import seeded_bilm

CPU = torch.device("cpu")
SENTENCES = [["The", "cat", "sat"], ["Hello"], [], ["the", "zyzzyva", "sat", "."]]


def computed(elmo, sentences):
    arrays = elmo.encode_tokens(sentences, dtype="float16")
    return np.concatenate([np.swapaxes(array, 0, 1) for array in arrays])


def features_of(elmo, at="input", mix="learned", static=None, **more):
    choice = ElmoChoice(n_layers=elmo.n_layers, dim=elmo.dim, at=at, mix=mix, **more)
    return WordFeatures(static, choice).eval()


@pytest.mark.parametrize("mix", ["learned", "top", "average", 0, 1])
def test_mixes_are_those_of_numpy(tmp_path, tiny_elmo, mix):
    features = features_of(tiny_elmo, mix=mix)
    if mix == "learned":
        for place, weight in enumerate(features.input_mix.scalar_parameters):
            weight.data.fill_(0.5 * place)
        features.input_mix.gamma.data.fill_(2.0)
    store = InputStore(features, DirectLayers(tiny_elmo, CPU), CPU)
    store.prepare(SENTENCES)
    with torch.no_grad():
        found = features(store(SENTENCES)).input.numpy()
    layers = computed(tiny_elmo, SENTENCES).astype(np.float32)
    raw = {"learned": [0, 0.5, 1.0], "average": [0, 0, 0]}.get(mix)
    if raw is None:
        expected = layers[:, {"top": 2}.get(mix, mix)]
    else:
        weights = np.exp(raw) / np.exp(raw).sum()
        expected = np.einsum("l,nld->nd", weights, layers) * (2.0 if mix == "learned" else 1.0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_static_vectors_stand_before_elmo_and_output_beside(vectors, tmp_path, tiny_elmo):
    static = StaticWords.from_source(VectorFile(str(vectors)), ["the", "cat", "sat"], False)
    features = features_of(tiny_elmo, at="both", static=static)
    assert (features.dims.input, features.dims.output) == (2 + tiny_elmo.dim, tiny_elmo.dim)
    store = InputStore(features, DirectLayers(tiny_elmo, CPU), CPU)
    store.prepare(SENTENCES)
    words = features(store(SENTENCES))
    assert words.input[:3, :2].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert torch.equal(words.input[:, 2:], words.output)  # both mixes begin as the average


def test_layers_are_the_same_from_the_cache_directly_and_from_a_learning_bilm(
    tmp_path, tiny_bilm, tiny_elmo
):
    given = [words for words in SENTENCES if words]
    cached = CachedLayers(tiny_bilm.to_checkpoint(), CPU, tmp_path)
    results = []
    for source in (cached, DirectLayers(tiny_elmo, CPU)):
        features = features_of(tiny_elmo)
        store = InputStore(features, source, CPU)
        store.prepare(given)
        results.append(features(store(given)).input)
    choice = ElmoChoice(n_layers=tiny_elmo.n_layers, dim=tiny_elmo.dim)
    learning = WordFeatures(None, choice, seeded_bilm(tiny_bilm.config)).eval()
    vectors = learning(InputStore(learning, None, CPU)(given)).input
    assert torch.equal(*results)
    torch.testing.assert_close(vectors, results[0], atol=2e-3, rtol=0)
    vectors.sum().backward()
    assert all(p.grad is not None for p in learning.bilm.parameters())


def test_the_penalty_pulls_weights_to_the_average(tiny_elmo):
    features = features_of(tiny_elmo, at="both", mix_l2=0.1)
    for mix in (features.input_mix, features.output_mix):
        for weight in mix.scalar_parameters:
            weight.data.fill_(2.0)
    assert features.penalty().item() == pytest.approx(0.1 * 2 * 3 * 4)
    assert features_of(tiny_elmo).penalty() == 0.0


def test_dropout_is_only_on_while_training(tiny_elmo):
    features = features_of(tiny_elmo, dropout=0.5)
    inputs = FeatureInputs(layers=torch.ones(50, 3, tiny_elmo.dim))
    assert (features(inputs).input == 1).all()
    dropped = features.train()(inputs).input
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_mix_weights_are_named_by_place(tiny_elmo):
    weights = features_of(tiny_elmo, at="both").mix_weights()
    assert weights["input"] == pytest.approx([1 / 3] * 3)
    assert set(weights) == {"input", "output"}


def test_a_mix_of_a_layer_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="from 0 to 2"):
        fixed_mix_weights(3, 3)

"""`Elmo` inside a task model: what learns, what is mixed, what is carried."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from elmo import ELMo, Elmo, ElmoConfig, ElmoLayer, batch_to_ids, random_bilm
from elmo.errors import ConfigError, InputError
from elmo.text.characters import word_ids
from strategies import batches, seeded_bilm

SENTENCES = [["The", "cat", "sat", "."], ["No"], ["Öl", "河", "The"]]


@pytest.fixture
def bilm(tiny_config):
    """A model of this test's own: modules change whether its parameters learn."""
    return seeded_bilm(tiny_config)


@pytest.fixture(scope="module")
def ids():
    return batch_to_ids(SENTENCES)


@pytest.fixture(scope="module")
def layers(tiny_bilm, ids):
    """All layers of the batch, without boundaries."""
    with torch.no_grad():
        return tiny_bilm(ids).layers


def represent(module, ids):
    return module(ids)["elmo_representations"][0]


def task_loss(module, ids):
    """A loss that no symmetry of the vectors makes blind to a parameter."""
    loss = torch.zeros(())
    for number, vectors in enumerate(module(ids)["elmo_representations"]):
        weights = torch.linspace(-1, 1, vectors.shape[-1]) + 0.1 * (number + 1)
        loss = loss + (vectors * weights).square().sum()
    return loss


# --- what comes out -------------------------------------------------------------------------------


def test_a_new_module_gives_the_average_of_the_layers(bilm, ids, layers):
    output = Elmo(bilm, dropout=0.0)(ids)
    assert len(output["elmo_representations"]) == 1
    found = output["elmo_representations"][0]
    assert found.shape == (3, 4, 32)
    torch.testing.assert_close(found, layers.mean(dim=0), rtol=0, atol=1e-5)
    assert output["mask"].sum(dim=1).tolist() == [4, 1, 3]


@pytest.mark.parametrize("requires_grad", [False, True])
@settings(max_examples=15)
@given(batch=batches(min_size=1, max_size=4).filter(any))
@torch.no_grad()
def test_padding_is_zero_and_words_are_the_same_in_any_company(tiny_bilm, requires_grad, batch):
    module = Elmo(copy.deepcopy(tiny_bilm), mix="top", dropout=0.0, requires_grad=requires_grad)
    output = module(batch_to_ids(batch))
    (found,) = output["elmo_representations"]
    assert output["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in batch]
    assert not found[~output["mask"]].any()
    for row, sentence in enumerate(batch):
        if sentence:
            alone = represent(module, batch_to_ids([sentence]))[0]
            torch.testing.assert_close(found[row, : len(sentence)], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("mix", "layer"), [("top", 2), (0, 0), (1, 1), (2, 2)])
def test_a_chosen_layer_is_that_layer(bilm, ids, layers, mix, layer):
    module = Elmo(bilm, mix=mix, dropout=0.0)
    torch.testing.assert_close(represent(module, ids), layers[layer], rtol=0, atol=1e-5)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_the_average_is_fixed(bilm, ids, layers):
    module = Elmo(bilm, mix="average", dropout=0.0)
    torch.testing.assert_close(represent(module, ids), layers.mean(dim=0), rtol=0, atol=1e-5)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_given_weights_are_fixed_and_go_before_a_mix(bilm, ids, layers):
    raw = [0.5, -1.0, 2.0]
    module = Elmo(bilm, scalar_mix_parameters=raw, dropout=0.0)
    weights = np.exp(raw) / np.exp(raw).sum()
    expected = np.tensordot(weights, layers.numpy(), axes=1)
    np.testing.assert_allclose(represent(module, ids).detach(), expected, rtol=0, atol=1e-5)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_representations_have_mixes_of_their_own(bilm, ids, layers):
    module = Elmo(bilm, 2, dropout=0.0)
    with torch.no_grad():
        module.mixes[1].scalar_parameters[0].fill_(3.0)
        module.mixes[1].gamma.fill_(0.5)
    first, second = module(ids)["elmo_representations"]
    torch.testing.assert_close(first, layers.mean(dim=0), rtol=0, atol=1e-5)
    weights = torch.softmax(torch.tensor([3.0, 0.0, 0.0]), dim=0)
    expected = 0.5 * torch.einsum("l,lbtd->btd", weights, layers)
    torch.testing.assert_close(second, expected, rtol=0, atol=1e-5)


def test_representations_share_one_run_of_the_model(bilm, ids):
    runs = []
    bilm.words.register_forward_hook(lambda *call: runs.append(1))
    module = Elmo(bilm, 3, dropout=0.0, requires_grad=True)
    assert len(module(ids)["elmo_representations"]) == 3
    assert len(runs) == 1


def test_dropout_is_for_training_only(bilm, ids):
    module = Elmo(bilm, dropout=0.5)
    torch.manual_seed(0)
    first, second = represent(module, ids), represent(module, ids)
    assert not torch.equal(first, second)
    words = first[0, :4]
    assert 0.2 < (words == 0).float().mean() < 0.8
    module.eval()
    expected = represent(module, ids)
    assert torch.equal(represent(module, ids), expected)
    # What survives training's dropout is the same value, scaled.
    kept = words != 0
    torch.testing.assert_close(words[kept], 2 * expected[0, :4][kept])


def test_several_representations_are_dropped_out_independently(bilm, ids):
    first, second = Elmo(bilm, 2, dropout=0.5)(ids)["elmo_representations"]
    assert not torch.equal(first == 0, second == 0)


def test_boundaries_can_be_kept(bilm, ids):
    output = Elmo(bilm, mix="top", dropout=0.0, keep_sentence_boundaries=True)(ids)
    assert output["elmo_representations"][0].shape == (3, 6, 32)
    assert output["mask"].sum(dim=1).tolist() == [6, 3, 5]
    with torch.no_grad():
        expected = bilm(ids, keep_boundaries=True).layers[2]
    torch.testing.assert_close(output["elmo_representations"][0], expected, rtol=0, atol=1e-5)


def test_further_axes_in_front_are_kept(bilm, ids):
    module = Elmo(bilm, dropout=0.0)
    expected = module(ids)
    stacked = torch.stack([ids, ids.flip(0)])  # (2, 3, time, characters)
    output = module(stacked)
    assert output["elmo_representations"][0].shape == (2, 3, 4, 32)
    assert output["mask"].shape == (2, 3, 4)
    found = output["elmo_representations"][0]
    torch.testing.assert_close(found[0], expected["elmo_representations"][0], rtol=0, atol=1e-6)
    torch.testing.assert_close(found[1], found[0].flip(0), rtol=0, atol=1e-6)
    assert torch.equal(output["mask"][1], expected["mask"].flip(0))
    deeper = module(stacked[None])
    assert deeper["elmo_representations"][0].shape == (1, 2, 3, 4, 32)


def test_the_layer_norm_counts_boundaries_as_allennlp_does(bilm, ids):
    module = Elmo(bilm, do_layer_norm=True, dropout=0.0)
    output = module(ids)
    with torch.no_grad():
        read = bilm(ids, keep_boundaries=True)
    expected = 0
    for layer in read.layers.double().numpy():
        words = layer[read.mask.numpy()]
        expected = expected + (layer - words.mean()) / np.sqrt(words.var() + 1e-13) / 3
    found = output["elmo_representations"][0].detach().numpy()
    mask = output["mask"].numpy()
    np.testing.assert_allclose(found[mask], expected[:, 1:-1][mask], rtol=0, atol=1e-4)
    assert not found[~mask].any()


def test_a_model_that_reads_words_takes_their_ids(word_bilm):
    bilm = copy.deepcopy(word_bilm)
    word_ids_of = word_ids(bilm.config, bilm.vocabulary).batch([["the", "cat"], ["sat"]])
    output = Elmo(bilm, mix="top", dropout=0.0)(word_ids_of)
    with torch.no_grad():
        expected = bilm(word_ids_of).layers[2]
    torch.testing.assert_close(output["elmo_representations"][0], expected, rtol=0, atol=1e-5)


def test_the_width_is_told(bilm):
    assert Elmo(bilm).get_output_dim() == 32


# --- what learns ----------------------------------------------------------------------------------


def test_only_the_mixes_learn_from_a_frozen_model(bilm, ids):
    module = Elmo(bilm, 2, dropout=0.0)
    task_loss(module, ids).backward()
    for name, parameter in module.named_parameters():
        if name.startswith("bilm."):
            assert parameter.grad is None
            assert not parameter.requires_grad
        else:
            assert parameter.grad is not None
            assert parameter.grad.any(), name


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_everything_but_the_masked_character_learns_where_asked(tiny_config, ids, cell):
    bilm = seeded_bilm(tiny_config.replace(cell=cell))
    module = Elmo(bilm, dropout=0.0, requires_grad=True)
    task_loss(module, ids).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
    assert not bilm.words.embedding.weight.grad[0].any()


def test_nothing_learns_from_a_fixed_mix_of_a_frozen_model(bilm, ids):
    module = Elmo(bilm, mix="top", dropout=0.0)
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert not represent(module, ids).requires_grad


def test_the_model_learns_under_a_fixed_mix_where_asked(bilm, ids):
    module = Elmo(bilm, mix="top", dropout=0.0, requires_grad=True)
    task_loss(module, ids).backward()
    assert all(parameter.grad is not None for parameter in bilm.parameters())
    assert all(parameter.grad is None for parameter in module.mixes.parameters())


def test_gradients_are_those_of_finite_differences(bilm, ids):
    module = Elmo(bilm, dropout=0.0, requires_grad=True)
    task_loss(module, ids).backward()
    step = 1e-2
    for name in ("forward_layers.0.projection_weight", "words.projection.bias"):
        parameter = dict(bilm.named_parameters())[name]
        place = parameter.grad.abs().argmax()
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.view(-1)[place] += sign * step
                losses.append(task_loss(module, ids).item())
                parameter.view(-1)[place] -= sign * step
        slope = (losses[0] - losses[1]) / (2 * step)
        assert slope == pytest.approx(parameter.grad.view(-1)[place].item(), rel=0.02)


def test_the_model_is_read_without_gradients_where_they_are_off(bilm, ids):
    module = Elmo(bilm, dropout=0.0, requires_grad=True)
    learning = represent(module, ids)
    with torch.no_grad():
        reading = represent(module, ids)
    assert learning.requires_grad
    assert not reading.requires_grad
    torch.testing.assert_close(reading, learning.detach(), rtol=0, atol=1e-5)


def test_the_penalty_is_that_of_all_mixes(bilm):
    module = Elmo(bilm, 2, l2=0.5)
    assert module.penalty().item() == 0
    with torch.no_grad():
        module.mixes[0].scalar_parameters[1].fill_(2.0)
        module.mixes[1].scalar_parameters[2].fill_(-1.0)
    assert module.penalty().item() == pytest.approx(0.5 * (4 + 1))
    module.penalty().backward()
    assert module.mixes[0].scalar_parameters[1].grad.item() == pytest.approx(0.5 * 2 * 2)


# --- the fast twin of a frozen model --------------------------------------------------------------


def test_changed_weights_are_noticed(bilm, ids, tiny_config):
    module = Elmo(bilm, mix="top", dropout=0.0)
    before = represent(module, ids)
    assert torch.equal(represent(module, ids), before)

    def expected():
        with torch.no_grad():
            return bilm(ids).layers[2]

    with torch.no_grad():
        bilm.forward_layers[1].bias += 0.5
    torch.testing.assert_close(represent(module, ids), expected(), rtol=0, atol=1e-5)
    assert not torch.allclose(represent(module, ids), before, atol=1e-3)

    other = seeded_bilm(tiny_config, seed=3)
    bilm.load_state_dict(other.state_dict())
    torch.testing.assert_close(represent(module, ids), expected(), rtol=0, atol=1e-5)

    bilm.load_state_dict(seeded_bilm(tiny_config, seed=4).state_dict(), assign=True)
    torch.testing.assert_close(represent(module, ids), expected(), rtol=0, atol=1e-5)


def test_a_step_of_fine_tuning_is_noticed_in_evaluation(bilm, ids):
    module = Elmo(bilm, mix="top", dropout=0.0, requires_grad=True)
    optimizer = torch.optim.SGD(bilm.parameters(), lr=0.01)
    with torch.no_grad():
        before = represent(module, ids)
    task_loss(module, ids).backward()
    optimizer.step()
    with torch.no_grad():
        after = represent(module, ids)
        expected = bilm(ids).layers[2]
    assert not torch.allclose(after, before, atol=1e-3)
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-5)


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [False, True])
def test_carried_state_goes_on_row_by_row(bilm, requires_grad):
    module = Elmo(bilm, mix="top", dropout=0.0, state="carry", requires_grad=requires_grad)
    rows = {}
    for batch in ([["a"], ["b", "c"]], [["d"], ["e"], ["f"]], [["g"]], [["h"], ["i"], ["j"]]):
        found = represent(module, batch_to_ids(batch))
        for row, sentence in enumerate(batch):
            with torch.no_grad():
                output = bilm(batch_to_ids([sentence]), rows.get(row))
            rows[row] = output.state
            torch.testing.assert_close(
                found[row, : len(sentence)].detach(), output.layers[2, 0], rtol=0, atol=1e-5
            )


def test_resetting_forgets_what_was_carried(bilm, ids):
    module = Elmo(bilm, dropout=0.0, state="carry")
    first, second = represent(module, ids), represent(module, ids)
    assert not torch.allclose(first, second, atol=1e-3)
    module.reset()
    torch.testing.assert_close(represent(module, ids), first, rtol=0, atol=1e-6)


def test_zero_state_does_not_depend_on_history(bilm, ids):
    module = Elmo(bilm, dropout=0.0)
    first = represent(module, ids)
    module(ids.flip(0))
    assert torch.equal(represent(module, ids), first)


def test_fine_tuning_with_carried_state_takes_step_after_step(bilm, ids):
    module = Elmo(bilm, dropout=0.0, state="carry", requires_grad=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    gradients = []
    for _ in range(3):
        optimizer.zero_grad()
        # The graph of the step before is gone by now: what is carried must not hold on to it.
        task_loss(module, ids).backward()
        gradients.append(bilm.forward_layers[0].input_weight.grad.clone())
        optimizer.step()
    assert all(gradient.any() for gradient in gradients)
    assert not torch.equal(gradients[0], gradients[1])


# --- saving and mistakes --------------------------------------------------------------------------


def test_a_state_dict_gives_the_same_module_back(bilm, ids, tiny_config):
    module = Elmo(bilm, 2, dropout=0.0)
    with torch.no_grad():
        for number, parameter in enumerate(module.mixes.parameters()):
            parameter.fill_(0.1 * number)
    saved = copy.deepcopy(module.state_dict())
    assert set(saved) == {f"bilm.{name}" for name in bilm.state_dict()} | {
        f"mixes.{k}.{name}" for k in range(2) for name in module.mixes[0].state_dict()
    }
    other = Elmo(seeded_bilm(tiny_config, seed=8), 2, dropout=0.0)
    assert not torch.allclose(represent(other, ids), represent(module, ids), atol=1e-3)
    other.load_state_dict(saved)
    for found, expected in zip(
        other(ids)["elmo_representations"], module(ids)["elmo_representations"], strict=True
    ):
        assert torch.equal(found, expected)


def test_ids_of_another_shape_are_refused(bilm, word_bilm):
    with pytest.raises(ConfigError, match=r"shape \(3, 50\), expected \(batch, time, characters\)"):
        Elmo(bilm)(torch.ones(3, 50, dtype=torch.int64))
    with pytest.raises(ConfigError, match="ids have 20 characters a word, the model reads 50"):
        Elmo(bilm)(torch.ones(2, 3, 20, dtype=torch.int64))
    with pytest.raises(ConfigError, match=r"shape \(3,\), expected \(batch, time\)"):
        Elmo(copy.deepcopy(word_bilm))(torch.ones(3, dtype=torch.int64))


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.bool],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_ids_of_another_type_are_refused(bilm, dtype, requires_grad):
    module = Elmo(bilm, requires_grad=requires_grad)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(InputError, match=f"ids are {name}, expected a tensor of whole numbers"):
        module(torch.zeros(2, 3, 50, dtype=dtype))


def test_ids_that_are_no_tensor_are_refused(bilm, ids):
    with pytest.raises(InputError, match="ids are a list, expected a tensor"):
        Elmo(bilm)(ids.tolist())
    with pytest.raises(InputError, match="ids are a ndarray, expected a tensor"):
        Elmo(bilm)(ids.numpy())


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_ids_of_fewer_bits_give_the_same_vectors(bilm, ids, dtype):
    module = Elmo(bilm, dropout=0.0)
    assert torch.equal(represent(module, ids.to(dtype)), represent(module, ids))


def test_a_hole_between_words_is_refused(bilm, ids):
    spoilt = ids.clone()
    spoilt[0, 1] = 0
    with pytest.raises(InputError, match="padding on the right"):
        Elmo(bilm)(spoilt)


@pytest.mark.parametrize("mix", ["best", 3, -1, True, 1.0])
def test_an_unknown_mix_is_named(bilm, mix):
    with pytest.raises(ConfigError, match="mix is"):
        Elmo(bilm, mix=mix)


def test_other_impossible_settings_are_named(bilm):
    with pytest.raises(ConfigError, match="has 2 weights, expected 3"):
        Elmo(bilm, scalar_mix_parameters=[0.0, 0.0])
    with pytest.raises(ConfigError, match="state is 'warm'"):
        Elmo(bilm, state="warm")
    with pytest.raises(TypeError):
        Elmo(bilm, nonsense=1)


@pytest.mark.parametrize("number", [0, -1, True, "2", 1.0])
def test_an_impossible_number_of_representations_is_named(bilm, number):
    with pytest.raises(ConfigError, match=r"num_output_representations is .*at least 1"):
        Elmo(bilm, number)


# --- the call of AllenNLP -------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path, format="hdf5")
    return str(tmp_path / "options.json"), str(tmp_path / "weights.hdf5")


def test_the_call_of_allennlp_gives_the_same_module(files, ids):
    options, weights = files
    ours = Elmo.from_pretrained(options=options, weights=weights, num_output_representations=2)
    expected = ours.eval()(ids)["elmo_representations"]
    for module in (
        Elmo(options, weights, 2),
        Elmo(options, weights, num_output_representations=2, dropout=0.1),
        Elmo(options_file=Path(options), weight_file=weights, num_output_representations=2),
        Elmo(options, weights, 2, False, False, 0.5, None, False, [0.0, 0.0, 0.0], None),
    ):
        found = module.eval()(ids)["elmo_representations"]
        assert len(found) == 2
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_all_arguments_of_allennlp_arrive(files):
    module = Elmo(*files, 1, True, True, 0.25, None, True, [1.0, 2.0, 3.0])
    assert module.requires_bilm_grad
    assert module.keep_sentence_boundaries
    assert module.dropout.p == 0.25
    assert module.mixes[0].do_layer_norm
    assert module.mixes[0].scalar_parameters[2].item() == 3.0
    assert Elmo(*files, 1, state="carry").state_policy == "carry"


def test_what_is_not_like_the_call_of_allennlp_is_named(files, bilm):
    with pytest.raises(ConfigError, match=r"weight_file is None.*ElmoLayer\.from_pretrained"):
        Elmo("small-en")
    with pytest.raises(ConfigError, match=r"weight_file is 2.*ElmoLayer\.from_pretrained"):
        Elmo("small-en", 2)
    with pytest.raises(ConfigError, match="options_file is None"):
        Elmo(weight_file=files[1])
    with pytest.raises(ConfigError, match="vocab_to_cache is given, expected None"):
        Elmo(*files, 1, vocab_to_cache=["the"])
    with pytest.raises(ConfigError, match="module is given, expected None"):
        Elmo(*files, 1, module=bilm)


def test_the_shared_model_is_not_copied(bilm):
    first, second = Elmo(bilm), Elmo(bilm)
    assert first.bilm is second.bilm
    assert ElmoConfig.preset("tiny") == first.bilm.config


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_module_in_use_can_be_copied(bilm, ids, copied):
    module = Elmo(bilm, dropout=0.0)
    expected = represent(module, ids)
    assert torch.equal(represent(copied(module), ids), expected)


def test_a_batch_of_empty_sentences_has_no_vectors(bilm):
    output = Elmo(bilm, dropout=0.0)(batch_to_ids([[], []]))
    assert output["elmo_representations"][0].shape == (2, 0, 32)
    assert output["mask"].shape == (2, 0)


def test_a_batch_without_sentences_has_no_vectors(bilm):
    nothing = torch.zeros(0, 3, 50, dtype=torch.int64)
    assert bilm.run(nothing).layers.shape == (3, 0, 3, 32)
    assert Elmo(bilm, dropout=0.0)(nothing)["elmo_representations"][0].shape == (0, 3, 32)


def test_a_trained_module_is_saved_with_its_mix(tmp_path, bilm, ids):
    """What was learned in a task is there again behind the other door."""
    module = Elmo(copy.deepcopy(bilm), 2, requires_grad=True, dropout=0.0)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        first, second = module(ids)["elmo_representations"]
        (first.square().sum() - second[..., 0].sum()).backward()
        optimizer.step()
    module.eval()
    second = module(ids)["elmo_representations"][1]
    module.save_pretrained(tmp_path / "ours", representation=1)
    elmo = ELMo.from_pretrained(tmp_path / "ours")
    vectors = elmo.encode_tokens([["A", "cat", "sat", "."]], layers="mix")[0]
    expected = module(batch_to_ids([["A", "cat", "sat", "."]]))["elmo_representations"][1][0]
    np.testing.assert_allclose(vectors, expected.detach(), rtol=0, atol=1e-5)
    assert elmo.config.mix_gamma != 1.0
    assert second.shape[0] == len(ids)
    module.save_pretrained(tmp_path / "published", format="hdf5")
    published = ELMo.from_pretrained(tmp_path / "published")
    assert published.fingerprint == elmo.fingerprint


def test_the_layer_shows_what_it_is_and_answers_for_the_encoder(tmp_path):
    bilm = random_bilm(ElmoConfig.preset("tiny"))
    ELMo(bilm).save_pretrained(tmp_path)
    layer = ElmoLayer.from_pretrained(tmp_path, 2, dropout=0.0, device="cpu")
    assert repr(layer) == (
        f"ElmoLayer(model={str(tmp_path)!r}, parameters=74,124, layers=3, dim=32, mixes=2, "
        "requires_grad=False, device='cpu', precision='fp32')"
    )
    for name in ("encode", "encode_tokens"):
        with pytest.raises(AttributeError, match=f"has no '{name}'.*elmo.ELMo.from_pretrained"):
            getattr(layer, name)
    with pytest.raises(AttributeError, match="no attribute 'encod'"):
        layer.encod  # noqa: B018
    with pytest.raises(ConfigError, match=r"bilm is None, expected a BiLM; ElmoLayer.from_pre"):
        ElmoLayer(None)
    with pytest.raises(ConfigError, match=r"precision is 'bf16', expected 'fp32'.*autocast"):
        ElmoLayer.from_pretrained(tmp_path, dtype="bfloat16")


def test_allennlps_name_is_that_of_the_layer():
    assert Elmo is ElmoLayer

"""A cell from outside of the package does all that the built-in ones do, after one line."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from elmo import BiLM, ELMo, Elmo, ElmoConfig, batch_to_ids
from elmo.cli.main import main
from elmo.hub.names import open_model
from elmo.model.cells import CELLS, Cell, LayerState
from elmo.model.layers import run_packed
from elmo.training.recurrence import run_layer
from strategies import seeded_bilm

SENTENCES = [["The", "cat", "sat", "."], ["No"], [], ["a", "cat"], ["cat"] * 9]


class SkippingUnit(Cell):
    """The SRU of Lei et al. 2018, with a skip of its own: its gates never see the last output.

    f = sigmoid(W_f x + b_f + v_f * c)      c = clip(f * c + (1 - f) * W x)
    r = sigmoid(W_r x + b_r + v_r * c)      h = project(r * c + (1 - r) * W_s x)
    """

    gates = ("x", "f", "r", "s")
    stored_gates = ("f", "x", "r", "s")
    stored_names = ("SkippingCell", "skipping_cell")
    has_recurrent_weight = False

    def __init__(self, config):
        super().__init__(config)
        self.peephole = nn.Parameter(torch.empty(2, config.dim))

    def step(self, inputs, state):
        x, f, r, s = inputs.chunk(4, dim=1)
        f = torch.sigmoid(f + self.peephole[0] * state.memory)
        memory = self.clip(f * state.memory + (1 - f) * x)
        r = torch.sigmoid(r + self.peephole[1] * memory)
        return LayerState(self.project(r * memory + (1 - r) * s), memory)


class Elman(Cell):
    """Elman 1990: tanh of input and last output; it has no memory besides."""

    gates = ("h",)
    stored_names = ("BasicRNNCell",)

    @classmethod
    def memory_dim(cls, config):
        return 0

    def step(self, inputs, state):
        return LayerState(self.project(torch.tanh(inputs + self.recur(state.hidden))), state.memory)


@pytest.fixture(params=[SkippingUnit, Elman])
def name(request, monkeypatch):
    monkeypatch.setitem(CELLS, "new", request.param)
    return "new"


@pytest.fixture
def bilm(name):
    return seeded_bilm(ElmoConfig.preset("tiny", cell=name, cell_clip=0.5, proj_clip=0.4))


def close(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@torch.no_grad()
def test_layers_run_its_step_word_by_word(bilm):
    cell = bilm.cells(0)[0]
    inputs = torch.randn(6, 16)
    zero = LayerState(torch.zeros(1, 16), torch.zeros(1, cell.memory_dim(bilm.config)))
    found, end = run_packed(cell, inputs, None, [1] * 6, zero)
    state = zero
    for row, output in zip(inputs, found, strict=True):
        state = cell.step(row[None] @ cell.input_weight.T + cell.bias, state)
        torch.testing.assert_close(output, state.hidden[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(end.memory, state.memory, rtol=0, atol=1e-6)


def test_it_embeds_in_every_state_policy_whatever_is_in_the_batch(bilm):
    model = ELMo(bilm)
    with torch.no_grad():
        layers = bilm(batch_to_ids(SENTENCES)).layers
    plain = [layers[:, row, : len(sentence)] for row, sentence in enumerate(SENTENCES)]
    close(model.encode_tokens(SENTENCES), plain)
    for policy in ("zero", "warm"):
        together = model.encode_tokens(SENTENCES, state=policy)
        close([model.encode_tokens([s], state=policy)[0] for s in SENTENCES], together)
    first = model.encode_tokens(SENTENCES, state="carry")
    close(first, plain)  # nothing is carried yet
    state = model.carried_state
    second = model.encode_tokens(SENTENCES, state="carry")
    assert np.abs(second[0] - first[0]).max() > 1e-3
    with torch.no_grad():
        onward = bilm(batch_to_ids(SENTENCES), state=bilm(batch_to_ids(SENTENCES)).state)
    close([second[0]], [onward.layers[:, 0, :4]])
    assert state.memory.shape == (2, 2, 5, CELLS["new"].memory_dim(bilm.config))


def test_it_is_a_module_frozen_or_fine_tuned(bilm):
    ids = batch_to_ids(SENTENCES)
    frozen = Elmo(bilm, 1, requires_grad=False, dropout=0.0).eval()
    tuned = Elmo(bilm, 1, requires_grad=True, dropout=0.0).eval()
    with torch.no_grad():
        expected = bilm(ids).layers.mean(dim=0)
    for module in (frozen, tuned):
        found = module(ids)["elmo_representations"][0]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("format", "policy"), [("elmo", "warm"), ("hdf5", "zero")])
def test_it_is_saved_and_loaded(bilm, format, policy, tmp_path):
    model = ELMo(bilm)
    if policy == "warm":
        model.warm_up()
    model.save_pretrained(tmp_path / "saved", format=format)
    loaded = ELMo.from_pretrained(tmp_path / "saved")
    assert loaded.fingerprint == model.fingerprint
    close(*(m.encode_tokens(SENTENCES, state=policy) for m in (loaded, model)))
    tensors = open_model(tmp_path / "saved").tensors
    assert all(torch.equal(tensors[n], t) for n, t in bilm.state_dict().items())


def test_it_is_converted_there_and_back(bilm, tmp_path):
    ELMo(bilm).save_pretrained(tmp_path / "first")
    for before, after, format in (("first", "second", "hdf5"), ("second", "third", "elmo")):
        main(["convert", str(tmp_path / before), str(tmp_path / after), "--to", format])
    found = open_model(tmp_path / "third")
    assert found.config == bilm.config
    assert found.fingerprint() == ELMo(bilm).fingerprint


def test_gradients_reach_all_its_parameters(bilm):
    sides = [bilm.cells(direction)[1] for direction in range(2)]
    state = bilm.cells(0)[0].memory_dim(bilm.config)
    before = LayerState(torch.zeros(2, 3, 16), torch.zeros(2, 3, state))
    keep = torch.ones(4, 3, 1)
    keep[2] = 0
    outputs, _ = run_layer(sides, torch.randn(2, 4, 3, 16), before, keep)
    outputs.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for side in sides for p in side.parameters())


def test_it_is_trained_and_goes_on(name, tmp_path, capsys):
    chance = random.Random(0)
    lines = [" ".join(chance.choices("the cat sat on a mat".split(), k=6)) for _ in range(200)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    assert main(["prepare", str(tmp_path / "text.txt"), data, "--min-count", "1"]) == 0
    flags = "--preset tiny --batch-size 4 --unroll-steps 5 --device cpu --quiet --cell".split()
    assert main(["train", "--data", data, "--out", run, "--steps", "4", *flags, name]) == 0
    assert main(["train", "--resume", run, "--steps", "8"]) == 0
    trained = open_model(tmp_path / "run" / "last")
    assert trained.config.cell == name
    fresh = BiLM(trained.config)
    for key, tensor in fresh.state_dict().items():
        if "layers" in key and not tensor.any():  # biases and such began at zero
            assert trained.tensors[key].any(), key
    assert ELMo(trained).encode_tokens([["the", "cat"]])[0].shape == (3, 2, 32)


def test_an_unknown_cell_is_refused_with_the_known_ones(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["train", "--data", str(tmp_path), "--out", str(out), "--cell", "x"]) == 2
    assert f"cell is 'x', expected one of {', '.join(CELLS)}" in capsys.readouterr().err
    assert not out.exists()


def test_the_help_of_training_names_every_cell(capsys):
    main(["train", "--help"])
    help_text = capsys.readouterr().out
    row = help_text.split("--cell")[1].split("--layers")[0]
    assert all(name in row for name in CELLS)

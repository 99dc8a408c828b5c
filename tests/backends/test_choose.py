"""One function decides what computes a model; all that it may choose keep one contract."""

import copy
import warnings

import pytest
import torch

from elmo import ELMo, ElmoConfig
from elmo.backends import choose
from elmo.backends.cpu import compiler, products
from elmo.backends.cpu.model import CPUBackend
from elmo.backends.gpu.model import GPUBackend
from elmo.backends.plain import PlainBackend
from elmo.errors import ConfigError, ElmoWarning, WeightsError
from elmo.model.cells import CELLS, LSTM
from strategies import seeded_bilm

SENTENCES = [["The", "cat", "sat", "."], [], ["No"], ["a"] * 9]


@pytest.fixture
def unknown_cell(monkeypatch):
    """A cell that no backend has a fast way for: an LSTM that calls itself otherwise."""
    monkeypatch.setitem(CELLS, "unknown", type("Unknown", (LSTM,), {}))
    return ElmoConfig.preset("tiny", cell="unknown")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_cpu_has_a_fast_way_for_our_cells(tiny_config, cell):
    assert type(choose(seeded_bilm(tiny_config.replace(cell=cell)), "cpu")) is CPUBackend


def test_an_unknown_cell_gets_the_plain_way_and_the_same_vectors(unknown_cell, tiny_bilm):
    bilm = seeded_bilm(unknown_cell)
    assert type(choose(bilm, "cpu")) is PlainBackend
    expected = ELMo(tiny_bilm)  # the same weights
    elmo = ELMo(bilm)
    for state in ("zero", "warm", "carry"):
        pairs = zip(
            elmo.encode_tokens(SENTENCES, state=state),
            expected.encode_tokens(SENTENCES, state=state),
            strict=True,
        )
        for found, vectors in pairs:
            torch.testing.assert_close(*map(torch.from_numpy, (found, vectors)), atol=1e-5, rtol=0)


def test_the_plain_way_is_taken_on_other_devices(tiny_bilm):
    assert type(choose(copy.deepcopy(tiny_bilm), "meta")) is PlainBackend


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_plain_way_refuses_to_round(unknown_cell, device):
    with pytest.raises(ConfigError, match=rf"precision is 'bf16', expected 'fp32'.*on {device}"):
        choose(seeded_bilm(unknown_cell), device, "bf16")


@pytest.mark.parametrize("kind", ["cpu", "gpu", "plain"])
def test_every_backend_keeps_the_contract(tiny_bilm, kind):
    bilm = copy.deepcopy(tiny_bilm)
    cpu = torch.device("cpu")
    backend = {
        "cpu": lambda: CPUBackend(bilm),
        "gpu": lambda: GPUBackend(bilm, compiled=False),
        "plain": lambda: PlainBackend(bilm, "fp32", cpu),
    }[kind]()
    assert (backend.device, backend.precision) == (cpu, "fp32")
    assert min(backend.limits.rows, backend.limits.tokens) > 0
    cache = backend.open_words()
    ((_, window),) = cache.windows([["a", "cat"], ["a"]], backend.limits.rows)
    with backend.computing():
        vectors, tokens, _ = window.words()
        layers, final = backend.contextualize(vectors, tokens, window.sizes)
    assert not any(tensor.requires_grad for tensor in (vectors, *layers, *final))
    with torch.no_grad():
        expected, end = tiny_bilm.contextualize(vectors, tokens, window.sizes)
    for found, right in zip((*layers, *final), (*expected, *end), strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=1e-5)
    saved = backend.to_checkpoint()
    for name, tensor in tiny_bilm.to_checkpoint().tensors.items():
        assert torch.equal(saved.tensors[name], tensor), name


@pytest.mark.parametrize("kind", [CPUBackend, GPUBackend])
def test_rounded_weights_cannot_be_saved(tiny_bilm, kind):
    with pytest.raises(WeightsError, match=r"rounded to bf16.*precision='fp32'"):
        kind(copy.deepcopy(tiny_bilm), "bf16").to_checkpoint()


def test_a_precision_that_only_rounds_is_warned_about(tiny_bilm, monkeypatch):
    monkeypatch.setattr(products, "runs_natively", lambda precision: precision == "fp32")
    monkeypatch.setattr(compiler, "why_not", lambda: "no compiler")
    with pytest.warns(ElmoWarning, match=r"'int8' rounds the weights.*no faster.*no compiler"):
        choose(copy.deepcopy(tiny_bilm), "cpu", "int8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose(copy.deepcopy(tiny_bilm), "cpu", "fp32")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_that_is_not_consumed_stays_as_it_is(tiny_config, cell, device):
    bilm = seeded_bilm(tiny_config.replace(cell=cell))
    before = copy.deepcopy(bilm.state_dict())
    choose(bilm, device, consume=False)
    for name, tensor in bilm.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.requires_grad for parameter in bilm.parameters())

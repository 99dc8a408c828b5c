"""Training on a GPU: compiled kernels against plain code, recorded steps, runs that go on.

ELMO_TEST_GPU=1 python -m pytest tests/gpu -v
"""

import numpy as np
import pytest
import torch

from backends.gpu.kernels import (
    test_sampled_softmax,
    test_training_cell,
    test_training_model,
    test_words,
)
from elmo.config import ElmoConfig
from elmo.errors import GpuMemoryError
from elmo.lm.softmax_losses import sampled_loss, sampled_losses
from elmo.model.layers import CharacterEncoder
from elmo.runtime.metrics_file import read_metrics
from elmo.text.characters import CharacterMapper
from elmo.training.characters import encode_characters
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.recurrence import run_layer
from elmo.training.settings import TrainSettings
from elmo.training.trainer import train
from training.test_trainer import made_up_text

pytestmark = pytest.mark.gpu
GPU = "cuda"


def error(one, other):
    """Largest difference, as a share of the largest value."""
    one, other = one.detach().float(), other.detach().float()
    return float((one - other).abs().max() / other.abs().max())


# --- kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(
    ("sizes", "time", "rows"),
    [
        ({}, 3, 1),
        ({"dim": 33, "projection_dim": 17}, 4, 5),
        ({"dim": 48, "projection_dim": 48}, 2, 7),
        ({"cell_clip": None, "proj_clip": None}, 3, 4),
    ],
)
def test_the_lstm_equals_plain_code(sizes, time, rows, restarts):
    layers = test_training_cell.make_layers(GPU, **sizes)
    inputs = test_training_cell.make_inputs(layers, time, rows, restarts)
    test_training_cell.compare(layers, *inputs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sizes", [(128, 1024), (512, 4096)])
def test_the_lstm_in_bfloat16_is_close_to_float32(sizes):
    width, dim = sizes
    layers = test_training_cell.make_layers(
        GPU, dim=dim, projection_dim=width, cell_clip=3.0, proj_clip=3.0
    )
    for layer in layers:
        layer.reset_parameters()
    inputs, state, keep = test_training_cell.make_inputs(layers, 5, 33)
    weights = torch.randn_like(inputs)
    plain = test_training_cell.run(layers, inputs, state, keep, weights, False)
    with torch.autocast(GPU, torch.bfloat16):
        outputs, end = run_layer(layers, inputs, state, keep, fused=True)
    loss = (outputs.float() * weights).sum()
    gradients = torch.autograd.grad(loss, [inputs, *layers.parameters()])
    for one, other in zip((outputs, end.hidden, end.memory, *gradients), plain, strict=True):
        assert error(one, other) < 0.05


def test_word_vectors_equal_the_plain_encoder():
    for changes in ({}, {"max_characters": 6}, {"filters": ((7, 5), (2, 1)), "max_characters": 7}):
        config, encoder = test_words.make_encoder(**changes)
        words = ["<S>", "", "a", "word", "x" * 60, "naïve", "河"]
        ids = CharacterMapper(config.max_characters).rows(words).to(GPU)
        test_words.compare(encoder.to(GPU), ids, 261, atol=2e-3)


def test_word_vectors_of_the_published_size_are_close_in_bfloat16():
    torch.manual_seed(0)
    encoder = CharacterEncoder(ElmoConfig.preset("original"))
    encoder.reset_parameters()
    encoder.to(GPU)
    ids = CharacterMapper().rows([f"word{k:x}" * (1 + k % 3) for k in range(3000)]).to(GPU)
    weights = torch.randn(3000, 512, device=GPU)
    plain = encoder(ids)
    plain_gradients = torch.autograd.grad((plain * weights).sum(), list(encoder.parameters()))
    with torch.autocast(GPU, torch.bfloat16):
        fused = encode_characters(encoder, ids, 261, fused=True)
    gradients = torch.autograd.grad((fused.float() * weights).sum(), list(encoder.parameters()))
    assert error(fused, plain) < 0.03
    for (name, _), one, other in zip(
        encoder.named_parameters(), gradients, plain_gradients, strict=True
    ):
        cosine = torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)
        assert cosine > 0.98, name  # another window may win where two are close


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (7, 3, 20, 9), (300, 33, 500, 400), (1000, 128, 5000, 2000)]
)
def test_the_sampled_softmax_equals_plain_code(sizes):
    test_sampled_softmax.compare(
        *test_sampled_softmax.make(*sizes, device=GPU), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("dim", [128, 512])
def test_the_sampled_softmax_in_bfloat16_is_close_to_float32(dim):
    hidden, weight, bias, targets, candidates, log_q = test_sampled_softmax.make(
        2000, dim, 20_000, 4096, device=GPU
    )
    weight = (weight.detach() / dim**0.5).requires_grad_()
    learns = (hidden, weight, bias)
    plain = sampled_loss(hidden, targets, weight, bias, candidates, log_q)
    plain_gradients = torch.autograd.grad(plain, learns)
    with torch.autocast(GPU, torch.bfloat16):
        fused = sampled_losses(
            hidden[None], targets[None], weight, bias, candidates, log_q, fused=True
        )
    assert fused.item() == pytest.approx(plain.item(), rel=2e-3)
    for one, other in zip(torch.autograd.grad(fused.sum(), learns), plain_gradients, strict=True):
        assert error(one, other) < 0.03


def test_the_model_on_kernels_has_the_losses_and_gradients_of_plain_code():
    for kind in ("sampled", "full"):
        model = test_training_model.make_model(kind, GPU)
        batch = next(test_training_model.make_streams(model).one_pass())
        model.kernels = False
        plain = test_training_model.losses_and_gradients(model, batch)
        model.kernels = True
        fused = test_training_model.losses_and_gradients(model, batch)
        names = ["losses", "hidden", "memory", *dict(model.named_parameters())]
        for name, one, other in zip(names, fused, plain, strict=True):
            torch.testing.assert_close(
                one, other, rtol=5e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text(made_up_text(200))
    prepare([folder / "text.txt"], folder / "data", PrepareSettings(heldout_share=0.1, min_count=1))
    return folder / "data"


def quick(corpus, out, **changes):
    settings = {
        "preset": "tiny", "batch_size": 16, "unroll_steps": 5, "steps": 30, "log_every": 1,
        "validate_every": 10, "checkpoint_every": 10, "device": GPU, "quiet": True, **changes,
    }  # fmt: skip
    return TrainSettings(data=corpus, out=out, **settings)


def losses(out):
    rows = read_metrics(out / "metrics.jsonl")
    return np.array([row["loss"] for row in rows if row["split"] == "train"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"softmax": "sampled", "softmax_samples": 8},
        {"softmax": "sampled", "softmax_samples": 8, "precision": "bf16"},
        {"cell": "gru"},
        {"reads": "words", "tie": True},
        {"optimizer": "adagrad"},
    ],
    ids=str,
)
def test_recorded_steps_equal_steps_one_by_one(corpus, tmp_path, changes, capsys):
    # Dropout is on: were its numbers the same in each recorded step, losses would differ.
    for name, single in (("recorded", False), ("single", True)):
        train(quick(corpus, tmp_path / name, no_graphs=single, **changes))
    assert "cannot be recorded" not in capsys.readouterr().err
    np.testing.assert_allclose(
        losses(tmp_path / "recorded"), losses(tmp_path / "single"), rtol=0.02
    )


def test_kernels_learn_as_plain_code_does(corpus, tmp_path):
    common = {"softmax": "sampled", "softmax_samples": 8, "dropout": 0.0}
    train(quick(corpus, tmp_path / "fused", **common))
    train(quick(corpus, tmp_path / "plain", kernels="plain", **common))
    np.testing.assert_allclose(losses(tmp_path / "fused"), losses(tmp_path / "plain"), rtol=5e-3)


@pytest.mark.parametrize("softmax", ["full", "sampled", "adaptive"])
def test_a_run_can_be_made_longer(corpus, tmp_path, softmax):
    train(quick(corpus, tmp_path / "run", softmax=softmax, softmax_samples=8))
    longer = train(TrainSettings(resume=tmp_path / "run", steps=60, quiet=True))
    assert longer.progress.step == 60
    found = losses(tmp_path / "run")
    assert len(found) == 60
    assert found[-15:].mean() < found[:15].mean() - 0.1


def test_a_snapshot_of_a_recorded_step_leads_to_the_same_losses(corpus, tmp_path):
    train(quick(corpus, tmp_path / "whole"))
    out = tmp_path / "parts"
    train(quick(corpus, out))
    for path in (out / "checkpoints").glob("000000030*"):
        path.unlink()
    train(TrainSettings(resume=out, quiet=True))  # from step 20 on
    np.testing.assert_allclose(losses(out), losses(tmp_path / "whole"), rtol=0.02)


def test_more_distinct_words_than_before_are_no_trouble(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("elmo.training.graphed_step._WORDS", 1)
    monkeypatch.setattr("elmo.training.graphed_step._SPARE", 1.0)
    train(quick(corpus, tmp_path / "tight"))
    train(quick(corpus, tmp_path / "single", no_graphs=True))
    np.testing.assert_allclose(losses(tmp_path / "tight"), losses(tmp_path / "single"), rtol=0.02)


def test_too_little_memory_is_reported_with_what_to_change(corpus, tmp_path):
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
    try:
        with pytest.raises(GpuMemoryError, match=r"smaller batch_size.*grad_accumulation"):
            train(quick(corpus, tmp_path / "run", batch_size=64, unroll_steps=20, dim=4096))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

"""The whole language model on interpreted kernels, and what stands around a recorded step."""

import itertools
import threading

import pytest
import torch

from elmo import BiLM, ElmoConfig
from elmo.backends.gpu.kernels.gpu import reason_against_triton, triton_ready
from elmo.lm.output_base import Drawn
from elmo.lm.softmax import make_output_layer
from elmo.runtime.metrics_file import read_metrics
from elmo.text.characters import word_ids
from elmo.text.vocabulary import Vocabulary
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.graphed_step import GraphedStep, StaticBuffers
from elmo.training.language_model import LanguageModel, measure
from elmo.training.settings import TrainSettings
from elmo.training.streams import Batch, Position, Streams, prefetched
from elmo.training.trainer import train
from list_shards import ListShard

CPU = torch.device("cpu")
VOCABULARY = Vocabulary(["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "mat"])
TEXT = [["the", "cat", "sat"], ["on", "naïve"], ["mat"], ["the", "mat", "sat", "on", "cat"]]
SMALL = {"filters": ((1, 4), (3, 6)), "max_characters": 8, "cell_clip": 0.5, "proj_clip": 0.4}


def make_model(kind="sampled", device=CPU, **changes):
    torch.manual_seed(0)
    bilm = BiLM(ElmoConfig.preset("tiny", **{**SMALL, **changes}))
    output = make_output_layer(kind, len(VOCABULARY), bilm.config.projection_dim, n_samples=6)
    return LanguageModel(bilm, output).to(device)


def make_streams(model, **changes):
    ids = word_ids(model.bilm.config, VOCABULARY)
    given = {"rows": 2, "unroll": 3, "shuffle": "none", "reset_prob": 0.5, **changes}
    return Streams([ListShard([TEXT], VOCABULARY)], VOCABULARY, ids, **given)


def losses_and_gradients(model, batch):
    device = model.output.bias.device
    state = model.start(batch.resets.shape[1], device)
    losses, hidden, memory = model(*batch.to(device).parts, *state, 0)
    gradients = torch.autograd.grad(losses.sum(), list(model.parameters()))
    return losses, hidden, memory, *gradients


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_kernels_give_the_losses_and_gradients_of_plain_code(kind, monkeypatch):
    model = make_model(kind)
    batch = next(make_streams(model).one_pass())
    plain = losses_and_gradients(model, batch)
    monkeypatch.setattr(LanguageModel, "_is_fused", lambda *_: True)
    fused = losses_and_gradients(model, batch)
    names = ["losses", "hidden", "memory", *dict(model.named_parameters())]
    for name, one, other in zip(names, fused, plain, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_kernels_measure_what_plain_code_measures(monkeypatch):
    model = make_model("full")
    plain = measure(model, make_streams(model).one_pass(), CPU)
    monkeypatch.setattr(LanguageModel, "_is_fused", lambda *_: True)
    fused = measure(model, make_streams(model).one_pass(), CPU)
    assert fused.loss == pytest.approx(plain.loss, rel=1e-5)


def test_kernels_run_on_no_cpu_and_the_reason_is_given():
    assert not triton_ready(CPU)
    assert "cpu is no NVIDIA GPU" in reason_against_triton(CPU)


# --- fixed places -------------------------------------------------------------------------------


def test_a_batch_in_fixed_places_has_the_same_losses_whatever_stood_there():
    model = make_model().eval()
    streams = make_streams(model)
    places = StaticBuffers(CPU)
    for number, (batch, _) in enumerate(itertools.islice(streams.batches(Position()), 4)):
        drawn = model.output.draw(number)
        assert places.fill(batch, drawn) == (number == 0)
        state = model.start(2, CPU)
        there, _ = model.losses(places.batch, state, places.drawn)
        alone, _ = model.losses(batch, state, drawn)
        torch.testing.assert_close(there, alone, rtol=0, atol=1e-6)


def batch_of(n_words, rows=2):
    return Batch(
        torch.arange(n_words * 3, dtype=torch.int32).view(n_words, 3),
        torch.zeros(2, 4, rows, dtype=torch.int64),
        torch.zeros(2, 4, rows, dtype=torch.int64),
        torch.zeros(4, rows, dtype=torch.bool),
    )


def test_what_does_not_fit_gets_new_places():
    places = StaticBuffers(CPU)
    few, many = (Drawn(torch.arange(k), torch.zeros(k)) for k in (5, 500))
    assert places.fill(batch_of(10), few)
    addresses = [part.data_ptr() for part in (*places.batch.parts, *places.drawn)]
    assert len(places.batch.types) == 1024
    assert not places.fill(batch_of(1000), few)
    assert [part.data_ptr() for part in (*places.batch.parts, *places.drawn)] == addresses
    assert torch.isinf(places.drawn.log_q[5:]).all()
    assert places.fill(batch_of(1025), few)
    assert places.fill(batch_of(10), many)
    assert places.fill(batch_of(10, rows=3), many)
    assert not places.fill(batch_of(9, rows=3), few)


# --- recorded steps -----------------------------------------------------------------------------


class StepOnCPU(GraphedStep):
    """A step that is recorded and played without CUDA: playing does the work again."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.n_captured = 0

    def _run_eagerly(self):
        self._step()

    def _mark_end(self):
        pass

    def discard(self):
        self._graph = None
        super().discard()

    def _capture(self):
        self.n_captured += 1
        self._graph = self
        self._gradients = [torch.zeros_like(p) for p in self._parameters]

    def replay(self):
        self._step()
        for place, parameter in zip(self._gradients, self._parameters, strict=True):
            place.copy_(parameter.grad)


def take_steps(model, make, n_steps=8):
    """Train a while; give the losses of each step and the state at the end."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def work(batch, state, drawn):
        losses, state = model.losses(batch, state, drawn)
        losses.mean().backward()
        return losses, state, torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    total = torch.zeros(2, dtype=torch.float64)
    step = make(work, parameters, model.start(2, CPU), total)
    found = []
    batches = make_streams(model).batches(Position())
    for number, (batch, _) in enumerate(itertools.islice(batches, n_steps)):
        before = total.clone()
        step(batch, model.output.draw(number))
        optimizer.step()
        found.append((total - before).tolist())
    return torch.tensor(found), step


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_a_recorded_step_is_taken_as_the_first_ones_were(kind):
    class NeverRecorded(StepOnCPU):
        def _capture(self):
            self.failure = "none of this here"

    recorded, step = take_steps(make_model(kind), StepOnCPU)
    plain, other = take_steps(make_model(kind), NeverRecorded)
    assert step.n_captured == 1
    assert other.failure
    torch.testing.assert_close(recorded, plain, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(step.state.memory, other.state.memory)
    assert float(step.norm) == pytest.approx(float(other.norm), rel=1e-5)
    assert recorded[-1].mean() < recorded[0].mean()


def test_a_step_is_recorded_again_when_a_batch_does_not_fit(monkeypatch):
    monkeypatch.setattr("elmo.training.graphed_step._WORDS", 1)
    monkeypatch.setattr("elmo.training.graphed_step._SPARE", 1.0)
    monkeypatch.setattr("elmo.training.graphed_step._WARM_UP", 0)
    tight, step = take_steps(make_model(), StepOnCPU)
    assert step.n_captured > 1
    monkeypatch.undo()
    untrimmed, _ = take_steps(make_model(), StepOnCPU)
    torch.testing.assert_close(tight, untrimmed, rtol=1e-6, atol=1e-6)


# --- batches prepared ahead ---------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_prefetched_keeps_its_order(workers):
    gate = threading.Event()

    def prepare(number):
        if number == 0:
            gate.wait(5)  # the others are ready first
        elif number == workers:
            gate.set()
        return number * number

    if workers == 1:
        gate.set()
    with prefetched(prepare, itertools.count(), workers) as items:
        assert list(itertools.islice(items, 10)) == [n * n for n in range(10)]


def test_an_error_while_preparing_reaches_who_waits():
    def prepare(number):
        if number == 2:
            raise OSError("the disk is gone")
        return number

    with prefetched(prepare, itertools.count(), 2) as items:
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(OSError, match="the disk is gone"):
            next(items)


def test_threads_prepare_the_batches_that_one_would():
    model = make_model()
    settings = {"shuffle": "sentences", "reset_prob": 0.3, "seed": 5}
    alone = itertools.islice(make_streams(model, **settings).batches(Position()), 12)
    streams = make_streams(model, **settings)

    def prepare(position):
        streams.plan_ahead(position)
        return streams.batch_at(position)

    with prefetched(prepare, streams.positions(Position()), 4) as items:
        for (batch, place), (wanted, wanted_place) in zip(items, alone, strict=False):
            assert place == wanted_place
            assert all(map(torch.equal, batch.parts, wanted.parts))


@pytest.mark.parametrize("changes", [{}, {"softmax": "sampled", "softmax_samples": 8}], ids=str)
def test_a_run_of_recorded_steps_equals_a_plain_one_and_goes_on(tmp_path, monkeypatch, changes):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(sentence) for sentence in TEXT * 30) + "\n")
    prepare([text], tmp_path / "data", PrepareSettings(heldout_share=0.1, min_count=1))
    common = {
        "data": tmp_path / "data", "preset": "tiny", "batch_size": 4, "unroll_steps": 3,
        "log_every": 1, "checkpoint_every": 5, "validate_every": 6, "device": "cpu", "quiet": True,
        **changes,
    }  # fmt: skip
    train(TrainSettings(out=tmp_path / "plain", steps=12, **common))

    def make(self):
        learning = [p for p in self.model.parameters() if p.requires_grad]
        return StepOnCPU(self._work, learning, self.state, self.losses)

    monkeypatch.setattr("elmo.training.gradients.Gradients._make_graphed", make)
    train(TrainSettings(out=tmp_path / "recorded", steps=12, **common))
    for path in (tmp_path / "recorded" / "checkpoints").glob("*12.*"):
        path.unlink()
    train(TrainSettings(resume=tmp_path / "recorded", quiet=True))  # from step 10 on
    losses = [
        [row["loss"] for row in read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in ("recorded", "plain")
    ]
    assert len(losses[0]) == 14  # 12 steps, 2 measurements
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)

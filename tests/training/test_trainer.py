"""Training as users do it: runs that end, stop, are killed, go on, diverge or fill the disk."""

import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import elmo as elmo_package
from elmo import ELMo
from elmo.cli.main import main
from elmo.config import ElmoConfig
from elmo.errors import (
    ConfigError,
    DivergedError,
    ElmoError,
    MissingExtraError,
    MissingFileError,
    OutputExistsError,
    WeightsError,
)
from elmo.hub.names import open_model
from elmo.runtime.files import LOCK_FILE
from elmo.runtime.metrics_file import read_metrics
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.finetune import finetune
from elmo.training.settings import TrainSettings
from elmo.training.snapshots import load_snapshot
from elmo.training.trainer import train

NOUNS = ["cat", "dog", "bird", "fish", "mouse", "horse"]
VERBS = ["sees", "hears", "follows", "likes"]


def made_up_text(n_documents=40, seed=0, nouns=NOUNS):
    """Text with a grammar that a small model learns soon: a noun is followed by its own verb."""
    chance = random.Random(seed)
    lines = []
    for _ in range(n_documents):
        for _ in range(chance.randint(3, 8)):
            first, second = chance.choice(nouns), chance.choice(nouns)
            verb = VERBS[nouns.index(first) % len(VERBS)]
            lines.append(f"the {first} {verb} the {second} .")
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text(made_up_text())
    prepare([folder / "text.txt"], folder / "data", PrepareSettings(heldout_share=0.1, min_count=1))
    return folder / "data"


QUICK = {
    "preset": "tiny", "batch_size": 4, "unroll_steps": 5, "steps": 12, "log_every": 2,
    "validate_every": 4, "checkpoint_every": 3, "device": "cpu", "quiet": True,
}  # fmt: skip


def quick(corpus, out, **changes):
    settings = {**QUICK, **changes}
    for unit in ("tokens", "epochs", "minutes"):
        if unit in changes:
            del settings["steps"]
    return TrainSettings(data=corpus, out=out, **settings)


def flags(settings):
    """A run's settings as a command line."""
    given = []
    for name, value in settings.changes().items():
        flag = f"--{name.replace('_', '-')}"
        given += [flag] if value is True else [flag, str(value)]
    return given


def elmo(*arguments, **options):
    command = [sys.executable, "-m", "elmo", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


# --- a run --------------------------------------------------------------------------------------


def test_a_run_leaves_models_metrics_and_a_picture(corpus, tmp_path):
    report = train(quick(corpus, tmp_path / "run"))
    assert report.finished
    assert report.progress.step == 12
    assert report.progress.tokens == 12 * 4 * 5
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    trained = [row for row in rows if row["split"] == "train"]
    measured = [row for row in rows if row["split"] == "heldout"]
    assert [row["step"] for row in trained] == [2, 4, 6, 8, 10, 12]
    assert [row["step"] for row in measured] == [4, 8, 12]
    assert all({"step", "tokens", "loss"} <= set(row) for row in rows)
    assert all(row["perplexity_forward"] > 1 and row["perplexity_backward"] > 1 for row in measured)
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    for name in ("best", "last"):
        model = ELMo.from_pretrained(tmp_path / "run" / name)
        assert model.encode_tokens([["the", "cat"]])[0].shape == (3, 2, 32)
        checkpoint = open_model(tmp_path / "run" / name)
        assert checkpoint.softmax["weight"].shape[0] == len(checkpoint.vocabulary)
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.safetensors"))) == 2
    assert not list((tmp_path / "run").glob(".*"))


def test_the_same_run_gives_the_same_bytes_and_another_seed_does_not(corpus, tmp_path):
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        train(quick(corpus, tmp_path / name, seed=seed))
    one, again, other = (
        (tmp_path / name / "metrics.jsonl").read_bytes() for name in ("one", "again", "other")
    )
    assert one == again
    assert one != other
    weights = [(tmp_path / n / "last" / "model.safetensors").read_bytes() for n in ("one", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("length", "steps"), [({"steps": 3}, 3), ({"tokens": 45}, 3), ({"epochs": 0.1}, None)]
)
def test_a_run_is_as_long_as_it_was_to_be(corpus, tmp_path, length, steps):
    report = train(quick(corpus, tmp_path / "run", **length))
    if steps is None:
        places = sum(len(s.tokens) + len(s.sentence_starts) - 1 for s in corpus_shards(corpus))
        steps = -(-places // 20 // 10)
    assert abs(report.progress.step - steps) <= 1


def corpus_shards(corpus):
    from elmo.training.corpus.shards import Corpus

    return Corpus.open(corpus).train


def test_a_run_of_minutes_ends(corpus, tmp_path):
    report = train(quick(corpus, tmp_path / "run", minutes=0.02))
    assert report.finished
    assert report.progress.seconds >= 1.2


def test_a_run_stops_when_it_gets_no_better(corpus, tmp_path):
    settings = quick(
        corpus, tmp_path / "run", steps=400, patience=2, learning_rate=1e-12, validate_every=2
    )
    report = train(settings)
    assert report.progress.step < 400
    assert report.progress.n_worse == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"softmax": "sampled", "softmax_samples": 8},
        {"softmax": "adaptive"},
        {"cell": "gru"},
        {"layers": 1},
        {"layers": 3, "dim": 24, "projection_dim": 24},
        {"input": "words"},
        {"input": "words", "tie_embeddings": True},
        {"input": "codepoints"},
        {"optimizer": "adagrad"},
        {"grad_accumulation": 3},
        {"precision": "bf16"},
        {"shuffle": "sentences", "state_reset_prob": 1.0, "dropout": 0.5},
        {"hdf5": True},
    ],
    ids=lambda changes: "-".join(map(str, changes)),
)
def test_every_kind_of_model_learns_and_resumes(corpus, tmp_path, changes):
    settings = quick(corpus, tmp_path / "run", steps=60, learning_rate=None, **changes)
    report = train(settings.replace(steps=30))
    assert report.loss < 3
    model = ELMo.from_pretrained(tmp_path / "run" / "best")
    assert np.isfinite(model.encode_tokens([["the", "unseen", "dog"]])[0]).all()
    longer = train(TrainSettings(resume=tmp_path / "run", steps=60, quiet=True))
    assert longer.progress.step == 60
    assert longer.loss < report.loss
    if changes.get("hdf5"):
        published = open_model(tmp_path / "run" / "best-hdf5")
        assert published.fingerprint() == open_model(tmp_path / "run" / "best").fingerprint()


def test_a_small_corpus_is_memorised_in_both_directions(tmp_path):
    sentences = ["the old king sleeps .", "a young queen reads a book .", "nobody speaks ."]
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{sentence}\n" for sentence in sentences) * 20)
    heldout = tmp_path / "same.txt"
    heldout.write_text("".join(f"{sentence}\n" for sentence in sentences))
    settings = PrepareSettings(min_count=1, heldout_files=(str(heldout),))
    prepare([text], tmp_path / "data", settings)
    run = quick(tmp_path / "data", tmp_path / "run", steps=200, learning_rate=1e-2, dropout=0.0,
                state_reset_prob=0.3, shuffle="sentences", validate_every=100)  # fmt: skip
    train(run)
    last = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl")
            if row["split"] == "heldout"][-1]  # fmt: skip
    # The first word of a sentence is a guess among three, the rest is certain.
    assert last["perplexity_forward"] < 1.5
    assert last["perplexity_backward"] < 1.5


@pytest.mark.parametrize("freeze", [True, False])
def test_a_word_model_starts_from_static_vectors(corpus, tmp_path, freeze):
    chance = random.Random(0)
    given = {word: [chance.random() for _ in range(16)] for word in ("cat", "dog", "unused")}
    glove = tmp_path / "glove.txt"
    lines = (f"{word} {' '.join(map(str, vector))}" for word, vector in given.items())
    glove.write_text("\n".join(lines) + "\n")
    settings = quick(
        corpus, tmp_path / "run", input="words", word_vectors=glove, freeze_word_vectors=freeze
    )
    train(settings)
    model = open_model(tmp_path / "run" / "last")
    table = model.tensors["words.embedding.weight"][1:]
    row = table[model.vocabulary.place("cat")]
    assert torch.allclose(row, torch.tensor(given["cat"])) == freeze
    assert torch.allclose(row, torch.tensor(given["cat"]), atol=0.1)


def test_tensorboard_gets_every_row(corpus, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(quick(corpus, tmp_path / "run", tensorboard=True))
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    for split, key in (("train", "loss"), ("heldout", "perplexity_forward")):
        wanted = [(row["step"], row[key]) for row in rows if row["split"] == split]
        found = [(event.step, event.value) for event in events.Scalars(f"{split}/{key}")]
        assert found == [(step, pytest.approx(value)) for step, value in wanted]


def test_tensorboard_without_its_extra_is_refused_before_a_folder_is_made(corpus, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(MissingExtraError, match="tensorboard"):
            train(quick(corpus, tmp_path / "run", tensorboard=True))
    assert not (tmp_path / "run").exists()


def test_the_picture_is_left_out_where_matplotlib_is_missing(corpus, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        report = train(quick(corpus, tmp_path / "run", steps=2))
    assert report.curve is None


def test_adagrad_is_as_published(corpus, tmp_path):
    train(quick(corpus, tmp_path / "run", optimizer="adagrad", steps=2))
    snapshot, _ = load_snapshot(tmp_path / "run")
    sums = [t for name, t in snapshot.tensors.items() if name.endswith(".sum")]
    assert sums
    assert all((t >= 1).all() for t in sums)  # the accumulator starts at 1
    rates = [row["learning_rate"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")
             if row["split"] == "train"]  # fmt: skip
    assert rates == [0.2]


def test_the_rate_rises_and_falls(corpus, tmp_path):
    train(
        quick(corpus, tmp_path / "run", steps=40, warmup_steps=4, learning_rate=1e-2, log_every=1)
    )
    rates = [row["learning_rate"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")
             if row["split"] == "train"]  # fmt: skip
    top = rates.index(max(rates))
    assert 2 <= top <= 5
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(2e-4, rel=0.2)


# --- stopping and going on ----------------------------------------------------------------------


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)


LONG = {"steps": 60, "log_every": 3, "validate_every": 7, "checkpoint_every": 5}


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(quick(corpus, folder, **LONG))
    return folder


@pytest.mark.parametrize("rows", [0, 3, 11])
def test_a_killed_run_goes_on_bit_for_bit(corpus, uninterrupted, tmp_path, rows):
    out = tmp_path / "run"
    process = elmo("train", *flags(quick(corpus, out, **LONG)))
    metrics = out / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= rows, process)
    process.kill()
    process.wait()
    assert main(["train", "--resume", str(out), "--quiet"]) == 0
    assert metrics.read_bytes() == (uninterrupted / "metrics.jsonl").read_bytes()
    for name in ("last", "best"):
        for file in ("model.safetensors", "softmax.safetensors"):
            assert (out / name / file).read_bytes() == (uninterrupted / name / file).read_bytes()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_itself(corpus, uninterrupted, tmp_path, number):
    out = tmp_path / "run"
    process = elmo("train", *flags(quick(corpus, out, **LONG).replace(checkpoint_every=1000)))
    metrics = out / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 4, process)
    process.send_signal(number)
    assert process.wait(60) == 1
    assert "--resume" in process.stderr.read()
    assert main(["train", "--resume", str(out), "--quiet"]) == 0
    assert metrics.read_bytes() == (uninterrupted / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "flipped", "unchecked"])
def test_a_torn_snapshot_is_passed_over(corpus, uninterrupted, tmp_path, damage, capsys):
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    newest = max((out / "checkpoints").glob("*.safetensors"))
    if damage == "cut":
        os.truncate(newest, newest.stat().st_size // 2)
    elif damage == "flipped":
        content = bytearray(newest.read_bytes())
        content[-100] ^= 1
        newest.write_bytes(content)
    else:
        newest.with_suffix(".sha256").unlink()
    snapshot, notes = load_snapshot(out)
    assert snapshot.progress.step == 55
    assert len(notes) == 1
    assert newest.name in notes[0]
    assert main(["train", "--resume", str(out), "--quiet"]) == 0
    assert (out / "metrics.jsonl").read_bytes() == (uninterrupted / "metrics.jsonl").read_bytes()


def test_a_run_without_a_whole_snapshot_says_so(corpus, uninterrupted, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    for path in (out / "checkpoints").glob("*.sha256"):
        path.unlink()
    with pytest.raises(WeightsError, match=r"no checkpoint .* is complete"):
        train(TrainSettings(resume=out, quiet=True))
    shutil.rmtree(out / "checkpoints")
    train(TrainSettings(resume=out, quiet=True))  # as if killed before the first one
    assert (out / "metrics.jsonl").read_bytes() == (uninterrupted / "metrics.jsonl").read_bytes()


def test_a_finished_run_has_nothing_left_to_do_but_can_be_made_longer(uninterrupted, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    assert train(TrainSettings(resume=out, quiet=True)).progress.step == 60
    assert train(TrainSettings(resume=out, steps=65, quiet=True)).progress.step == 65


def test_a_finished_run_is_not_said_to_have_a_loss_that_nobody_measured(
    uninterrupted, tmp_path, capsys
):
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    assert main(["train", "--resume", str(out), "--quiet"]) == 0
    shown = capsys.readouterr().err
    assert "step 60" in shown
    assert "nan" not in shown


@pytest.mark.usefixtures("ctrl_c")
def test_two_processes_do_not_write_to_one_run(corpus, tmp_path):
    out = tmp_path / "run"
    process = elmo("train", *flags(quick(corpus, out, steps=100_000)))
    metrics = out / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 4, process)
    with pytest.raises(OutputExistsError, match=f"another elmo process is writing {out}: wait"):
        train(TrainSettings(resume=out, quiet=True))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1, process.stderr.read()
    assert not (out / LOCK_FILE).exists()
    (out / LOCK_FILE).touch()  # as a process leaves it that was killed
    step = load_snapshot(out)[0].progress.step
    assert train(TrainSettings(resume=out, steps=step + 1, quiet=True)).progress.step == step + 1


def test_a_resumed_run_keeps_its_settings_and_its_corpus(corpus, uninterrupted, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(uninterrupted, out)
    with pytest.raises(ConfigError, match=r"dropout is 0.7"):
        train(TrainSettings(resume=out, dropout=0.7, quiet=True))
    (tmp_path / "text.txt").write_text(made_up_text(seed=5))
    other = tmp_path / "data"
    prepare([tmp_path / "text.txt"], other, PrepareSettings(heldout_share=0.1, min_count=1))
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(run | {"data": str(other)}))
    with pytest.raises(ElmoError, match=r"content has changed|size mismatch|vocabulary"):
        train(TrainSettings(resume=out, quiet=True))


# --- many processes -----------------------------------------------------------------------------


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def run_in_two_processes(program, arguments):
    """Start a program twice under `torchrun`, on the loopback device alone."""
    # Names of machines may not resolve where tests run.
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    launch += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    done = subprocess.run(
        [*launch, *program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr
    return done


def test_two_processes_equal_one_on_the_joined_batch(corpus, tmp_path):
    changes = {"dropout": 0.0, "steps": 20, "softmax": "sampled", "softmax_samples": 8}
    train(quick(corpus, tmp_path / "one", **changes))
    two = quick(corpus, tmp_path / "two", **changes)
    done = run_in_two_processes(["-m", "elmo"], ["train", *flags(two)])
    assert done.stderr.count("best held-out perplexity") == 1  # one process speaks for both
    one, both = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert len(one) == len(both)
    for row, other in zip(one, both, strict=True):
        for key, value in row.items():
            if isinstance(value, float):
                assert other[key] == pytest.approx(value, rel=2e-4), (row["step"], key)
            else:
                assert other[key] == value
    weights = [open_model(tmp_path / name / "last").tensors for name in ("one", "two")]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=0, atol=2e-4)
    # What two processes wrote, one can go on with.
    assert train(TrainSettings(resume=tmp_path / "two", steps=25, quiet=True)).progress.step == 25


COUNTS_THREADS = """
import os, sys
from pathlib import Path
from elmo.cli.main import main

code = main(sys.argv[1:])
names = [Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task")]
print("threads left:", sum("gloo" in name for name in names), flush=True)
sys.exit(code)
"""


def test_no_thread_of_a_group_of_processes_outlives_its_run(corpus, tmp_path):
    # One that did could abort the process at its very end, a run in twelve.
    program = tmp_path / "counts_threads.py"
    program.write_text(COUNTS_THREADS)
    settings = quick(corpus, tmp_path / "run", steps=2)
    done = run_in_two_processes([program], ["train", *flags(settings)])
    assert done.stdout.count("threads left: 0") == 2, done.stdout


# --- fine-tuning --------------------------------------------------------------------------------


def heldout_rows(run):
    return [row for row in read_metrics(run / "metrics.jsonl") if row["split"] == "heldout"]


def test_fine_tuning_lowers_perplexity_on_another_domain(corpus, tmp_path):
    train(quick(corpus, tmp_path / "base", steps=150, learning_rate=5e-3, hdf5=True))
    other = tmp_path / "other.txt"
    other.write_text(made_up_text(60, seed=3, nouns=["sun", "moon", "star", "cloud", "cat"]))
    settings = TrainSettings(out=tmp_path / "tuned", batch_size=4, unroll_steps=5,
                             validate_every=50, quiet=True, device="cpu",
                             learning_rate=5e-3)  # fmt: skip
    report = finetune(str(tmp_path / "base" / "best"), [other], settings)
    before, *_, after = heldout_rows(tmp_path / "tuned")
    assert before["step"] == 0
    assert after["perplexity_forward"] < 0.8 * before["perplexity_forward"]
    assert after["perplexity_backward"] < 0.8 * before["perplexity_backward"]
    assert report.finished


def test_fine_tuning_without_an_output_layer_learns_one_first(corpus, tmp_path):
    train(quick(corpus, tmp_path / "base", steps=60, learning_rate=5e-3))
    base = open_model(tmp_path / "base" / "best")
    bare = tmp_path / "bare"
    shutil.copytree(tmp_path / "base" / "best", bare)
    (bare / "softmax.safetensors").unlink()
    (bare / "vocab.txt").unlink()
    steps = {"steps": 20, "checkpoint_every": 5, "keep_checkpoints": 9, "learning_rate": 1e-3}
    settings = quick(None, tmp_path / "tuned", **steps).replace(frozen_share=0.5, hdf5=True)
    finetune(str(bare), [corpus], settings)
    for step, is_frozen in ((5, True), (10, True), (15, False)):
        path = tmp_path / "tuned" / "checkpoints"
        newest = path / f"{step:09d}.safetensors"
        from safetensors.torch import load_file

        tensors = load_file(newest)
        same = [torch.equal(tensors[f"model.bilm.{n}"], t) for n, t in base.tensors.items()]
        assert all(same) if is_frozen else not any(same)
    assert heldout_rows(tmp_path / "tuned")[-1]["perplexity_forward"] < 1e3
    published = open_model(tmp_path / "tuned" / "best-hdf5")
    assert published.softmax
    assert published.fingerprint() == open_model(tmp_path / "tuned" / "best").fingerprint()


def test_lower_layers_learn_more_slowly(corpus, tmp_path):
    settings = quick(
        corpus, tmp_path / "run", steps=1, layer_decay=0.5, learning_rate=1e-3, warmup_steps=0
    )
    train(settings)
    from elmo.training.build import build_model
    from elmo.training.corpus.shards import Corpus

    start = build_model(settings, Corpus.open(corpus).vocabulary).model.state_dict()
    end = load_snapshot(tmp_path / "run")[0].tensors

    def moved(name):
        return float((end[f"model.{name}"] - start[name]).abs().max())

    # The first step of Adam moves each weight by about its rate.
    top = moved("output.bias")
    assert moved("bilm.forward_layers.1.bias") == pytest.approx(top / 2, rel=0.05)
    assert moved("bilm.backward_layers.0.bias") == pytest.approx(top / 4, rel=0.05)
    assert moved("bilm.words.projection.bias") == pytest.approx(top / 8, rel=0.05)


# --- bad input ----------------------------------------------------------------------------------


def test_a_run_that_diverges_stops_and_keeps_the_last_good_snapshot(corpus, tmp_path):
    settings = quick(corpus, tmp_path / "run", steps=6, checkpoint_every=3)
    train(settings)
    good, _ = load_snapshot(tmp_path / "run")
    from elmo.training import trainer

    real = trainer.hyperparameters
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trainer,
            "hyperparameters",
            lambda *a: dataclasses.replace(real(*a), loss_factor=float("nan")),
        )
        with pytest.raises(
            DivergedError,
            match=r"step 7 .*another out .*lower learning_rate.*000006.safetensors is",
        ):
            train(TrainSettings(resume=tmp_path / "run", steps=12, quiet=True))
        with pytest.raises(DivergedError, match=r"step 1 .*lower learning_rate or grad_clip$"):
            train(settings.replace(out=tmp_path / "other"))
    assert load_snapshot(tmp_path / "run")[0].progress == good.progress


def test_a_rate_that_is_far_too_high_ends_in_a_clear_error(corpus, tmp_path, capsys):
    out = tmp_path / "run"
    settings = quick(
        corpus, out, steps=200, learning_rate=1e30, optimizer="adagrad", grad_clip=1e30
    )
    assert main(["train", *flags(settings)]) == 1
    assert "diverged" in capsys.readouterr().err


def test_a_full_disk_stops_the_run_and_keeps_what_was_saved(corpus, tmp_path):
    out = tmp_path / "run"
    settings = quick(corpus, out, **LONG)
    train(settings.replace(steps=5))
    size = max(path.stat().st_size for path in (out / "checkpoints").iterdir())

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    process = elmo("train", "--resume", out, "--steps", "60", "--quiet", preexec_fn=small_files)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 1, told
    assert "Traceback" not in told
    assert "--resume" in told
    assert load_snapshot(out)[0].progress.step == 5
    assert not list((out / "checkpoints").glob(".*"))
    assert train(TrainSettings(resume=out, steps=10, quiet=True)).progress.step == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 10_000}, "smaller (--)?batch.size"),
        ({"steps": 0}, "steps is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"tie_embeddings": True}, "input words"),
        ({"word_vectors": Path("glove.txt")}, "input words"),
        ({"device": "cuda:99"}, "cannot be used"),
        ({"preset": "huge"}, "one of tiny"),
        ({"init_from": "/no/such/model"}, "no such"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_settings_that_cannot_work_are_named(corpus, tmp_path, changes, message):
    with pytest.raises(ElmoError, match=message):
        train(quick(corpus, tmp_path / "run", **changes))


def test_a_corpus_with_few_documents_is_told(corpus, tmp_path, capsys):
    settings = quick(corpus, tmp_path / "run", steps=1, batch_size=64, unroll_steps=2).replace(
        quiet=False
    )
    train(settings)
    assert "--shuffle sentences" in capsys.readouterr().err
    train(settings.replace(out=tmp_path / "other", shuffle="sentences"))
    assert "--shuffle sentences" not in capsys.readouterr().err


def test_two_lengths_are_one_too_many(corpus, tmp_path):
    with pytest.raises(ConfigError, match="steps and epochs"):
        TrainSettings(steps=5, epochs=1.0)


def test_a_run_is_not_written_over_another(corpus, uninterrupted):
    with pytest.raises(OutputExistsError, match="resume"):
        train(quick(corpus, uninterrupted))


def test_what_is_not_a_run_or_a_corpus_is_named(tmp_path):
    with pytest.raises(MissingFileError, match="not the folder of a run"):
        train(TrainSettings(resume=tmp_path))
    with pytest.raises(ElmoError, match=r"corpus|prepare"):
        train(quick(tmp_path, tmp_path / "run"))
    with pytest.raises(ConfigError, match="data"):
        train(TrainSettings(out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_go_into_the_folder_of_its_corpus(corpus):
    with pytest.raises(ConfigError, match="the folder of data"):
        train(quick(corpus, corpus / ".." / corpus.name))


def test_the_help_of_finetune_leaves_out_what_the_model_decides(capsys):
    for command, shown in (("train", True), ("finetune", False)):
        assert main([command, "--help"]) == 0
        said = capsys.readouterr().out
        assert ("--preset CHOICE" in said) == shown
        assert ("--init-from STR" in said) == shown
        assert "--minutes" in said


# --- the tokenizer ------------------------------------------------------------------------------


def test_a_model_knows_how_its_corpus_was_split(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The cat isn't here. The dog sees it.\n" * 40)
    elmo_package.prepare(text, tmp_path / "data", tokenizer="english", show_progress=False)
    report = train(quick(tmp_path / "data", tmp_path / "run", steps=2))
    assert open_model(report.best).config.tokenizer == "english"
    assert ELMo.from_pretrained(report.best).tokenizer.name == "english"
    manifest = json.loads((tmp_path / "data" / "corpus.json").read_text())
    del manifest["tokenizer"]  # as in a corpus that does not say it
    (tmp_path / "data" / "corpus.json").write_text(json.dumps(manifest))
    report = train(quick(tmp_path / "data", tmp_path / "other", steps=2))
    assert open_model(report.best).config.tokenizer is None


def test_fine_tuning_splits_text_as_the_text_of_the_model_was_split(corpus, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The cat isn't here. The dog sees it.\n" * 40)
    train(quick(corpus, tmp_path / "base", steps=2))
    config = tmp_path / "base" / "best" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer": "english"}))
    config.with_name("SHA256SUMS").unlink(missing_ok=True)
    settings = quick(None, tmp_path / "tuned", steps=2)
    report = elmo_package.finetune(tmp_path / "base" / "best", text, settings)
    manifest = json.loads((tmp_path / "tuned" / "corpus" / "corpus.json").read_text())
    assert manifest["tokenizer"] == open_model(report.best).config.tokenizer == "english"


# --- in Python ----------------------------------------------------------------------------------


def test_training_takes_fields_of_its_settings_and_returns_a_report(corpus, tmp_path):
    report = elmo_package.train(quick(corpus, tmp_path / "run"), steps=3)
    assert report.progress.step == 3
    assert report.best == tmp_path / "run" / "best"
    assert "step 3, 60 tokens" in str(report)
    assert f"(geometric mean of both directions) at step 3: {report.best}" in str(report)
    with pytest.raises(TypeError, match="rate"):
        elmo_package.train(data=corpus, rate=3)


def test_a_notebook_shows_the_loss_curve_of_a_report(corpus, tmp_path):
    report = train(quick(corpus, tmp_path / "run", steps=2))
    assert report._repr_png_().startswith(b"\x89PNG")
    assert "step 2" in report._repr_html_()
    assert "data:image/png;base64," in report._repr_html_()
    plain = dataclasses.replace(report, curve=None)
    assert plain._repr_png_() is None
    assert "<img" not in plain._repr_html_()


def test_the_progress_bar_counts_what_people_count(corpus, tmp_path, capsys):
    train(quick(corpus, tmp_path / "run", steps=12, quiet=False))
    shown = capsys.readouterr().err
    assert "step 12, epoch 0." in shown
    assert "240 tokens, loss " in shown
    assert "learning rate " in shown
    assert "tokens/s" in shown
    assert "100%" in shown


def test_the_help_of_train_is_in_groups_and_begins_with_what_is_needed_first(capsys):
    assert main(["train", "--help"]) == 0
    panels = capsys.readouterr().out.split("╭─ ")[1:]
    titles = [panel.split(" ─")[0] for panel in panels]
    assert titles == [
        "Parameters",
        "Length, instead of --epochs",
        "Model",
        "Softmax",
        "Batches",
        "Optimizer and regularization",
        "Validation, checkpoints and logs",
        "Machine",
    ]
    assert panels[0].count("│ --") <= 11
    for flag in ("--data", "--out", "--preset", "--epochs", "--batch-size", "--learning-rate"):
        assert flag in panels[0]


# --- settings from a file -----------------------------------------------------------------------


def test_a_run_can_be_described_by_a_file(corpus, tmp_path):
    settings = quick(corpus, tmp_path / "run", steps=3)
    lines = [f"{n} = {json.dumps(str(v) if isinstance(v, Path) else v)}"
             for n, v in settings.changes().items()]  # fmt: skip
    (tmp_path / "run.toml").write_text("\n".join(lines))
    assert main(["train", "--config", str(tmp_path / "run.toml"), "--steps", "2"]) == 0
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["steps"] == 2
    assert TrainSettings.from_dict(saved, "run.json") == settings.replace(steps=2)


def test_presets_of_the_command_are_those_of_the_model():
    for preset in ("tiny", "novel", "small", "medium", "original"):
        assert ElmoConfig.preset(preset)

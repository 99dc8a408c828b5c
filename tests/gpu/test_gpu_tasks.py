"""Tasks on a GPU: what is learned there is learned, continued after a stop, and runs on a CPU."""

import signal
from contextlib import nullcontext

import pytest

import elmo.tasks
from cli.test_task import CASES
from elmo.tasks.run import training
from elmo.tasks.run.training import train_task
from task_data import settings

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("task", "data", "changes"),
    [
        ("classify", "texts.csv", {}),
        ("classify", "texts.csv", {"elmo_at": "both", "precision": "bf16"}),
        ("classify", "texts.csv", {"finetune_elmo": True}),
        ("tag", "tags.conll", {"features": "elmo"}),
        ("tag", "pos.conll", {"features": "random"}),
        ("srl", "frames.jsonl", {"elmo_at": "output"}),
    ],
)
def test_a_task_is_learned_on_a_gpu_and_used_on_a_cpu(folder, tmp_path, task, data, changes):
    report = train_task(task, settings(folder, data, tmp_path / "out", device="cuda", **changes))
    assert report.dev[report.metric] == 1.0
    on_cpu = elmo.tasks.load(tmp_path / "out", device="cpu").evaluate([folder / data])
    assert on_cpu[report.metric] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", CASES)
def test_pairs_questions_and_documents_give_the_same_on_both(folder, tmp_path, name):
    file, content, text, _ = CASES[name]
    (tmp_path / file).write_text(content())
    chosen = settings(tmp_path, file, tmp_path / "out", device="cuda", epochs=2)
    places = {"model": str(folder / "bilm"), "vectors": str(folder / "vectors.txt")}
    report = train_task(name, chosen.replace(**places))
    assert report.finished
    on_gpu, on_cpu = (elmo.tasks.load(tmp_path / "out", device=d) for d in ("cuda", "cpu"))
    scores = on_cpu.evaluate([tmp_path / file])
    assert scores[report.metric] == pytest.approx(report.dev[report.metric], abs=1e-3)
    assert len(on_gpu([text])) == len(on_cpu([text]))


def test_a_run_that_was_stopped_is_continued(folder, tmp_path, monkeypatch):
    chosen = settings(folder, "tags.conll", tmp_path / "out", device="cuda", epochs=3)
    with monkeypatch.context() as patched:
        patched.setattr(training, "stop_signals", lambda: nullcontext([signal.SIGINT]))
        stopped = train_task("tag", chosen)
    assert not stopped.finished
    report = train_task("tag", chosen.replace(resume=True))
    assert report.finished
    assert report.epochs == 3

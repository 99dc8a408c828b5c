"""Tasks from files to predictions: the loop, resuming, trained heads, the command line."""

import os
import signal
import subprocess
import sys
import time

import pytest

import elmo.tasks
from elmo.cli.main import main
from elmo.errors import ConfigError, ElmoWarning, InputError, OutputExistsError
from elmo.runtime.metrics_file import METRICS_FILE, read_metrics
from elmo.tasks.heads import find_task
from elmo.tasks.run.training import train_task
from elmo.tasks.settings import TaskSettings
from task_data import settings

# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "data", "features"),
    [
        ("classify", "texts.csv", "glove"),
        ("classify", "texts.csv", "glove+elmo"),
        ("tag", "tags.conll", "elmo"),
        ("tag", "pos.conll", "random"),
        ("srl", "frames.jsonl", "glove"),
    ],
)
def test_what_can_be_learned_perfectly_is(folder, tmp_path, task, data, features):
    report = train_task(task, settings(folder, data, tmp_path / "out", features=features))
    assert report.finished
    assert report.dev[report.metric] == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"elmo_at": "output", "mix": 1},
        {"elmo_at": "both", "mix": "top", "features": "elmo"},
        {"mix": "average", "features": "random+elmo"},
        {"mix_l2": 0.1, "finetune_vectors": True},
        {"finetune_elmo": True, "elmo_learning_rate": 1e-3},
    ],
)
def test_every_choice_of_features_trains_and_is_loaded_again(folder, tmp_path, changes):
    chosen = settings(folder, "texts.csv", tmp_path / "out", epochs=1, train_share=0.4, **changes)
    report = train_task("classify", chosen)
    head = elmo.tasks.load(tmp_path / "out", device="cpu")
    assert head.evaluate([folder / "texts.csv"]) == pytest.approx(report.dev)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(folder, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_task(
            "tag",
            settings(folder, "tags.conll", tmp_path / name, seed=seed, epochs=2, train_share=0.5),
        )
    read = {n: (tmp_path / n / "model.safetensors").read_bytes() for n in "abc"}
    assert read["a"] == read["b"]
    assert read["a"] != read["c"]


def test_a_biLM_that_learns_changes_and_is_saved(folder, tmp_path):
    train_task(
        "classify",
        settings(
            folder, "texts.csv", tmp_path, epochs=1, finetune_elmo=True, elmo_learning_rate=0.01
        ),
    )
    from elmo import ELMo

    before, after = (ELMo.from_pretrained(p) for p in (folder / "bilm", tmp_path / "elmo"))
    assert before.fingerprint != after.fingerprint


def test_training_stops_early_when_nothing_gets_better(folder, tmp_path):
    report = train_task(
        "classify",
        settings(
            folder, "texts.csv", tmp_path, epochs=40, patience=2, features="glove", batch_size=24
        ),
    )
    assert report.epochs == report.best_epoch + 2 < 40


def test_without_dev_files_a_part_is_held_out(folder, tmp_path):
    chosen = settings(folder, "texts.csv", tmp_path, epochs=1).replace(dev=(), dev_share=0.25)
    report = train_task("classify", chosen)
    assert (report.n_train, report.n_dev) == (54, 18)


def test_words_without_a_static_vector_are_counted(folder, tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\nthe zyx is red,red\nthe car is Red,red\n")
    chosen = settings(folder, "texts.csv", tmp_path / "a", epochs=1, features="glove")
    report = train_task("classify", chosen.replace(dev=(tmp_path / "dev.csv",)))
    assert report.unknown == {"train": 0.0, "dev": 0.125}


def test_few_examples_are_read_several_times(folder, tmp_path):
    chosen = settings(folder, "texts.csv", tmp_path, epochs=1, min_steps=80, train_share=0.1)
    report = train_task("classify", chosen)
    assert report.n_train == 7
    assert report.steps == report.epochs == 80
    evaluated = [row["epoch"] for row in read_metrics(tmp_path / METRICS_FILE)]
    assert evaluated == [40, 40, 80, 80]


def test_a_number_of_passes_that_is_given_is_kept(folder, tmp_path):
    """What small data sets get beyond their passes is for those who asked for no number."""
    chosen = settings(folder, "texts.csv", tmp_path, epochs=3, min_steps=None, train_share=0.5)
    report = train_task("classify", chosen)
    assert report.n_train == 36
    assert report.epochs == 3
    assert report.steps == 3 * 5


def test_without_a_number_of_passes_small_data_is_read_more_often():
    default = find_task("classify").recipe
    assert TaskSettings().recipe(default) == default
    assert TaskSettings(epochs=3).recipe(default).min_steps == 0
    both = TaskSettings(epochs=3, min_steps=70).recipe(default)
    assert (both.epochs, both.min_steps) == (3, 70)


# --- going on -------------------------------------------------------------------------------------


def files_of(out):
    names = ("model.safetensors", "metrics.jsonl", "words.txt")
    return {name: (out / name).read_bytes() for name in names}


def test_a_run_that_is_killed_goes_on_to_the_same_result(folder, tmp_path):
    """A real process is killed at once, without being asked, after some rounds."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    flags = ["--data", str(folder / "texts.csv"), "--dev", str(folder / "texts.csv")]
    flags += ["--model", str(folder / "bilm"), "--vectors", str(folder / "vectors.txt")]
    flags += [
        "--hidden-size",
        "8",
        "--epochs",
        "20",
        "--batch-size",
        "12",
        "--min-steps",
        "0",
        "--patience",
        "0",
        "--quiet",
    ]
    flags += ["--cache-dir", str(folder / "cache"), "--device", "cpu"]
    assert main(["task", "train", "classify", *flags, "--out", str(whole)]) == 0
    command = [sys.executable, "-m", "elmo", "task", "train", "classify", *flags]
    process = subprocess.Popen([*command, "--out", str(killed)], env={**os.environ})
    metrics = killed / "metrics.jsonl"
    for _ in range(1200):
        if metrics.is_file() and metrics.read_bytes().count(b"\n") >= 4:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "result.json").exists(), "the run was over before it could be killed"
    assert main(["task", "train", "classify", *flags, "--out", str(killed), "--resume"]) == 0
    assert files_of(killed) == files_of(whole)


def test_a_finished_run_is_not_done_again(folder, tmp_path):
    chosen = settings(folder, "texts.csv", tmp_path, epochs=1)
    report = train_task("classify", chosen)
    changed = (tmp_path / "model.safetensors").stat().st_mtime_ns
    assert train_task("classify", chosen.replace(resume=True)) == report
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == changed


def test_a_run_does_not_go_on_with_other_settings(folder, tmp_path):
    chosen = settings(folder, "texts.csv", tmp_path, epochs=1)
    train_task("classify", chosen)
    with pytest.raises(ConfigError, match=r"learning_rate is 0\.5.*started with 0\.01"):
        train_task("classify", chosen.replace(resume=True, learning_rate=0.5))
    with pytest.raises(ConfigError, match="another task"):
        train_task("tag", chosen.replace(resume=True))
    with pytest.raises(OutputExistsError, match="resume"):
        train_task("classify", chosen)


# --- bad input ------------------------------------------------------------------------------------


def test_labels_that_training_does_not_know_are_refused_with_file_and_line(folder, tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\nthe car,red\nthe hat,pink\n")
    chosen = settings(folder, "texts.csv", tmp_path / "out").replace(dev=(tmp_path / "dev.csv",))
    with pytest.raises(InputError, match=r"dev\.csv, line 3: unknown label 'pink'"):
        train_task("classify", chosen)


def test_tags_that_training_does_not_know_are_counted(folder, tmp_path):
    (tmp_path / "dev.conll").write_text("the O\ncar B-Z\nhouse I-Z\n")
    chosen = settings(folder, "tags.conll", tmp_path / "out", epochs=1)
    with pytest.warns(ElmoWarning, match=r"2 tags \(B-Z, E-Z\) .* \(first: .*dev\.conll"):
        train_task("tag", chosen.replace(dev=(tmp_path / "dev.conll",)))


def test_long_texts_are_cut_and_long_sentences_left_out_with_a_count(folder, tmp_path):
    chosen = settings(folder, "texts.csv", tmp_path / "a", epochs=1, max_words=3)
    with pytest.warns(ElmoWarning, match=r"72 texts have more than 3 words and are cut"):
        train_task("classify", chosen)
    (tmp_path / "long.conll").write_text("the O\ncar B-X\n\nthe O\n\n" + "the O\n" * 9)
    chosen = settings(tmp_path, "long.conll", tmp_path / "b", epochs=1, max_words=3)
    chosen = chosen.replace(features="glove", vectors=str(folder / "vectors.txt"))
    with pytest.warns(ElmoWarning, match=r"1 sentences have more than 3 words and are left out"):
        assert train_task("tag", chosen).n_train == 2


def test_halved_numbers_are_for_gpus(folder, tmp_path):
    with pytest.raises(ConfigError, match="precision bf16 needs a GPU"):
        train_task("classify", settings(folder, "texts.csv", tmp_path, precision="bf16"))


@pytest.mark.parametrize("missing", ["data", "out"])
def test_what_is_needed_is_asked_for(folder, tmp_path, missing):
    chosen = settings(folder, "texts.csv", tmp_path)
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        train_task("classify", chosen.replace(**{missing: () if missing == "data" else None}))

"""Speed beside AllenNLP: the command, its counts, its contenders."""

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.common.allennlp import MissingPeerError, load_elmo_class
from benchmarks.common.command import run
from benchmarks.common.models import subject_of_size
from benchmarks.common.systems import Ours
from benchmarks.speed.__main__ import speed
from benchmarks.speed.contest import Contest, Roof
from benchmarks.speed.costs import count_costs
from benchmarks.speed.peaks import Peaks, measure_peaks
from elmo import ELMo, ElmoConfig, random_bilm
from elmo.model.bilm import BiLM
from elmo.text import made_up as corpus
from strategies import word_config

ROOT = Path(__file__).parents[2]
CAPTURED = {"capture_output": True, "text": True, "check": False, "timeout": 120}

CPU = torch.device("cpu")


QUICK = ["--quick", "--threads", "1", "--device", "cpu", "--quiet"]


def table(text, title):
    """Give the rows of the table whose first column has this title: cells by name."""
    (found,) = (part for part in text.split("\n\n") if part.startswith(f"{title}  "))
    rows = (re.split(r" {2,}", line.strip()) for line in found.splitlines()[1:])
    return {name: cells for name, *cells in rows}


def test_the_table_says_what_the_json_says(tmp_path, capsys):
    path = tmp_path / "report.json"
    flags = ["--sizes", "tiny", "--sentences", "8", "--skip-peers", "--precision", "fp32"]
    assert run(speed, [*QUICK, *flags, "--data", str(tmp_path), "--json", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["machine"]["threads"] == 1
    (size,) = report["sizes"]
    assert (size["size"], size["device"], size["sentences"]) == ("tiny", "cpu", 8)
    corpus = table(captured.out, "corpus")
    assert list(corpus) == ["ours fp32, one call", "ours fp32, calls of 32, given order"]
    for row in size["corpus"]:
        median = f"{row['words_per_second']['median']:,.0f}"
        assert corpus[row["name"]] == [median, "-", "-", f"{row['share_of_peak']:.0%}"]
        assert len(row["seconds"]) == 2
        reached = least_work(size) / statistics.median(row["seconds"])
        assert row["share_of_peak"] == pytest.approx(reached / size["peaks"]["flops"]["fp32"])
    latency = table(captured.out, "one sentence of 20 words")
    for row in size["latency"]:
        assert len(row["seconds"]) == 8
        assert latency[row["name"]][0] == f"{row['milliseconds']['median']:.1f}"
    (memory,) = size["memory"]
    assert 0 < memory["loaded_mb"] <= memory["peak_mb"]
    assert table(captured.out, "memory")[memory["name"]][0] == f"{memory['peak_mb']:.0f}"
    (exact,) = size["agreement"]
    assert exact["other"] == "float64"
    assert exact["largest_difference"] < 1e-5


def least_work(size):
    """Count again what cannot be avoided."""
    costs = size["costs"]
    words = size["distinct_words"] * (costs["dense"] + costs["first_input"])
    return words + size["words"] * costs["recurrent"]


def test_a_model_of_the_users_is_measured_beside_allennlp(tmp_path, model_folder):
    try:
        load_elmo_class()
    except MissingPeerError as error:
        pytest.skip(str(error))
    path = tmp_path / "report.json"
    flags = ["--model", str(model_folder), "--sentences", "6", "--repeats", "1"]
    command = [sys.executable, "-m", "benchmarks.speed", *QUICK, *flags, "--precision", "fp32"]
    done = subprocess.run(
        [*command, "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (size,) = json.loads(path.read_text(encoding="utf-8"))["sizes"]
    assert size["size"] == str(model_folder)
    assert [row["name"].split(",")[0] for row in size["corpus"]] == [
        "ours fp32",
        "AllenNLP 2.10.1",
        "ours fp32",
        "AllenNLP 2.10.1",
    ]
    assert {row["other"] for row in size["agreement"]} == {"float64", "AllenNLP 2.10.1"}
    assert size["corpus"][1]["times_given"]["median"] == 1
    assert size["corpus"][3]["times_sorted"]["median"] == 1
    ours, theirs = (size["corpus"][n]["words_per_second"]["median"] for n in (0, 1))
    assert size["corpus"][0]["times_given"]["median"] == pytest.approx(ours / theirs)


def test_a_model_that_allennlp_cannot_run_is_measured_alone(tmp_path, capsys):
    gru = ElmoConfig.preset("tiny", cell="gru")
    ELMo(random_bilm(gru), device="cpu").save_pretrained(tmp_path / "model")
    flags = [
        "--model",
        str(tmp_path / "model"),
        "--sentences",
        "4",
        "--repeats",
        "1",
        "--skip-memory",
    ]
    assert run(speed, [*QUICK, *flags, "--precision", "fp32"]) == 0
    out = capsys.readouterr().out
    assert "ours fp32, one call" in out
    assert re.search(r"^note .*(no gru cells|alone)", out, flags=re.MULTILINE)


def test_the_costs_of_the_original_size_are_those_counted_by_hand():
    costs = count_costs(ElmoConfig.preset("original"))
    gates, projection = 4 * 4096 * 512, 4096 * 512
    assert costs.first_input == 2 * 2 * gates
    assert costs.first_input + costs.recurrent == 2 * 4 * (2 * gates + projection) == 150_994_944
    assert costs.dense == 2 * (2 * 2 * 2048 * 2048 + 2048 * 512) == 35_651_584
    # Width times number times places of each group of filters, 16 values a character.
    places = 1600 + 3136 + 9216 + 24064 + 58880 + 138240 + 315392
    assert costs.convolution == 2 * 16 * places == 17_616_896
    assert costs.per_word == 204_263_424
    # Ten words, three of them distinct: word vectors and first input products three times.
    assert costs.least(10, 3) == 3 * (35_651_584 + 33_554_432) + 10 * 117_440_512


def test_the_bytes_of_the_original_size_are_those_counted_by_hand():
    costs = count_costs(ElmoConfig.preset("original"))
    step = 4 * (4 * 4096 * 512 + 4096 * 512)  # two layers, two directions: 42 million weights
    once = 4 * (4 * 4096 * 512) + 2 * 2 * 2048 * 2048 + 2048 * 512
    assert (costs.weights_each_step, costs.weights_once) == (step, once)
    assert costs.sentence_bytes(20, "fp32") == 4 * (once + 20 * step) == 3_560_964_096
    assert costs.sentence_bytes(20, "bf16") == costs.sentence_bytes(20, "fp16") == 1_780_482_048
    assert costs.sentence_bytes(20, "int8") == 890_241_024


@pytest.mark.parametrize(
    "config",
    [
        ElmoConfig.preset("tiny"),
        ElmoConfig.preset("small"),
        ElmoConfig.preset("tiny", cell="gru", n_layers=3),
        ElmoConfig.preset("tiny", dim=16),  # no projection of cells
        ElmoConfig.preset("tiny", n_highway=0, filters=((1, 8), (2, 8))),  # none of words
        word_config(),
    ],
)
def test_every_weight_of_a_product_is_counted_once(config):
    with torch.device("meta"):
        model = BiLM(config)
    products = [
        tensor.numel()
        for name, tensor in model.state_dict().items()
        if tensor.ndim == 2 and "embedding" not in name
    ]
    costs = count_costs(config)
    assert costs.weights_once + costs.weights_each_step == sum(products)
    assert costs.per_word - costs.convolution == 2 * sum(products)


def test_shares_of_the_roof_are_the_larger_of_two():
    peaks = Peaks(flops={"fp32": 100.0}, bandwidth=10.0)
    assert peaks.share_of_flops("fp32", operations=50, seconds=1) == 0.5
    assert peaks.share_of_roof("fp32", operations=50, bytes_read=1, seconds=1) == 0.5
    assert peaks.share_of_roof("fp32", operations=50, bytes_read=8, seconds=1) == 0.8
    assert peaks.share_of_roof("fp32", operations=50, bytes_read=8, seconds=4) == 0.2


def test_the_better_of_two_peaks_counts():
    first = Peaks(flops={"fp32": 1.0, "bf16": 4.0}, bandwidth=2.0)
    second = Peaks(flops={"fp32": 3.0, "bf16": 2.0}, bandwidth=1.0)
    assert first.best_of(second) == Peaks(flops={"fp32": 3.0, "bf16": 4.0}, bandwidth=2.0)


def test_peaks_are_measured_for_every_precision():
    peaks = measure_peaks(("fp32", "fp16", "bf16", "int8"), CPU, quick=True)
    assert set(peaks.flops) == {"fp32", "fp16", "bf16", "int8"}
    # A precision is never worse off than float32, into which its weights can be turned.
    assert all(peak >= peaks.flops["fp32"] > 0 for peak in peaks.flops.values())
    assert peaks.bandwidth > 0


def test_on_a_gpu_vectors_stay_there_or_come_to_the_host(tmp_path):
    """The line-up of a GPU, run by models on the CPU."""
    subject = subject_of_size("tiny", tmp_path)
    roof = Roof(count_costs(subject.config), Peaks(flops={"fp32": 1e9}, bandwidth=1e9))
    contest = Contest(
        name="tiny",
        device=torch.device("cuda"),
        ours=[Ours(subject.source, "fp32", CPU)],
        peer=None,
        show_progress=False,
    )
    sentences = corpus.make_sentences(3)
    rows = contest.judge_corpus(sentences, contest.time_corpus(sentences, rounds=2), roof)
    assert [row.name for row in rows] == [
        "ours fp32, vectors on the GPU",
        "ours fp32, vectors in host memory",
    ]
    assert all(row.words == corpus.count_words(sentences) for row in rows)
    assert "1024" in contest.given_order

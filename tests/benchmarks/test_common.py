"""What the measurements share: commands, models, contenders, clocks, AllenNLP, float64."""

import os
import re
import sys

import numpy as np
import pytest
import torch

from benchmarks.common import allennlp
from benchmarks.common.command import run
from benchmarks.common.float64 import float64_layers
from benchmarks.common.models import published_folder, subject_of_model, subject_of_size
from benchmarks.common.systems import (
    Ours,
    batch_size,
    devices,
    gpu_memory_is_enough,
    usable_precisions,
)
from benchmarks.common.timing import Contender, Spread, interleave, rates, ratios
from benchmarks.exactness.__main__ import exactness
from benchmarks.exactness.settings import PrecisionSettings
from benchmarks.scaling.__main__ import scaling
from benchmarks.scaling.settings import ScalingSettings
from benchmarks.speed.__main__ import speed
from benchmarks.speed.settings import SpeedSettings
from elmo import ELMo, ElmoConfig
from elmo.errors import ConfigError, OutputError
from elmo.hub.names import open_model
from elmo.text.made_up import make_sentences
from oracle import Oracle, random_tensors, write_files

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("command", "arguments", "code", "expected"),
    [
        (speed, ["--sizes", "huge"], 2, "--sizes"),
        (speed, ["--sizes", "tiny", "--model", "here"], 2, "choose one"),
        (speed, ["--model", "./missing"], 2, "no such model"),
        (speed, ["--repeats", "0"], 2, "--repeats is 0"),
        (speed, ["--threads", "-1"], 2, "--threads is -1"),
        (speed, ["--device", "tpu9"], 2, "tpu9"),
        (speed, ["--precision", "fp64"], 2, "--precision"),
        (speed, ["--quick", "--json", "/dev/null/report.json"], 1, "cannot write /dev"),
        (scaling, ["--quick", "--plot", "/dev/null/p.png"], 1, "cannot write /dev"),
        (speed, ["--threads", "100000"], 2, "--threads is 100000, expected at most"),
        (scaling, ["--plot", "s.txt"], 2, "--plot is s.txt, expected a file whose name"),
        (scaling, ["--plot", "scaling"], 2, "ends with .png, .svg, .pdf"),
        (scaling, ["--batches", "4", "0"], 2, "--batches is 4 0"),
        (exactness, ["random-tiny"], 2, "--text FILE, or --treebank"),
        (exactness, ["random-tiny", "--text", "missing"], 2, "no such text file"),
        (exactness, ["random-tiny", "--treebank", "missing"], 2, "no such folder"),
        (exactness, [], 2, "MODEL"),
        (speed, ["frobnicate"], 2, "frobnicate"),
    ],
)
@pytest.mark.filterwarnings("ignore::elmo.errors.ElmoWarning")
def test_what_cannot_be_measured_is_said_in_one_line(
    command, arguments, code, expected, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(command, arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [SpeedSettings, ScalingSettings, PrecisionSettings])
def test_what_is_named_twice_is_measured_once(kind):
    assert kind(precision=("int8", "fp32", "int8")).precision == ("int8", "fp32")


def test_a_machine_is_not_asked_for_more_threads_than_it_can_start():
    most = 4 * os.cpu_count()
    assert SpeedSettings(threads=most).threads == most
    with pytest.raises(ConfigError, match=f"threads is {most + 1}, expected at most {most}: 4"):
        SpeedSettings(threads=most + 1)


def test_spread_and_ratios_are_taken_round_by_round():
    # The machine was ten times slower in the second round; the ratio does not notice.
    assert ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0)
    assert rates(10, [2.0, 5.0]) == [5.0, 2.0]


def test_contenders_take_turns():
    calls = []
    contenders = [
        Contender("a", lambda: calls.append("a"), lambda: calls.append("ready")),
        Contender("b", lambda: calls.append("b")),
    ]
    seconds = interleave(contenders, 2)
    assert calls == ["ready", "a", "b"] * 2
    assert [len(seconds[name]) for name in "ab"] == [2, 2]


def test_random_weights_are_written_once(tmp_path):
    first = subject_of_size("tiny", tmp_path)
    written = (tmp_path / "tiny" / "weights.hdf5").stat().st_mtime_ns
    assert subject_of_size("tiny", tmp_path) == first
    assert (tmp_path / "tiny" / "weights.hdf5").stat().st_mtime_ns == written
    tensors = first.read().tensors
    assert first.parameters == sum(t.numel() for t in tensors.values()) - first.config.char_dim
    with published_folder(first) as folder:
        assert folder == tmp_path / "tiny"


@pytest.mark.parametrize("options", ["{}", "{", ""])
def test_half_written_weights_are_written_anew(tmp_path, options):
    subject_of_size("tiny", tmp_path)
    (tmp_path / "tiny" / "options.json").write_text(options)
    subject_of_size("tiny", tmp_path).read()


def test_weights_that_cannot_be_kept_name_the_flag(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError, match="data"):
        subject_of_size("tiny", tmp_path / "file")


def test_a_model_in_our_layout_is_laid_out_for_allennlp(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path)
    subject = subject_of_model(str(tmp_path))
    with published_folder(subject) as folder:
        assert {"options.json", "weights.hdf5"} <= {path.name for path in folder.iterdir()}
        again = ELMo.from_pretrained(folder, device="cpu")
        assert again.fingerprint == tiny_elmo.fingerprint
    assert not folder.exists()


def test_missing_peer_says_how_to_install_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "allennlp", raising=False)
    monkeypatch.setattr(allennlp.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(allennlp.MissingPeerError, match=re.escape(allennlp.HOW_TO_INSTALL)):
        allennlp.load_elmo_class()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"cell": "gru"}, "no gru"),
        ({"max_characters": 20}, "50 characters"),
        ({"n_characters": 300}, "UTF-8 bytes"),
        ({"dim": 16}, "always projects"),
    ],
)
def test_models_that_allennlp_cannot_run_are_known(changes, reason):
    found = allennlp.why_not(ElmoConfig.preset("tiny", **changes))
    assert found is None if reason is None else reason in found


def test_a_precision_without_instructions_is_left_out_and_noted(monkeypatch):
    monkeypatch.setattr("benchmarks.common.systems.runs_natively", lambda precision: False)
    notes = []
    assert "bf16" in usable_precisions(("fp32", "bf16"), CPU, notes, emulate=True)
    assert notes == []
    with pytest.raises(ConfigError, match="no instructions for bf16"):
        usable_precisions(("bf16",), CPU, notes)
    assert len(notes) == 1


def test_devices_are_the_one_asked_for_or_all():
    assert devices("cpu") == [CPU]
    assert devices("auto")[0] == CPU
    with pytest.raises(ConfigError, match="tpu9"):
        devices("tpu9")


def test_all_ways_to_embed_give_the_same_vectors(tmp_path):
    subject = subject_of_size("tiny", tmp_path)
    ours = Ours(subject.source, "fp32", CPU, layers="top")
    sentences = make_sentences(batch_size(CPU) + 3)
    expected = ours.model.encode_tokens(sentences, layers="top")
    for way in (ours.in_one_call, ours.in_small_calls, ours.on_the_device):
        ours.forget()
        for found, vectors in zip(way(sentences), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found), vectors)


def test_too_little_memory_of_a_gpu_says_what_to_change():
    with pytest.raises(ConfigError, match="fewer sentences"), gpu_memory_is_enough():
        raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_reference_in_float64_agrees_with_the_independent_oracle(tmp_path, cell):
    config = ElmoConfig.preset("tiny", cell=cell, cell_clip=0.5, proj_clip=0.3)
    tensors = random_tensors(config.to_options(), seed=1, recurrent_scale=2.0)
    oracle = Oracle(config.to_options(), tensors)
    write_files(tmp_path, config.to_options(), tensors)
    sentences = [["A", "cat", "."], ["naïve"], ["x" * 60, "b"]]
    found = float64_layers(open_model(tmp_path), sentences)
    for layers, expected in zip(found, oracle.read_all(sentences), strict=True):
        assert layers.dtype == np.float64
        np.testing.assert_allclose(layers, expected, rtol=0, atol=1e-12)
    assert min(oracle.clipped.values()) > 0

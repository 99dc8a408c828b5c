"""Trained heads at work: raw texts, files, damaged folders, the command line; their parts."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
import torch

import elmo.tasks
from elmo.cli.main import main
from elmo.errors import ConfigError, ElmoWarning, WeightsError
from elmo.tasks.heads.base import Layout
from elmo.tasks.heads.encoders import AttentionPooling, BiLstm, HighwayLstm, SequenceDropout
from elmo.tasks.run.batches import chosen_share, shuffled_batches, sorted_batches
from elmo.tasks.run.training import train_task
from task_data import COLOURS, settings

# --- trained heads --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heads(folder, tmp_path_factory):
    """A trained head of each of three tasks."""
    out = tmp_path_factory.mktemp("heads")
    train_task("classify", settings(folder, "texts.csv", out / "classify", features="glove+elmo"))
    train_task("tag", settings(folder, "tags.conll", out / "tag", features="glove"))
    train_task("srl", settings(folder, "frames.jsonl", out / "srl", features="glove", batch=2))
    return out


def test_a_trained_head_reads_raw_texts(heads):
    classify = elmo.tasks.load(heads / "classify", device="cpu")
    one, two = classify(["The house is red", "the cup is green"])
    assert (one["label"], two["label"]) == ("red", "green")
    assert (one["input"], two["input"]) == (0, 1)
    assert sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert classify("the cup is green")[0]["label"] == "green"
    assert classify([]) == []
    assert classify([""])[0]["label"] in COLOURS


def test_a_tagger_shows_spans_with_their_words(heads):
    (record,) = elmo.tasks.load(heads / "tag", device="cpu")(["the red car is blue"])
    assert record["tags"] == ["O", "B-X", "I-X", "O", "B-Y"]
    assert [(s["type"], s["text"]) for s in record["spans"]] == [("X", "red car"), ("Y", "blue")]


def test_roles_are_found_for_marked_predicates_and_for_those_that_look_like_one(heads):
    srl = elmo.tasks.load(heads / "srl", device="cpu")
    found, marked = srl(["cup paints the red car", "cup [paints] the red car"])
    assert found["frames"] == marked["frames"]
    (frame,) = found["frames"]
    assert frame["word"] == "paints"
    assert [(a["role"], a["text"]) for a in frame["arguments"]] == [
        ("ARG0", "cup"),
        ("ARG1", "the red car"),
    ]


def test_words_that_training_did_not_see_are_looked_up_in_the_vectors(folder, heads, tmp_path):
    """Without the file of vectors, such words are unknown, and that is told."""
    config = heads / "tag" / "config.json"
    changed = json.loads(config.read_text())
    assert "cup" in (heads / "tag" / "words.txt").read_text().split()
    changed["settings"]["vectors"] = str(tmp_path / "gone.txt")
    shutil.copytree(heads / "tag", tmp_path / "tag")
    (tmp_path / "tag" / "config.json").write_text(json.dumps(changed))
    with pytest.warns(ElmoWarning, match="count as unknown"):
        head = elmo.tasks.load(tmp_path / "tag", device="cpu")
    assert head(["the red car is blue"])[0]["tags"][1] == "B-X"


def test_a_head_is_not_used_with_another_biLM(heads, tmp_path, clipping_bilm):
    from elmo import ELMo

    ELMo(clipping_bilm).save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="another biLM"):
        elmo.tasks.load(heads / "classify", model=str(tmp_path))


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "words.txt"])
def test_damaged_folders_are_refused(heads, tmp_path, file):
    shutil.copytree(heads / "tag", tmp_path / "tag")
    path = tmp_path / "tag" / file
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises((ConfigError, WeightsError)):
        elmo.tasks.load(tmp_path / "tag")


# --- the command line -----------------------------------------------------------------------------


def test_predict_reads_texts_files_and_standard_input(heads, tmp_path, capsys, monkeypatch):
    folder = str(heads / "classify")
    assert main(["task", "predict", folder, "the cup is black", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "black"
    lines = tmp_path / "lines.txt"
    lines.write_text("the cup is red\nthe hat is blue\n")
    out = tmp_path / "out.jsonl"
    assert main(["task", "predict", folder, str(lines), "--out", str(out), "--device", "cpu"]) == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["input"], r["label"]) for r in records] == [(0, "red"), (1, "blue")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cup is green\n")))
    capsys.readouterr()
    assert main(["task", "predict", folder, "-", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "green"
    assert main(["task", "predict", folder, str(tmp_path / "none.txt")]) == 2
    assert main(["task", "predict", str(tmp_path), "text"]) == 2
    assert "no trained head" in capsys.readouterr().err


def test_evaluate_prints_what_training_reported(folder, heads, tmp_path, capsys):
    command = ["task", "evaluate", str(heads / "tag"), "--data", str(folder / "tags.conll")]
    command += ["--device", "cpu", "--quiet", "--cache", str(folder / "cache")]
    predictions = tmp_path / "predictions.jsonl"
    assert main([*command, "--json", "--predictions", str(predictions)]) == 0
    result = json.loads((heads / "tag" / "result.json").read_text())
    assert json.loads(capsys.readouterr().out) == result["dev"]
    assert len(predictions.read_text().splitlines()) == result["n_dev"]
    assert main(command) == 0
    assert "f1" in capsys.readouterr().out


def test_settings_come_from_a_file_and_flags_win(folder, tmp_path, capsys):
    config = tmp_path / "run.toml"
    lines = [
        f'data = "{folder / "texts.csv"}"',
        f'vectors = "{folder / "vectors.txt"}"',
        'features = "glove"',
        "epochs = 7",
        "hidden = 8",
    ]
    config.write_text("\n".join(lines))
    command = ["task", "train", "classify", "--config", str(config), "--epochs", "1", "--quiet"]
    assert main([*command, "--min-steps", "0", "--out", str(tmp_path / "out")]) == 0
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (run["epochs"], run["hidden"], run["features"]) == (1, 8, "glove")
    assert "best by dev accuracy" in capsys.readouterr().err


# --- parts ----------------------------------------------------------------------------------------


def test_batches_hold_every_example_once_and_follow_the_seed():
    sizes = [k % 17 for k in range(1000)]
    batches = shuffled_batches(sizes, 16, np.random.default_rng(3))
    assert sorted(k for batch in batches for k in batch) == list(range(1000))
    assert batches == shuffled_batches(sizes, 16, np.random.default_rng(3))
    assert batches != shuffled_batches(sizes, 16, np.random.default_rng(4))
    spread = [max(sizes[k] for k in b) - min(sizes[k] for k in b) for b in batches]
    assert sum(spread) / len(spread) < 2
    assert sorted_batches([1, 5, 3], 2) == [[1, 2], [0]]


def test_smaller_shares_are_parts_of_larger_ones():
    small, large = (set(chosen_share(200, share, 7)) for share in (0.01, 0.1))
    assert len(small) == 2
    assert small < large


@pytest.mark.parametrize(
    "encoder", [BiLstm(4, 6, 2), HighwayLstm(4, 6, 3, 0.0), HighwayLstm(4, 6, 4, 0.0)]
)
def test_padding_does_not_change_what_encoders_give(encoder):
    vectors = torch.randn(2, 5, 4)
    layout = Layout.of([3, 5])
    both = encoder(vectors * layout.mask.unsqueeze(-1), layout)
    alone = encoder(vectors[:1, :3], Layout.of([3]))
    torch.testing.assert_close(both[:1, :3], alone)
    assert (both[0, 3:] == 0).all()


def test_a_deep_encoder_lets_every_word_see_all_others():
    encoder = HighwayLstm(4, 6, 2, 0.0)
    vectors = torch.randn(1, 5, 4, requires_grad=True)
    for place in range(5):
        read = encoder(vectors, Layout.of([5]))
        (gradient,) = torch.autograd.grad(read[0, place].sum(), vectors)
        seen = gradient[0].abs().sum(dim=1) > 0
        assert seen.all(), (place, seen)


def test_pooling_ignores_padding_and_gives_zeros_for_nothing():
    pooling = AttentionPooling(4)
    vectors = torch.randn(2, 3, 4)
    mask = torch.tensor([[True, True, False], [False] * 3])
    pooled = pooling(vectors, mask)
    torch.testing.assert_close(pooled[:1], pooling(vectors[:1, :2], mask[:1, :2]))
    assert (pooled[1] == 0).all()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.75])
def test_sequence_dropout_drops_the_same_values_of_all_words_and_no_more_than_its_share(share):
    torch.manual_seed(0)
    dropped = SequenceDropout(share).train()(torch.ones(3, 7, 1000))
    assert (dropped == dropped[:, :1]).all()
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=0.05)
    assert dropped.max().item() == pytest.approx(1 / (1 - share))
    assert dropped.mean().item() == pytest.approx(1, abs=0.1)
    assert not torch.equal(dropped[0], dropped[1])

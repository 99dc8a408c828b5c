"""Trained heads at work: raw texts, other models, damaged folders."""

import json
import shutil
import warnings

import pytest

import elmo.tasks
from elmo.errors import ConfigError, ElmoWarning, WeightsError
from elmo.tasks.run.training import train_task
from task_data import COLORS, settings


@pytest.fixture(scope="module")
def heads(folder, tmp_path_factory):
    """A trained head of each of three tasks."""
    out = tmp_path_factory.mktemp("heads")
    train_task("classify", settings(folder, "texts.csv", out / "classify", features="glove+elmo"))
    train_task("tag", settings(folder, "tags.conll", out / "tag", features="glove"))
    train_task("srl", settings(folder, "frames.jsonl", out / "srl", features="glove", batch_size=2))
    return out


def test_a_trained_head_reads_raw_texts(heads):
    classify = elmo.tasks.load(heads / "classify", device="cpu")
    one, two = classify(["The house is red", "the cup is green"])
    assert (one["label"], two["label"]) == ("red", "green")
    assert (one["input"], two["input"]) == (0, 1)
    assert sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert classify("the cup is green")[0]["label"] == "green"
    assert classify([]) == []
    assert classify([""])[0]["label"] in COLORS


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


def test_a_head_remembers_the_tokenizer_of_its_model(folder, tmp_path):
    shutil.copytree(folder / "bilm", tmp_path / "bilm")
    config = tmp_path / "bilm" / "config.json"
    content = json.loads(config.read_text()) | {"tokenizer": "whitespace"}
    config.write_text(json.dumps(content))
    config.with_name("SHA256SUMS").unlink(missing_ok=True)
    (tmp_path / "texts.csv").write_text("text,label\nit isn't,a\nit is.,b\n" * 4)
    chosen = settings(tmp_path, "texts.csv", tmp_path / "head", features="elmo", epochs=1)
    train_task("classify", chosen)
    head = elmo.tasks.load(tmp_path / "head", device="cpu")
    assert head.options.tokenizer == "whitespace"
    assert head.read([tmp_path / "texts.csv"])[0].words == ["it", "isn't"]
    assert head("it isn't")[0]["text"] == "it isn't"
    told = elmo.tasks.load(tmp_path / "head", device="cpu", tokenizer="english")
    assert told("it isn't")[0]["text"] == "it is n't"
    assert train_task("classify", chosen.replace(resume=True)).finished  # nothing was changed


def test_texts_of_another_kind_are_noted_once(folder, heads):
    """Raw texts for a tokenizer of split ones: the words have their marks attached."""
    raw = ["The cup isn't red, it's blue!", '"So," he said, "the hat is green?"'] * 10
    told = elmo.tasks.load(heads / "classify", device="cpu", tokenizer="whitespace")
    with pytest.warns(ElmoWarning, match="raw text"):
        told(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told(raw)
        elmo.tasks.load(heads / "classify", device="cpu")(raw)


def test_without_a_known_tokenizer_texts_are_split_as_english(heads):
    for name in ("classify", "tag"):
        assert elmo.tasks.load(heads / name, device="cpu").options.tokenizer == "english"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "words.txt"])
def test_damaged_folders_are_refused(heads, tmp_path, file):
    shutil.copytree(heads / "tag", tmp_path / "tag")
    path = tmp_path / "tag" / file
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises((ConfigError, WeightsError)):
        elmo.tasks.load(tmp_path / "tag")

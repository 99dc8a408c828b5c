"""Models read from disk and written to it, bit for bit; and bad files."""

import json
import re
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from elmo import ELMo, ElmoConfig, ElmoError, LanguageModelScorer
from elmo.errors import (
    ConfigError,
    ElmoWarning,
    InputError,
    MissingFileError,
    OutputError,
    OutputExistsError,
    WeightsError,
)
from elmo.hub.names import open_model
from elmo.text.vocabulary import Vocabulary
from elmo.weights.files import StoredTensors, rounded_checkpoint
from elmo.weights.formats import find_model, load_checkpoint, save_checkpoint
from elmo.weights.tensors import tensor_table
from named_models import SENTENCES
from oracle import random_tensors, tensor_shapes, write_files
from strategies import (
    ALPHABET,
    VOCABULARY,
    configs,
    options,
    seeded_bilm,
)
from weight_files import assert_same_tensors, edit_hdf5, edit_json, load

EVERY_KIND = {
    "cells": ("lstm", "gru"),
    "reads": ("characters", "words"),
    "spells": ("bytes", "code points"),
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """Two folders that each example of a law finds empty."""
    base = tmp_path_factory.mktemp("checkpoint")

    def fresh():
        for name in ("first", "second", "third"):
            shutil.rmtree(base / name, ignore_errors=True)
        return base / "first", base / "second", base / "third"

    return fresh


# --- round trips ----------------------------------------------------------------------------------


@settings(max_examples=25)
@given(config=configs(**EVERY_KIND))
def test_folder_to_hdf5_to_folder_changes_no_bit(scratch, config):
    first, second, third = scratch()
    original = seeded_bilm(config).to_checkpoint()
    save_checkpoint(original, first)
    once = load(first)
    assert once.config == config
    save_checkpoint(once, second, "hdf5")
    twice = load(second)
    save_checkpoint(twice, third)
    final = load(third)
    for found in (once, twice, final):
        assert_same_tensors(found.tensors, original.tensors)
        assert found.fingerprint() == original.fingerprint()
        assert (found.vocabulary is None) == config.reads_characters
        assert found.alphabet == original.alphabet
        assert (found.alphabet is None) == (not config.has_alphabet)
    assert final.config == twice.config
    if not config.reads_characters:
        assert final.vocabulary.words == VOCABULARY


@settings(max_examples=25)
@given(drawn=options(**EVERY_KIND), seed=st.integers(0, 99))
def test_hdf5_to_folder_to_hdf5_changes_no_bit(scratch, drawn, seed):
    first, second, third = scratch()
    tensors = random_tensors(drawn, seed)
    config = ElmoConfig.from_options(drawn)
    words = None if config.reads_characters else VOCABULARY
    characters = ALPHABET.characters if config.has_alphabet else None
    write_files(first, drawn, tensors, words, characters)
    save_checkpoint(load(first), second)
    save_checkpoint(load(second), third, "hdf5")
    with h5py.File(third / "weights.hdf5") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        assert set(names) == set(tensors)
        for name, values in tensors.items():
            assert file[name].dtype == np.float32
            assert np.array_equal(file[name][...], values), name
    written = json.loads((third / "options.json").read_text())
    assert ElmoConfig.from_options(written) == config
    if config.has_alphabet:
        assert (third / "characters.txt").read_text() == (first / "characters.txt").read_text()


@settings(max_examples=25)
@given(config=configs(**EVERY_KIND))
def test_the_table_lists_exactly_the_tensors_of_the_model(config):
    table = tensor_table(config)
    ours = {name: shape for row in table for name, shape in row.ours.items()}
    expected = seeded_bilm(config).state_dict()
    assert ours == {name: tuple(tensor.shape) for name, tensor in expected.items()}
    assert {row.stored: row.stored_shape for row in table} == tensor_shapes(config.to_options())


def test_the_softmax_survives_every_conversion(tmp_path, checkpoint):
    softmax = {"weight": torch.randn(5, 16), "bias": torch.randn(5)}
    original = replace(checkpoint, softmax=softmax)
    save_checkpoint(original, tmp_path / "ours")
    save_checkpoint(load(tmp_path / "ours"), tmp_path / "published", "hdf5")
    save_checkpoint(load(tmp_path / "published"), tmp_path / "again")
    for name in ("ours", "published", "again"):
        assert_same_tensors(load(tmp_path / name).softmax, softmax)
    assert not (tmp_path / "published" / "softmax.safetensors").exists()


def test_the_vocabulary_of_a_softmax_is_kept_with_it(tmp_path, checkpoint):
    softmax = {"weight": torch.randn(9, 16), "bias": torch.randn(9)}
    original = replace(checkpoint, softmax=softmax, vocabulary=Vocabulary(VOCABULARY))
    save_checkpoint(original, tmp_path / "published", "hdf5")
    assert load(tmp_path / "published").vocabulary.words == VOCABULARY


def test_a_warm_state_survives_the_folder_and_has_no_place_in_hdf5(tmp_path, checkpoint):
    warm = (torch.randn(2, 2, 16), torch.randn(2, 2, 64))
    save_checkpoint(replace(checkpoint, warm_state=warm), tmp_path / "ours")
    found = load(tmp_path / "ours")
    assert torch.equal(found.warm_state[0], warm[0])
    assert torch.equal(found.warm_state[1], warm[1])
    assert found.fingerprint() == checkpoint.fingerprint()
    with pytest.warns(ElmoWarning, match="no place for a warm state"):
        save_checkpoint(found, tmp_path / "published", "hdf5")
    assert load(tmp_path / "published").warm_state is None


def test_mix_weights_survive_the_folder(tmp_path, checkpoint):
    config = checkpoint.config.replace(mix_weights=(0.1, 0.2, -1.0), mix_gamma=0.7)
    save_checkpoint(replace(checkpoint, config=config), tmp_path)
    assert load(tmp_path).config == config


def test_saving_over_a_model_replaces_it(folder, tiny_config):
    other = seeded_bilm(tiny_config, seed=5).to_checkpoint()
    save_checkpoint(other, folder)
    assert_same_tensors(load(folder).tensors, other.tensors)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "SHA256SUMS",
        "config.json",
        "model.safetensors",
    ]


# --- finding the files ----------------------------------------------------------------------------


def test_our_own_layout_goes_first(folder, published_folder):
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(published_folder / name, folder / name)
    assert find_model(folder)[0].name == "elmo"


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(MissingFileError, match=r"no weights file \(found: nothing\)"):
        find_model(tmp_path)


def test_a_folder_without_weights_is_listed(published_folder):
    (published_folder / "weights.hdf5").unlink()
    with pytest.raises(MissingFileError, match=r"no weights file \(found: options.json\)"):
        find_model(published_folder)


def test_missing_options_are_named(published_folder, folder):
    (published_folder / "options.json").unlink()
    with pytest.raises(MissingFileError, match=r"weights.hdf5 is there, but not its options.json"):
        find_model(published_folder)
    (folder / "config.json").unlink()
    with pytest.raises(MissingFileError, match=r"is there, but not its config.json"):
        find_model(folder)


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"no such model folder or file: .*gone"):
        find_model(tmp_path / "gone")


# --- bad files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 4, 100, -10])
def test_safetensors_that_are_cut_short_are_told(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsError, match=r"model.safetensors is not a readable safetensors"):
        load(folder)


@pytest.mark.parametrize("content", [b'{"lstm": ', b"", b"\xff\xfe", b"not json"])
def test_invalid_json_is_told(published_folder, content):
    (published_folder / "options.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"options.json is not valid JSON"):
        load(published_folder)


def test_json_that_is_no_object_is_told(folder):
    (folder / "config.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match=r"config.json holds a list, expected a JSON object"):
        load(folder)


def test_an_unknown_key_of_the_config_is_named(folder):
    edit_json(folder / "config.json", lambda content: content.update(n_heads=8))
    with pytest.raises(ConfigError, match="unknown settings n_heads"):
        load(folder)


def test_options_that_disagree_name_tensor_and_both_shapes(published_folder):
    edit_json(published_folder / "options.json", lambda content: content["lstm"].update(dim=32))
    with pytest.raises(
        WeightsError, match=r"Cell0/LSTMCell/W_0' has shape \(32, 256\).*asks for \(32, 128\)"
    ):
        load(published_folder)


def test_a_config_that_disagrees_names_tensor_and_both_shapes(folder):
    edit_json(folder / "config.json", lambda content: content.update(char_dim=5))
    with pytest.raises(
        WeightsError, match=r"'words.embedding.weight' has shape \(262, 4\).*\(262, 5\)"
    ):
        load(folder)


def test_a_missing_tensor_is_named(published_folder, folder):
    edit_hdf5(published_folder / "weights.hdf5", lambda file: file.__delitem__("CNN/b_cnn_3"))
    with pytest.raises(WeightsError, match=r"asks for 'CNN/b_cnn_3', which the file does not have"):
        load(published_folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["forward_layers.1.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"asks for 'forward_layers.1.bias'"):
        load(folder)


def test_more_layers_than_described_are_told(published_folder, folder):
    edit_json(published_folder / "options.json", lambda content: content["lstm"].update(n_layers=1))
    with pytest.raises(WeightsError, match=r"Cell1/LSTMCell/B'.*more layers"):
        load(published_folder)
    edit_json(folder / "config.json", lambda content: content.update(n_layers=1))
    with pytest.raises(WeightsError, match=r"the file has 'backward_layers.1.bias'.*and 5 more"):
        load(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_told_with_their_tensor(published_folder, folder, value):
    def spoil(file):
        file["CNN_proj/W_proj"][3, 2] = value

    edit_hdf5(published_folder / "weights.hdf5", spoil)
    with pytest.raises(WeightsError, match=r"'words.projection.weight' has 1 values of 1984"):
        load(published_folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["forward_layers.0.bias"][:3] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(WeightsError, match=r"'forward_layers.0.bias' has 3 values of 256"):
        load(folder)


def test_a_word_model_without_vocabulary_is_told(word_folder):
    (word_folder / "vocab.txt").unlink()
    with pytest.raises(MissingFileError, match=r"reads words, so it needs its vocab.txt"):
        load(word_folder)


def test_a_vocabulary_of_another_length_is_told(word_folder):
    with (word_folder / "vocab.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(WeightsError, match=r"vocab.txt lists 10 words.*has vectors for 9"):
        load(word_folder)


def test_a_vocabulary_without_boundaries_is_told(word_folder):
    words = ["begin", *VOCABULARY[1:]]
    (word_folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    with pytest.raises(InputError, match=r"vocab.txt: the vocabulary lacks <S>"):
        load(word_folder)


def test_every_error_here_is_an_elmo_error():
    for kind in (ConfigError, InputError, MissingFileError, WeightsError):
        assert issubclass(kind, ElmoError)
    assert issubclass(MissingFileError, FileNotFoundError)


# --- fingerprint and card -------------------------------------------------------------------------


def test_the_published_layout_is_not_hidden_behind_ours(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path)
    with pytest.raises(OutputExistsError, match="choose another folder"):
        tiny_elmo.save_pretrained(tmp_path, format="hdf5")


def test_saving_leaves_nothing_of_the_model_before(tmp_path, tiny_bilm, tiny_config):
    old = tiny_bilm.to_checkpoint()
    softmax = {"weight": torch.zeros(3, 16), "bias": torch.zeros(3)}
    save_checkpoint(replace(old, softmax=softmax), tmp_path)
    (tmp_path / "README.md").write_text((tmp_path / "README.md").read_text() + "Mine.\n")
    new = seeded_bilm(tiny_config, seed=7).to_checkpoint()
    save_checkpoint(new, tmp_path)
    assert not load_checkpoint(tmp_path).softmax
    card = (tmp_path / "README.md").read_text()
    assert new.fingerprint() in card
    assert old.fingerprint() not in card
    assert card.endswith("Mine.\n")


@pytest.mark.parametrize(
    "warm",
    [
        (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)),
        (torch.full((2, 2, 16), float("nan")), torch.zeros(2, 2, 64)),
    ],
    ids=["shape", "nan"],
)
def test_a_bad_warm_state_is_told(tmp_path, tiny_bilm, warm):
    save_checkpoint(replace(tiny_bilm.to_checkpoint(), warm_state=warm), tmp_path)
    with pytest.raises(WeightsError, match=r"warm\.hidden"):
        load_checkpoint(tmp_path)


def test_large_finite_weights_are_no_damage(tmp_path, tiny_bilm):
    checkpoint = tiny_bilm.to_checkpoint()
    huge = {name: torch.full_like(t, 3e38) for name, t in checkpoint.tensors.items()}
    save_checkpoint(replace(checkpoint, tensors=huge), tmp_path)
    load_checkpoint(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path, tiny_elmo):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot write .*file"):
        tiny_elmo.save_pretrained(tmp_path / "file")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["vocab.txt", "vocab-2016.txt"], "vocab.txt"),
        (["vocab.txt.gz", "vocab-2016.txt"], "vocab.txt.gz"),
        (["vocab-2016-09-10.txt"], "vocab-2016-09-10.txt"),
        (["vocab.txt.bak", "vocab.txt~", "characters.txt", "vocab_chars.txt"], None),
        (["vocab_characters.txt", "vocabulary.txt"], "vocabulary.txt"),
    ],
)
def test_the_vocabulary_is_never_taken_for_something_else(folder, names, chosen):
    for name in names:
        (folder / name).touch()
    _, found = find_model(folder)
    assert (found.vocabulary and found.vocabulary.name) == chosen
    assert (found.characters is not None) == ("characters.txt" in names)


# --- float16, and the output layer in a file of its own -------------------------------------------


def test_float16_halves_the_files_and_loading_gives_float32(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "full")
    save_checkpoint(language_model, tmp_path / "half", dtype="float16")
    for name, tensors in (
        ("model.safetensors", language_model.tensors),
        ("softmax.safetensors", language_model.softmax),
    ):
        stored = load_file(tmp_path / "half" / name)
        for key, tensor in tensors.items():
            assert stored[key].dtype == torch.float16
            assert torch.equal(stored[key], tensor.half())
    sizes = [(tmp_path / kind / "softmax.safetensors").stat().st_size for kind in ("full", "half")]
    assert sizes[0] - sizes[1] == 2 * (9 * 16 + 9)
    found = load_checkpoint(tmp_path / "half")
    expected = rounded_checkpoint(language_model, "float16")
    for kind in ("tensors", "softmax"):
        for key, tensor in getattr(expected, kind).items():
            assert getattr(found, kind)[key].dtype == torch.float32
            assert torch.equal(getattr(found, kind)[key], tensor)
    assert found.fingerprint() == expected.fingerprint() != language_model.fingerprint()
    assert found.fingerprint() in (tmp_path / "half" / "README.md").read_text()
    assert found.config == language_model.config
    assert found.vocabulary.words == VOCABULARY
    for part, kept in zip(found.warm_state, language_model.warm_state, strict=True):
        assert torch.equal(part, kept)  # not rounded


def test_float16_is_idempotent(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "once", dtype="float16")
    save_checkpoint(load_checkpoint(tmp_path / "once"), tmp_path / "twice", dtype="float16")
    for name in ("model.safetensors", "softmax.safetensors", "config.json", "README.md"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_weights_that_float16_cannot_hold_are_named(tmp_path, language_model):
    name = next(iter(language_model.tensors))
    huge = {**language_model.tensors, name: torch.full_like(language_model.tensors[name], 1e5)}
    checkpoint = type(language_model)(config=language_model.config, tensors=huge)
    with pytest.raises(WeightsError, match=rf"'{re.escape(name)}' have values beyond 65,504"):
        save_checkpoint(checkpoint, tmp_path / "half", dtype="float16")
    assert not (tmp_path / "half" / "model.safetensors").exists()


def test_the_published_layout_has_no_float16(tmp_path, language_model):
    with pytest.raises(ConfigError, match="format hdf5"):
        save_checkpoint(language_model, tmp_path, "hdf5", "float16")
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        save_checkpoint(language_model, tmp_path, "elmo", "int8")


def test_embedding_never_reads_the_output_layer(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "model", dtype="float16")
    softmax = open_model(tmp_path / "model").softmax
    assert isinstance(softmax, StoredTensors)
    elmo = ELMo.from_pretrained(tmp_path / "model", device="cpu")
    elmo.encode_tokens(SENTENCES)
    assert not elmo._softmax.is_read
    assert not softmax.is_read
    # Its values are damaged, its header is not: vectors can be had, predictions cannot.
    path = tmp_path / "model" / "softmax.safetensors"
    content = bytearray(path.read_bytes())
    content[-20:] = b"\xff" * 20  # NaN
    path.write_bytes(content)
    ELMo.from_pretrained(tmp_path / "model", device="cpu").encode_tokens(SENTENCES)
    with pytest.raises(WeightsError, match="'softmax "):
        LanguageModelScorer.from_pretrained(tmp_path / "model", device="cpu")


def test_the_output_layer_is_there_when_it_is_looked_at(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "model", dtype="float16")
    lazy = open_model(tmp_path / "model").softmax
    assert (sorted(lazy), len(lazy), "bias" in lazy) == (["bias", "weight"], 2, True)
    assert not lazy.is_read
    assert torch.equal(lazy["weight"], language_model.softmax["weight"].half().float())
    assert lazy.is_read
    rounded = rounded_checkpoint(language_model, "float16")
    scores = [
        LanguageModelScorer(model, device="cpu").score(SENTENCES)[0].forward
        for model in (open_model(tmp_path / "model"), rounded)
    ]
    assert np.array_equal(*scores)


def test_a_model_that_was_only_embedded_with_is_saved_with_its_output_layer(
    tmp_path, language_model
):
    save_checkpoint(language_model, tmp_path / "model")
    ELMo.from_pretrained(tmp_path / "model", device="cpu").save_pretrained(tmp_path / "again")
    for name in ("softmax.safetensors", "vocab.txt"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_lazy_output_layer_is_still_checked_against_the_vocabulary(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "model")
    Vocabulary(VOCABULARY[:-1]).write(tmp_path / "model" / "vocab.txt")
    with pytest.raises(WeightsError, match="is for 9 words, but the vocabulary beside it lists 8"):
        open_model(tmp_path / "model")


def test_the_same_weights_give_the_same_bytes(tmp_path, tiny_config):
    for name in ("one", "two"):
        save_checkpoint(seeded_bilm(tiny_config).to_checkpoint(), tmp_path / name, dtype="float16")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "two" / "model.safetensors"
    ).read_bytes()


def save_both(checkpoint, base):
    """Save in both layouts; returns the two folders."""
    save_checkpoint(checkpoint, base / "ours")
    save_checkpoint(checkpoint, base / "hdf5", "hdf5")
    return base / "ours", base / "hdf5"


def save_softmax(checkpoint, base, softmax, words=VOCABULARY):
    vocabulary = None if words is None else Vocabulary(words)
    return save_both(replace(checkpoint, softmax=softmax, vocabulary=vocabulary), base)


def softmax_of(words, width=16):
    return {"weight": torch.randn(words, width), "bias": torch.randn(words)}


def test_a_softmax_for_another_vocabulary_is_told(tmp_path, tiny_bilm):
    for folder in save_softmax(tiny_bilm.to_checkpoint(), tmp_path, softmax_of(5)):
        with pytest.raises(
            WeightsError, match=r"weight \(5, 16\).* 5 words, .* lists 9.* \(9, 16\); put"
        ):
            load(folder)
        (folder / "vocab.txt").unlink()
        assert load(folder).softmax["bias"].shape == (5,)


@pytest.mark.parametrize(
    ("softmax", "message"),
    [
        (softmax_of(9, width=7), r"softmax weight' has shape \(9, 7\).*asks for \(9, 16\)"),
        (softmax_of(9) | {"bias": torch.zeros(8)}, r"weight' has shape \(9, 16\).*\(8, 16\)"),
        (softmax_of(9) | {"bias": torch.zeros(9, 1)}, r"bias' has shape \(9, 1\).*\(9,\)"),
        ({"weight": torch.zeros(9, 16)}, "has 'weight', expected weight and bias"),
        ({"bias": torch.zeros(9)}, "has 'bias', expected weight and bias"),
        (softmax_of(9) | {"bias": torch.full((9,), torch.nan)}, r"'softmax bias' has 9 values"),
        (softmax_of(9) | {"weight": torch.full((9, 16), torch.inf)}, "'softmax weight' has 144"),
    ],
)
def test_a_damaged_softmax_is_told(tmp_path, tiny_bilm, softmax, message):
    for folder in save_softmax(tiny_bilm.to_checkpoint(), tmp_path, softmax):
        with pytest.raises(WeightsError, match=message):
            load(folder)


def test_a_model_that_reads_words_may_share_its_table_with_the_softmax(tmp_path, word_bilm):
    bias = {"bias": torch.randn(len(VOCABULARY))}
    for folder in save_softmax(word_bilm.to_checkpoint(), tmp_path, bias):
        assert torch.equal(load(folder).softmax["bias"], bias["bias"])


def test_an_adaptive_softmax_is_checked_and_kept(tmp_path, tiny_bilm):
    tree = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 9, [3, 6], head_bias=True)
    softmax = dict(tree.state_dict())
    with pytest.warns(ElmoWarning, match="no place for an adaptive softmax"):
        ours, published = save_softmax(tiny_bilm.to_checkpoint(), tmp_path, softmax)
    kept = load(ours).softmax
    assert set(kept) == set(softmax)
    assert all(torch.equal(kept[name], tensor) for name, tensor in softmax.items())
    assert not load(published).softmax  # no place for it there
    Vocabulary(VOCABULARY[:-1]).write(ours / "vocab.txt")
    with pytest.raises(WeightsError, match=r"is for 9 words, but .* lists 8"):
        load(ours)

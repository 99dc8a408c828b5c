"""Weights on disk: every layout in, two out, bit for bit; and bad files told for what they are."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from elmo import BiLM, ElmoConfig, ElmoError
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
from elmo.model.checkpoint import Checkpoint
from elmo.text.vocabulary import Vocabulary
from elmo.weights.formats import find_model
from elmo.weights.storage import load_checkpoint, save_checkpoint
from elmo.weights.tensors import tensor_table
from oracle import random_tensors, tensor_shapes, write_files
from strategies import (
    ALPHABET,
    VOCABULARY,
    configs,
    options,
    seeded_bilm,
    with_changed_weight,
    word_config,
)

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


@pytest.fixture
def checkpoint(tiny_bilm):
    return tiny_bilm.to_checkpoint()


@pytest.fixture
def folder(tmp_path, checkpoint):
    """A model in our own layout."""
    save_checkpoint(checkpoint, tmp_path / "ours")
    return tmp_path / "ours"


@pytest.fixture
def published_folder(tmp_path):
    """A model in the published layout, written by the tests themselves."""
    drawn = ElmoConfig.preset("tiny").to_options()
    return write_files(tmp_path / "published", drawn, random_tensors(drawn))


def load(path):
    return load_checkpoint(path)


def edit_json(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def edit_hdf5(path, edit):
    with h5py.File(path, "r+") as file:
        edit(file)


def put(file, name, values):
    """Write a dataset in the place of another."""
    if name in file:
        del file[name]
    file[name] = values


def assert_same_tensors(found, expected):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], tensor), name


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
        "config.json",
        "model.safetensors",
    ]


# --- the dialects of the published layout ---------------------------------------------------------


def raw_tensorflow_name(name):
    """Give the name that TensorFlow itself uses in a checkpoint of bilm-tf."""
    name = name.replace("/MultiRNNCell/Cell", "/multi_rnn_cell/cell_")
    name = name.replace("/RNN/", "/rnn/").replace("/LSTMCell/", "/lstm_cell/")
    for ours, theirs in (("W_0", "kernel"), ("W_P_0", "projection/kernel"), ("B", "bias")):
        if name.startswith("RNN_") and name.endswith(f"/{ours}"):
            name = name.removesuffix(ours) + theirs
    return f"lm/{name}"


def assert_read_under(names, drawn, tmp_path):
    """Write a model under its standard names and under others; both must read the same."""
    tensors = random_tensors(drawn)
    standard = load(write_files(tmp_path / "standard", drawn, tensors))
    renamed = {names(name): tensor for name, tensor in tensors.items()}
    assert set(renamed) != set(tensors)
    found = load(write_files(tmp_path / "dialect", drawn, renamed))
    assert_same_tensors(found.tensors, standard.tensors)


def test_names_of_one_layer_models_are_read(tmp_path):
    drawn = ElmoConfig.preset("tiny", n_layers=1).to_options()
    assert_read_under(lambda name: name.replace("MultiRNNCell/Cell0/", ""), drawn, tmp_path)


@pytest.mark.parametrize("n_layers", [2, 3])
def test_raw_names_of_tensorflow_are_read(tmp_path, n_layers):
    drawn = ElmoConfig.preset("tiny", n_layers=n_layers).to_options()
    assert_read_under(raw_tensorflow_name, drawn, tmp_path)
    with h5py.File(tmp_path / "dialect" / "weights.hdf5") as file:
        assert "lm/RNN_0/rnn/multi_rnn_cell/cell_1/lstm_cell/projection/kernel" in file


def test_raw_names_of_one_layer_models_are_read(tmp_path):
    drawn = ElmoConfig.preset("tiny", n_layers=1).to_options()
    assert_read_under(
        lambda name: raw_tensorflow_name(name).replace("multi_rnn_cell/cell_0/", ""),
        drawn,
        tmp_path,
    )


def test_a_character_table_with_its_masked_row_is_read(published_folder):
    expected = load(published_folder)

    def add_row(file):
        put(file, "char_embed", np.pad(file["char_embed"][...], ((1, 0), (0, 0))))

    edit_hdf5(published_folder / "weights.hdf5", add_row)
    assert_same_tensors(load(published_folder).tensors, expected.tensors)


def test_a_character_table_with_a_masked_row_that_is_not_zero_is_refused(published_folder):
    def add_row(file):
        table = file["char_embed"][...]
        put(file, "char_embed", np.concatenate([np.ones_like(table[:1]), table]))

    edit_hdf5(published_folder / "weights.hdf5", add_row)
    with pytest.raises(WeightsError, match=r"'char_embed' has shape \(262, 4\).*\(261, 4\)"):
        load(published_folder)


@pytest.mark.parametrize("n_characters", [261, 262])
def test_both_numbers_of_characters_mean_the_same(published_folder, n_characters):
    expected = load(published_folder)
    edit_json(
        published_folder / "options.json",
        lambda content: content["char_cnn"].update(n_characters=n_characters),
    )
    found = load(published_folder)
    assert found.config == expected.config
    assert_same_tensors(found.tensors, expected.tensors)


def test_other_datasets_of_a_training_run_are_ignored(published_folder):
    expected = load(published_folder)

    def add(file):
        file["global_step"] = 7
        file["lm/train_perplexity"] = 44.0
        file["CNN/W_cnn_0_Adagrad"] = np.zeros(3)

    edit_hdf5(published_folder / "weights.hdf5", add)
    assert_same_tensors(load(published_folder).tensors, expected.tensors)


def test_double_precision_is_read_as_float32(published_folder):
    expected = load(published_folder)

    def widen(file):
        put(file, "CNN/b_cnn_0", file["CNN/b_cnn_0"][...].astype(np.float64))

    edit_hdf5(published_folder / "weights.hdf5", widen)
    assert_same_tensors(load(published_folder).tensors, expected.tensors)


def test_a_word_model_need_not_state_the_size_of_its_vocabulary(tmp_path):
    drawn = word_config().to_options()
    folder = write_files(tmp_path, drawn, random_tensors(drawn), VOCABULARY)
    edit_json(folder / "options.json", lambda content: content.pop("n_tokens_vocab"))
    assert load(folder).config.n_words == len(VOCABULARY)


# --- finding the files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options_name", "weights_name"),
    [
        ("elmo_2x64_16_options.json", "elmo_2x64_16_weights.hdf5"),
        ("options.json", "elmo_weights.hdf5"),
        ("elmo_options.json", "weights.hdf5"),
        ("options.json", "model.hdf5"),
        ("options.json", "lm.h5"),
    ],
)
def test_files_are_found_under_every_published_name(published_folder, options_name, weights_name):
    expected = load(published_folder)
    (published_folder / "options.json").rename(published_folder / options_name)
    (published_folder / "weights.hdf5").rename(published_folder / weights_name)
    assert_same_tensors(load(published_folder).tensors, expected.tensors)
    assert_same_tensors(load(published_folder / weights_name).tensors, expected.tensors)


def test_weights_go_with_the_options_of_their_own_name(published_folder):
    for prefix in ("a", "b"):
        for kind, suffix in (("options", "json"), ("weights", "hdf5")):
            shutil.copy(
                published_folder / f"{kind}.{suffix}",
                published_folder / f"{prefix}_{kind}.{suffix}",
            )
    edit_json(
        published_folder / "b_options.json", lambda content: content["lstm"].update(cell_clip=1.5)
    )
    assert load(published_folder / "b_weights.hdf5").config.cell_clip == 1.5
    assert load(published_folder / "a_weights.hdf5").config.cell_clip == 3.0


def test_an_explicit_pair_may_have_any_name(published_folder, tmp_path):
    expected = load(published_folder)
    shutil.move(published_folder / "options.json", tmp_path / "sizes.txt")
    shutil.move(published_folder / "weights.hdf5", tmp_path / "numbers.bin")
    found = open_model(options=tmp_path / "sizes.txt", weights=tmp_path / "numbers.bin")
    assert_same_tensors(found.tensors, expected.tensors)


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


def test_several_weights_files_are_listed(published_folder):
    (published_folder / "weights.hdf5").rename(published_folder / "a.hdf5")
    shutil.copy(published_folder / "a.hdf5", published_folder / "b.hdf5")
    with pytest.raises(MissingFileError, match=r"several weights files \(found: a.hdf5, b.hdf5\)"):
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


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.95])
def test_hdf5_that_is_cut_short_is_told(published_folder, keep):
    path = published_folder / "weights.hdf5"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(WeightsError, match=r"weights.hdf5 is not a readable HDF5 file \(damaged"):
        load(published_folder)


def test_what_is_no_hdf5_is_told(published_folder):
    (published_folder / "weights.hdf5").write_text("<html>404</html>")
    with pytest.raises(WeightsError, match="not a readable HDF5 file"):
        load(published_folder)


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
    with pytest.raises(ConfigError, match=r"unknown keys \['n_heads'\]"):
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


def test_more_highways_than_described_are_told(published_folder):
    edit_json(
        published_folder / "options.json", lambda content: content["char_cnn"].update(n_highway=0)
    )
    with pytest.raises(WeightsError, match=r"'CNN_high_0/W_carry'.*highways"):
        load(published_folder)


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


def test_a_model_that_reads_nothing_is_told(published_folder):
    edit_json(published_folder / "options.json", lambda content: content.pop("char_cnn"))
    with pytest.raises(ConfigError, match="reads neither characters nor words"):
        load(published_folder)


@pytest.fixture
def word_folder(tmp_path, word_bilm):
    save_checkpoint(word_bilm.to_checkpoint(), tmp_path / "words")
    return tmp_path / "words"


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


@settings(max_examples=15)
@given(config=configs(**EVERY_KIND), data=st.data())
def test_the_fingerprint_changes_with_every_weight(config, data):
    checkpoint = seeded_bilm(config).to_checkpoint()
    name = data.draw(st.sampled_from(sorted(checkpoint.tensors)))
    changed = with_changed_weight(checkpoint, name, 123.0)
    assert changed.fingerprint() != checkpoint.fingerprint()


def test_the_fingerprint_changes_with_what_decides_the_vectors_and_nothing_else(checkpoint):
    expected = checkpoint.fingerprint()
    for change in ({"cell_clip": 2.0}, {"skip_connections": False}, {"activation": "tanh"}):
        other = replace(checkpoint, config=checkpoint.config.replace(**change))
        assert other.fingerprint() != expected
    mixed = checkpoint.config.replace(mix_weights=(1.0, 2.0, 3.0))
    assert replace(checkpoint, config=mixed).fingerprint() == expected
    warm = (torch.zeros(2, 2, 16), torch.zeros(2, 2, 64))
    assert replace(checkpoint, warm_state=warm).fingerprint() == expected


def test_a_model_card_is_written_with_sizes_and_fingerprint(folder, checkpoint):
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: elmo-torch\n")
    assert checkpoint.fingerprint() in card
    assert "2 per direction, 64 LSTM cells, projected to 16" in card
    assert "characters (UTF-8 bytes, 50 a word), 124 filters, 1 highway layers" in card


def test_the_card_of_a_word_model_says_so(word_folder):
    assert "words of a vocabulary of 9" in (word_folder / "README.md").read_text()


def test_a_card_that_is_there_is_kept(folder, checkpoint):
    (folder / "README.md").write_text("mine")
    save_checkpoint(checkpoint, folder)
    assert (folder / "README.md").read_text() == "mine"


def test_a_checkpoint_builds_the_model_it_came_from(checkpoint, tiny_bilm):
    built = BiLM.from_checkpoint(checkpoint)
    assert_same_tensors(built.state_dict(), tiny_bilm.state_dict())
    assert torch.equal(built.boundaries, tiny_bilm.boundaries)
    assert not built.training
    assert isinstance(built.to_checkpoint(), Checkpoint)


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


def test_damage_in_the_middle_of_an_hdf5_file_is_told(tmp_path):
    described = ElmoConfig.preset("tiny").to_options()
    write_files(tmp_path, described, random_tensors(described))
    path = tmp_path / "weights.hdf5"
    path.write_bytes(path.read_bytes().replace(b"TREE", b"tree"))
    with pytest.raises(WeightsError, match="not a readable HDF5"):
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


def test_the_options_that_are_missing_are_named(tmp_path):
    (tmp_path / "model.hdf5").touch()
    with pytest.raises(MissingFileError, match=r"not its options\.json"):
        find_model(tmp_path)


def test_the_weights_are_found_among_other_hdf5_files(tmp_path):
    for name in ("lm_weights.hdf5", "lm_embeddings_0.hdf5", "options.json"):
        (tmp_path / name).touch()
    assert find_model(tmp_path)[1].weights.name == "lm_weights.hdf5"


def test_a_vocabulary_is_part_of_the_fingerprint_of_a_word_model(word_bilm):
    checkpoint = word_bilm.to_checkpoint()
    words = checkpoint.vocabulary.words
    other = replace(checkpoint, vocabulary=Vocabulary([*words[:3], *reversed(words[3:])]))
    assert other.fingerprint() != checkpoint.fingerprint()


def test_a_vocabulary_must_fit_the_model(word_bilm):
    with pytest.raises(ConfigError, match="the vocabulary has 1 words"):
        BiLM(word_bilm.config, Vocabulary(["<S>"]))


def test_the_fingerprint_of_a_model_of_bytes_is_what_it_always_was():
    # From before there were alphabets: files of vectors carry it.
    config = ElmoConfig.preset("tiny", dim=4, projection_dim=2, filters=((1, 2),), n_highway=0)
    zeros = {
        name: torch.zeros(shape) for row in tensor_table(config) for name, shape in row.ours.items()
    }
    found = Checkpoint(config=config, tensors=zeros).fingerprint()
    assert found == "eec5326531d01ad83c2a86233bc47f570712137daa7756f8cdd120e9a624a003"


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

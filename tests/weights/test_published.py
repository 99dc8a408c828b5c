"""The published format: names of files and datasets, and damaged files."""

import shutil

import h5py
import numpy as np
import pytest

from elmo import ElmoConfig
from elmo.errors import (
    ConfigError,
    MissingFileError,
    WeightsError,
)
from elmo.hub.names import open_model
from elmo.weights.formats import find_model, load_checkpoint
from oracle import random_tensors, write_files
from strategies import (
    VOCABULARY,
    word_config,
)
from weight_files import assert_same_tensors, edit_hdf5, edit_json, load, put

# --- dialects -----------------------------------------------------------------------------------


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


# --- finding the files --------------------------------------------------------------------------


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


def test_several_weights_files_are_listed(published_folder):
    (published_folder / "weights.hdf5").rename(published_folder / "a.hdf5")
    shutil.copy(published_folder / "a.hdf5", published_folder / "b.hdf5")
    with pytest.raises(MissingFileError, match=r"several weights files \(found: a.hdf5, b.hdf5\)"):
        find_model(published_folder)


def test_the_options_that_are_missing_are_named(tmp_path):
    (tmp_path / "model.hdf5").touch()
    with pytest.raises(MissingFileError, match=r"not its options\.json"):
        find_model(tmp_path)


def test_the_weights_are_found_among_other_hdf5_files(tmp_path):
    for name in ("lm_weights.hdf5", "lm_embeddings_0.hdf5", "options.json"):
        (tmp_path / name).touch()
    assert find_model(tmp_path)[1].weights.name == "lm_weights.hdf5"


# --- bad files ----------------------------------------------------------------------------------


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


def test_damage_in_the_middle_of_an_hdf5_file_is_told(tmp_path):
    described = ElmoConfig.preset("tiny").to_options()
    write_files(tmp_path, described, random_tensors(described))
    path = tmp_path / "weights.hdf5"
    path.write_bytes(path.read_bytes().replace(b"TREE", b"tree"))
    with pytest.raises(WeightsError, match="not a readable HDF5"):
        load_checkpoint(tmp_path)


def test_more_highways_than_described_are_told(published_folder):
    edit_json(
        published_folder / "options.json", lambda content: content["char_cnn"].update(n_highway=0)
    )
    with pytest.raises(WeightsError, match=r"'CNN_high_0/W_carry'.*highways"):
        load(published_folder)


def test_a_model_that_reads_nothing_is_told(published_folder):
    edit_json(published_folder / "options.json", lambda content: content.pop("char_cnn"))
    with pytest.raises(ConfigError, match="reads neither characters nor words"):
        load(published_folder)

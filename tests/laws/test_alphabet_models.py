"""Models with an alphabet: both layouts, task models, the command line."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from elmo import (
    Alphabet,
    BiLM,
    CharacterMapper,
    ELMo,
    Elmo,
    ElmoConfig,
    ElmoWarning,
    batch_to_ids,
    random_bilm,
)
from elmo.cli.main import main
from elmo.errors import ConfigError, InputError, MissingFileError, WeightsError
from elmo.weights.formats import load_checkpoint, save_checkpoint
from strategies import ALPHABET, alphabet_config, seeded_bilm


def load(path):
    return load_checkpoint(path)


def save_both(checkpoint, base):
    """Save in both layouts; returns the two folders."""
    save_checkpoint(checkpoint, base / "ours")
    save_checkpoint(checkpoint, base / "hdf5", "hdf5")
    return base / "ours", base / "hdf5"


@pytest.fixture
def alphabet_checkpoint():
    return seeded_bilm(alphabet_config()).to_checkpoint()


def test_the_characters_are_part_of_the_fingerprint(alphabet_checkpoint):
    turned = Alphabet(reversed(ALPHABET.characters))
    other = replace(alphabet_checkpoint, alphabet=turned)
    assert other.fingerprint() != alphabet_checkpoint.fingerprint()


def test_a_model_with_an_alphabet_reads_the_same_from_both_layouts(tmp_path, alphabet_checkpoint):
    sentences = [["the", "cat", "sat", "."], ["河", "unknown", "x" * 60]]
    expected = BiLM.from_checkpoint(alphabet_checkpoint).run(
        CharacterMapper(50, alphabet=ALPHABET).batch(sentences)
    )
    for folder in save_both(alphabet_checkpoint, tmp_path):
        model = ELMo.from_pretrained(folder)
        with pytest.warns(ElmoWarning, match="longer than the 48 characters"):
            found = model.encode_tokens(sentences)
        for row, vectors in enumerate(found):
            torch.testing.assert_close(
                torch.from_numpy(vectors),
                expected.layers[:, row, : vectors.shape[1]].detach(),
                rtol=0,
                atol=1e-5,
            )
        assert model.fingerprint == alphabet_checkpoint.fingerprint()
        assert copy.deepcopy(model).to_checkpoint().alphabet == ALPHABET


def test_the_card_of_a_model_with_an_alphabet_says_so(tmp_path, alphabet_checkpoint):
    save_checkpoint(alphabet_checkpoint, tmp_path)
    assert "characters (code points of an alphabet, 50 a word)" in (
        (tmp_path / "README.md").read_text()
    )


def test_a_model_without_its_characters_is_told(tmp_path, alphabet_checkpoint):
    for folder in save_both(alphabet_checkpoint, tmp_path):
        (folder / "characters.txt").unlink()
        with pytest.raises(
            MissingFileError, match=r"n_characters is 25, neither .* 261 and 262 .*characters\.txt"
        ):
            load(folder)


def test_options_with_another_number_of_characters_ask_for_an_alphabet(tmp_path, tiny_bilm):
    save_checkpoint(tiny_bilm.to_checkpoint(), tmp_path, "hdf5")
    options = json.loads((tmp_path / "options.json").read_text())
    options["char_cnn"]["n_characters"] = 300
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(MissingFileError, match=r"n_characters is 300, .*characters\.txt"):
        load(tmp_path)


def test_characters_of_another_model_are_told(tmp_path, alphabet_checkpoint):
    for folder in save_both(alphabet_checkpoint, tmp_path):
        Alphabet(ALPHABET.characters[:-1]).write(folder / "characters.txt")
        with pytest.raises(WeightsError, match=r"lists 17 characters.*=24, but .* has 25"):
            load(folder)


def test_damaged_characters_are_told(tmp_path, alphabet_checkpoint):
    for folder in save_both(alphabet_checkpoint, tmp_path):
        path = folder / "characters.txt"
        path.write_text(path.read_text().replace("<W>", "<w>"))
        with pytest.raises(InputError, match=r"characters\.txt begins with the lines"):
            load(folder)


def test_a_model_of_bytes_ignores_a_list_of_characters(tmp_path, tiny_bilm):
    for place in save_both(tiny_bilm.to_checkpoint(), tmp_path):
        (place / "characters.txt").write_text("no alphabet at all")
        assert load(place).alphabet is None


def test_a_model_with_an_alphabet_is_not_saved_without_it(tmp_path, alphabet_checkpoint):
    half = replace(alphabet_checkpoint, alphabet=None)
    for format in ("elmo", "hdf5"):
        with pytest.raises(ConfigError, match="it needs its alphabet"):
            save_checkpoint(half, tmp_path / "model", format)
    assert not (tmp_path / "model").exists()


def test_a_model_is_not_built_without_its_alphabet():
    with pytest.raises(ConfigError, match="it needs its alphabet"):
        BiLM(alphabet_config())
    with pytest.raises(ConfigError, match="needs 25"):
        random_bilm(ElmoConfig.preset("tiny"), alphabet=ALPHABET)
    assert random_bilm(alphabet_config(), alphabet=ALPHABET).alphabet is ALPHABET


def test_a_task_model_spells_with_its_alphabet(alphabet_checkpoint):
    sentences = [["the", "cat"], ["河"]]
    elmo = Elmo(BiLM.from_checkpoint(alphabet_checkpoint), dropout=0.0, mix="top")
    ids = elmo.batch_to_ids(sentences)
    assert torch.equal(ids, batch_to_ids(sentences, alphabet=ALPHABET))
    found = elmo(ids)["elmo_representations"][0]
    vectors = ELMo(alphabet_checkpoint).encode_tokens(sentences, layers="top")
    for row, expected in enumerate(vectors):
        part = found[row, : len(expected)].detach().numpy()
        np.testing.assert_allclose(part, expected, rtol=0, atol=1e-6)


def test_ids_that_a_task_model_does_not_have_are_told(alphabet_checkpoint):
    elmo = Elmo(BiLM.from_checkpoint(alphabet_checkpoint))
    with pytest.raises(ConfigError, match=r"to 261, the model has 0 to 24; .*own batch_to_ids"):
        elmo(batch_to_ids([["the"]]))


def test_the_command_line_converts_and_describes(tmp_path, capsys, alphabet_checkpoint):
    save_checkpoint(alphabet_checkpoint, tmp_path / "ours")
    assert main(["convert", str(tmp_path / "ours"), str(tmp_path / "hdf5")]) == 0
    assert main(["convert", str(tmp_path / "hdf5"), str(tmp_path / "again")]) == 0
    assert load(tmp_path / "again").alphabet == ALPHABET
    capsys.readouterr()
    for name in ("ours", "hdf5", "again"):
        assert main(["info", str(tmp_path / name), "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["sha256"] == alphabet_checkpoint.fingerprint()
        assert facts["reads"] == "words of up to 48 characters of an alphabet"
        assert facts["config"]["n_characters"] == 25

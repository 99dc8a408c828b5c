"""Models of ELMoForManyLangs, beside an independent float64 model in NumPy of what they compute."""

import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import ELMo, Elmo, LanguageModelScorer
from elmo.cli.main import main
from elmo.errors import ConfigError, ElmoError, InputError, MissingFileError, WeightsError
from elmo.hub.names import open_model
from elmo.weights.formats import save_checkpoint
from file_server import serve

# A word that is longer than the model reads is part of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*longer than.*:elmo.errors.ElmoWarning")

CHARACTERS = ["a", "b", "c", "é", "語", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["ab", "cab", "語", "abcabcabcabc", "b c", "<oov>", "<bos>", "<eos>", "<pad>"]
SIZES = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 6,
        "cell_clip": 0.4,
        "proj_clip": 0.3,
        "dim": 8,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [3, 5]],
        "n_highway": 2,
        "word_dim": 4,
        "char_dim": 5,
        "max_characters_per_token": 12,
    },
    "classifier": {"name": "sampled_softmax", "n_samples": 8192},
    "dropout": 0.1,
}
SENTENCES = [["ab", "cab", "zz", "語"], ["abcabcabcabcXYZ", "b c"], ["éa"]]


def draw_weights(sizes, seed=0):
    """Random state dicts under their names."""
    generator = torch.Generator().manual_seed(seed)
    encoder, embedder = sizes["encoder"], sizes["token_embedder"]
    dim, out = encoder["dim"], encoder["projection_dim"]

    def draw(*shape):
        return torch.randn(*shape, generator=generator) * 0.6

    layers = {}
    for direction in ("forward", "backward"):
        for layer in range(encoder["n_layers"]):
            name = f"{direction}_layer_{layer}"
            layers[f"{name}.input_linearity.weight"] = draw(4 * dim, out)
            layers[f"{name}.state_linearity.weight"] = draw(4 * dim, out)
            layers[f"{name}.state_linearity.bias"] = draw(4 * dim)
            layers[f"{name}.state_projection.weight"] = draw(out, dim)
    n_filters = sum(number for _, number in embedder["filters"])
    words = {"char_emb_layer.embedding.weight": draw(len(CHARACTERS), embedder["char_dim"])}
    if embedder["word_dim"]:
        words["word_emb_layer.embedding.weight"] = draw(len(WORDS), embedder["word_dim"])
    for i, (width, number) in enumerate(embedder["filters"]):
        words[f"convolutions.{i}.weight"] = draw(number, embedder["char_dim"], width)
        words[f"convolutions.{i}.bias"] = draw(number)
    for k in range(embedder["n_highway"]):
        words[f"highways._layers.{k}.weight"] = draw(2 * n_filters, n_filters)
        words[f"highways._layers.{k}.bias"] = draw(2 * n_filters)
    words["projection.weight"] = draw(out, embedder["word_dim"] + n_filters)
    words["projection.bias"] = draw(out)
    return layers, words


def write_model(folder, sizes=SIZES, seed=0, zipped=True):
    """Write a folder as their training does."""
    folder.mkdir(parents=True, exist_ok=True)
    layers, words = draw_weights(sizes, seed)
    for name, tensors in (("encoder.pkl", layers), ("token_embedder.pkl", words)):
        torch.save(tensors, folder / name, _use_new_zipfile_serialization=zipped)
    for name, entries in (("char.dic", CHARACTERS), ("word.dic", WORDS)):
        lines = [f"{entry}\t{row}\n" for row, entry in enumerate(entries)]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    (folder / "sizes.json").write_text(json.dumps(sizes))
    description = {"config_path": "/users4/somebody/configs/sizes.json", "seed": 1}
    (folder / "config.json").write_text(json.dumps(description))
    return folder


class TheirModel:
    """What their code computes for a sentence, in float64, from zero states."""

    def __init__(self, folder):
        self.sizes = json.loads((folder / "sizes.json").read_text())
        self.layers, self.weights = (
            {
                name: tensor.double().numpy()
                for name, tensor in torch.load(folder / file, weights_only=True).items()
            }
            for file in ("encoder.pkl", "token_embedder.pkl")
        )

    def word_vector(self, word):
        embedder = self.sizes["token_embedder"]
        longest = embedder["max_characters_per_token"]
        boundary = word in ("<bos>", "<eos>")
        cut = word if boundary else word[: longest - 2]
        rows = {character: row for row, character in enumerate(CHARACTERS)}
        begin, end = rows["<eow>"], rows["<bow>"]  # exchanged, as in their code
        inside = [rows[word]] if boundary else [rows.get(c, rows["<oov>"]) for c in cut]
        spelled = [begin, *inside, end]
        spelled += [rows["<pad>"]] * (longest - len(spelled))
        characters = self.weights["char_emb_layer.embedding.weight"][spelled]
        seen = []
        for i, (width, _) in enumerate(embedder["filters"]):
            kernel = self.weights[f"convolutions.{i}.weight"]
            responses = [
                np.einsum("wc,ncw->n", characters[start : start + width], kernel)
                for start in range(longest - width + 1)
            ]
            seen.append(np.max(responses, axis=0) + self.weights[f"convolutions.{i}.bias"])
        activation = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[embedder["activation"]]
        x = activation(np.concatenate(seen))
        for k in range(embedder["n_highway"]):
            weight, bias = (self.weights[f"highways._layers.{k}.{n}"] for n in ("weight", "bias"))
            transform, gate = np.split(weight @ x + bias, 2)
            gate = 1 / (1 + np.exp(-gate))
            x = gate * x + (1 - gate) * np.maximum(transform, 0)
        if embedder["word_dim"]:
            known = {entry: row for row, entry in enumerate(WORDS)}
            row = known.get(cut, known["<oov>"])
            x = np.concatenate([self.weights["word_emb_layer.embedding.weight"][row], x])
        return self.weights["projection.weight"] @ x + self.weights["projection.bias"]

    def run_layer(self, direction, layer, inputs):
        encoder = self.sizes["encoder"]
        name = f"{direction}_layer_{layer}"
        weights = {
            part: self.layers[f"{name}.{part}"]
            for part in (
                "input_linearity.weight",
                "state_linearity.weight",
                "state_linearity.bias",
                "state_projection.weight",
            )
        }
        hidden, memory = np.zeros(encoder["projection_dim"]), np.zeros(encoder["dim"])
        outputs = []
        for x in inputs:
            gates = weights["input_linearity.weight"] @ x
            gates += weights["state_linearity.weight"] @ hidden + weights["state_linearity.bias"]
            i, f, g, o = np.split(gates, 4)
            i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
            memory = np.clip(
                i * np.tanh(g) + f * memory, -encoder["cell_clip"], encoder["cell_clip"]
            )
            hidden = weights["state_projection.weight"] @ (o * np.tanh(memory))
            hidden = np.clip(hidden, -encoder["proj_clip"], encoder["proj_clip"])
            outputs.append(hidden if layer == 0 else hidden + x)
        return np.array(outputs)

    def layers_of(self, sentence):
        """Shape `(layers + 1, words, 2 * projection_dim)`."""
        tokens = np.array([self.word_vector(w) for w in ("<bos>", *sentence, "<eos>")])
        found = [np.concatenate([tokens, tokens], axis=1)]
        forward, backward = tokens, tokens[::-1]
        for layer in range(self.sizes["encoder"]["n_layers"]):
            forward = self.run_layer("forward", layer, forward)
            backward = self.run_layer("backward", layer, backward)
            found.append(np.concatenate([forward, backward[::-1]], axis=1))
        return np.array(found)[:, 1:-1]


def assert_parity(elmo, folder, sentences=SENTENCES):
    theirs = TheirModel(folder)
    for found, sentence in zip(elmo.encode_tokens(sentences), sentences, strict=True):
        np.testing.assert_allclose(found, theirs.layers_of(sentence), atol=5e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("manylangs") / "xx.model")


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copied")


@pytest.fixture(scope="module")
def elmo(folder):
    return ELMo.from_pretrained(folder, device="cpu")


def test_vectors_are_those_of_their_model(elmo, folder):
    assert_parity(elmo, folder)


@settings(max_examples=25)
@given(
    sentence=st.lists(
        st.one_of(st.sampled_from(WORDS[:5]), st.text("abcé語x", min_size=1, max_size=14)),
        min_size=1,
        max_size=5,
    )
)
def test_any_words_known_or_not_get_their_vectors(elmo, folder, sentence):
    assert_parity(elmo, folder, [sentence])


@pytest.mark.parametrize(
    "changes",
    [{"activation": "tanh"}, {"n_highway": 0}, {"word_dim": 0}, {"filters": [[1, 2], [4, 9]]}],
)
def test_other_sizes_are_understood(tmp_path, changes):
    sizes = {**SIZES, "token_embedder": {**SIZES["token_embedder"], **changes}}
    folder = write_model(tmp_path / "model", sizes, seed=5)
    assert_parity(ELMo.from_pretrained(folder, device="cpu"), folder)


def test_files_of_old_pytorch_are_read(tmp_path, elmo):
    folder = write_model(tmp_path / "old", zipped=False)
    found = ELMo.from_pretrained(folder, device="cpu")
    assert found.fingerprint == elmo.fingerprint


def test_an_archive_of_theirs_is_downloaded_and_read(folder, elmo, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "142.zip", "w") as archive:
        archive.writestr("README", "hello")
        for path in folder.iterdir():
            archive.write(path, f"de.model/{path.name}")
    with serve() as server:
        monkeypatch.setenv("ELMO_MIRROR", server.address)
        place = "/vectors.nlpl.eu/repository/11/142.zip"
        server.files[place] = (tmp_path / "142.zip").read_bytes()
        found = ELMo.from_pretrained("manylangs:de", device="cpu")
    assert found.fingerprint == elmo.fingerprint
    assert ELMo.from_pretrained("manylangs:DE").fingerprint == elmo.fingerprint  # server is gone


def test_a_repository_of_the_hub_arrives_with_its_weights(folder, elmo, hub_of):
    hub_of(folder)
    assert ELMo.from_pretrained("someone/de", device="cpu").fingerprint == elmo.fingerprint


def test_a_known_word_matters_and_belongs_to_the_fingerprint(elmo, copied):
    (copied / "word.dic").write_text((copied / "word.dic").read_text().replace("cab\t", "bac\t"))
    other = ELMo.from_pretrained(copied, device="cpu")
    [first], [second] = (model.encode_tokens([["cab"]]) for model in (elmo, other))
    assert np.abs(first - second).max() > 0.1
    assert other.fingerprint != elmo.fingerprint


def test_the_neighbors_of_a_word_do_not_change_a_bit(elmo):
    many = [*SENTENCES * 20, ["語"] * 40]
    for found, expected in zip(
        elmo.encode_tokens(many), [elmo.encode_tokens([s])[0] for s in many], strict=True
    ):
        assert np.array_equal(found, expected)


def test_it_converts_to_our_layout_and_back_into_vectors(elmo, folder, tmp_path, capsys):
    assert main(["convert", str(folder), str(tmp_path / "ours")]) == 0
    assert {path.name for path in (tmp_path / "ours").iterdir()} >= {
        "lookup.txt",
        "lookup.safetensors",
        "characters.txt",
    }
    ours = ELMo.from_pretrained(tmp_path / "ours", device="cpu")
    assert ours.fingerprint == elmo.fingerprint
    for found, expected in zip(
        ours.encode_tokens(SENTENCES), elmo.encode_tokens(SENTENCES), strict=True
    ):
        assert np.array_equal(found, expected)
    assert main(["info", str(tmp_path / "ours"), "--json"]) == 0
    assert elmo.fingerprint in capsys.readouterr().out
    copy = pickle.loads(pickle.dumps(ours))
    assert copy.fingerprint == elmo.fingerprint
    save_checkpoint(open_model(folder, lookups=True), tmp_path / "half", dtype="float16")
    half = ELMo.from_pretrained(tmp_path / "half", device="cpu")
    assert half.fingerprint in (tmp_path / "half" / "README.md").read_text()
    half.save_pretrained(tmp_path / "again")
    for ending in ("safetensors", "txt"):
        (tmp_path / "again" / f"lookup.{ending}").unlink()
    with pytest.raises(AssertionError):  # without the lookup it is another model
        assert_parity(ELMo.from_pretrained(tmp_path / "again", device="cpu"), folder)


def test_a_lookup_that_is_damaged_is_told(folder, tmp_path):
    save_checkpoint(open_model(folder, lookups=True), tmp_path)
    words = (tmp_path / "lookup.txt").read_text()
    (tmp_path / "lookup.txt").write_text(words + "more\n")
    with pytest.raises(WeightsError, match=r"'vectors' has shape \(6, 4\).*\(7, 4\)"):
        ELMo.from_pretrained(tmp_path)
    (tmp_path / "lookup.txt").unlink()
    with pytest.raises(MissingFileError, match=r"lookup\.txt"):
        ELMo.from_pretrained(tmp_path)


def test_whoever_cannot_use_whole_words_refuses(folder, tmp_path):
    for load in (open_model, Elmo.from_pretrained, LanguageModelScorer.from_pretrained):
        with pytest.raises(ConfigError, match="vectors of whole words beside its characters"):
            load(folder)
    with pytest.raises(ConfigError, match="the format hdf5 has no place"):
        save_checkpoint(open_model(folder, lookups=True), tmp_path, "hdf5")


def test_the_published_sizes_stand_in_for_a_missing_file(copied):
    (copied / "sizes.json").unlink()
    with pytest.raises(
        WeightsError, match=r"has shape \(32, 6\).*\(16384, 512\)"
    ):  # they are larger
        ELMo.from_pretrained(copied)


class Command:
    def __reduce__(self):
        return os.system, ("echo this must not run",)


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        (
            "encoder.pkl",
            pickle.dumps(Command(), protocol=2),
            WeightsError,
            "not a readable file of tensors",
        ),
        ("encoder.pkl", b"", WeightsError, "not a readable file of tensors"),
        ("token_embedder.pkl", None, MissingFileError, "no such file"),
        ("char.dic", None, MissingFileError, "no such file"),
        ("char.dic", b"a\t0\n", InputError, "lacks <bos>, <eos>"),
        ("word.dic", b"word\tx\n", InputError, "line 1: 'word.tx' has no number"),
        ("word.dic", b"<oov>\t99\n", WeightsError, "row 99"),
        ("word.dic", b"a\t1\n", ElmoError, "<oov>"),
        ("sizes.json", b'{"encoder": 1}', ConfigError, "not understood"),
        ("sizes.json", b"{", ConfigError, "not valid JSON"),
        (
            "sizes.json",
            json.dumps(
                {**SIZES, "token_embedder": {**SIZES["token_embedder"], "name": "lstm"}}
            ).encode(),
            ConfigError,
            "only 'elmo' and 'cnn'",
        ),
    ],
)
def test_damaged_files_are_told(copied, capfd, file, content, error, message):
    if content is None:
        (copied / file).unlink()
    else:
        (copied / file).write_bytes(content)
    with pytest.raises(error, match=message):
        ELMo.from_pretrained(copied)
    assert "must not run" not in capfd.readouterr().out


def test_weights_of_another_model_are_told(copied, folder):
    tensors = torch.load(copied / "encoder.pkl", weights_only=True)
    tensors["forward_layer_0.state_projection.weight"] = torch.zeros(3, 3)
    torch.save(tensors, copied / "encoder.pkl")
    with pytest.raises(WeightsError, match=r"state_projection\.weight' has shape"):
        ELMo.from_pretrained(copied)
    del tensors["forward_layer_0.state_projection.weight"]
    torch.save(tensors, copied / "encoder.pkl")
    with pytest.raises(WeightsError, match=r"no 'forward_layer_0\.state_projection\.weight'"):
        ELMo.from_pretrained(copied)
    torch.save({"a": [1]}, copied / "encoder.pkl")
    with pytest.raises(WeightsError, match="something other than named tensors"):
        ELMo.from_pretrained(copied)


def test_a_line_without_a_word_is_the_blank(copied):
    lines = (copied / "char.dic").read_text().replace("é\t", " \t")
    (copied / "char.dic").write_text(lines)
    assert "\u3000" in open_model(copied, lookups=True).alphabet

"""Models with names, for tests: one as if it were bundled, published ones behind a mirror."""

import zipfile
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from elmo.cli.main import main
from elmo.hub import names
from elmo.hub.names import find_published
from elmo.model.perplexity import Perplexity
from elmo.text.vocabulary import Vocabulary
from elmo.weights.card import Figure, ModelCard, Source
from elmo.weights.formats import save_checkpoint
from file_server import serve
from strategies import VOCABULARY

SENTENCES = [["The", "cat"], ["No"]]
CARD = ModelCard(
    name="small-en",
    language="en",
    description="A model of a test.",
    license="CC BY-SA 4.0",
    sources=(Source(name="A book", license="public domain", address="https://x.y", words=12_345),),
    tokenizer="english",
    vocabulary_size=9,
    unknown_rate=0.0213,
    tokens=1_000_000,
    minutes=12.5,
    device="one GPU",
    cost="a coffee",
    perplexity=Perplexity(forward=64.0, backward=49.0),
    figures=(Figure(name="POS", value="91.2 %", command="elmo probe pos"),),
    commands=("elmo prepare a.txt data", "elmo train --data data --out run"),
)


@pytest.fixture
def language_model(tiny_bilm):
    """Weights with an output layer, mix weights and a warm state."""
    generator = torch.Generator().manual_seed(3)
    checkpoint = tiny_bilm.to_checkpoint()
    config = checkpoint.config.replace(mix_weights=(1.0, 0.0, -1.0), mix_gamma=2.0)
    return type(checkpoint)(
        config=config,
        tensors=checkpoint.tensors,
        vocabulary=Vocabulary(VOCABULARY),
        warm_state=(
            torch.rand(2, 2, 16, generator=generator),
            torch.rand(2, 2, 64, generator=generator),
        ),
        softmax={
            "weight": torch.randn(9, 16, generator=generator),
            "bias": torch.randn(9, generator=generator),
        },
    )


@pytest.fixture
def bundled(tmp_path, monkeypatch, language_model):
    """An installation with one bundled model, made by the tool that makes real ones."""
    monkeypatch.setattr(names, "BUNDLED", tmp_path / "bundled")
    save_checkpoint(language_model, tmp_path / "run")
    (tmp_path / "filled.json").write_text(CARD.to_json())
    folder = tmp_path / "bundled" / "small-en"
    arguments = ["--dtype", "float16", "--card", str(tmp_path / "filled.json")]
    assert main(["convert", str(tmp_path / "run"), str(folder), *arguments]) == 0
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    for name in ("ELMO_OFFLINE", "ELMO_MIRROR", "ELMO_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def mirror(monkeypatch, cache):
    """A mirror of the published models; it holds what a test puts there."""
    monkeypatch.setenv("no_proxy", "*")
    with serve() as server:
        monkeypatch.setenv("ELMO_MIRROR", f"{server.address}/mirror/")
        yield server


def publish(server, name, folder):
    """Put the files of a folder where the mirror of a published model has them."""
    model = find_published(name)
    for local, file in model.files.items():
        address = urlsplit(file.address)
        server.files[f"/mirror/{address.netloc}{address.path}"] = (folder / local).read_bytes()


@pytest.fixture
def hdf5(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path / "hdf5", format="hdf5")
    return tmp_path / "hdf5"


def assert_tiny(elmo, tiny_elmo):
    for found, expected in zip(
        elmo.encode_tokens(SENTENCES), tiny_elmo.encode_tokens(SENTENCES), strict=True
    ):
        assert np.array_equal(found, expected)


def zip_of(folder, path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name, source in names.items():
            archive.write(folder / source, name)
    return path

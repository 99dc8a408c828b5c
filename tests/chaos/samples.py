"""Whole files of every kind that is read, tiny, as samples that `mutations` damages."""

import gzip
import json
import shutil
import tarfile
import zipfile

import h5py
import numpy as np
import torch
from test_manylangs import write_model

from elmo import ElmoConfig
from elmo.runtime.array_files import write_arrays
from elmo.text.vocabulary import Vocabulary
from elmo.weights.formats import load_checkpoint, save_checkpoint
from elmo.weights.token_file import write_token_file
from oracle import random_tensors, write_files
from strategies import ALPHABET, VOCABULARY, seeded_bilm, word_config

SMALL = {"dim": 8, "projection_dim": 6, "char_dim": 4, "filters": ((1, 4), (2, 5)), "n_highway": 1}
WORDS = ("the", "cat", "sat")


def write_samples(folder):
    """Write a folder for each kind; what is in it is read together."""
    makers = {
        "elmo": write_ours,
        "elmo-words": write_words,
        "elmo-alphabet": write_alphabet,
        "elmo-lookup": write_lookup,
        "hdf5": write_hdf5,
        "manylangs": lambda path: write_model(path),
        "manylangs-old": lambda path: write_model(path, zipped=False),
        "archives": write_archives,
        "token-files": write_token_files,
        "vectors": write_vectors,
        "texts": write_texts,
        "arrays": write_array_files,
        "cards": write_cards,
        "records": write_records,
    }
    for name, make in makers.items():
        (folder / name).mkdir(parents=True)
        make(folder / name)
    return sorted(makers)


def write_ours(folder):
    checkpoint = seeded_bilm(ElmoConfig.preset("tiny", **SMALL)).to_checkpoint()
    generator = torch.Generator().manual_seed(1)
    softmax = {
        "weight": torch.randn(len(VOCABULARY), 6, generator=generator),
        "bias": torch.randn(len(VOCABULARY), generator=generator),
    }
    warm = (torch.rand(2, 2, 6, generator=generator), torch.rand(2, 2, 8, generator=generator))
    whole = type(checkpoint)(
        config=checkpoint.config.replace(mix_weights=(1.0, 0.0, -1.0)),
        tensors=checkpoint.tensors,
        vocabulary=Vocabulary(VOCABULARY),
        softmax=softmax,
        warm_state=warm,
    )
    save_checkpoint(whole, folder)


def write_words(folder):
    save_checkpoint(seeded_bilm(word_config(dim=8, projection_dim=6)).to_checkpoint(), folder)


def write_alphabet(folder):
    config = ElmoConfig.preset("tiny", **SMALL, n_characters=ALPHABET.n_characters)
    save_checkpoint(seeded_bilm(config).to_checkpoint(), folder)


def write_lookup(folder):
    write_model(folder / "theirs")
    save_checkpoint(load_checkpoint(folder / "theirs"), folder)
    shutil.rmtree(folder / "theirs")


def write_hdf5(folder):
    options = ElmoConfig.preset("tiny", **SMALL).to_options()
    write_files(folder, options, random_tensors(options))
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        file["softmax/W"] = np.ones((len(VOCABULARY), 6), np.float32)
        file["softmax/b"] = np.ones(len(VOCABULARY), np.float32)
    text = "".join(f"{word}\n" for word in VOCABULARY)
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def write_archives(folder):
    inside = folder / "inside"
    inside.mkdir()
    write_ours(inside)
    for name, method in (("a", zipfile.ZIP_DEFLATED), ("b", zipfile.ZIP_LZMA), ("c", 0)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", method) as archive:
            for path in sorted(inside.iterdir()):
                archive.write(path, f"model/{path.name}")
    for ending, mode in (
        ("tar", "w"),
        ("tar.gz", "w:gz"),
        ("tar.xz", "w:xz"),
        ("tar.bz2", "w:bz2"),
    ):
        with tarfile.open(folder / f"d.{ending}", mode) as archive:
            archive.add(inside, "model")
    shutil.rmtree(inside)


def write_token_files(folder):
    rows = np.random.default_rng(1).random((len(WORDS), 6), np.float32)
    write_token_file(folder / "contiguous.h5", WORDS, [rows], "f" * 64)
    with h5py.File(folder / "chunked.h5", "w") as file:
        file.create_dataset("embedding", data=rows, chunks=(2, 3), compression="gzip")
        file.create_dataset("words", data=list(WORDS), dtype=h5py.string_dtype())


def write_vectors(folder):
    rows = np.random.default_rng(1).random((40, 5), np.float32)
    words = [*WORDS, *(f"word{number}" for number in range(37))]
    text = "".join(f"{w} {' '.join(map(str, row))}\n" for w, row in zip(words, rows, strict=True))
    (folder / "glove.txt").write_text(text)
    (folder / "glove.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "word2vec.txt").write_text(f"40 5\n{text}")
    binary = b"".join(w.encode() + b" " + row.tobytes() for w, row in zip(words, rows, strict=True))
    (folder / "word2vec.bin").write_bytes(b"40 5\n" + binary)
    for name, method in (("deflated", zipfile.ZIP_DEFLATED), ("lzma", zipfile.ZIP_LZMA)):
        with zipfile.ZipFile(folder / f"{name}.zip", "w", method) as archive:
            archive.writestr("glove.txt", text)


def write_texts(folder):
    import bz2
    import lzma

    text = "".join(f"The cat sat , line {number} .\n\n" for number in range(50)).encode()
    packers = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    try:
        from backports import zstd

        packers[".zst"] = zstd.compress
    except ImportError:
        pass
    for ending, pack in packers.items():
        (folder / f"text.txt{ending}").write_bytes(pack(text))
    rows = ({"step": number, "loss": 3.5, "lr": 1e-3} for number in range(20))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_array_files(folder):
    arrays = {"tokens": np.arange(99, dtype=np.uint32), "starts": np.arange(9, dtype=np.int64)}
    write_arrays(folder / "arrays.safetensors", arrays, {"facts": json.dumps({"sentences": 9})})


def write_cards(folder):
    source = {"name": "A book", "license": "none", "address": "https://x.y", "words": 3}
    card = {
        "name": "small",
        "language": "en",
        "description": "A model.",
        "license": "CC0",
        "sources": [source],
        "unknown_rate": 0.1,
        "minutes": 12.5,
        "perplexity": {"forward": 50.0, "backward": 49.0, "mean": 49.5},
        "figures": [{"name": "POS", "value": "9", "command": "elmo"}],
        "commands": ["elmo train"],
        "files": {"card.json": "0" * 64},
    }
    (folder / "card.json").write_text(json.dumps(card))


def write_records(folder):
    record = {"address": "http://127.0.0.1:9/a", "sha256": "0" * 64, "size": 3, "modified": 5}
    (folder / "a.txt").write_text("abc")
    (folder / "a.txt.sha256.json").write_text(json.dumps(record))

"""Small files that claim, or unpack to, far more than they have."""

import bz2
import gzip
import json
import lzma
import pickle
import tarfile
import zipfile

import h5py
import numpy as np
import torch

GB = 2**30


def packed(opener, path, block, times):
    """Write a block many times into a compressed file."""
    with opener(path, "wb") as file:
        for _ in range(times):
            file.write(block)


def long_line(folder):
    path = folder / "text.txt.gz"
    packed(gzip.open, path, b"a " * 2**19, 1024)
    return "texts", path


def long_line_xz(folder):
    path = folder / "text.txt.xz"
    packed(lzma.open, path, b"a" * 2**20, 1024)
    return "texts", path


def long_vector_line(folder):
    path = folder / "glove.txt.gz"
    packed(gzip.open, path, b"1 " * 2**19, 1024)
    return "vectors", path


def blank_vectors(folder):
    path = folder / "glove.txt.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"the 1 2 3\n" + b"\n" * 2**28)
    return "vectors", path


def wide_word2vec(folder):
    path = folder / "word2vec.bin"
    path.write_bytes(b"3 999999999999\nthe \0\1\2\3")
    return "vectors", path


def large_vocabulary(sample, folder):
    packed(gzip.open, folder / "vocab.txt.gz", b"\n" * 2**20, 600)
    (folder / "vocab.txt").unlink(missing_ok=True)
    return sample, folder


def sizes(name, value):
    def change(folder):
        config = json.loads((folder / "config.json").read_text()) | {name: value}
        (folder / "config.json").write_text(json.dumps(config))
        return "elmo", folder

    change.__name__ = f"{name}={str(value)[:20]}"
    return change


def vocabulary(folder):
    return large_vocabulary("elmo", folder)


def consistent_fill(folder):
    """A model of many gigabytes, none of whose values is in the file."""
    lstm = {"dim": 32768, "projection_dim": 8192, "n_layers": 1}
    (folder / "options.json").write_text(json.dumps({"lstm": lstm, "n_tokens_vocab": 3}))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        file.create_dataset("embedding", (3, 8192), "f4")
        for side in range(2):
            cell = f"RNN_{side}/RNN/MultiRNNCell/Cell0/LSTMCell"
            for name, shape in (
                ("W_0", (16384, 131072)),
                ("B", (131072,)),
                ("W_P_0", (32768, 8192)),
            ):
                file.create_dataset(f"{cell}/{name}", shape, "f4", chunks=True, fillvalue=0.1)
    return "hdf5", folder


def many_words(folder):
    """References of a token file that are all to one long text."""
    path = folder / "tokens.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("embedding", data=np.zeros((100_000, 2), np.float32))
        words = file.create_dataset("words", (100_000,), h5py.string_dtype())
        words[0] = "x" * 200_000
        offset, size = words.id.get_offset(), 16
    content = bytearray(path.read_bytes())
    content[offset : offset + 100_000 * size] = content[offset : offset + size] * 100_000
    path.write_bytes(content)
    return "token-files", path


def expanded_pickle(folder):
    big = torch.zeros(1).expand(2**20, 2**12)
    torch.save({"forward_layer_0.input_linearity.weight": big}, folder / "encoder.pkl")
    return "manylangs", folder


def large_bytearray(folder):
    class Large:
        def __reduce__(self):
            return bytearray, (8 * GB,)

    (folder / "encoder.pkl").write_bytes(pickle.dumps(Large(), protocol=2))
    return "manylangs", folder


def compressed_pickle(folder):
    source = folder / "encoder.pkl"
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    largest = max(members, key=lambda name: len(members[name]))
    members[largest] = bytes(GB // 2)
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return "manylangs", folder


def zip_of_zeros(folder):
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("model/model.safetensors", "w", force_zip64=True) as file:
            for _ in range(1024):
                file.write(bytes(2**20))
    return "archives", path


def tar_of_zeros(opener, ending):
    def write(folder):
        path = folder / f"d.{ending}"
        member = tarfile.TarInfo("model/model.safetensors")
        member.size = 2 * GB
        with opener(path, "wb") as file:
            file.write(member.tobuf())
            for _ in range(512):
                file.write(bytes(2**20))
        return "archives", path

    write.__name__ = f"{ending} of zeros"
    return write


def tar_with_a_large_header(folder):
    path = folder / "d.tar.gz"
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 4 * GB
    with gzip.open(path, "wb", 1) as file:
        file.write(member.tobuf())
        for _ in range(1024):
            file.write(bytes(2**20))
    return "archives", path


def tar_of_long_names(folder):
    path = folder / "d.tar"
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 10
    path.write_bytes((member.tobuf() + bytes(512)) * 5000)
    return "archives", path


def large_header(folder):
    path = folder / "model.safetensors"
    entry = '"{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    text = "{" + ",".join(entry.format(number) for number in range(900_000)) + "}"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    return "elmo", folder


def many_objects(folder):
    (folder / "card.json").write_text("[" + "[]," * 1_390_000 + "[]]")
    return "cards", folder / "card.json"


QUICK = [
    *(("elmo", sizes("n_layers", value)) for value in (10**5, 10**6, 10**9)),
    *(("elmo", sizes("max_characters", value)) for value in (512, 10**7, 10**12)),
    *(("elmo", sizes("n_highway", value)) for value in (10**5, 10**9)),
    *(("elmo", sizes(name, 10**9)) for name in ("dim", "char_dim", "n_characters", "n_words")),
    ("elmo", sizes("filters", [[1, 10**9]])),
    ("elmo", sizes("filters", [[1, 1]] * 100_000)),
    ("elmo", large_header),
    ("hdf5", consistent_fill),
    ("manylangs", expanded_pickle),
    ("manylangs", large_bytearray),
    ("archives", tar_of_long_names),
    ("token-files", many_words),
    ("vectors", wide_word2vec),
    ("cards", many_objects),
]
"""The kind of a sample, and what makes a bomb of it; in less than a second."""
SLOW = [
    ("elmo", vocabulary),
    ("manylangs", compressed_pickle),
    ("archives", zip_of_zeros),
    ("archives", tar_of_zeros(gzip.open, "tar.gz")),
    ("archives", tar_of_zeros(bz2.open, "tar.bz2")),
    ("archives", tar_of_zeros(lzma.open, "tar.xz")),
    ("archives", tar_with_a_large_header),
    ("vectors", long_vector_line),
    ("vectors", blank_vectors),
    ("texts", long_line),
    ("texts", long_line_xz),
]
"""Those that are packed for seconds."""
BOMBS = [*SLOW, *QUICK]

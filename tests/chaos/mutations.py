"""Damage and malice: one random change to a file, by a seeded generator."""

import gzip
import json
import math
import os
import re
import socket
import struct

import h5py
import numpy as np

EXTREME = (0, 1, -1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**33, 2**40, 2**62, 2**63 - 1, -2)
NUMBERS = ("0", "-1", "1e999", "NaN", "1" * 30, "9" * 5000, "2147483648", "1e-400", "100000000000")
VALUES = (
    None,
    True,
    [],
    {},
    "",
    "x" * 3000,
    "\ud800",
    "\0",
    "../../etc/passwd",
    -1,
    0,
    10**5,
    10**9,
    10**12,
    10**19,
    10**400,
    1e308,
    [[]],
    [1] * 1000,
    {"a": {"b": [1]}},
)


def mutate(rng, path):
    """Change a file, or put something else in its place; return what was done, in a word."""
    if rng.random() < 0.06:
        return replace_kind(rng, path)
    if path.suffix in (".h5", ".hdf5") and rng.random() < 0.35:
        return rewrite_dataset(rng, path)
    content = path.read_bytes()
    if path.suffix == ".gz" and rng.random() < 0.4:
        name, changed = change(rng, gzip.decompress(content), path.name)
        path.write_bytes(gzip.compress(changed, 1, mtime=0))
        return f"gz-{name}"
    name, changed = change(rng, content, path.name)
    path.write_bytes(changed)
    return name


def change(rng, content, name):
    """Return the name of a change, and the changed bytes."""
    choices = [truncate, flip, splice, repeat, delete, insert, extreme, numbers, nested, nothing]
    weights = [2, 4, 2, 1, 2, 1, 4, 2, 1, 0.2]
    if name.endswith((".json", ".jsonl")):
        choices, weights = [*choices, edit_json], [*weights, 15]
    if name.endswith(".safetensors"):
        choices, weights = [*choices, edit_header], [*weights, 12]
    chosen = rng.choices(choices, weights)[0]
    return chosen.__name__, chosen(rng, content)


def place(rng, content):
    return rng.randrange(len(content) + 1)


def truncate(rng, content):
    return content[: place(rng, content)]


def flip(rng, content):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8)) if content else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def splice(rng, content):
    start, to = place(rng, content), place(rng, content)
    block = content[start : start + rng.choice((1, 8, 64, 512))]
    return content[:to] + block + content[to + len(block) :]


def repeat(rng, content):
    start = place(rng, content)
    block = content[start : start + rng.choice((1, 8, 64, 512))]
    return content[:start] + block * rng.choice((2, 100, 2000)) + content[start:]


def delete(rng, content):
    start = place(rng, content)
    return content[:start] + content[start + rng.choice((1, 8, 64, 512)) :]


def insert(rng, content):
    start = place(rng, content)
    return content[:start] + rng.randbytes(rng.choice((1, 8, 64))) + content[start:]


def extreme(rng, content):
    """Write a notable whole number over some bytes."""
    size, code = rng.choice(((1, "B"), (2, "H"), (4, "I"), (8, "Q")))
    start = place(rng, content)
    if rng.random() < 0.7:
        start -= start % size
    number = rng.choice(EXTREME) % 2 ** (8 * size)
    packed = struct.pack(rng.choice("<>") + code, number)
    return (content[:start] + packed + content[start + size :])[: max(len(content), start + size)]


def numbers(rng, content):
    """Write another number in the place of one in a text."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:100_000]))
    if not found:
        return content + b"\n"
    match = rng.choice(found)
    return content[: match.start()] + rng.choice(NUMBERS).encode() + content[match.end() :]


def nested(rng, content):
    depth = rng.choice((100, 990, 5000, 200_000))
    return rng.choice((b"[", b'{"a":', b"(")) * depth


def nothing(rng, content):
    return rng.choice((b"", b"\0" * 4096, b"\n" * 9000, b" ", b"\xff" * 100, b"null", b"[]", b"{}"))


def edit_json(rng, content):
    """Change a value anywhere in a JSON file, or its lines."""
    first, newline, rest = (
        content.partition(b"\n") if content.count(b"}\n{") else (content, b"", b"")
    )
    try:
        value = json.loads(first)
    except ValueError:
        return flip(rng, content)
    return json.dumps(edited(rng, value)).encode("utf-8", "surrogatepass") + newline + rest


def places_in(value):
    """List every place in nested lists and objects, as what it is in and its key there."""
    found = []
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += places_in(value[key])
    return found


def edited(rng, value):
    """Change, remove or add something anywhere in a value."""
    places = places_in(value) if isinstance(value, dict | list) else []
    if not places:
        return rng.choice(VALUES)
    inside, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.2:
        del inside[key]
    elif kind < 0.3 and isinstance(inside, dict):
        inside[rng.choice(("x", "", "\ud800", "model_type", "n-layers"))] = rng.choice(VALUES)
    elif kind < 0.4:
        deep = 1
        for _ in range(rng.choice((70, 500, 900))):
            deep = [deep]
        inside[key] = deep
    elif kind < 0.6 and isinstance(inside[key], int):
        inside[key] = rng.choice((*EXTREME, 3, 5, 64, 100, 1000, 50_000))
    else:
        inside[key] = rng.choice(VALUES)
    return value


def edit_header(rng, content):
    """Change names, types, shapes or offsets in the header of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = edited(rng, json.loads(content[8 : 8 + length]))
    except ValueError:
        return flip(rng, content)
    if rng.random() < 0.3:
        types = ("F16", "F64", "I8", "BOOL", "C64", "F4", "F8_E4M3", "U64", "X")
        for entry in header.values() if isinstance(header, dict) else ():
            if isinstance(entry, dict) and "dtype" in entry and rng.random() < 0.3:
                entry["dtype"] = rng.choice(types)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


# --- no regular file at all -----------------------------------------------------------------------

DEVICES = {"zero": "/dev/zero", "null": "/dev/null", "tty": "/dev/ptmx", "random": "/dev/urandom"}


def replace_kind(rng, path):
    """Put something that is no regular file in the place of a file."""
    path.unlink()
    kind = rng.choice(("pipe", "socket", "folder", "loop", "gone", *DEVICES))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            folder = os.open(path.parent, os.O_RDONLY)
            made.bind(f"/proc/self/fd/{folder}/{path.name}")  # names of sockets are short
            os.close(folder)
    elif kind == "folder":
        path.mkdir()
    else:
        others = {"loop": path, "gone": path.with_name("nowhere")}
        path.symlink_to(others.get(kind) or DEVICES[kind])
    return kind


# --- HDF5 that lies -------------------------------------------------------------------------------


def rewrite_dataset(rng, path):
    """Put another dataset, or something else, in the place of one in an HDF5 file."""
    with h5py.File(path, "r+") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        name = rng.choice(names)
        shape = file[name].shape or (1,)
        del file[name]
        kind = rng.choice(DATASETS)
        kind(rng, file, name, shape)
        return f"hdf5-{kind.__name__}"


def lying(rng, file, name, shape):
    """Write nothing, of a large shape."""
    big = rng.choice(((65536, 32768), (2**20, 2**20), (2**40,), (3, 2**33), (2**20,)))
    chunks = tuple(min(size, 4096) for size in big)
    file.create_dataset(name, big, "f4", chunks=chunks, fillvalue=0.5)


def filled(rng, file, name, shape):
    file.create_dataset(name, shape, "f4", fillvalue=0.5)


def wide(rng, file, name, shape):
    wider = (*shape[:-1], 2**28)
    file.create_dataset(name, wider, "f4", chunks=True, compression="gzip", fillvalue=1)


def typed(rng, file, name, shape):
    kinds = ("i8", "S10", "c16", "f8", ">f4", "u1", "f2", [("a", "f4"), ("b", "i4")])
    file.create_dataset(name, shape, rng.choice(kinds))


def empty(rng, file, name, shape):
    file[name] = h5py.Empty("f4")


def external(rng, file, name, shape):
    source = rng.choice(("/etc/passwd", "/dev/zero", "nowhere"))
    file.create_dataset(name, shape, "f4", external=[(source, 0, max(1, math.prod(shape) * 4))])


def virtual(rng, file, name, shape):
    layout = h5py.VirtualLayout(shape, "f4")
    layout[...] = h5py.VirtualSource("other.h5", "x", shape=shape)
    file.create_virtual_dataset(name, layout)


def linked(rng, file, name, shape):
    soft = h5py.SoftLink(rng.choice((f"/{name}", "/nowhere", "/")))
    file[name] = rng.choice((soft, h5py.ExternalLink("/etc/passwd", "/x")))


def group(rng, file, name, shape):
    file.create_group(name)


def scalar(rng, file, name, shape):
    file[name] = np.float32(1)


def texts(rng, file, name, shape):
    file.create_dataset(name, data=["x" * 5000] * 50, dtype=h5py.string_dtype())


def references(rng, file, name, shape):
    file.create_dataset(name, shape, dtype=h5py.ref_dtype)


def attribute(rng, file, name, shape):
    """Remove the dataset, and store anything as the fingerprint."""
    file.attrs["model_sha256"] = rng.choice((1, "x" * 60_000, np.zeros(5), h5py.Empty("f")))


DATASETS = (
    lying,
    filled,
    wide,
    typed,
    empty,
    external,
    virtual,
    linked,
    group,
    scalar,
    texts,
    references,
    attribute,
)

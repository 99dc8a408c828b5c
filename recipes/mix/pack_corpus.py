#!/usr/bin/env python3
"""Compress a prepared corpus for transfer: pack_corpus.py pack CORPUS OUT, or unpack PARTS CORPUS.

`pack` writes each file of a corpus as a compressed part, a third of its size; `unpack` writes the
same bytes again and compares SHA-256. Parts that arrive later may be unpacked later. The standard
library and NumPy are enough on both sides.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ESCAPE = 0xFFFF
"""Stands in a stream of 16 bits for a number that does not fit."""
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "lc": 2, "lp": 1, "pb": 1}]
"""Of lzma: positions of 16-bit numbers; higher presets save 8 % and take four times as long."""


def narrow(array: npt.NDArray[Any]) -> tuple[bytes, bytes]:
    """Return numbers as 16-bit ones, and those that do not fit as 64-bit differences."""
    values = array.astype(np.int64)
    wide = (values < 0) | (values >= ESCAPE)
    rest = np.diff(values[wide], prepend=0)
    return np.where(wide, ESCAPE, values).astype("<u2").tobytes(), rest.astype("<i8").tobytes()


def widen(low: bytes, rest: bytes, kind: str) -> bytes:
    """Return the bytes of an array of a type from what `narrow` made of it."""
    values = np.frombuffer(low, "<u2").astype(np.int64)
    values[values == ESCAPE] = np.cumsum(np.frombuffer(rest, "<i8"))
    return values.astype(kind).tobytes()


KINDS = {"U32": "<u4", "I64": "<i8"}


def pack_file(path: Path, out: Path) -> str:
    """Write one file as a part; return a line about it."""
    data = path.read_bytes()
    streams: list[bytes] = [data]
    plan: list[Any] = [["as it is"]]
    if path.suffix == ".safetensors":
        (size,) = struct.unpack("<Q", data[:8])
        arrays = json.loads(data[8 : 8 + size])
        arrays.pop("__metadata__", None)
        streams, plan = [data[: 8 + size]], [["as it is"]]
        for array in sorted(arrays.values(), key=lambda a: a["data_offsets"]):
            start, end = (8 + size + offset for offset in array["data_offsets"])
            kind = KINDS.get(array["dtype"])
            if kind is None:
                streams.append(data[start:end])
                plan.append(["as it is"])
                continue
            values = np.frombuffer(data[start:end], kind)
            steps = kind == "<i8"  # places that grow: their differences are small
            streams += narrow(np.diff(values, prepend=0) if steps else values)
            plan.append(["steps" if steps else "numbers", kind])
    packed = [lzma.compress(s, lzma.FORMAT_RAW, filters=FILTERS) for s in streams]
    head = {
        "name": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "plan": plan,
        "sizes": [len(part) for part in packed],
    }
    text = json.dumps(head).encode()
    (out / f"{path.name}.part").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(packed))
    return f"{path.name}: {len(data):,} -> {sum(head['sizes']):,} bytes"


def _streams(data: bytes, sizes: list[int], start: int) -> Iterator[bytes]:
    for size in sizes:
        yield lzma.decompress(data[start : start + size], lzma.FORMAT_RAW, filters=FILTERS)
        start += size


def unpack_file(part: Path, out: Path) -> str:
    """Write the file of a part again; return a line about it."""
    data = part.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    streams = _streams(data, head["sizes"], 8 + size)
    pieces = []
    for how, *kind in head["plan"]:
        if how == "as it is":
            pieces.append(next(streams))
            continue
        whole = widen(next(streams), next(streams), kind[0])
        if how == "steps":
            whole = np.cumsum(np.frombuffer(whole, kind[0])).astype(kind[0]).tobytes()
        pieces.append(whole)
    result = b"".join(pieces)
    if hashlib.sha256(result).hexdigest() != head["sha256"]:
        raise SystemExit(f"error: {part} is damaged: its SHA-256 is another; pack it again")
    (out / Path(head["name"]).name).write_bytes(result)
    return head["name"]


def main() -> None:
    """Read the command line, and pack or unpack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    choices = parser.parse_args()
    ending = "*.part" if choices.do == "unpack" else "*"
    paths = sorted(p for p in choices.source.glob(ending) if p.is_file())
    if not paths:
        raise SystemExit(f"error: {choices.source} holds no file {ending}")
    choices.out.mkdir(parents=True, exist_ok=True)
    do = pack_file if choices.do == "pack" else unpack_file
    with ProcessPoolExecutor(choices.workers) as workers:
        for line in workers.map(do, paths, [choices.out] * len(paths)):
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()

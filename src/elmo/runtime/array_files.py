"""Files of named arrays in the safetensors format, streamed to disk and memory-mapped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from elmo.errors import ElmoError, InputError
from elmo.runtime.files import replacing
from elmo.runtime.input_files import parse_json, require_file

Array = npt.NDArray[Any]

_NAMES = {"uint8": "U8", "uint32": "U32", "int64": "I64", "uint64": "U64", "float32": "F32"}
_DTYPES = {name: np.dtype(dtype) for dtype, name in _NAMES.items()}
_HEADER_LIMIT = 1 << 24


@dataclass(frozen=True)
class Stream:
    """An array that is written in pieces, because it need not fit into memory."""

    dtype: str
    length: int
    pieces: Iterable[Array]


def write_arrays(
    path: Path, arrays: Mapping[str, Array | Stream], metadata: Mapping[str, str]
) -> str:
    """Write arrays of one dimension to a file, atomically.

    Args:
        path: File to write; one that exists is replaced.
        arrays: By name; each has shape `(n,)`.
        metadata: Texts of the header.

    Returns:
        The SHA-256 of the file.
    """
    streams = {
        name: value if isinstance(value, Stream) else Stream(str(value.dtype), len(value), [value])
        for name, value in arrays.items()
    }
    # Wide numbers first, so that every array is aligned.
    names = sorted(streams, key=lambda name: (-np.dtype(streams[name].dtype).itemsize, name))
    digest = hashlib.sha256()
    with replacing(path) as temporary, temporary.open("wb") as file:
        _write(file, digest, _header(names, streams, metadata))
        for name in names:
            written = 0
            for piece in streams[name].pieces:
                _write(file, digest, np.ascontiguousarray(piece, streams[name].dtype).data)
                written += len(piece)
            assert written == streams[name].length, name
    return digest.hexdigest()


def _write(file: IO[bytes], digest: Any, content: Any) -> None:
    file.write(content)
    digest.update(content)


def _header(names: list[str], streams: Mapping[str, Stream], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        stream = streams[name]
        start, end = end, end + stream.length * np.dtype(stream.dtype).itemsize
        header[name] = {
            "dtype": _NAMES[stream.dtype],
            "shape": [stream.length],
            "data_offsets": [start, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def map_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Memory-map the arrays of a file; only the header is read.

    Returns:
        Read-only arrays of shape `(n,)` by name, and the metadata.
    """
    size = require_file(path, "file of arrays")
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= _HEADER_LIMIT:
                raise InputError(f"{path} is damaged: it has no header")
            header = parse_json(file.read(length), "its header")
        metadata = {str(name): str(text) for name, text in header.pop("__metadata__", {}).items()}
        expected = 8 + length + max((e["data_offsets"][1] for e in header.values()), default=0)
        if size != expected:
            raise InputError(f"{path} is damaged: it has {size:,} bytes, expected {expected:,}")
        arrays = {name: _map(path, 8 + length, entry) for name, entry in header.items()}
    except InputError:
        raise
    except Exception as error:  # a header that is valid JSON may still hold anything
        raise InputError(f"{path} is damaged: {error}") from None
    return arrays, metadata


def _map(path: Path, offset: int, entry: Mapping[str, Any]) -> Array:
    dtype = _DTYPES[entry["dtype"]]
    (length,) = entry["shape"]
    start, end = entry["data_offsets"]
    if start < 0 or end - start != length * dtype.itemsize:
        raise ValueError("an array has another length than its shape")
    if not length:  # cannot be mapped
        return np.zeros(0, dtype)
    mapped = np.memmap(path, dtype, "r", offset + start, (length,))
    return mapped.view(np.ndarray)  # slices of the subclass are slow


def stored_facts(path: Path) -> Any:
    """Read the `facts` in the header of a file of arrays; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        _, metadata = map_arrays(path)
        return parse_json(metadata["facts"], str(path))
    except (ElmoError, KeyError):
        return None


def pack_words(words: Iterable[str]) -> tuple[Array, Array]:
    """Encode words as two arrays.

    Returns:
        Their concatenated UTF-8 bytes, uint8 of shape `(n_bytes,)`, and the offset of each, int64
        of shape `(n_words + 1,)`.
    """
    encoded = [word.encode() for word in words]
    starts = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(word) for word in encoded], out=starts[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), starts


def unpack_words(letters: Array, starts: Array) -> list[str]:
    """Decode words of `pack_words`: from its two arrays, or from consecutive rows of `starts`."""
    if len(starts) < 2:
        return []
    first = int(starts[0])
    content = letters[first : int(starts[-1])].tobytes()
    ends = (starts - first).tolist()
    try:
        return [content[a:b].decode() for a, b in pairwise(ends)]
    except UnicodeDecodeError as error:
        raise InputError(f"packed words are damaged, they are not valid UTF-8: {error}") from None

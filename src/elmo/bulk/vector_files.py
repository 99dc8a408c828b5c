"""Assembling npz, safetensors and Parquet files from vectors that come one sentence at a time.

Each function writes a whole file in bounded memory. The files open with `numpy.load`, with
safetensors, and with any reader of Parquet.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from elmo.errors import ConfigError, MissingExtraError, OutputError
from elmo.settings import OutputFormat
from elmo.text.sentences import Words

Array = npt.NDArray[Any]
Info = Mapping[str, Any]
Rows = Iterable[tuple[Words, Array]]

_SAFETENSORS_DTYPES = {"float32": "F32", "float16": "F16"}
_HEADER_LIMIT = 100_000_000
"""Bytes of a header that the safetensors library accepts."""
_WORDS_LIMIT = 16 << 20
"""Bytes of sentences up to which a safetensors header carries them."""
_ROW_GROUP_BYTES = 64 << 20


def check_format(format: str) -> None:
    """Fail at once, and not after hours of work, if a format cannot be written."""
    if format not in get_args(OutputFormat):
        expected = ", ".join(get_args(OutputFormat))
        raise ConfigError(f"format is {format!r}, expected one of {expected}")
    if format == "parquet" and find_spec("pyarrow") is None:
        raise MissingExtraError("the format 'parquet'", "parquet")


def format_of(path: Path | str, asked: OutputFormat | None = None) -> OutputFormat:
    """Give the format that somebody asked for, or else the one that the name of a file ends in."""
    ending = Path(path).suffix[1:].lower()
    by_ending: OutputFormat = next((kind for kind in ASSEMBLERS if kind == ending), "hdf5")
    return asked or by_ending


def write_npz(path: Path, info: Info, sentences: Path, rows: Rows) -> None:
    """Write an array "i" for each sentence; `info.json` and `sentences.jsonl` beside them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        # ZipInfo without a date: the same vectors make the same bytes, whenever they are written.
        archive.writestr(zipfile.ZipInfo("info.json"), json.dumps(dict(info)))
        with (
            archive.open(zipfile.ZipInfo("sentences.jsonl"), "w", force_zip64=True) as member,
            sentences.open("rb") as lines,
        ):
            shutil.copyfileobj(lines, member)
        for number, (_, vectors) in enumerate(rows):
            with archive.open(zipfile.ZipInfo(f"{number}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, vectors, allow_pickle=False)


def write_safetensors(path: Path, info: Info, sentences: Path, rows: Rows) -> None:
    """Write a tensor "i" for each sentence.

    The library takes all tensors at once, from memory; the format is a JSON header behind its own
    length, then the numbers, so it is written here.
    """
    data = path.with_suffix(".data")
    header: dict[str, Any] = {"__metadata__": {key: str(value) for key, value in info.items()}}
    if sentences.stat().st_size <= _WORDS_LIMIT:
        lines = sentences.read_text(encoding="utf-8").splitlines()
        header["__metadata__"]["sentences"] = f"[{','.join(lines)}]"
    with data.open("wb") as file:
        for number, (_, vectors) in enumerate(rows):
            start = file.tell()
            file.write(vectors.tobytes())
            header[str(number)] = {
                "dtype": _SAFETENSORS_DTYPES[str(vectors.dtype)],
                "shape": list(vectors.shape),
                "data_offsets": [start, file.tell()],
            }
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors begin at a multiple of eight bytes
    if len(encoded) > _HEADER_LIMIT:
        raise OutputError(
            f"{len(header) - 1} sentences are too many for a safetensors file; use hdf5 or parquet"
        )
    with path.open("wb") as file, data.open("rb") as body:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        shutil.copyfileobj(body, file)
    data.unlink()


def write_parquet(path: Path, info: Info, sentences: Path, rows: Rows) -> None:
    """Write a row for each sentence: `sentence`, `words`, and `vectors` or `layer_0`, ...

    Vectors are lists of fixed-size lists, one for each word.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"layer_{k}" for k in range(info["n_layers"])] or ["vectors"]
    number_type = {"float32": pa.float32(), "float16": pa.float16()}[info["dtype"]]
    vectors_type = pa.list_(pa.list_(number_type, info["dim"]))
    schema = pa.schema(
        [("sentence", pa.int64()), ("words", pa.list_(pa.string()))]
        + [(name, vectors_type) for name in names],
        metadata={key: str(value) for key, value in info.items()},
    )
    with pq.ParquetWriter(path, schema) as writer:
        first = 0
        for group in _groups(rows):
            layers = _layer_columns(pa, group, len(names), info["dim"])
            numbers = pa.array(range(first, first + len(group)), pa.int64())
            words = pa.array([words for words, _ in group], pa.list_(pa.string()))
            columns = [numbers, words, *layers]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            first += len(group)


def _layer_columns(pa: Any, group: list[tuple[Words, Array]], n_layers: int, dim: int) -> list[Any]:
    """Give an Arrow column of vectors for each layer."""
    offsets = np.cumsum([0] + [len(words) for words, _ in group], dtype=np.int32)
    arrays = [vectors.reshape(n_layers, -1, dim) for _, vectors in group]
    together = np.concatenate(arrays, axis=1)  # (layers, words of the group, dim)
    return [
        pa.ListArray.from_arrays(
            pa.array(offsets),
            pa.FixedSizeListArray.from_arrays(pa.array(layer.reshape(-1)), dim),
        )
        for layer in together
    ]


def _groups(rows: Rows) -> Iterator[list[tuple[Words, Array]]]:
    """Collect sentences up to a size that is good for a row group."""
    group: list[tuple[Words, Array]] = []
    size = 0
    for words, vectors in rows:
        group.append((words, vectors))
        size += 1 + vectors.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


ASSEMBLERS: dict[OutputFormat, Callable[[Path, Info, Path, Rows], None]] = {
    "parquet": write_parquet,
    "npz": write_npz,
    "safetensors": write_safetensors,
}
"""What writes each format that cannot grow."""

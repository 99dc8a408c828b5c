"""One SHA-256 for whatever a check computes: numbers, tensors, records, files of every kind."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

TIMES = ("seconds", "words_per_second", "device")
"""Beginnings of keys whose values depend on the clock or the machine."""
NEW_FACTS = ("text_sha256",)
"""Facts of files of vectors that older trees did not write."""


def digest(value: Any) -> str:
    """Return the SHA-256 of a value: of bytes, shapes and types, in the order of the value."""
    state = hashlib.sha256()
    for part in _parts(value):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        value = value.view(torch.int16) if value.dtype == torch.bfloat16 else value
        yield from _parts(value.numpy())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        yield from _parts({field.name: getattr(value, field.name) for field in fields})
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _parts(value[key])
    elif isinstance(value, str | bytes):
        yield value.encode() if isinstance(value, str) else value
    elif isinstance(value, list | tuple | np.ndarray):
        yield f"{len(value)} values".encode()
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value.item() if isinstance(value, np.generic) else value).encode()


def without(value: Any, *keys: str) -> Any:
    """Leave times, and entries with the given keys, out of a record as JSON holds it."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if not k.startswith(TIMES) and k not in keys}
        return {k: without(v, *keys) for k, v in kept.items()}
    return [without(item, *keys) for item in value] if isinstance(value, list) else value


def rows(path: Path, *keys: str) -> list[Any]:
    """Read a file of JSON lines, without times and the given keys."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [without(json.loads(line), *keys) for line in lines]


def contents(folder: Path) -> dict[str, Any]:
    """Read what a folder of a model holds; its card in words is left out."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix != ".md":
            found[path.name] = read(path)
    return found


def read(path: Path) -> Any:
    """Read the content of a file: tensors, datasets, columns or text."""
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".hdf5", ".h5"):
        return _read_hdf5(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            found: dict[str, Any] = {name: arrays[name] for name in arrays.files}
        if "info.json" in found:
            found["info.json"] = _facts(json.loads(found["info.json"]))
        return found
    if path.suffix == ".parquet":
        import pyarrow.parquet

        file = pyarrow.parquet.read_table(path)
        facts = _facts({k.decode(): v for k, v in (file.schema.metadata or {}).items()})
        return {"facts": facts, "columns": file.to_pydict()}
    if path.suffix == ".json":
        new = ("tokenizer",) if path.name == "config.json" else ()
        return without(json.loads(path.read_text(encoding="utf-8")), *new)
    return path.read_bytes()


def _facts(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in NEW_FACTS}


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        return {"facts": _facts(file.metadata() or {}), **tensors}


def _read_hdf5(path: Path) -> dict[str, Any]:
    import h5py

    found: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        found["facts"] = _facts(file.attrs)

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item[()]
                found[f"{name} facts"] = dict(item.attrs)

        file.visititems(note)
    return found

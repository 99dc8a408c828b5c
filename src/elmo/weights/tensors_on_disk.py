"""Safetensors files, read at once or lazily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from elmo.errors import WeightsError
from elmo.weights.checks import require_finite, some_names


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a file, as it is stored."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a readable safetensors file: {error}") from None


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a file, in float32, read when one of them is first used.

    Names and shapes are known before. Copies and pickles hold the tensors themselves, since the
    file may be gone when they are used.

    Args:
        path: A safetensors file.
        what: What its tensors belong to, for messages.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what
        self._tensors: dict[str, Tensor] | None = None
        try:
            with safe_open(path, framework="pt") as file:
                self.shapes = {
                    name: tuple(file.get_slice(name).get_shape()) for name in file.keys()
                }
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{path} is not a readable safetensors file: {error}") from None

    @property
    def is_read(self) -> bool:
        """Whether the tensors are in memory."""
        return self._tensors is not None

    def __getitem__(self, name: str) -> Tensor:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # the default would read the file

    def __reduce__(self) -> tuple[type[dict[str, Tensor]], tuple[dict[str, Tensor]]]:
        return dict, (self._read(),)

    def outline(self) -> dict[str, Tensor]:
        """Return tensors of the same shapes on the meta device, without values."""
        return {name: torch.empty(shape, device="meta") for name, shape in self.shapes.items()}

    def _read(self) -> dict[str, Tensor]:
        if self._tensors is None:
            tensors = {name: tensor.float() for name, tensor in read_tensors(self.path).items()}
            for name, tensor in tensors.items():
                require_finite(self.path, f"{self._what} {name}", tensor)
            self._tensors = tensors
        return self._tensors


def rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 tensors rounded to what float16 can represent, 11 significant bits."""
    found = {name: tensor.half().float() for name, tensor in tensors.items()}
    lost = [
        name
        for name, tensor in found.items()
        if not torch.isfinite(tensor).all() and torch.isfinite(tensors[name]).all()
    ]
    if lost:
        raise WeightsError(
            f"{some_names(lost)} have values beyond 65,504, the largest number of float16; save "
            "the model in float32"
        )
    return found

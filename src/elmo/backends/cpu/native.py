"""The C++ kernel as Python functions: weights laid out for it, and their products.

`native.cpp` says how weights lie in memory and what is computed; here they are brought into that
layout by PyTorch, and pointers are handed over. The plain reference of products is `F.linear`;
`native_layers.py` has the LSTM layers.
"""

from __future__ import annotations

import ctypes
import math
from enum import IntEnum

import torch
from torch import Tensor

from elmo.backends.cpu.compiler import kernel, present_kernel
from elmo.backends.cpu.native_resources import empty_rows, roomy, thread_count
from elmo.settings import Precision


class Format(IntEnum):
    """How weights are stored and multiplied; the numbers are those of `native.cpp`."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    BFLOAT16_PAIRS = 3
    BFLOAT16_TILES = 4
    INT8_WORDS = 5
    INT8_BYTES = 6
    INT8_TILES = 7


_FORMATS: dict[Precision, tuple[Format, ...]] = {
    "fp32": (Format.FLOAT32,),
    "fp16": (Format.FLOAT16,),
    "bf16": (Format.BFLOAT16_TILES, Format.BFLOAT16_PAIRS, Format.BFLOAT16),
    "int8": (Format.INT8_TILES, Format.INT8_BYTES, Format.INT8_WORDS),
}
"""Formats of a precision, the fastest first."""
_STORED = {
    Format.FLOAT32: torch.float32,
    Format.FLOAT16: torch.float16,
    Format.BFLOAT16: torch.bfloat16,
    Format.BFLOAT16_PAIRS: torch.bfloat16,
    Format.BFLOAT16_TILES: torch.bfloat16,
    Format.INT8_WORDS: torch.int8,
    Format.INT8_BYTES: torch.int8,
    Format.INT8_TILES: torch.int8,
}
FLOAT_INPUTS = (Format.FLOAT32, Format.FLOAT16, Format.BFLOAT16)
"""Formats that multiply inputs as they are."""
_UNSIGNED_SHIFT = 128.0
"""What `Int8Bytes` adds to every input."""


def native_format(precision: Precision) -> Format | None:
    """Give the format in which this CPU computes at a precision, or None without the kernel."""
    library = kernel()
    if library is None:
        return None
    return next((f for f in _FORMATS[precision] if library.elmo_group(int(f))), None)


def lanes() -> int:
    """Give how many cells' gates stand together."""
    return int(present_kernel().elmo_lanes())


class MatrixStruct(ctypes.Structure):
    """A weight as `rows.h` has it."""

    _fields_ = [
        ("weights", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("panels", ctypes.c_int64),
    ]


class _ResponsesStruct(ctypes.Structure):
    _fields_ = [
        ("table", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("widths", ctypes.c_void_p),
        ("filters", ctypes.c_int64),
        ("widest", ctypes.c_int64),
        ("characters", ctypes.c_int64),
    ]


class _SpellingsStruct(ctypes.Structure):
    _fields_ = [
        ("places", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("windows", ctypes.c_int64),
    ]


class Matrix:
    """A constant weight, laid out for the kernel.

    Args:
        weight: Shape `(out, in)`.
        format: How it is stored.
    """

    def __init__(self, weight: Tensor, format: Format) -> None:
        self.format = format
        self.out, self.inputs = weight.shape
        columns = int(present_kernel().elmo_columns())
        group = int(present_kernel().elmo_group(int(format)))
        depth = int(present_kernel().elmo_depth(int(format)))
        self._groups = math.ceil(self.inputs / (group * depth)) * depth
        self._panels = math.ceil(self.out / columns)
        self.width = self._panels * columns
        """Values of a row of results, `out` and what fills its last panel."""
        self._shape = (self._panels, columns, self._groups, group)
        self._scales: Tensor | None = None
        self._offsets: Tensor | None = None
        weight = weight.detach().float()
        if _STORED[format] == torch.int8:
            weight, self._scales = quantised(weight)
            if format == Format.INT8_BYTES:
                self._offsets = self._padded(_UNSIGNED_SHIFT * weight.sum(dim=1))
            self._scales = self._padded(self._scales)
        self._weights = self._laid_out(weight)
        self.struct = MatrixStruct(
            address(self._weights),
            address(self._scales),
            address(self._offsets),
            self.inputs,
            self._groups,
            self._panels,
        )

    @property
    def n_bytes(self) -> int:
        """Size of the weight in memory."""
        return self._weights.nbytes

    def weight(self) -> Tensor:
        """Give the weight back, as far as it was not rounded, shape `(out, in)`."""
        panels, columns, groups, group = self._shape
        rows = self._weights.view(panels, groups, columns, group).transpose(1, 2)
        rows = rows.reshape(panels * columns, groups * group)[: self.out, : self.inputs].float()
        return rows if self._scales is None else rows * self._scales[: self.out, None]

    def _laid_out(self, weight: Tensor) -> Tensor:
        panels, columns, groups, group = self._shape
        laid_out = roomy(panels * groups * columns * group, _STORED[self.format])
        # One panel after another, so that no second copy of the weight is ever there.
        for panel, place in enumerate(laid_out.view(panels, groups, columns, group)):
            rows = weight[panel * columns : (panel + 1) * columns]
            block = torch.zeros(columns, groups * group)
            block[: len(rows), : self.inputs] = rows
            place.copy_(block.view(columns, groups, group).transpose(0, 1))
        return laid_out

    def _padded(self, values: Tensor) -> Tensor:
        padded = torch.zeros(self.width)
        padded[: len(values)] = values
        return padded


def product(
    matrix: Matrix, inputs: Tensor, bias: Tensor | None, out: Tensor | None = None
) -> Tensor:
    """Give `inputs W^T + bias`.

    Args:
        matrix: W.
        inputs: Float32 of shape `(rows, in)`.
        bias: Float32 of shape `(matrix.width,)`.
        out: Where the result goes; else into new memory.

    Returns:
        `out`, else float32 of shape `(rows, matrix.width)`; columns from `matrix.out` on mean
        nothing.
    """
    inputs = inputs.contiguous()
    out = empty_rows(len(inputs), matrix.width) if out is None else out
    if len(inputs):
        present_kernel().elmo_product(
            ctypes.c_int(matrix.format),
            ctypes.byref(matrix.struct),
            ctypes.c_void_p(address(inputs)),
            ctypes.c_int64(len(inputs)),
            ctypes.c_void_p(address(bias)),
            ctypes.c_void_p(address(out)),
            ctypes.c_int64(out.stride(0)),
            ctypes.c_int64(thread_count()),
        )
    return out


def highway(matrix: Matrix, inputs: Tensor, bias: Tensor) -> Tensor:
    """Give `inputs + gate (transform - inputs)` with a sigmoid and a rectifier before it.

    Args:
        matrix: Inputs -> transforms and gates, in the order of `highway_places`.
        inputs: Float32 of shape `(rows, in)`.
        bias: Float32 of shape `(matrix.width,)`.

    Returns:
        Float32 of shape `(rows, in)`.
    """
    inputs = inputs.contiguous()
    out = torch.empty_like(inputs)
    present_kernel().elmo_highway(
        ctypes.c_int(matrix.format),
        ctypes.byref(matrix.struct),
        ctypes.c_void_p(address(bias)),
        ctypes.c_void_p(address(inputs)),
        ctypes.c_int64(len(inputs)),
        ctypes.c_void_p(address(out)),
        ctypes.c_int64(thread_count()),
    )
    return out


class FilterKernel:
    """The highest response of filters to the windows of words, from a table of their responses.

    Args:
        widths: Of the filters, int32.
        offsets: What is added to the row of a character at each offset of a window, int64.
        max_characters: Of a word; no window may reach beyond.
    """

    def __init__(self, widths: Tensor, offsets: Tensor, max_characters: int) -> None:
        self._widths = widths.contiguous()
        self._offsets = offsets.contiguous()
        self._max_characters = max_characters

    def __call__(self, table: Tensor, places: Tensor, windows: int) -> Tensor:
        """Give the responses.

        Args:
            table: Rows of float32 `(rows, filters)`, zero at offsets beyond a filter's width.
            places: Rows of the words' characters at offset 0, int64 `(n, windows + widest - 1)`.
            windows: How many windows are looked at.

        Returns:
            Float32 `(n, filters)`.
        """
        places = places.contiguous()
        out = torch.empty(len(places), table.shape[1])
        responses = _ResponsesStruct(
            address(table),
            address(self._offsets),
            address(self._widths),
            table.shape[1],
            len(self._offsets),
            self._max_characters,
        )
        words = _SpellingsStruct(address(places), len(places), windows)
        present_kernel().elmo_filters(
            ctypes.byref(responses),
            ctypes.byref(words),
            ctypes.c_void_p(address(out)),
            ctypes.c_int64(thread_count()),
        )
        return out


def highway_places(dim: int) -> Tensor:
    """Say which row of a highway's weights, transforms and then gates, stands where.

    In blocks of `lanes()` outputs, their transforms and gates follow each other.

    Args:
        dim: Outputs.

    Returns:
        Rows of the plain weights, int64 `(2 * outputs,)`, `2 * dim` where there is none.
    """
    return side_by_side(dim, 2, lanes())


def side_by_side(dim: int, parts: int, multiple: int) -> Tensor:
    """Order the rows of `parts` weights, so that those of the same `lanes()` outputs are together.

    Args:
        dim: Outputs of each part.
        parts: How many there are.
        multiple: What the number of outputs is filled up to a multiple of.

    Returns:
        Rows, int64 `(parts * outputs,)`, `parts * dim` where there is none.
    """
    output = torch.arange(math.ceil(dim / multiple) * multiple).view(-1, 1, lanes())
    places = output + dim * torch.arange(parts).view(1, parts, 1)
    return torch.where(output < dim, places, parts * dim).flatten()


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows to whole numbers from -127 to 127, each with a scale of its own.

    Returns:
        The whole numbers `(out, in)` and the scales `(out,)`, both float32.
    """
    scales = weight.abs().amax(dim=1) / 127
    scales = torch.where(scales > 0, scales, 1.0)
    return torch.round(weight / scales[:, None]).clamp_(-127, 127), scales


def address(tensor: Tensor | None) -> int | None:
    """Give where the values of a tensor are; None for none."""
    return None if tensor is None else tensor.data_ptr()

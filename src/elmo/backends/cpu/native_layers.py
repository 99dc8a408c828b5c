"""The C++ kernel as Python functions: LSTM layers, one by one or all at once for a few sentences.

`native.py` has the products; the plain reference is `elmo.backends.cpu.model` without the kernel.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmo.backends.cpu.compiler import present_kernel
from elmo.backends.cpu.native import Matrix, MatrixStruct, address, side_by_side
from elmo.backends.cpu.native_resources import SMALL_ROOM, reused_rows, thread_count


def unit_cells() -> int:
    """Give how many cells a layer has a multiple of."""
    return int(present_kernel().elmo_unit_cells())


class _TableStruct(ctypes.Structure):
    _fields_ = [
        ("values", ctypes.c_void_p),
        ("index", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
    ]


class _LayerStruct(ctypes.Structure):
    _fields_ = [
        ("input", MatrixStruct),
        ("bias", ctypes.c_void_p),
        ("recurrent", MatrixStruct),
        ("projection", MatrixStruct),
        ("cells", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("cell_clip", ctypes.c_float),
        ("projection_clip", ctypes.c_float),
    ]


class _StepsStruct(ctypes.Structure):
    _fields_ = [
        ("sizes", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("inputs", _TableStruct),
        ("products", _TableStruct),
        ("hidden", ctypes.c_void_p),
        ("memory", ctypes.c_void_p),
        ("memory_stride", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
    ]


class _ReadingStruct(ctypes.Structure):
    _fields_ = [
        ("vectors", ctypes.c_void_p),
        ("n_vectors", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("sentences", ctypes.c_int64),
        ("hidden", ctypes.c_void_p),
        ("memory", ctypes.c_void_p),
        ("cells", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("products", ctypes.c_void_p),
        ("products_stride", ctypes.c_int64),
        ("depth", ctypes.c_int64),
        ("residual", ctypes.c_int64),
    ]


class LayerInputs(NamedTuple):
    """What a layer reads."""

    rows: Tensor
    """Float32 `(m, inputs)`, or their products and the bias, `(m, products)` in the order of
    `gate_places`; rows may be any distance apart."""
    words: Tensor | None
    """Which of them stands at each place, int64 `(n,)`; None: the next one."""
    multiplied: bool
    """Whether they are products."""


class LSTMKernel:
    """One direction of one LSTM layer.

    Args:
        input: Inputs -> gates, its outputs in the order of `gate_places`.
        bias: Of the gates, float32 `(input.width,)`.
        recurrent: Hidden state -> gates, likewise.
        projection: Cells -> hidden state, if there is one.
        hidden: Width of the hidden state.
        cell_clip: Bound of the memory.
        proj_clip: Bound of the projected output.
    """

    def __init__(
        self,
        input: Matrix,
        bias: Tensor,
        recurrent: Matrix,
        projection: Matrix | None,
        hidden: int,
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> None:
        self._parts = input, bias, recurrent, projection  # whose memory the kernel reads
        self.format = input.format
        self.products = input.width
        """Width of the rows of input products."""
        self.hidden = hidden
        """Width of the hidden state."""
        self.cells = recurrent.width // 4
        """Cells with those that fill the last unit."""
        nothing = MatrixStruct(None, None, None, 0, 0, 0)
        self.struct = _LayerStruct(
            input.struct,
            address(bias),
            recurrent.struct,
            nothing if projection is None else projection.struct,
            self.cells,
            hidden,
            math.inf if cell_clip is None else cell_clip,
            math.inf if proj_clip is None else proj_clip,
        )

    def __call__(
        self,
        inputs: LayerInputs,
        batch_sizes: Sequence[int],
        hidden: Tensor,
        memory: Tensor,
        outputs: Tensor,
    ) -> None:
        """Read a packed batch.

        Args:
            inputs: Inputs, multiplied or not: the results are the same, bit for bit.
            batch_sizes: Rows of each time step, never rising; their sum is n.
            hidden: Float32 `(rows, hidden)`: before, and afterwards after each row's last word.
            memory: Float32 `(rows, cells)`, likewise; rows may be any distance apart.
            outputs: Float32 `(n, hidden)`, filled.
        """
        nothing = _TableStruct(None, None, 0)
        given = _TableStruct(address(inputs.rows), address(inputs.words), inputs.rows.stride(0))
        sizes = (ctypes.c_int64 * len(batch_sizes))(*batch_sizes)
        steps = _StepsStruct(
            ctypes.addressof(sizes),
            len(sizes),
            nothing if inputs.multiplied else given,
            given if inputs.multiplied else nothing,
            address(hidden),
            address(memory),
            memory.stride(0),
            address(outputs),
        )
        present_kernel().elmo_layer(
            ctypes.c_int(self.format),
            ctypes.byref(self.struct),
            ctypes.byref(steps),
            ctypes.c_int64(thread_count()),
        )


class ReadingKernel:
    """All layers of both directions, for a few sentences.

    Args:
        forward: The layers of the forward direction.
        backward: As many of the backward direction, of the same sizes.
        residual: Whether inputs are added to the outputs of all layers but the first.
    """

    def __init__(
        self, forward: Sequence[LSTMKernel], backward: Sequence[LSTMKernel], residual: bool
    ) -> None:
        self._parts = forward, backward  # whose memory the kernel reads
        self._first = forward[0]
        self._directions = [
            (_LayerStruct * len(layers))(*(layer.struct for layer in layers))
            for layers in self._parts
        ]
        self._residual = residual

    def suits(self, n_vectors: int, n_tokens: int) -> bool:
        """Tell whether input products fit into memory that is kept between calls.

        Args:
            n_vectors: Distinct words.
            n_tokens: Words of all sentences.
        """
        return n_vectors <= n_tokens and 0 < n_tokens * 4 * self._first.products < SMALL_ROOM

    def __call__(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        hidden: Tensor,
        memory: Tensor,
    ) -> Tensor:
        """Read sentences from the first word to the last and from the last to the first.

        Args:
            vectors: Vectors of m distinct words, float32 `(m, inputs)`; m is at most n.
            tokens: Which word stands at each place, one sentence after another, int64 `(n,)`.
            lengths: Words of each sentence, each at least 1; their sum is n.
            hidden: Float32 `(depth, 2, sentences, hidden)`: before, and afterwards after each
                sentence; depth says how many layers are wanted.
            memory: Float32 `(depth, 2, sentences, dim)`, likewise.

        Returns:
            Float32 `(depth, n, 2 * hidden)`.
        """
        depth = len(hidden)
        outputs = torch.empty(depth, len(tokens), 2 * self._first.hidden)
        products = reused_rows(len(tokens), self._first.products)
        vectors, tokens = vectors.contiguous(), tokens.contiguous()
        sizes = (ctypes.c_int64 * len(lengths))(*lengths)
        reading = _ReadingStruct(
            address(vectors),
            len(vectors),
            address(tokens),
            ctypes.addressof(sizes),
            len(lengths),
            address(hidden),
            address(memory),
            memory.shape[3],
            address(outputs),
            address(products),
            products.stride(0),
            depth,
            self._residual,
        )
        present_kernel().elmo_read(
            ctypes.c_int(self._first.format),
            *self._directions,
            ctypes.byref(reading),
            ctypes.c_int64(thread_count()),
        )
        return outputs


def gate_places(dim: int) -> Tensor:
    """Say which gate stands where in the kernel's rows of gates.

    In units of `unit_cells()`, and in these in blocks of `lanes()` cells, the gates i, f, g, o of a
    block's cells follow each other, so that one thread has all gates of its cells.

    Args:
        dim: Cells.

    Returns:
        Rows of the plain weights, int64 `(4 * cells,)`, `4 * dim` where there is none.
    """
    return side_by_side(dim, 4, unit_cells())

"""The C++ kernel as Python functions: its threads and memory, weights in its layout, its products.

`src/native.cpp` describes how weights lie in memory and what is computed. Here PyTorch brings
weights into that layout, and pointers are passed over. The plain references are `F.linear`, and in
`model.py` and `characters.py` what runs without the kernel.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.backends.cpu.compiler import kernel
from elmo.model.bilm import Tensors
from elmo.model.layers import Highway
from elmo.settings import Precision

_LARGE_PAGE = 2 << 20
"""Bytes of a large page, which begins at a multiple of its size; smaller buffers get none."""
_BUFFER_BYTES = 128 << 20
"""Bytes that `reused_rows` reserves at once: pages that are never written take no memory."""
_SMALL_BUFFER_BYTES = 4 << 20
"""Smallest buffer of `reused_rows`, for a sentence or two; not freed between calls."""
_GAP = 64
"""Bytes between rows: one line of the cache."""
_UNSIGNED_SHIFT = 128.0
"""Added to every input by the C++ format `Int8Bytes`."""


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

    @property
    def dtype(self) -> torch.dtype:
        """The type of stored weights."""
        if self == Format.FLOAT32:
            return torch.float32
        if self == Format.FLOAT16:
            return torch.float16
        return torch.int8 if self >= Format.INT8_WORDS else torch.bfloat16


_FORMATS: dict[Precision, tuple[Format, ...]] = {
    "fp32": (Format.FLOAT32,),
    "fp16": (Format.FLOAT16,),
    "bf16": (Format.BFLOAT16_TILES, Format.BFLOAT16_PAIRS, Format.BFLOAT16),
    "int8": (Format.INT8_TILES, Format.INT8_BYTES, Format.INT8_WORDS),
}
"""Formats of a precision, the fastest first."""
FLOAT_INPUTS = (Format.FLOAT32, Format.FLOAT16, Format.BFLOAT16)
"""Formats that multiply inputs without rounding them."""


def present_kernel() -> Any:
    """Return the kernel; it must exist."""
    library = kernel()
    assert library is not None, "there is no kernel: see why_not"
    return library


def native_format(precision: Precision) -> Format | None:
    """Return the format in which this CPU computes at a precision; None without the kernel."""
    library = kernel()
    if library is None:
        return None
    return next((f for f in _FORMATS[precision] if library.elmo_group(int(f))), None)


# --- threads and memory ---------------------------------------------------------------------------


class _Threads:
    """How many threads the kernel may use while PyTorch is limited to one; see `kernel_threads`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._number = 1

    def lend(self) -> None:
        with self._lock:
            if not self._users:  # otherwise PyTorch is limited already and would answer 1
                self._number = torch.get_num_threads()
            self._users += 1
            torch.set_num_threads(1)

    def restore(self) -> None:
        with self._lock:  # nobody may read PyTorch's number between these two lines
            self._users -= 1
            torch.set_num_threads(self._number)

    @property
    def number(self) -> int:
        return self._number if self._users else torch.get_num_threads()


class _ThreadLocal(threading.local):
    """What each calling thread keeps."""

    depth = 0
    """How many calls of `kernel_threads` it is inside of."""
    buffer: Tensor | None = None
    """Memory of `reused_rows`, uint8."""


_threads = _Threads()
_local = _ThreadLocal()


def thread_count() -> int:
    """Return how many threads the kernel may use."""
    return _threads.number


@contextmanager
def kernel_threads() -> Iterator[None]:
    """Limit PyTorch to the calling thread, and leave the cores of its other threads to the kernel.

    After each operation PyTorch's threads spin for some milliseconds, waiting for the next one. A
    kernel that starts meanwhile would share their cores: a single sentence took half as long again.
    Reentrant.
    """
    outer = _local.depth
    try:
        _local.depth = outer + 1
        if outer:
            yield
            return
        _threads.lend()
        try:
            present_kernel().elmo_keep_team(ctypes.c_int64(_threads.number))
            yield
        finally:
            present_kernel().elmo_dismiss_team()
            _threads.restore()
            if _local.buffer is not None and len(_local.buffer) > _SMALL_BUFFER_BYTES:
                _local.buffer = None
    finally:
        _local.depth = outer


def empty_rows(rows: int, width: int) -> Tensor:
    """Return an uninitialized float32 tensor `(rows, width)` with a gap between rows.

    At distances of a power of two, rows would map to the same few cache lines and evict each other.
    """
    return torch.empty(rows, width + _GAP // 4)[:, :width]


def reused_rows(rows: int, width: int) -> Tensor:
    """Return the same as `empty_rows`, in a buffer that the thread's next call overwrites.

    The system has to find and clear each page of fresh memory, which costs more than many a
    product. A large buffer is freed at the end of `kernel_threads`.
    """
    pitch = width + _GAP // 4
    n_bytes = rows * pitch * 4
    if _local.buffer is None or len(_local.buffer) < n_bytes:
        _local.buffer = None  # free it first: two at a time are not needed
        small = n_bytes <= _SMALL_BUFFER_BYTES
        _local.buffer = large_pages(
            _SMALL_BUFFER_BYTES if small else max(n_bytes, _BUFFER_BYTES), torch.uint8
        )
    return _local.buffer[:n_bytes].view(torch.float32).view(rows, pitch)[:, :width]


def large_pages(n_values: int, dtype: torch.dtype) -> Tensor:
    """Return an uninitialized tensor `(n_values,)`, in large pages if it is larger than one."""
    n_bytes = n_values * dtype.itemsize
    if n_bytes < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(n_values, dtype=dtype)
    # Private: the system has no large pages for memory that could be shared.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, n_bytes + _LARGE_PAGE, flags=private)
    pages.madvise(mmap.MADV_HUGEPAGE)
    first = -ctypes.addressof(ctypes.c_char.from_buffer(pages)) % _LARGE_PAGE
    return torch.frombuffer(pages, dtype=dtype, count=n_values, offset=first)


# --- products -------------------------------------------------------------------------------------


def _pointers(*names: str) -> list[tuple[str, Any]]:
    """Return fields of a C++ struct that are addresses."""
    return [(name, ctypes.c_void_p) for name in names]


def _numbers(*names: str) -> list[tuple[str, Any]]:
    """Return fields of a C++ struct that are whole numbers."""
    return [(name, ctypes.c_int64) for name in names]


def address(tensor: Tensor | None) -> int | None:
    """Return the address of a tensor's values; None for none."""
    return None if tensor is None else tensor.data_ptr()


def _call(
    function: str, *arguments: int | Tensor | ctypes.Structure | ctypes.Array[Any] | None
) -> None:
    """Call a function of the kernel, with the number of threads as the last argument.

    Tensors and structs are passed by address, numbers as 64 bits.
    """
    passed: list[Any] = []
    for argument in (*arguments, thread_count()):
        if isinstance(argument, Tensor):
            passed.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, int):
            passed.append(ctypes.c_int64(argument))
        elif isinstance(argument, ctypes.Structure):
            passed.append(ctypes.byref(argument))
        else:
            passed.append(argument)
    getattr(present_kernel(), function)(*passed)


class _MatrixStruct(ctypes.Structure):
    """`Matrix` of `rows.h`."""

    _fields_ = [
        *_pointers("weights", "scales", "offsets"),
        *_numbers("inputs", "groups", "panels"),
    ]


class NativeLinear:
    """A product with a constant weight, laid out for the kernel: x -> x W^T + b.

    Args:
        weight: Shape `(out, in)`.
        bias: Shape `(out,)`.
        format: How the weight is stored and multiplied.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, format: Format) -> None:
        self.format = format
        self.out, self.inputs = weight.shape
        library = present_kernel()
        columns, group = library.elmo_columns(), library.elmo_group(int(format))
        depth = library.elmo_depth(int(format))
        panels = math.ceil(self.out / columns)
        groups = math.ceil(self.inputs / (group * depth)) * depth
        self._shape = (panels, columns, groups, group)
        self.width = panels * columns
        """Values of a row of results: `out`, and what fills the last panel."""
        self.bias = None if bias is None else self._padded(bias.detach())
        """Shape `(width,)`."""
        self._scales: Tensor | None = None
        self._offsets: Tensor | None = None
        weight = weight.detach().float()
        if format.dtype == torch.int8:
            weight, scales = quantized(weight)
            if format == Format.INT8_BYTES:
                self._offsets = self._padded(_UNSIGNED_SHIFT * weight.sum(dim=1))
            self._scales = self._padded(scales)
        self._weights = large_pages(self.width * groups * group, format.dtype)
        # One panel after another, so that there is never a second copy of the weight.
        for panel, place in enumerate(self._weights.view(panels, groups, columns, group)):
            rows = weight[panel * columns : (panel + 1) * columns]
            block = torch.zeros(columns, groups * group)
            block[: len(rows), : self.inputs] = rows
            place.copy_(block.view(columns, groups, group).transpose(0, 1))
        self.struct = _MatrixStruct(
            address(self._weights),
            address(self._scales),
            address(self._offsets),
            self.inputs,
            groups,
            panels,
        )

    @property
    def n_bytes(self) -> int:
        """Size of the weight in memory."""
        return self._weights.nbytes

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply `(rows, in)`, float32; returns `(rows, out)`."""
        return self._multiply(inputs, empty_rows(len(inputs), self.width))

    def multiply_briefly(self, inputs: Tensor) -> Tensor:
        """Multiply into the buffer of `reused_rows`: read the result before the next call."""
        return self._multiply(inputs, reused_rows(len(inputs), self.width))

    def _multiply(self, inputs: Tensor, out: Tensor) -> Tensor:
        inputs = inputs.contiguous()
        if len(inputs):
            rows, stride = len(inputs), out.stride(0)
            _call("elmo_product", self.format, self.struct, inputs, rows, self.bias, out, stride)
        return out[:, : self.out]

    def weight(self) -> Tensor:
        """Return the weight `(out, in)`, bit for bit if it was not rounded."""
        panels, columns, groups, group = self._shape
        rows = self._weights.view(panels, groups, columns, group).transpose(1, 2)
        rows = rows.reshape(self.width, groups * group)[: self.out, : self.inputs].float()
        return rows if self._scales is None else rows * self._scales[: self.out, None]

    def _padded(self, values: Tensor) -> Tensor:
        padded = torch.zeros(self.width)
        padded[: len(values)] = values
        return padded


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to whole numbers from -127 to 127 with a scale of its own.

    Returns:
        The whole numbers `(out, in)` and the scales `(out,)`, both float32.
    """
    scales = weight.abs().amax(dim=1) / 127
    scales = torch.where(scales > 0, scales, 1.0)
    return torch.round(weight / scales[:, None]).clamp_(-127, 127), scales


def interleaved(dim: int, parts: int, multiple: int) -> Tensor:
    """Order the rows of `parts` weights so that one thread has all parts of its outputs.

    In blocks of as many outputs as a vector has lanes, the parts of the block's outputs follow each
    other: for the gates of an LSTM i, f, g, o; for a highway transforms and gates.

    Args:
        dim: Outputs of each part.
        parts: Number of parts.
        multiple: The number of outputs is filled up to a multiple of this.

    Returns:
        Rows of the plain weights, int64 `(parts * outputs,)`; `parts * dim` where there is none.
    """
    lanes = present_kernel().elmo_lanes()
    output = torch.arange(math.ceil(dim / multiple) * multiple).view(-1, 1, lanes)
    places = output + dim * torch.arange(parts).view(1, parts, 1)
    return torch.where(output < dim, places, parts * dim).flatten()


# --- words ----------------------------------------------------------------------------------------


class _ResponsesStruct(ctypes.Structure):
    """`Responses` of `words.h`."""

    _fields_ = [
        *_pointers("table", "offsets", "widths"),
        *_numbers("filters", "widest", "characters"),
    ]


class _WordsStruct(ctypes.Structure):
    """`Words` of `words.h`."""

    _fields_ = [*_pointers("places"), *_numbers("count", "windows")]


def highest_responses(
    table: Tensor, rows: Tensor, offsets: Tensor, widths: Tensor, longest: int, windows: int
) -> Tensor:
    """Return the highest response of each filter to the windows of each word.

    Args:
        table: Responses to single characters, float32 `(table rows, n_filters)`, zero at offsets
            beyond a filter's width.
        rows: The table's row of each character at offset 0, int64 `(n, windows + widest - 1)`.
        offsets: Added to it at each offset of a window, int64 `(widest,)`.
        widths: Width of each filter, int32 `(n_filters,)`.
        longest: Characters of a word at most: no filter may reach beyond.
        windows: How many windows of each word are looked at.

    Returns:
        Float32 `(n, n_filters)`.
    """
    rows = rows.contiguous()
    out = torch.empty(len(rows), table.shape[1])
    responses = _ResponsesStruct(
        address(table), address(offsets), address(widths), table.shape[1], len(offsets), longest
    )
    words = _WordsStruct(address(rows), len(rows), windows)
    _call("elmo_filters", responses, words, out)
    return out


class NativeHighway:
    """`Highway` for inference: both products of an output lie side by side.

    Args:
        highway: The plain one.
        format: How the weight is stored and multiplied.
    """

    def __init__(self, highway: Highway, format: Format) -> None:
        bias = torch.cat([highway.transform.bias, highway.gate.bias]).detach()
        weight = torch.cat([highway.transform.weight, highway.gate.weight]).detach()
        self._dim = len(bias) // 2
        self._places = interleaved(self._dim, 2, present_kernel().elmo_lanes())
        self._bias = F.pad(bias, (0, 1))[self._places]
        weight = F.pad(weight, (0, 0, 0, 1))[self._places]
        self._linear = NativeLinear(weight, self._bias, format)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Transform float32 vectors `(n, dim)`; returns the same shape."""
        vectors = vectors.contiguous()
        out = torch.empty_like(vectors)
        product = self._linear
        arguments = (product.format, product.struct, product.bias, vectors, len(vectors), out)
        _call("elmo_highway", *arguments)
        return out

    def tensors(self) -> Tensors:
        """Return the weights by the names of the plain highway."""
        halves = {}
        for kind, rows in (("weight", self._linear.weight()), ("bias", self._bias)):
            plain = rows.new_empty(2 * self._dim + 1, *rows.shape[1:])
            plain[self._places] = rows
            halves[kind] = plain[:-1].chunk(2)
        parts = enumerate(("transform", "gate"))
        return {f"{part}.{kind}": halves[kind][k] for k, part in parts for kind in halves}


# --- recurrent layers -----------------------------------------------------------------------------


class _TableStruct(ctypes.Structure):
    """`Table` of `rows.h`."""

    _fields_ = [*_pointers("values", "index"), *_numbers("stride")]


class _LayerStruct(ctypes.Structure):
    """`Layer` of `lstm_layer.h`."""

    _fields_ = [
        ("input", _MatrixStruct),
        *_pointers("bias"),
        ("recurrent", _MatrixStruct),
        ("projection", _MatrixStruct),
        *_numbers("cells", "hidden"),
        ("cell_clip", ctypes.c_float),
        ("projection_clip", ctypes.c_float),
    ]


class _StepsStruct(ctypes.Structure):
    """`Steps` of `lstm_layer.h`."""

    _fields_ = [
        *_pointers("sizes"),
        *_numbers("count"),
        ("inputs", _TableStruct),
        ("products", _TableStruct),
        *_pointers("hidden", "memory"),
        *_numbers("memory_stride"),
        *_pointers("outputs"),
    ]


class _ReadingStruct(ctypes.Structure):
    """`Reading` of `reading.h`."""

    _fields_ = [
        *_pointers("vectors"),
        *_numbers("n_vectors"),
        *_pointers("tokens", "lengths"),
        *_numbers("sentences"),
        *_pointers("hidden", "memory"),
        *_numbers("cells"),
        *_pointers("outputs", "products"),
        *_numbers("products_stride", "depth", "residual"),
    ]


class LSTMKernel:
    """One direction of one LSTM layer.

    Args:
        input: Inputs -> gates with their bias, outputs in the order of `interleaved`.
        recurrent: Hidden state -> gates, likewise.
        projection: Cells -> hidden state, if there is one.
        cell_clip: Bound of the memory.
        proj_clip: Bound of the projected output.
    """

    def __init__(
        self,
        input: NativeLinear,
        recurrent: NativeLinear,
        projection: NativeLinear | None,
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> None:
        self._parts = input, recurrent, projection  # keeps alive what the kernel reads
        self.format = input.format
        self.products = input.width
        """Width of the rows of input products."""
        self.hidden = recurrent.inputs
        """Width of the hidden state."""
        self.cells = recurrent.width // 4
        """Number of cells, with those that fill the last unit."""
        self.struct = _LayerStruct(
            input.struct,
            address(input.bias),
            recurrent.struct,
            _MatrixStruct() if projection is None else projection.struct,
            self.cells,
            self.hidden,
            math.inf if cell_clip is None else cell_clip,
            math.inf if proj_clip is None else proj_clip,
        )

    def __call__(
        self,
        inputs: Tensor,
        index: Tensor | None,
        multiplied: bool,
        batch_sizes: Sequence[int],
        hidden: Tensor,
        memory: Tensor,
        outputs: Tensor,
    ) -> None:
        """Read a packed batch.

        Args:
            inputs: Float32 `(m, inputs)`; or their products with the bias, `(m, products)`, in the
                order of `interleaved`. Rows may be any distance apart.
            index: Which of them stands at each place, int64 `(n,)`; None if they are in order.
            multiplied: Whether they are products; the results are the same, bit for bit.
            batch_sizes: Rows of each time step, never growing; their sum is n.
            hidden: Float32 `(rows, hidden)`: the state before; replaced by that after the last word
                of each row.
            memory: Float32 `(rows, cells)`, likewise; rows may be any distance apart.
            outputs: Receives float32 `(n, hidden)`.
        """
        table = _TableStruct(address(inputs), address(index), inputs.stride(0))
        sizes = (ctypes.c_int64 * len(batch_sizes))(*batch_sizes)
        steps = _StepsStruct(
            ctypes.addressof(sizes),
            len(sizes),
            _TableStruct() if multiplied else table,
            table if multiplied else _TableStruct(),
            address(hidden),
            address(memory),
            memory.stride(0),
            address(outputs),
        )
        _call("elmo_layer", self.format, self.struct, steps)


class ReadingKernel:
    """All layers of both directions in one call, for a few sentences.

    Args:
        forward: The layers of the forward direction.
        backward: As many of the backward direction, of the same sizes.
        residual: Whether inputs are added to the outputs of all layers but the first.
    """

    def __init__(
        self, forward: Sequence[LSTMKernel], backward: Sequence[LSTMKernel], residual: bool
    ) -> None:
        self._layers = forward, backward  # keeps alive what the kernel reads
        self._first = forward[0]
        self._structs = [
            (_LayerStruct * len(layers))(*(layer.struct for layer in layers))
            for layers in self._layers
        ]
        self._residual = residual
        self.max_rows = (_SMALL_BUFFER_BYTES - 1) // (4 * self._first.products)
        """Words, distinct or of all sentences, whose input products fit into the small buffer."""

    def __call__(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        hidden: Tensor,
        memory: Tensor,
    ) -> Tensor:
        """Read sentences forward and backward.

        Args:
            vectors: Vectors of the distinct words, float32 `(m, inputs)`.
            tokens: Which of them stands at each place, one sentence after another, int64 `(n,)`.
            lengths: Words of each sentence, each at least 1; their sum is n.
            hidden: Float32 `(depth, 2, sentences, hidden)`: the state before; replaced by that
                after each sentence. Depth is the number of layers that are wanted.
            memory: Float32 `(depth, 2, sentences, dim)`, likewise.

        Returns:
            Float32 `(depth, n, 2 * hidden)`.
        """
        depth = len(hidden)
        outputs = torch.empty(depth, len(tokens), 2 * self._first.hidden)
        products = reused_rows(max(len(vectors), len(tokens)), self._first.products)
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
        _call("elmo_read", self._first.format, *self._structs, reading)
        return outputs

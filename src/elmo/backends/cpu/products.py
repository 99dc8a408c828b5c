"""Matrix products with weights that never change: native, packed for oneDNN, or plain.

On a CPU, `F.linear` on a handful of rows runs at a tenth of the speed that the same product reaches
when its weight was laid out for it beforehand. Three ways, the fastest that works is taken:

* `NativeLinear`, our own kernel (`backends/cpu/src/native.cpp`), where it could be built;
* `PackedLinear`, oneDNN with a weight laid out once; PyTorch keeps the operators for that private
  (its compiler emits them), so they are used in this file only;
* `PlainLinear`, the reference.

The first two have a second virtue: in float32 a row's result does not depend, bit for bit, on how
many rows are multiplied with it. `F.linear` picks other kernels for small batches and rounds
differently in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import cache
from typing import Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.backends.cpu.native import Format, Matrix, native_format, product, quantised
from elmo.backends.cpu.native_resources import reused_rows
from elmo.errors import ConfigError
from elmo.settings import Precision

# Rows for which oneDNN lays the weight out. With smaller values some CPUs sum in another order when
# there are few rows; the speed is the same.
_ROWS_HINT = 1024
# Single rows have a kernel of their own, which sums in another order. Two rows cost the same: both
# wait for the weight to come from memory.
_LEAST_ROWS = 2


class FrozenLinear(Protocol):
    """x -> x W^T + b with a constant W."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply `inputs` of shape `(rows, in)`; returns `(rows, out)`."""

    def weight(self) -> Tensor:
        """Give the weight back as it was, shape `(out, in)`."""


def frozen_linear(weight: Tensor, bias: Tensor | None = None) -> FrozenLinear:
    """Prepare a product for inference.

    Args:
        weight: Shape `(out, in)`; float32 or, where the CPU computes it, bfloat16.
        bias: Shape `(out,)`, of the same type.
    """
    if weight.device.type == "cpu" and packing_works(weight.dtype):
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


class PlainLinear:
    """`F.linear` behind the interface of `FrozenLinear`: the reference and the fallback.

    Args:
        weight: Shape `(out, in)`.
        bias: Shape `(out,)`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        # A copy, as packing makes one: whoever owns the weight may change or free it.
        self._weight, self._bias = weight.clone(), bias

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply; see `FrozenLinear`."""
        return F.linear(inputs, self._weight, self._bias)

    def weight(self) -> Tensor:
        """Give the weight, shape `(out, in)`."""
        return self._weight


class PackedLinear:
    """A product whose weight is laid out for oneDNN.

    Args:
        weight: Shape `(out, in)`.
        bias: Shape `(out,)`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._out = weight.shape[0]
        self._packed = torch.ops.mkldnn._reorder_linear_weight(
            weight.detach().contiguous(), _ROWS_HINT
        )
        self._bias = bias
        # Looked up once: going through torch.ops costs microseconds at every call.
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply; see `FrozenLinear`."""
        rows = inputs.shape[0]
        if rows == 0:
            return inputs.new_empty(0, self._out)
        if rows < _LEAST_ROWS:
            return self(torch.cat([inputs] * _LEAST_ROWS))[:rows]  # quicker than repeat
        product: Tensor = self._product(inputs, self._packed, self._bias, "none", [], "")
        return product

    def weight(self) -> Tensor:
        """Give the weight back, bit for bit, shape `(out, in)`."""
        dense: Tensor = self._packed.to_dense()
        return dense


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Tell whether this machine and this PyTorch multiply packed weights of a type."""
    weight = torch.arange(32.0 * 16).reshape(32, 16).to(dtype) / 64
    inputs = torch.arange(3.0 * 16).reshape(3, 16).to(dtype) / 16
    try:
        packed = PackedLinear(weight)
        product = packed(inputs)
        same_weight = torch.equal(packed.weight(), weight)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False  # not built with oneDNN, no such CPU instructions, or the operators are gone
    return same_weight and torch.allclose(
        product.float(), F.linear(inputs.float(), weight.float()), rtol=2e-2
    )


class NativeLinear:
    """A product by our own kernel.

    Args:
        weight: Shape `(out, in)`, float32.
        bias: Shape `(out,)`, float32.
        format: How the weight is stored and multiplied.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, format: Format) -> None:
        self.matrix = Matrix(weight, format)
        self.bias: Tensor | None = None
        """As wide as the kernel wants it, `(matrix.width,)`."""
        if bias is not None:
            self.bias = F.pad(bias.detach().float(), (0, self.matrix.width - len(bias)))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply; see `FrozenLinear`."""
        return product(self.matrix, inputs, self.bias)[:, : self.matrix.out]

    def briefly(self, inputs: Tensor) -> Tensor:
        """Multiply for a layer; what comes out is there until the thread's next call of this."""
        out = reused_rows(len(inputs), self.matrix.width)
        return product(self.matrix, inputs, self.bias, out)[:, : self.matrix.out]

    def weight(self) -> Tensor:
        """Give the weight back, shape `(out, in)`; bit for bit if it was not rounded."""
        return self.matrix.weight()


def runs_natively(precision: Precision) -> bool:
    """Tell whether this CPU computes with weights of a precision, rather than only rounding them.

    Where it does not, a precision costs exactness and saves nothing.
    """
    _require_precision(precision)
    return (
        precision == "fp32"
        or native_format(precision) is not None
        or (precision == "bf16" and packing_works(torch.bfloat16))
    )


def _require_precision(precision: Precision) -> None:
    if precision not in get_args(Precision):
        raise ConfigError(
            f"precision is {precision!r}, expected one of {', '.join(get_args(Precision))}"
        )


class Packer:
    """How weights are prepared at one precision.

    Without the native kernel, and for bf16 without instructions for it, products are computed in
    float32 with weights rounded as asked: no faster, but close to what the same setting gives
    elsewhere.

    Args:
        precision: The precision.
        halves_suffice: Whether float16 holds all weights bit for bit, see `fit_halves`. The native
            kernel then keeps the weights of fp32 in half of the memory; it turns them into float32
            on the way and gives the same, bit for bit.
    """

    def __init__(self, precision: Precision, halves_suffice: bool = False) -> None:
        _require_precision(precision)
        self.precision: Precision = precision
        self.format = native_format(precision)
        """How the native kernel does it; None without the kernel."""
        if self.format == Format.FLOAT32 and halves_suffice:
            self.format = Format.FLOAT16
        by_onednn = self.format is None and precision == "bf16" and packing_works(torch.bfloat16)
        self.dtype = torch.bfloat16 if by_onednn else torch.float32
        """In which numbers products want their inputs."""

    def for_words(self) -> Packer:
        """Give how the encoder of words is prepared: with inputs of 16 bits where others have 8.

        It runs once for each distinct word, so that this costs little, and what is lost there is
        lost for all layers.
        """
        if self.format not in (Format.INT8_BYTES, Format.INT8_TILES):
            return self
        words = copy(self)
        words.format = Format.INT8_WORDS
        return words

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> FrozenLinear:
        """Prepare a product.

        Args:
            weight: Shape `(out, in)`.
            bias: Shape `(out,)`.
        """
        weight = weight.detach()
        if self.format is not None:
            return NativeLinear(weight, bias, self.format)
        rounded = _rounded(weight, self.precision).to(self.dtype)
        return frozen_linear(rounded, None if bias is None else bias.detach().to(self.dtype))


def fit_halves(weights: Iterable[Tensor]) -> bool:
    """Tell whether float16 holds weights bit for bit, as those of a model that was saved in it."""
    return all(torch.equal(weight.half().float(), weight.float()) for weight in weights)


def _rounded(weight: Tensor, precision: Precision) -> Tensor:
    """Round a weight `(out, in)` to the numbers of a precision, but keep its type."""
    if precision == "int8":
        whole, scales = quantised(weight)
        return whole * scales[:, None]
    dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return weight.to(dtypes[precision]).to(weight.dtype)

"""Matrix products with constant weights: by the C++ kernel, by oneDNN, or plain.

On a CPU, `F.linear` on a handful of rows runs at a tenth of the speed that the same product reaches
when its weight was laid out for it beforehand. The fastest of three ways that works is taken:

* `NativeLinear` (`native.py`), the C++ kernel, where it could be built;
* `OneDNNLinear`, oneDNN with a weight laid out once; PyTorch keeps the operators for that private
  (its compiler emits them), so they are used in this file only;
* `PlainLinear`, the reference.

The first two have a second virtue: in float32 a row's result does not depend, bit for bit, on how
many rows are multiplied with it. `F.linear` picks other kernels for small batches and rounds
differently in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from elmo.backends.cpu.native import Format, NativeLinear, native_format, quantized
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
        """Return the weight as it was, shape `(out, in)`."""


def frozen_linear(weight: Tensor, bias: Tensor | None = None) -> FrozenLinear:
    """Prepare a product for inference, without the C++ kernel.

    Args:
        weight: Shape `(out, in)`; float32 or, where the CPU computes it, bfloat16.
        bias: Shape `(out,)`, of the same type.
    """
    if weight.device.type == "cpu" and onednn_works(weight.dtype):
        return OneDNNLinear(weight, bias)
    return PlainLinear(weight, bias)


class PlainLinear:
    """`F.linear` behind the interface of `FrozenLinear`: the reference and the fallback.

    Args:
        weight: Shape `(out, in)`.
        bias: Shape `(out,)`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        # A copy, as oneDNN makes one: whoever owns the weight may change or free it.
        self._weight, self._bias = weight.clone(), bias

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply; see `FrozenLinear`."""
        return F.linear(inputs, self._weight, self._bias)

    def weight(self) -> Tensor:
        """Return the weight, shape `(out, in)`."""
        return self._weight


class OneDNNLinear:
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
        """Return the weight, bit for bit, shape `(out, in)`."""
        dense: Tensor = self._packed.to_dense()
        return dense


@cache
def onednn_works(dtype: torch.dtype) -> bool:
    """Return whether oneDNN multiplies weights of a type on this machine, with this PyTorch."""
    weight = torch.arange(32.0 * 16).reshape(32, 16).to(dtype) / 64
    inputs = torch.arange(3.0 * 16).reshape(3, 16).to(dtype) / 16
    try:
        packed = OneDNNLinear(weight)
        product = packed(inputs)
        same_weight = torch.equal(packed.weight(), weight)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False  # not built with oneDNN, no such CPU instructions, or the operators are gone
    return same_weight and torch.allclose(
        product.float(), F.linear(inputs.float(), weight.float()), rtol=2e-2
    )


def runs_natively(precision: Precision) -> bool:
    """Return whether this CPU computes with weights of a precision, rather than only rounding them.

    Where it does not, a precision costs exactness and saves nothing.
    """
    _require_precision(precision)
    return (
        precision == "fp32"
        or native_format(precision) is not None
        or (precision == "bf16" and onednn_works(torch.bfloat16))
    )


def _require_precision(precision: Precision) -> None:
    if precision not in get_args(Precision):
        raise ConfigError(
            f"precision is {precision!r}, expected one of {', '.join(get_args(Precision))}"
        )


class LinearFactory:
    """Prepares the products of a model at one precision.

    Without the C++ kernel, and for bf16 without instructions for it, products are computed in
    float32 with weights rounded as asked: no faster, but close to what the same setting computes
    elsewhere.

    Args:
        precision: The precision.
        halves_suffice: Whether float16 holds all weights bit for bit, see `fit_halves`. The kernel
            then keeps the weights of fp32 in half of the memory; it expands them to float32 as it
            multiplies, and the results are the same bit for bit.
    """

    def __init__(self, precision: Precision, halves_suffice: bool = False) -> None:
        _require_precision(precision)
        self._precision: Precision = precision
        self.format = native_format(precision)
        """The format of the C++ kernel; None without the kernel."""
        if self.format == Format.FLOAT32 and halves_suffice:
            self.format = Format.FLOAT16
        # Inputs of words have 16 bits where others have 8: the encoder of words runs once for each
        # distinct word, so that this costs little, and all layers would suffer from what it loses.
        is_int8 = self.format in (Format.INT8_BYTES, Format.INT8_TILES)
        self.word_format = Format.INT8_WORDS if is_int8 else self.format
        """The same in the encoder of words."""
        by_onednn = self.format is None and precision == "bf16" and onednn_works(torch.bfloat16)
        self.dtype = torch.bfloat16 if by_onednn else torch.float32
        """The type of inputs."""

    def linear(
        self, weight: Tensor, bias: Tensor | None = None, *, of_words: bool = False
    ) -> FrozenLinear:
        """Prepare a product.

        Args:
            weight: Shape `(out, in)`.
            bias: Shape `(out,)`.
            of_words: Whether it belongs to the encoder of words.
        """
        weight = weight.detach()
        format = self.word_format if of_words else self.format
        if format is not None:
            return NativeLinear(weight, bias, format)
        rounded = _rounded(weight, self._precision).to(self.dtype)
        return frozen_linear(rounded, None if bias is None else bias.detach().to(self.dtype))


def fit_halves(weights: Iterable[Tensor]) -> bool:
    """Return whether float16 holds weights bit for bit, as those of a model saved in it."""
    return all(torch.equal(weight.half().float(), weight.float()) for weight in weights)


def _rounded(weight: Tensor, precision: Precision) -> Tensor:
    """Round a weight `(out, in)` to the numbers of a precision, but keep its type."""
    if precision == "int8":
        whole, scales = quantized(weight)
        return whole * scales[:, None]
    dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return weight.to(dtypes[precision]).to(weight.dtype)

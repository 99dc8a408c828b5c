"""The elementwise part of a highway layer, one kernel for each of forward and backward pass.

`elmo.model.layers.Highway` is the plain reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.backends.gpu.kernels.gpu import blocks, jit, tl

_BLOCK = 1024


def mix_highway(inputs: Tensor, products: Tensor) -> Tensor:
    """Mix inputs and their transforms: g * relu(t) + (1 - g) * x.

    Args:
        inputs: x, shape `(n, dim)`.
        products: t, followed by the gate before its sigmoid, `(n, 2 * dim)`.

    Returns:
        Shape `(n, dim)`, in the type of the products.
    """
    mixed: Tensor = _Mix.apply(inputs.contiguous(), products.contiguous())
    return mixed


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, products: Tensor) -> Tensor:
        n, dim = inputs.shape
        mixed = products.new_empty(n, dim)
        if n:
            _mix[(n, blocks(dim, _BLOCK))](inputs, products, mixed, dim, BLOCK=_BLOCK)
        ctx.save_for_backward(inputs, products)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        inputs, products = ctx.saved_tensors
        n, dim = inputs.shape
        grad_inputs, grad_products = torch.empty_like(inputs), torch.empty_like(products)
        if n:
            _mix_backward[(n, blocks(dim, _BLOCK))](
                gradients[0].contiguous(),
                inputs,
                products,
                grad_inputs,
                grad_products,
                dim,
                BLOCK=_BLOCK,
            )
        return grad_inputs, grad_products


# --- kernels: a program for each row and each block of its columns --------------------------------


@jit
def _mix(inputs_ptr, products_ptr, mixed_ptr, dim, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < dim
    products_ptr += row * 2 * dim + column
    x = tl.load(inputs_ptr + row * dim + column, mask=inside).to(tl.float32)
    transformed = tl.load(products_ptr, mask=inside, other=0.0).to(tl.float32)
    # Transforms are the first half of a row of products, gates the second.
    gate = tl.sigmoid(tl.load(products_ptr + dim, mask=inside).to(tl.float32))
    mixed = gate * tl.maximum(transformed, 0.0) + (1 - gate) * x
    mixed_ptr += row * dim + column
    tl.store(mixed_ptr, mixed.to(mixed_ptr.dtype.element_ty), mask=inside)


@jit
def _mix_backward(
    grad_ptr, inputs_ptr, products_ptr, grad_inputs_ptr, grad_products_ptr, dim, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < dim
    place = row * dim + column
    products_ptr += row * 2 * dim + column
    grad_products_ptr += row * 2 * dim + column
    # The gate is computed again: cheaper than to store it in the forward pass and load it here.
    grad = tl.load(grad_ptr + place, mask=inside).to(tl.float32)
    x = tl.load(inputs_ptr + place, mask=inside).to(tl.float32)
    transformed = tl.load(products_ptr, mask=inside, other=0.0).to(tl.float32)
    gate = tl.sigmoid(tl.load(products_ptr + dim, mask=inside).to(tl.float32))
    grad_transformed = tl.where(transformed > 0, grad * gate, 0.0)
    grad_gate = grad * (tl.maximum(transformed, 0.0) - x) * gate * (1 - gate)
    kind = grad_products_ptr.dtype.element_ty
    tl.store(grad_products_ptr, grad_transformed.to(kind), mask=inside)
    tl.store(grad_products_ptr + dim, grad_gate.to(kind), mask=inside)
    grad_x = (grad * (1 - gate)).to(grad_inputs_ptr.dtype.element_ty)
    tl.store(grad_inputs_ptr + place, grad_x, mask=inside)

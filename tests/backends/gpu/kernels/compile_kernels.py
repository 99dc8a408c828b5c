"""Compiles the kernels that embed for a GPU of the Hopper generation, which need not be there.

    python tests/backends/gpu/kernels/compile_kernels.py

Triton does so only where it does not interpret: in a process without TRITON_INTERPRET.
"""

import itertools

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from elmo.backends.gpu.kernels.inference_cell import _cell_kernel, _store_kernel
from elmo.backends.gpu.kernels.word_filters import _highest_kernel

HOPPER = GPUTarget("cuda", 90, 32)


def compile_kernel(kernel, types, **constants):
    """Compile to machine code; arguments that are not named here are 32-bit integers."""
    names = kernel.arg_names
    signature = {name: types.get(name, "i32") for name in names}
    signature |= dict.fromkeys(constants, "constexpr")
    places = {(names.index(name),): value for name, value in constants.items()}
    compiled = triton.compile(ASTSource(kernel, signature, places), target=HOPPER)
    assert compiled.asm["cubin"]


def main():
    for dtype, flag in itertools.product(("bf16", "fp16", "fp32"), (False, True)):
        numbers = f"*{dtype}"
        cell = dict.fromkeys(("products", "recurrent", "cells"), numbers)
        cell |= {"index": "*i64", "memory": "*fp32", "clip": "fp32", "products_stride": "i64"}
        cell["active"] = "*i32"
        compile_kernel(_cell_kernel, cell, INDEXED=flag, CLIPS=not flag, ENDS=flag, BLOCK=1024)
        store = dict.fromkeys(("projected", "hidden", "reading"), numbers)
        store |= {"places": "*i64", "below": "*fp32", "output": "*fp32", "clip": "fp32"}
        store["active"] = "*i32"
        constants = {"ADDS": flag, "READ_AGAIN": not flag, "CLIPS": flag, "ENDS": flag}
        compile_kernel(_store_kernel, store, **constants, BLOCK=512)
    # The first row's number is a constant for Triton where it is 1.
    compile_kernel(_cell_kernel, cell, first=1, INDEXED=True, CLIPS=True, ENDS=False, BLOCK=16)
    filters = {"ids": "*i64", "table": "*fp32", "highest": "*fp32"}
    filters |= {"windows": "*i32", "widths": "*i32"}
    compile_kernel(_highest_kernel, filters, WIDEST=7, BLOCK=256)


if __name__ == "__main__":
    main()

"""Compile every training kernel for a Hopper GPU, which needs none; run by test_compile.

Writes a line for each kernel: its name, registers that did not fit (bytes), shared memory (bytes).
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from elmo.backends.gpu.kernels import (
    character_windows,
    highway,
    sampled_softmax,
    small_lstm,
    training_cell,
)

B, F, N, L, U = "*bf16", "*fp32", "*i32", "*i64", "*u8"
HOPPER = GPUTarget("cuda", 90, 32)

# Kernel, types of its arguments, its constants, its warps, its stages: as the published size calls
# them.
CLIPS = {"CLIPS": True, "KEEPS": True}
WINDOWS = {
    "CHAR_DIM": 16, "DEPTH": 112, "DEPTH_TILE": 128, "WORDS": 4, "WINDOWS": 16, "FILTERS": 128,
}  # fmt: skip
SMALL = {"ROWS": 16, "CELLS": small_lstm.MOST_CELLS}
KERNELS = [
    (training_cell._cell_forward, [B, F, F, F, F, B, *["i32"] * 6, "fp32"],
     CLIPS | {"BLOCK": 1024}, 4),
    (training_cell._cell_backward, [B, F, F, F, B, F, *["i32"] * 7, "fp32"],
     CLIPS | {"BLOCK": 1024}, 4),
    (training_cell._hidden_forward, [B, F, B, B, *["i32"] * 6, "fp32"],
     CLIPS | {"STARTS": True, "BLOCK": 512}, 2),
    (training_cell._hidden_backward, [B, B, F, B, B, *["i32"] * 7, "fp32"],
     CLIPS | {"CARRIES": True, "BLOCK": 512}, 2),
    (character_windows._find_maxima, [F, B, F, N, N, B, U, "i32", "i32", "i32"], WINDOWS, 4, 2),
    (character_windows._find_filter_gradients, [B, U, F, N, F, *["i32"] * 5], WINDOWS, 4, 2),
    (character_windows._find_character_gradients, [B, U, B, N, F, *["i32"] * 3], WINDOWS, 4, 2),
    (highway._mix, [B, B, B, "i32"], {"BLOCK": 1024}, 4),
    (highway._mix_backward, [B, B, B, B, B, "i32"], {"BLOCK": 1024}, 4),
    (sampled_softmax._find_losses, [B, B, F, L, L, F, F, F, F, *["i32"] * 3],
     {"ROWS": 128, "CANDIDATES": 128, "DEPTH": 64, "IS_NARROW": False}, 8),
    (sampled_softmax._find_losses, [B, B, F, L, L, F, F, F, F, *["i32"] * 3],
     {"ROWS": 128, "CANDIDATES": 64, "DEPTH": 128, "IS_NARROW": True}, 4),
    (sampled_softmax._find_logit_gradients, [B, B, F, L, L, F, F, B, F, *["i32"] * 3],
     {"ROWS": 128, "CANDIDATES": 128, "DEPTH": 64}, 8),
    (sampled_softmax._find_own, [B, L, F, F, F, B, F, F, "i32", "i32"],
     {"ROWS": 16, "DEPTH": 128}, 4),
    (small_lstm._forward, [F] * 5 + ["i32"] * 3, SMALL, 8),
    (small_lstm._backward, [F] * 5 + ["i32"] * 3, SMALL, 8, 1),
    (small_lstm._backward, [F] * 5 + ["i32"] * 3, SMALL, 8, 2),
]  # fmt: skip


def compiled(kernel, types, constants, warps, stages=3):
    types = iter(types)
    signature = {p.name: "constexpr" if p.is_constexpr else next(types) for p in kernel.params}
    places = {p.name: (number,) for number, p in enumerate(kernel.params)}
    source = ASTSource(
        kernel,
        signature,
        constexprs={places[name]: value for name, value in constants.items()},
        attrs={
            places[name]: [["tt.divisibility", 16]]
            for name, kind in signature.items()
            if kind.startswith("*") or kind == "i32"
        },
    )
    return triton.compile(source, target=HOPPER, options={"num_warps": warps, "num_stages": stages})


def spilled(ptx):
    """Bytes of registers that the assembler had to put into memory."""
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(ptx)
        done = subprocess.run(
            [assembler, "-v", "-arch=sm_90a", path, "-o", Path(folder, "kernel.cubin")],
            capture_output=True,
            text=True,
            check=True,
        )
    return sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr)))


if __name__ == "__main__":
    for kernel, *how in KERNELS:
        binary = compiled(kernel, *how)
        facts = kernel.__name__, spilled(binary.asm["ptx"]), binary.metadata.shared
        sys.stdout.write(" ".join(map(str, facts)) + "\n")

"""What all GPU kernels share: whether they can run here, and Triton where it is installed.

Kernels are written in Triton, which is an optional package. Modules with kernels take `jit` and
`tl` from here, so that they can be imported without it. With TRITON_INTERPRET=1 in the environment
before the first import, kernels are interpreted on a CPU: very slow, for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # not there on every system; the plain code does the same
    triton = tl = None

__all__ = ["blocks", "jit", "next_power_of_2", "reason_against_triton", "tl", "triton_ready"]

LEAST_CAPABILITY = (8, 0)
"""Ampere: the first GPUs with products in bfloat16."""

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function, **options: Any) -> Any:
    """Compile a function as a kernel; without Triton it stays a function that nobody calls."""
    return function if triton is None else triton.jit(function, **options)


def triton_ready(device: torch.device) -> bool:
    """Return whether kernels can run on a device."""
    return reason_against_triton(device) is None


def reason_against_triton(device: torch.device) -> str | None:
    """Return why kernels cannot run on a device, in words for users; None if they can."""
    if device.type != "cuda":
        return f"the device {device} is no NVIDIA GPU"
    if triton is None:
        return "Triton is not installed (pip install triton)"
    return _reason_against_gpu(
        torch.cuda.current_device() if device.index is None else device.index
    )


@cache
def _reason_against_gpu(index: int) -> str | None:
    capability = torch.cuda.get_device_capability(index)
    if capability >= LEAST_CAPABILITY:
        return None
    has, needs = (".".join(map(str, version)) for version in (capability, LEAST_CAPABILITY))
    return f"{torch.cuda.get_device_name(index)} has compute capability {has}, kernels need {needs}"


def is_interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter, on CPU tensors."""
    return triton is not None and os.environ.get("TRITON_INTERPRET") == "1"


def blocks(number: int, size: int) -> int:
    """Return how many blocks of a size cover a number of items."""
    return -(-number // size)


def next_power_of_2(number: int) -> int:
    """Return the smallest power of 2 that is not below a number."""
    return 1 << max(0, number - 1).bit_length()

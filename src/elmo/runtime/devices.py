"""PyTorch devices: from names, copies to them, exact products, memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import ConfigError


def find_device(name: str | torch.device | None) -> torch.device:
    """Return a device by name: `cpu`, `cuda`, `cuda:1`, ...; `auto` or None for the best."""
    if name is None or name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device  # "cuda" is "cuda:0" or whichever is current
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise ConfigError(f"device {str(name)!r} cannot be used: {_reason(name, error)}") from None


def _reason(name: object, error: Exception) -> str:
    """Return what is wrong with a name, and what to write instead."""
    if not re.fullmatch(r"(cpu|cuda|mps|xpu|meta)(:\d+)?", str(name)):
        return "expected auto, cpu, cuda, cuda:1, ..."
    if str(name).startswith("cuda") and not torch.cuda.is_available():
        return "there is no GPU with CUDA; use device='cpu', or install a CUDA build of PyTorch"
    return str(error).splitlines()[0]


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to a device, asynchronously.

    A plain copy to a GPU waits for all work queued before it. A copy from pinned memory does not,
    so the next batch is prepared while the last one is computed.
    """
    tensor = torch.from_numpy(array)
    if device.type != "cuda" or not array.size:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class _Flags:
    """Process-wide flags of PyTorch, set while any thread needs them."""

    def __init__(self) -> None:
        cudnn = torch.backends.cudnn
        self._wanted: list[tuple[Any, str, Any]] = [
            (torch.backends.cuda.matmul, "fp32_precision", "ieee"),
            (cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
            (cudnn.rnn, "fp32_precision", "ieee"),
            (cudnn, "deterministic", True),
            (cudnn, "benchmark", False),
        ]
        self._before: list[Any] = []
        self._lock = threading.Lock()
        self._users = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Set the flags; the last thread to leave restores what the first one found."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = [getattr(owner, name) for owner, name, _ in self._wanted]
                self._set([value for _, _, value in self._wanted])
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._set(self._before)

    def _set(self, values: list[Any]) -> None:
        for (owner, name, _), value in zip(self._wanted, values, strict=True):
            setattr(owner, name, value)


_exact = _Flags()


def exact_products(device: torch.device) -> AbstractContextManager[None]:
    """Return a context manager that disables TF32, products of float32 rounded to 10 bits.

    cuDNN uses TF32 by default; vectors would differ from the CPU's by 1e-3, not 1e-6.
    """
    return _exact.hold() if device.type == "cuda" else nullcontext()


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error means that a GPU is out of memory, or the host of pinned memory."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    # Messages of cuBLAS about its workspace, and of CUDA about pinned memory.
    message = str(error)
    return "CUBLAS_STATUS_ALLOC_FAILED" in message or "CUDA error: out of memory" in message


def free_memory(device: torch.device) -> int:
    """Return the bytes that can still be allocated on a GPU, PyTorch's cache included."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)

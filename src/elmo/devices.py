"""Where a model computes: names that users write -> PyTorch devices, and what GPUs need."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import ConfigError


def find_device(name: str | torch.device | None) -> torch.device:
    """Give a device by its name: `cpu`, `cuda`, `cuda:1`, ...; `auto` or None for the best."""
    if name is None or name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device  # "cuda" is "cuda:0" or whichever is current
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {str(name)!r} cannot be used: {reason}") from None


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Put an array on a device, without waiting for what the device is doing.

    A plain copy to a GPU waits until all work before it is done. One from pinned memory does not,
    so that the next batch is prepared while the last one is computed.
    """
    tensor = torch.from_numpy(array)
    if device.type != "cuda" or not array.size:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether an error says that a GPU has too little memory, or the host for copies to it."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    # What cuBLAS says of its own memory, and CUDA of pinned memory.
    said = str(error)
    return "CUBLAS_STATUS_ALLOC_FAILED" in said or "CUDA error: out of memory" in said


def free_memory(device: torch.device) -> int:
    """Give the bytes that can still be allocated on a GPU, what PyTorch holds back included."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)

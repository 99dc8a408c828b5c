"""Peak memory of this process, and of a GPU."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path
from typing import Any


def peak_mb() -> float:
    """Return the most memory that this process has had resident so far, in units of 10^6 bytes."""
    # Not ru_maxrss: on Linux it starts at the size of the process that started this one.
    kilobytes = _status("VmHWM")
    if kilobytes is not None:
        return kilobytes * 1024 / 1e6
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def gpu_peak_mb(device: Any) -> float | None:
    """Return the most memory of a GPU that PyTorch took since `restart_peaks`; None on a CPU."""
    import torch

    if device.type != "cuda":
        return None
    return torch.cuda.max_memory_allocated(device) / 1e6


def restart_peaks(device: Any) -> bool:
    """Return memory to the system as far as possible, and restart the peaks.

    Returns:
        Whether `peak_mb` was restarted: only Linux can do that, and not in every container.
    """
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        return False
    return True


def _status(name: str) -> int | None:
    """Read a number from what Linux says about this process; None elsewhere."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    for line in status.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return None

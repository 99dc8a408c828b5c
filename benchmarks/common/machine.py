"""What a measurement ran on."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

_TELLING_FLAGS = ("avx", "fma", "f16c", "amx")
"""Startnings of the CPU flags that decide how fast products run."""


@dataclass(frozen=True)
class Machine:
    """Hardware and software of a measurement."""

    cpu: str
    cores: int
    """Cores that this process may use."""
    threads: int
    """Threads that torch uses."""
    instructions: str
    """The best instruction set of PyTorch's own kernels here."""
    flags: list[str]
    """CPU flags that matter for products."""
    memory_gb: float
    load: float
    """Processes that wanted to run, on average over the minute before: how busy others are."""
    system: str
    python: str
    torch: str
    numpy: str
    date: str
    gpu: str | None = None
    """The GPU that was measured, if one was."""


def this_machine(gpu: torch.device | None = None) -> Machine:
    """Describe the machine that this runs on, without saying which one it is.

    Args:
        gpu: A GPU that is measured, too.
    """
    cpu = _cpu_info()
    return Machine(
        cpu=cpu.get("model name") or platform.processor() or platform.machine(),
        cores=_usable_cores(),
        threads=torch.get_num_threads(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        flags=sorted(f for f in cpu.get("flags", "").split() if f.startswith(_TELLING_FLAGS)),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        load=round(os.getloadavg()[0], 2),
        system=platform.system(),
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        date=datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        gpu=None if gpu is None else torch.cuda.get_device_name(gpu),
    )


def render_head(version: str, command: str, machine: Machine, notes: Sequence[str]) -> str:
    """Return the lines that say what was measured where."""
    lines = [
        f"elmo-torch {version}, {machine.date}",
        f"command  {command}",
        f"machine  {machine.cpu}, {machine.cores} cores usable, {machine.threads} threads, "
        f"{machine.memory_gb} GB, {machine.system}, load {machine.load} at the start",
        f"         {machine.instructions}; {' '.join(machine.flags) or 'flags unknown'}",
        *([] if machine.gpu is None else [f"GPU      {machine.gpu}"]),
        f"software Python {machine.python}, torch {machine.torch}, NumPy {machine.numpy}",
    ]
    return "\n".join([*lines, *(f"note     {note}" for note in notes)])


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # knows of taskset and containers; Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_info() -> dict[str, str]:
    """Read what Linux says about the first core; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first, *_ = path.read_text(encoding="utf-8").split("\n\n")
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}

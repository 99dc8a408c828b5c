"""One process or several, as `torchrun` starts them, and their collective operations."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from elmo.runtime.devices import find_device


@dataclass(frozen=True)
class Processes:
    """This process among those of a run."""

    rank: int
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """Average values over all processes."""
        if self.world > 1:
            dist.all_reduce(values)
            values /= self.world
        return values

    def gather(self, rows: Tensor, dim: int) -> Tensor:
        """Join the rows of all processes along a dimension."""
        if self.world == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.world)]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts, dim=dim)

    def own_rows(self, rows: Tensor, dim: int) -> Tensor:
        """Return the rows of this process; the inverse of `gather`."""
        return rows.chunk(self.world, dim=dim)[self.rank].contiguous()

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        if self.world == 1:
            return flag
        votes = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def broadcast(self, value: float) -> float:
        """Return the value that the first process has."""
        if self.world == 1:
            return value
        sent = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(sent, src=0)
        return float(sent.item())


@contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the processes that `torchrun` started, or be the only one.

    Args:
        device: As users write it: `auto`, `cpu`, `cuda`, `cuda:1`.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        chosen = find_device(device)
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)  # for kernel launches
        yield Processes(0, 1, chosen)
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = find_device(f"cuda:{local}" if _wants_gpu(device) else "cpu")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    with _process_group("nccl" if chosen.type == "cuda" else "gloo"):
        yield Processes(dist.get_rank(), world, chosen)


@contextmanager
def _process_group(backend: str) -> Iterator[None]:
    """Form a process group whose threads end with it.

    They end with the last object that refers to the group. A thread that still runs when Python
    exits, and frees a tensor then, aborts the process (SIGABRT), after all was saved.
    """
    # Its functions have the group of the moment of their import as default argument; imported
    # later, by the first wrapped model, they would hold this group for ever.
    importlib.import_module("torch.distributed.nn.functional")

    dist.init_process_group(backend)
    try:
        yield
    finally:
        gc.collect()  # wrapped models refer to the group, and to themselves
        dist.destroy_process_group()


def _wants_gpu(device: str) -> bool:
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())

"""Backends: who computes the vectors of a biLM, and where.

- `base`: the contract, the cache of word vectors in host memory, the table of filter responses.
- `plain`: plain PyTorch on any device, for every cell.
- `cpu`: a C++ kernel built on this machine, else oneDNN or plain products.
- `gpu`: Triton kernels and CUDA graphs; also the kernels of training.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING

from elmo.errors import ElmoWarning

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import torch

    from elmo.backends.base import Backend
    from elmo.backends.gpu.host_copies import HostCopies
    from elmo.model.bilm import BiLM
    from elmo.settings import Precision


def choose(
    bilm: BiLM,
    device: str | torch.device | None = None,
    precision: Precision = "fp32",
    *,
    consume: bool = True,
) -> Backend:
    """Return the fastest backend that computes a model on a device.

    Args:
        bilm: The model.
        device: Where to compute; a GPU if there is one, if None.
        precision: In which numbers weights are kept and multiplied; see `ELMo`.
        consume: Whether the weights are moved out of `bilm`, which cannot be used afterwards, so
            that they are in memory only once. If not, it stays as it is.
    """
    from elmo.runtime.devices import find_device

    place, cell = find_device(device), bilm.config.cell
    if bilm.boundaries.device != place and not consume:
        bilm, consume = copy.deepcopy(bilm), True
    if place.type == "cpu":
        from elmo.backends.cpu.compiler import why_not
        from elmo.backends.cpu.model import CPUBackend
        from elmo.backends.cpu.products import runs_natively

        if cell in CPUBackend.cells:
            if precision != "fp32" and not runs_natively(precision):
                warnings.warn(
                    f"precision={precision!r} rounds the weights as asked, but computes in float32 "
                    f"and is no faster here: no native kernel ({why_not()})",
                    ElmoWarning,
                    stacklevel=4,
                )
            return CPUBackend(bilm, precision, consume)
    if place.type == "cuda":
        from elmo.backends.gpu.model import GPUBackend

        if cell in GPUBackend.cells:
            return GPUBackend(bilm if consume else copy.deepcopy(bilm), precision, place)
    from elmo.backends.plain import PlainBackend

    return PlainBackend(bilm, precision, place)


def host_copies(device: torch.device, dtype: torch.dtype, workers: Executor) -> HostCopies:
    """Return what copies results of a GPU to host memory.

    Args:
        device: The GPU.
        dtype: Type of the copies.
        workers: Threads for it.
    """
    from elmo.backends.gpu.host_copies import HostCopies

    return HostCopies(device, dtype, workers)

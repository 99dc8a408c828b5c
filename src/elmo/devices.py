"""Where a model computes: names that users write -> PyTorch devices."""

from __future__ import annotations

import torch

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

"""An optimizer's state as named tensors and values, for a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return an optimizer's tensors and its other values, by names for a file."""
    state = optimizer.state_dict()["state"]
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for number, values in state.items():
        for key, value in values.items():
            name = f"optimizer.{number}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                rest[name] = value
    return tensors, rest


def restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]
) -> None:
    """Load what `optimizer_tensors` returned into an optimizer; other names are ignored."""
    description = optimizer.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **rest}.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({**description, "state": state})

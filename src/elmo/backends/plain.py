"""The plain backend: the reference biLM on any device, for cells and devices without a fast way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elmo.backends.base import Backend
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM, State, Tensors
from elmo.runtime.devices import exact_products
from elmo.settings import Precision


class PlainBackend(Backend):
    """A biLM computed by PyTorch as `BiLM` does, without gradients.

    Args:
        bilm: The model; it is moved to the device and used, not copied.
        precision: `fp32`.
        device: Where to compute.
    """

    def __init__(self, bilm: BiLM, precision: Precision, device: torch.device) -> None:
        if precision != "fp32":
            raise ConfigError(
                f"precision is {precision!r}, expected 'fp32' for a model with cell "
                f"{bilm.config.cell!r} on {device}"
            )
        super().__init__(bilm, precision, device)
        self._bilm = bilm.to(device)

    @torch.no_grad()
    def encode_words(self, ids: Tensor) -> Tensor:
        """Encode words without their context; see `BiLMBase.encode_words`."""
        with exact_products(self.device):
            return self._bilm.encode_words(ids)

    @torch.no_grad()
    def contextualize(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        state: State | None = None,
        depth: int | None = None,
    ) -> tuple[list[Tensor], State]:
        """Read a batch of sentences in both directions; see `BiLMBase.contextualize`."""
        with exact_products(self.device):
            return self._bilm.contextualize(vectors, tokens, lengths, state, depth)

    def tensors(self) -> Tensors:
        """Return the weights; see `Backend.tensors`."""
        return self._bilm.to_checkpoint().tensors

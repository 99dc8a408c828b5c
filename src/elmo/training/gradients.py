"""The gradients of a step: summed over its batches, and clipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from elmo.lm.adaptive_softmax import AdaptiveSoftmax
from elmo.lm.output_base import Drawn
from elmo.model.bilm import State
from elmo.training.graphed_step import GraphedStep
from elmo.training.language_model import LanguageModel
from elmo.training.optimizers import Hyperparameters
from elmo.training.processes import Processes
from elmo.training.settings import TrainSettings
from elmo.training.streams import Batch, Position


class Gradients:
    """Computes the gradients of one step after another, and carries the state of the streams.

    Args:
        model: The model, on the device of the run.
        optimizer: Its optimizer.
        hyperparameters: Clipping, and the factor of the loss.
        settings: The settings of the run.
        processes: The processes of the run.
        rows: Streams of this process.
    """

    def __init__(
        self,
        model: LanguageModel,
        optimizer: torch.optim.Optimizer,
        hyperparameters: Hyperparameters,
        settings: TrainSettings,
        processes: Processes,
        rows: int,
    ) -> None:
        self.model, self._optimizer, self._hyperparameters = model, optimizer, hyperparameters
        self._settings, self._processes = settings, processes
        self.state = model.start(rows, processes.device)
        """State of the layers after the last step; see `State`."""
        self.losses = torch.zeros(2, dtype=torch.float64, device=processes.device)
        """Sum of the directions' losses since the last row of metrics."""
        self.n_losses = 0
        """Number of batches in that sum."""
        self.norm = torch.zeros((), device=processes.device)
        """Norm of the last gradient before clipping."""
        self._head_only: bool | None = None
        self._parallel: Any = model
        self._graphed: GraphedStep | None = None

    def set_phase(self, head_only: bool) -> None:
        """Freeze the biLM while only the output layer learns; needed before the first step."""
        if self._head_only == head_only:
            return
        self._head_only = head_only
        self.model.bilm.requires_grad_(not head_only)
        if self._settings.freeze_word_vectors:
            self.model.bilm.words.requires_grad_(False)
        self.model.output.requires_grad_(True)
        self._parallel = self.model
        if self._processes.world > 1:
            self._parallel = DistributedDataParallel(self.model)
        if self._graphed is not None:
            self._graphed.discard()  # it may still run
        self._graphed = self._make_graphed()

    def close(self) -> None:
        """Drop references to the process group; no step follows."""
        self._parallel = self.model

    def compute(self, batches: Iterator[tuple[Batch, Position]], step: int) -> tuple[int, Position]:
        """Compute the clipped gradients of a step.

        Args:
            batches: The next batches, each with the position that follows it.
            step: Steps taken so far.

        Returns:
            Number of tokens, of all processes together, and the position that follows them.
        """
        return self._sum(batches, step) if self._graphed is None else self._replay(batches, step)

    @property
    def failure(self) -> str | None:
        """Why no CUDA graph could be captured, if that failed."""
        return None if self._graphed is None else self._graphed.failure

    def mean_losses(self) -> Tensor:
        """Return the mean losses of the directions since the last row of metrics, `(2,)`."""
        return self._processes.mean(self.losses.clone()) / self.n_losses

    def reset_losses(self) -> None:
        """Start the next row of metrics."""
        self.losses.zero_()
        self.n_losses = 0

    # --- batch by batch ---------------------------------------------------------------------------

    def _sum(self, batches: Iterator[tuple[Batch, Position]], step: int) -> tuple[int, Position]:
        """Sum and clip the gradients of a step's batches."""
        accumulate = self._settings.grad_accumulation
        self._optimizer.zero_grad(set_to_none=True)
        n_tokens = 0
        for part in range(accumulate):
            batch, position = next(batches)
            n_tokens += batch.n_tokens * self._processes.world
            is_last = part == accumulate - 1
            with nullcontext() if is_last else self._without_sync():
                self._backward(batch.to(self._processes.device), self._seed(step, part))
        self.norm = self._clip()
        return n_tokens, position

    def _backward(self, batch: Batch, seed: int) -> None:
        """Add the gradients of a batch."""
        with self._autocast():
            losses, hidden, memory = self._parallel(*batch.parts, *self.state, seed)
        factor = self._hyperparameters.loss_factor / self._settings.grad_accumulation
        (losses.mean() * factor).backward()
        self.state = State(hidden, memory)
        self.losses += losses.detach().double()
        self.n_losses += 1

    def _without_sync(self) -> AbstractContextManager[None]:
        manager: AbstractContextManager[None] = (
            self._parallel.no_sync() if self._processes.world > 1 else nullcontext()
        )
        return manager

    # --- with a CUDA graph ------------------------------------------------------------------------

    def _make_graphed(self) -> GraphedStep | None:
        """Return a step as a CUDA graph, where that is possible."""
        settings = self._settings
        if (
            settings.no_cuda_graphs
            or self._processes.device.type != "cuda"
            or self._processes.world > 1
            or settings.grad_accumulation > 1
            or settings.compile
            or isinstance(self.model.output, AdaptiveSoftmax)  # its shapes depend on the targets
        ):
            return None
        learning = [p for p in self.model.parameters() if p.requires_grad]
        return GraphedStep(self._work, learning, self.state, self.losses)

    def _replay(self, batches: Iterator[tuple[Batch, Position]], step: int) -> tuple[int, Position]:
        """Do the same as `_sum` with a CUDA graph."""
        assert self._graphed is not None
        batch, position = next(batches)
        self._graphed(batch, self.model.output.draw(self._seed(step, 0)))
        self.state, self.norm = self._graphed.state, self._graphed.norm
        self.n_losses += 1
        return batch.n_tokens, position

    def _work(
        self, batch: Batch, state: State, drawn: Drawn | None
    ) -> tuple[Tensor, State, Tensor]:
        """Run forward and backward pass and clipping; see `GraphedStep`."""
        with self._autocast():
            losses, state = self.model.losses(batch, state, drawn)
        torch.autograd.backward(losses.mean() * self._hyperparameters.loss_factor)
        return losses, state, self._clip()

    # --- either way -------------------------------------------------------------------------------

    def _seed(self, step: int, part: int) -> int:
        """Seed dropout, and return the seed of the candidates."""
        seed = _mixed(self._settings.seed, step, part)
        # Dropout differs between processes, candidates do not.
        torch.manual_seed(_mixed(seed, self._processes.rank + 1))
        return seed

    def _autocast(self) -> torch.autocast:
        device = self._processes.device.type
        return torch.autocast(device, torch.bfloat16, enabled=self._settings.precision == "bf16")

    def _clip(self) -> Tensor:
        """Clip the gradients; return their norm before."""
        return torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), self._hyperparameters.grad_clip, error_if_nonfinite=False
        )


def _mixed(*numbers: int) -> int:
    """Mix numbers into a seed, the same on every machine."""
    seed = 0x9E3779B97F4A7C15
    for number in numbers:
        seed = ((seed ^ number) * 0xBF58476D1CE4E5B9) & (2**63 - 1)
        seed ^= seed >> 29
    return seed

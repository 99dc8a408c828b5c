"""A training step on a GPU, recorded once as a CUDA graph and then only played again.

A step is hundreds of kernels, which a CPU starts more slowly than the GPU runs them. A graph starts
all of them at once, but each time with the same addresses and sizes. So there are fixed places for
what goes in and comes out, and they have room: the distinct words of a batch, whose number differs
from step to step, are followed by rows that nobody reads, and the candidates of a sampled softmax
by some that never count. A batch that does not fit lets the graph be recorded again with more room.

Recorded are forward and backward pass and the clipping of the gradient. The optimizer's few kernels
follow outside, so that it stays what it is everywhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from elmo.lm.output_base import Drawn
from elmo.model.state import State
from elmo.training.streams import Batch

_WARM_UP = 3
"""Steps that are taken before one is recorded: kernels are compiled and libraries get ready."""
_SPARE, _WORDS, _CANDIDATES = 1.1, 1024, 128
"""Room for a tenth more than the first batch has, in so many rows and candidates at a time."""

_AHEAD = 2
"""Steps that may wait for the GPU."""

Work = Callable[[Batch, State, Drawn | None], tuple[Tensor, State, Tensor]]
"""Batch, state and candidates -> losses `(2,)`, state, norm of the gradient; fills gradients."""


class FixedPlaces:
    """Where batches and candidates are put on a device, always at the same addresses.

    Args:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.batch: Batch | None = None
        """The batch; behind its distinct words stand some that nobody reads."""
        self.drawn: Drawn | None = None
        """The candidates; behind them stand some whose `log_q` is infinite."""

    def fill(self, batch: Batch, drawn: Drawn | None) -> bool:
        """Put a batch and its candidates there; tell whether that took new places."""
        is_new = self.batch is None or not self._fits(batch, drawn)
        if is_new:
            self._make_room(batch, drawn)
        assert self.batch is not None
        for place, part in zip(self.batch.parts, batch.parts, strict=True):
            place[: len(part)].copy_(part, non_blocking=True)
        if drawn is not None and self.drawn is not None:
            k = len(drawn.candidates)
            for place, part in zip(self.drawn, drawn, strict=True):
                place[:k].copy_(part, non_blocking=True)
            self.drawn.log_q[k:].fill_(torch.inf)
        return is_new

    def _fits(self, batch: Batch, drawn: Drawn | None) -> bool:
        assert self.batch is not None
        if len(batch.types) > len(self.batch.types):
            return False
        if batch.inputs.shape != self.batch.inputs.shape:
            return False
        if drawn is None or self.drawn is None:
            return drawn is None and self.drawn is None
        return len(drawn.candidates) <= len(self.drawn.candidates)

    def _make_room(self, batch: Batch, drawn: Drawn | None) -> None:
        """Make places for batches like this one, and somewhat larger ones."""
        n_words = _rounded(len(batch.types), _WORDS)
        # Behind the words of a batch stands any word.
        types = batch.types[:1].to(self._device).repeat(n_words, *[1] * (batch.types.dim() - 1))
        fixed = (torch.empty_like(part, device=self._device) for part in batch.parts[1:])
        self.batch = Batch(types, *fixed)
        if drawn is not None:
            k = _rounded(len(drawn.candidates), _CANDIDATES)
            self.drawn = Drawn(
                drawn.candidates.new_zeros(k, device=self._device),
                drawn.log_q.new_empty(k, device=self._device),
            )


class GraphedStep:
    """Takes steps; records one when it can.

    Args:
        work: What a step does with the GPU.
        parameters: What learns; their gradients are filled.
        state: The state of the streams before the first step.
        losses: To which each step adds its losses, float64 `(2,)`.
    """

    def __init__(
        self, work: Work, parameters: list[torch.nn.Parameter], state: State, losses: Tensor
    ) -> None:
        self._work, self._parameters = work, parameters
        self.state = State(state.hidden.clone(), state.memory.clone())
        """The state after the last step; always in the same place."""
        self.norm = torch.zeros((), device=losses.device)
        """Norm of the last gradient before clipping."""
        self._losses = losses
        self._places = FixedPlaces(losses.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._gradients: list[Tensor | None] = []
        self._n_steps = 0
        self._beside: torch.cuda.Stream | None = None
        self._ended: deque[torch.cuda.Event] = deque()
        self.trouble: str | None = None
        """Why steps are not recorded, if they cannot be."""

    def __call__(self, batch: Batch, drawn: Drawn | None) -> None:
        """Take a step up to the clipped gradients.

        Args:
            batch: The batch, in pinned memory.
            drawn: Candidates, on the CPU.
        """
        self._wait()
        if self._places.fill(batch, drawn):
            self.forget()  # it knows the old places
        self._take()
        self._mark_end()

    def _take(self) -> None:
        """Take the step on what stands in the fixed places."""
        self._n_steps += 1
        if self._graph is None and self._n_steps > _WARM_UP and self.trouble is None:
            self._record()
        if self._graph is None:
            self._run_beside()
        else:
            self._graph.replay()
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient

    def _mark_end(self) -> None:
        ended = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        ended.record()
        self._ended.append(ended)

    def forget(self) -> None:
        """Give the recorded step and its memory up."""
        if self._graph is not None:
            torch.cuda.synchronize(self._losses.device)
        self._graph, self._gradients, self._n_steps = None, [], 0
        for parameter in self._parameters:
            parameter.grad = None

    def _wait(self) -> None:
        """Let the CPU be two steps ahead at most, or batches would pile up in its memory."""
        if len(self._ended) >= _AHEAD:
            self._ended.popleft().synchronize()

    def _step(self) -> None:
        assert self._places.batch is not None
        for parameter in self._parameters:
            parameter.grad = None
        losses, state, norm = self._work(self._places.batch, self.state, self._places.drawn)
        for place, part in zip(self.state, state, strict=True):
            place.copy_(part)
        self._losses += losses.detach().double()
        self.norm.copy_(norm)

    def _run_beside(self) -> None:
        """Take the step on another stream than usual: recording wants it so."""
        if self._beside is None:
            self._beside = torch.cuda.Stream(self._losses.device)  # type: ignore[no-untyped-call]
        here = torch.cuda.current_stream()
        self._beside.wait_stream(here)
        with torch.cuda.stream(self._beside):
            self._step()
        here.wait_stream(self._beside)

    def _record(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
        torch.cuda.empty_cache()  # the graph has its own memory
        graph = torch.cuda.CUDAGraph()
        try:
            # The threads that prepare batches allocate pinned memory meanwhile: they may.
            with torch.cuda.graph(graph, stream=self._beside, capture_error_mode="thread_local"):
                self._step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.trouble = str(error).splitlines()[0]
            return
        self._graph = graph
        self._gradients = [parameter.grad for parameter in self._parameters]


def _rounded(number: int, unit: int) -> int:
    """Give a number with some to spare, as a multiple of a unit."""
    return -(-int(number * _SPARE) // unit) * unit

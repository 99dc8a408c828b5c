"""A training step on a GPU, captured once as a CUDA graph and then replayed.

A step is hundreds of kernels, which a CPU launches more slowly than the GPU runs them. A graph
launches all of them at once, but each time with the same addresses and sizes. So inputs and outputs
have static buffers with spare capacity: the distinct words of a batch, whose number differs from
step to step, are followed by rows that no input refers to, and the candidates of a sampled softmax
by candidates of no weight. For a batch that does not fit, larger buffers are allocated and the
graph is captured again.

Captured are forward and backward pass and gradient clipping. The optimizer's few kernels follow
outside, so that it is the same on every device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from elmo.lm.output_base import Drawn
from elmo.model.bilm import State
from elmo.training.streams import Batch

_WARM_UP = 3
"""Steps before the capture, in which kernels are compiled and libraries initialized."""
_SPARE, _WORDS, _CANDIDATES = 1.1, 1024, 128
"""Capacity for a tenth more than the first batch has, in multiples of rows and candidates."""

_AHEAD = 2
"""Steps that may be queued on the GPU."""

Work = Callable[[Batch, State, Drawn | None], tuple[Tensor, State, Tensor]]
"""Batch, state and candidates -> losses `(2,)`, state, norm of the gradient; sets gradients."""


class StaticBuffers:
    """Buffers for batches and candidates on a device, always at the same addresses.

    Args:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.batch: Batch | None = None
        """The batch; behind its distinct words are rows that no input refers to."""
        self.drawn: Drawn | None = None
        """The candidates; behind them are some whose `log_q` is infinite, of no weight."""

    def fill(self, batch: Batch, drawn: Drawn | None) -> bool:
        """Copy a batch and its candidates there; return whether buffers were allocated."""
        is_new = self.batch is None or not self._fits(batch, drawn)
        if is_new:
            self._allocate(batch, drawn)
        assert self.batch is not None
        for buffer, part in zip(self.batch.parts, batch.parts, strict=True):
            buffer[: len(part)].copy_(part, non_blocking=True)
        if drawn is not None and self.drawn is not None:
            k = len(drawn.candidates)
            for buffer, part in zip(self.drawn, drawn, strict=True):
                buffer[:k].copy_(part, non_blocking=True)
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

    def _allocate(self, batch: Batch, drawn: Drawn | None) -> None:
        """Allocate buffers for batches like this one, and somewhat larger ones."""
        n_words = _rounded(len(batch.types), _WORDS)
        # Behind the words of a batch may be any word.
        types = batch.types[:1].to(self._device).repeat(n_words, *[1] * (batch.types.dim() - 1))
        buffers = (torch.empty_like(part, device=self._device) for part in batch.parts[1:])
        self.batch = Batch(types, *buffers)
        if drawn is not None:
            k = _rounded(len(drawn.candidates), _CANDIDATES)
            self.drawn = Drawn(
                drawn.candidates.new_zeros(k, device=self._device),
                drawn.log_q.new_empty(k, device=self._device),
            )


class GraphedStep:
    """Runs steps; captures one as a CUDA graph when it can.

    Args:
        work: A step's work on the GPU.
        parameters: The parameters that learn; their gradients are set.
        state: The state of the streams before the first step.
        losses: To which each step adds its losses, float64 `(2,)`.
    """

    def __init__(
        self, work: Work, parameters: list[torch.nn.Parameter], state: State, losses: Tensor
    ) -> None:
        self._work, self._parameters = work, parameters
        self.state = State(state.hidden.clone(), state.memory.clone())
        """The state after the last step; always in the same buffers."""
        self.norm = torch.zeros((), device=losses.device)
        """Norm of the last gradient before clipping."""
        self._losses = losses
        self._buffers = StaticBuffers(losses.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._gradients: list[Tensor | None] = []
        self._n_steps = 0
        self._stream: torch.cuda.Stream | None = None
        self._ended: deque[torch.cuda.Event] = deque()
        self.failure: str | None = None
        """Why no graph could be captured, if that failed."""

    def __call__(self, batch: Batch, drawn: Drawn | None) -> None:
        """Run a step up to the clipped gradients.

        Args:
            batch: The batch, in pinned memory.
            drawn: Candidates, on the CPU.
        """
        self._wait()
        if self._buffers.fill(batch, drawn):
            self.discard()  # it refers to the old buffers
        self._run()
        self._mark_end()

    def _run(self) -> None:
        """Run the step on the content of the buffers."""
        self._n_steps += 1
        if self._graph is None and self._n_steps > _WARM_UP and self.failure is None:
            self._capture()
        if self._graph is None:
            self._run_eagerly()
        else:
            self._graph.replay()
            for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
                parameter.grad = gradient

    def _mark_end(self) -> None:
        ended = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        ended.record()
        self._ended.append(ended)

    def discard(self) -> None:
        """Free the graph and its memory."""
        if self._graph is not None:
            torch.cuda.synchronize(self._losses.device)
        self._graph, self._gradients, self._n_steps = None, [], 0
        for parameter in self._parameters:
            parameter.grad = None

    def _wait(self) -> None:
        """Keep the CPU at most two steps ahead, or batches would pile up in its memory."""
        if len(self._ended) >= _AHEAD:
            self._ended.popleft().synchronize()

    def _step(self) -> None:
        assert self._buffers.batch is not None
        for parameter in self._parameters:
            parameter.grad = None
        losses, state, norm = self._work(self._buffers.batch, self.state, self._buffers.drawn)
        for buffer, part in zip(self.state, state, strict=True):
            buffer.copy_(part)
        self._losses += losses.detach().double()
        self.norm.copy_(norm)

    def _run_eagerly(self) -> None:
        """Run the step on a side stream, which capturing requires of the steps before it."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._losses.device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._step()
        current.wait_stream(self._stream)

    def _capture(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
        torch.cuda.empty_cache()  # the graph has its own memory
        graph = torch.cuda.CUDAGraph()
        try:
            # Threads that prepare batches may allocate pinned memory meanwhile.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.failure = str(error).splitlines()[0]
            return
        self._graph = graph
        self._gradients = [parameter.grad for parameter in self._parameters]


def _rounded(number: int, unit: int) -> int:
    """Return a number with spare capacity, as a multiple of a unit."""
    return -(-int(number * _SPARE) // unit) * unit

"""CUDA graphs: a short computation of many kernels, recorded once and launched as a whole.

For a few sentences a GPU is done with each kernel sooner than Python can launch the next. A
recorded graph takes a tenth of the time to launch. It belongs to one shape of inputs, works on
memory of its own, and cannot copy anything from the host while it runs.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]

_MOST_KEYS = 1024
"""Keys that are remembered as seen once."""

logger = logging.getLogger(__name__)


class GraphCache:
    """Runs functions of tensors on a GPU, as recorded graphs from the second call on.

    Args:
        capacity: Graphs that are kept; the least recently used go first.
    """

    def __init__(self, capacity: int = 128) -> None:
        self._capacity = capacity
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Lock()
        self._pool: Any = None
        self._stream: Any = None
        self.works = True
        """False once a recording has failed: everything then runs without graphs."""

    def __len__(self) -> int:
        return len(self._recordings)

    def run(self, key: Hashable, function: Function, inputs: Tensors) -> Tensors:
        """Call a function, or replay its recording.

        The first call with a key is plain: most shapes of inputs never recur.

        Args:
            key: What the function depends on besides the values of its inputs, shapes included.
            function: Returns tensors; it must not wait for the GPU nor copy from the host.
            inputs: Tensors on the GPU, of the same shapes for the same key.
        """
        with self._lock:
            if not self.works or not self._seen_before(key):
                return function(*inputs)
            if key not in self._recordings and not self._record(key, function, inputs):
                return function(*inputs)
            self._recordings.move_to_end(key)
            return self._recordings[key].replay(inputs)

    def _seen_before(self, key: Hashable) -> bool:
        """Return whether a key has been seen, and note it."""
        known = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST_KEYS:
            self._seen.popitem(last=False)
        return known

    def _record(self, key: Hashable, function: Function, inputs: Tensors) -> bool:
        """Record a function; return whether that worked."""
        try:
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
                self._stream = torch.cuda.Stream(inputs[0].device)
            if len(self._recordings) >= self._capacity:
                self._recordings.popitem(last=False)
            self._recordings[key] = _Recording(function, inputs, self._pool, self._stream)
        except RuntimeError as error:  # no memory for it, or something in it cannot be recorded
            logger.warning("CUDA graphs are not used from here on: %s", error)
            self.works = False
            self._recordings.clear()
        return self.works


class _Recording:
    """One graph, with the memory that it reads and writes.

    All graphs share a pool of memory. That is safe because they run one after another, and results
    are copied out before the next one starts.

    Args:
        function: What is recorded.
        inputs: Its inputs.
        pool: The pool of memory.
        stream: Where to record; one for all, since cuBLAS takes memory for each that it meets.
    """

    def __init__(
        self, function: Function, inputs: Sequence[Tensor], pool: Any, stream: Any
    ) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        with torch.cuda.device(self._inputs[0].device):
            # Called once outside: compiling kernels and setting up libraries cannot be recorded.
            current = torch.cuda.current_stream()
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                function(*self._inputs)
            current.wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may go on with what is not allowed here, such as allocating memory.
            with torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"):
                self._outputs = function(*self._inputs)

    def replay(self, inputs: Sequence[Tensor]) -> Tensors:
        """Run on other values; the results are the caller's own."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return tuple(output.clone() for output in self._outputs)

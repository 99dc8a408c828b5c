"""The biLM for inference on a GPU: the numbers of `BiLM`, tens of times faster.

What is different from the plain layers, and why it is fast:

* both directions run in one loop over time (`layer.py`), each product a batched one of two;
* rows of sentences that have ended are dropped, and nothing is allocated inside the loop;
* the input product of the first layer runs once for each distinct word, and the cell's kernel reads
  its rows by index; input products of upper layers run for many time steps at once;
* everything between products is two kernels a step (`kernels/inference_cell.py`), and the second
  writes each output where the caller reads it, in the order of the words;
* characters are filtered by a table (`characters.py`);
* a single row is bound by reading weights, for which there are kernels of its own
  (`kernels/inference_row.py`);
* a few sentences are a recorded CUDA graph (`kernels/inference_graphs.py`), one alone of its own
  length, several filled up to one of a few shapes.

Where Triton cannot run, plain PyTorch computes what lies between the products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from elmo.backends.base import Backend, WordCache, WordSource
from elmo.backends.gpu.characters import FusedCharacterEncoder
from elmo.backends.gpu.kernels.gpu import next_power_of_2, triton_ready
from elmo.backends.gpu.kernels.inference_graphs import GraphCache, Tensors
from elmo.backends.gpu.layer import Buffers, FusedLayer, ProductLimits, product_bytes
from elmo.backends.gpu.word_table import DeviceWordCache
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM, State, pack_on, padded_places, zero_state
from elmo.model.layers import CharacterEncoder
from elmo.runtime.devices import exact_products, send
from elmo.settings import Precision
from elmo.text.characters import checked_ids

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""In which type the products of each precision are computed; sums are float32 in all of them."""

_GRAPH_WORDS = 128
"""Longer sentences are not recorded: their kernels take longer than their launches are worth."""
_GRAPH_ROWS = 128
"""Nor are more of them together."""
_GRAPH_STEPS = 8
"""What the time steps of several sentences are filled up to a multiple of."""
_GRAPH_PRODUCTS = {"fp32": 1 << 27, "bf16": 1 << 32, "fp16": 1 << 32}
"""So many products in a time step take a GPU about as long as their launches take the host."""
_GRAPH_SHARE = 8
"""A recording, which keeps its memory, may take one part in so many of the limit of products."""


class _Batch(NamedTuple):
    """How sentences are laid out for reading; see `elmo.model.bilm.Packing`."""

    places: Tensor
    """Which word stands at each place, reading forwards and backwards, int64 `(2, n)`."""
    order: Tensor
    """Sentences from longest to shortest, int64 `(rows,)`."""
    batch_sizes: list[int]
    """Rows of each time step."""
    active: Tensor | None = None
    """1 for rows that have a word at a step, 0 for those whose sentence has ended but that are
    computed nevertheless, int32 `(steps, rows)`; None if ended rows are dropped."""


class GPUBackend(Backend):
    """A biLM frozen for inference on a GPU.

    Args:
        bilm: The model; it is emptied, its weights move here.
        precision: `fp32`, whose products are exact (no TF32); `bf16` or `fp16` for products of
            rounded weights and states. Memory, sums and the vectors of words are float32 in all.
        device: Where to compute; where the model is if None.
        compiled: Whether to run Triton kernels; if None, where they can run.
    """

    cells = ("lstm",)
    cache_mb = 512

    def __init__(
        self,
        bilm: BiLM,
        precision: Precision = "fp32",
        device: torch.device | None = None,
        compiled: bool | None = None,
    ) -> None:
        place = bilm.boundaries.device if device is None else device
        if precision not in DTYPES:
            raise ConfigError(
                f"precision is {precision!r}, expected one of {', '.join(DTYPES)} on {place}; "
                "use device='cpu' for the others"
            )
        super().__init__(bilm, precision, place)
        self._compiled = triton_ready(place) if compiled is None else compiled
        self._dtype = DTYPES[precision]
        self._encoder = bilm.words.to(place).requires_grad_(False)
        self._characters: FusedCharacterEncoder | None = None
        with torch.no_grad():
            if isinstance(self._encoder, CharacterEncoder):
                self._characters = FusedCharacterEncoder(self._encoder, self.config, self._compiled)
            self._layers = [
                FusedLayer(sides, self.config, self._dtype, place, self._compiled)
                for sides in zip(bilm.cells(0), bilm.cells(1), strict=True)
            ]
        self._product_limits = ProductLimits.on(place)
        self._graphs = GraphCache() if place.type == "cuda" else None

    def _cache_words(self, source: WordSource, capacity: int) -> WordCache:
        return DeviceWordCache(source, self.config, self.precision, capacity)

    @torch.no_grad()
    def encode_words(self, ids: Tensor) -> Tensor:
        """Encode words without their context; see `BiLMBase.encode_words`."""
        with exact_products(self.device), on_device(self.device):
            vectors: Tensor = (self._characters or self._encoder)(checked_ids(ids))
        return vectors

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
        depth = self.config.n_layers if depth is None else depth
        start = zero_state(self.config, len(lengths), vectors) if state is None else state
        if not lengths:
            return [vectors.new_empty(0, self.config.output_dim)] * depth, start
        with exact_products(self.device), on_device(self.device):
            # A sentence alone is recorded by its length, so that nothing is padded. Several are
            # padded to one of a few shapes. All others are launched step by step.
            if len(lengths) == 1 and len(tokens) <= _GRAPH_WORDS and self._graphs is not None:
                outputs, *final = self._graphs.run(
                    (len(tokens), depth),
                    lambda words, *state: self._read_one(words, State(*state), depth),
                    (vectors[tokens], *start),
                )
            elif (shape := self._recorded_shape(lengths)) is not None:
                outputs, *final = self._read_recorded(vectors, tokens, lengths, start, depth, shape)
            else:
                packing = pack_on(self.device, lengths)
                batch = _Batch(
                    torch.stack([packing.forward, packing.backward]),
                    packing.order,
                    packing.batch_sizes,
                )
                outputs, *final = self._read_batch(
                    vectors, tokens[batch.places], batch, start, depth
                )
        return list(outputs), State(*final)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights; see `Backend.tensors`."""
        tensors = {f"words.{name}": t.cpu() for name, t in self._encoder.state_dict().items()}
        for direction, side in enumerate(("forward_layers", "backward_layers")):
            for number, layer in enumerate(self._layers):
                weights = layer.tensors(direction)
                tensors |= {f"{side}.{number}.{name}": t for name, t in weights.items()}
        return tensors

    # --- reading --------------------------------------------------------------------------------

    def _read_one(self, vectors: Tensor, start: State, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        """Read one sentence whose words have the vectors `(n, projection_dim)`.

        Everything is computed on the GPU: a recording cannot copy from the host.
        """
        n = len(vectors)
        forwards = torch.arange(n, device=self.device)
        batch = _Batch(torch.stack([forwards, n - 1 - forwards]), forwards[:1], [1] * n)
        return self._read_batch(vectors, batch.places, batch, start, depth)

    def _recorded_shape(self, lengths: Sequence[int]) -> tuple[int, int] | None:
        """Return rows and time steps of the recording for a batch; None if it would be no gain."""
        longest = max(lengths)
        if self._graphs is None or not self._graphs.works or not self._compiled:
            return None
        if len(lengths) > _GRAPH_ROWS or longest > _GRAPH_WORDS:
            return None
        rows = next_power_of_2(len(lengths))
        steps = math.ceil(longest / _GRAPH_STEPS) * _GRAPH_STEPS
        weights = 2 * self.config.dim * 5 * self.config.projection_dim
        pays = rows * weights <= _GRAPH_PRODUCTS[self.precision]
        needed = rows * steps * product_bytes(self.config, self._dtype)
        fits = needed * _GRAPH_SHARE <= self._product_limits.table
        return (rows, steps) if pays and fits else None

    def _read_recorded(
        self,
        vectors: Tensor,
        tokens: Tensor,
        lengths: Sequence[int],
        start: State,
        depth: int,
        shape: tuple[int, int],
    ) -> Tensors:
        """Read as `_read_batch` does, by a recording of `(rows, steps)`.

        Sentences are padded to its steps and missing rows are filled up, so that few shapes are
        recorded; what is computed for padding is dropped.
        """
        assert self._graphs is not None
        rows, steps = shape
        n, n_missing = len(tokens), rows - len(lengths)
        # Layout and sizes go to the GPU in one copy, before the replay: a graph cannot copy.
        sizes = np.asarray([*lengths, *[0] * n_missing], dtype=np.int64)
        layout = np.concatenate([padded_places(sizes, steps).ravel(), sizes])
        places, on_sizes = torch.split(send(layout, self.device), [2 * rows * steps, rows])
        # As many words as the recording has places; word 0 stands behind the last one.
        by_place = vectors[functional.pad(tokens, (0, rows * steps - n))]
        before = (functional.pad(part, (0, 0, 0, n_missing)) for part in start)

        def read(vectors: Tensor, places: Tensor, sizes: Tensor, *state: Tensor) -> Tensors:
            return self._read_padded(vectors, places, sizes, State(*state), depth)

        key, inputs = (rows, steps, depth), (by_place, places.view(2, -1), on_sizes, *before)
        outputs, *final = self._graphs.run(key, read, inputs)
        return outputs[:, :n], *(part[:, :, : len(lengths)] for part in final)

    def _read_padded(
        self, vectors: Tensor, places: Tensor, sizes: Tensor, start: State, depth: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read sentences that are laid out as `padded_places` says.

        Args:
            vectors: Vectors of the words, one sentence after another, `(steps * rows,
                projection_dim)`; those behind the last word are never read.
            places: Which of them is read at each place, int64 `(2, steps * rows)`.
            sizes: Words of each sentence, int64 `(rows,)`.
            start: The state before the first word.
            depth: How many layers are wanted.
        """
        rows = len(sizes)
        steps = places.shape[1] // rows
        # Rows do not become fewer: those that have ended are computed and their results dropped.
        active = (torch.arange(steps, device=self.device)[:, None] < sizes).int()
        batch = _Batch(places, torch.arange(rows, device=self.device), [rows] * steps, active)
        return self._read_batch(vectors, places, batch, start, depth)

    def _read_batch(
        self, vectors: Tensor, words: Tensor, batch: _Batch, start: State, depth: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the layers one after another.

        Args:
            vectors: Vectors of the distinct words, `(m, projection_dim)`.
            words: Which of them is read at each place of the batch, int64 `(2, n)`.
            batch: How sentences are laid out.
            start: The state before the first word.
            depth: How many layers are wanted.

        Returns:
            Outputs `(depth, n, 2 * projection_dim)`, and hidden state and memory of the end.
        """
        config = self.config
        n, width = words.shape[1], config.projection_dim
        outputs = torch.empty(depth, n, config.output_dim, device=self.device)
        final = zero_state(config, len(batch.order), vectors)
        buffers = Buffers(config, batch.batch_sizes, self._dtype, self.device, self._product_limits)
        inputs, index = vectors.to(self._dtype), words
        # What the layer below computed, in the order of reading: `(2, n, projection_dim)`.
        reading: Tensor | None = None
        for number, layer in enumerate(self._layers[:depth]):
            buffers.begin(start, number, batch.order)
            # The kernels write each output twice: for the caller, in the order of the words, with
            # the residual added; and for the layer above, in the order of reading and in `dtype`.
            above = None
            if number + 1 < depth:
                above = torch.empty(2, n, width, dtype=self._dtype, device=self.device)
            below = outputs[number - 1] if number > 0 and config.skip_connections else None
            products = (
                layer.products_of_words(inputs, index, batch.batch_sizes, buffers)
                if reading is None
                else layer.products(reading, batch.batch_sizes, buffers)
            )
            layer.read(products, batch.places, buffers, below, outputs[number], above, batch.active)
            # The buffers' rows are sorted by length, those of the caller are not.
            final.hidden[number].index_copy_(1, batch.order, buffers.hidden.float())
            final.memory[number].index_copy_(1, batch.order, buffers.memory)
            reading = above
        return outputs, *final


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the current one: Triton launches kernels there, wherever their data is."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

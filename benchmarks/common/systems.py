"""The ways to embed a corpus that are compared, each as one function of the sentences."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt
import torch

from elmo.backends.cpu.products import runs_natively
from elmo.config import ElmoConfig
from elmo.embedder import ELMo
from elmo.errors import ConfigError, ElmoError, ElmoWarning
from elmo.model.bilm import random_bilm
from elmo.runtime.devices import find_device
from elmo.settings import Layers, Precision

if TYPE_CHECKING:  # so that a process that measures one system does not pay for the other
    from benchmarks.common.allennlp import AllenNLP

Sentences = list[list[str]]
Vectors = list[npt.NDArray[np.float32]]

_CPU_BATCH, _GPU_BATCH = 32, 1024


def devices(name: str) -> list[torch.device]:
    """Return the devices that are measured: for `auto` the CPU and a GPU where there is one."""
    if name != "auto":
        return [find_device(name)]
    return [torch.device("cpu"), *([find_device("cuda")] if torch.cuda.is_available() else [])]


def set_threads(threads: int | None) -> None:
    """Let torch use so many threads; as many as it wants if None."""
    if threads is not None:
        torch.set_num_threads(threads)


@contextmanager
def gpu_memory_is_enough() -> Iterator[None]:
    """Raise an error that says what to change where a GPU has too little memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the GPU has too little memory: {str(error).splitlines()[0]} Measure less at once: "
            "fewer sentences, a smaller size, --layers top, or --device cpu"
        ) from None


def batch_size(device: torch.device) -> int:
    """Return how many sentences a batch of AllenNLP has, and a small call of ours."""
    return _GPU_BATCH if device.type == "cuda" else _CPU_BATCH


class Ours:
    """Our model, with a word cache that can be emptied.

    Args:
        source: What `ELMo.from_pretrained` is given.
        precision: Of the products.
        device: Where to compute.
        layers: What is asked for.
    """

    def __init__(
        self, source: str, precision: Precision, device: torch.device, layers: Layers = "all"
    ) -> None:
        self.model = ELMo.from_pretrained(source, precision=precision, device=device)
        self.precision = precision
        self.name = f"ours {precision}"
        self._layers = layers

    def forget(self) -> None:
        """Empty the word cache, so that a run has nothing from the run before."""
        self.model._pipeline.words.clear()

    def in_one_call(self, sentences: Sentences) -> Vectors:
        """Embed all sentences at once; the vectors come to the memory of the host."""
        return self.model.encode_tokens(sentences, layers=self._layers)

    def on_the_device(self, sentences: Sentences) -> list[Any]:
        """Embed all sentences at once; the vectors stay where they were computed."""
        vectors = self.model.encode_tokens(sentences, layers=self._layers, convert_to_tensor=True)
        wait_for(self.model.device)
        return vectors

    def in_small_calls(self, sentences: Sentences) -> Vectors:
        """Embed in the order given, a few sentences a call, as a service would."""
        size = batch_size(self.model.device)
        return [
            vectors for batch in _batches(sentences, size) for vectors in self.in_one_call(batch)
        ]


def in_given_order(peer: AllenNLP, sentences: Sentences, device: torch.device) -> list[object]:
    """Embed with AllenNLP in the order given."""
    results: list[object] = [peer.embed(batch) for batch in _batches(sentences, batch_size(device))]
    wait_for(device)
    return results


def in_sorted_order(peer: AllenNLP, sentences: Sentences, device: torch.device) -> list[object]:
    """Embed with AllenNLP sorted by length: little padding, its best case.

    Putting results back in order, which a user would have to do, is not even asked of it.
    """
    return in_given_order(peer, sorted(sentences, key=len), device)


def wait_for(device: torch.device) -> None:
    """Wait until everything that a GPU was asked for is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def usable_precisions(
    asked: Sequence[Precision], device: torch.device, notes: list[str], emulate: bool = False
) -> tuple[Precision, ...]:
    """Return the precisions that a device computes in; what is left out is noted.

    Args:
        asked: Those that are wanted; all if empty.
        device: Where.
        notes: Get a line for each that is left out.
        emulate: Whether to keep those for which a CPU has no instructions: it then rounds weights
            and computes in float32, which is slow but shows the errors.
    """
    usable: list[Precision] = []
    for precision in asked or get_args(Precision):
        reason = _why_not(precision, device, emulate)
        if reason is None:
            usable.append(precision)
        else:
            notes.append(f"{precision} on {device} was left out: {reason}")
    if not usable:
        raise ConfigError(f"nothing is left to measure: {'; '.join(notes)}")
    return tuple(usable)


def _why_not(precision: Precision, device: torch.device, emulate: bool) -> str | None:
    if device.type == "cpu" and not emulate and not runs_natively(precision):
        return f"this CPU has no instructions for {precision}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ElmoWarning)
            ELMo(random_bilm(ElmoConfig.preset("tiny")), precision=precision, device=device)
    except ElmoError as error:
        return str(error)
    return None


def _batches(sentences: Sentences, size: int) -> Iterator[Sentences]:
    for start in range(0, len(sentences), size):
        yield sentences[start : start + size]

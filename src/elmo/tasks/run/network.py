"""Features and head as one network, run on batches of examples of similar length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmo.tasks.features.inputs import InputStore
from elmo.tasks.features.word_features import WordFeatures
from elmo.tasks.heads.base import Head, Task, send

_POOL = 32
"""Batches of training examples that are sorted by length together."""
_PREDICTION_FACTOR = 4
"""Batches are larger by this factor where no gradients are kept."""


class TaskNetwork(nn.Module):
    """All parameters that are trained.

    Args:
        features: Words -> vectors.
        head: Vectors -> loss or predictions.
    """

    def __init__(self, features: WordFeatures, head: Head[Any, Any]) -> None:
        super().__init__()
        self.features = features
        self.head = head


class Runner:
    """Runs a network on examples.

    Args:
        task: The task of the examples.
        network: The network; moved to the device.
        store: Inputs of the features.
        device: Where to compute.
        half: Whether products are computed in bfloat16.
    """

    def __init__(
        self,
        task: Task[Any, Any, Any],
        network: TaskNetwork,
        store: InputStore,
        device: torch.device,
        half: bool = False,
    ) -> None:
        self.task = task
        self.network = network.to(device)
        self.store = store
        self.device = device
        self._half = half

    def prepare(self, examples: Sequence[Any], repeatedly: bool = False) -> None:
        """Embed all sentences of examples; see `InputStore.prepare`."""
        # Examples may share texts, such as questions about a paragraph.
        distinct = {tuple(s): s for e in examples for s in self.task.sentences(e)}
        self.store.prepare(list(distinct.values()), repeatedly)

    def loss(self, examples: Sequence[Any]) -> Tensor:
        """Return the mean loss of a batch, shape `()`, without the penalty of the mixes."""
        loss: Tensor = self._run(self.network.head.loss, examples)
        return loss

    def predict(
        self,
        examples: Sequence[Any],
        batch: int,
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[Any]:
        """Return one prediction per example, in order."""
        self.network.eval()
        predictions: list[Any] = [None] * len(examples)
        sizes = [self.size(example) for example in examples]
        with torch.inference_mode():
            for numbers in sorted_batches(sizes, batch * _PREDICTION_FACTOR):
                some = [examples[number] for number in numbers]
                for number, own in zip(
                    numbers, self._run(self.network.head.predict, some), strict=True
                ):
                    predictions[number] = own
                progress(len(numbers))
        return predictions

    def size(self, example: Any) -> int:
        """Count the words of an example."""
        return sum(len(words) for words in self.task.sentences(example))

    def _run(self, method: Callable[[Any, Any], Any], examples: Sequence[Any]) -> Any:
        sentences = [words for example in examples for words in self.task.sentences(example)]
        inputs = self.store(sentences)
        batch = send(self.task.collate(examples), self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._half):
            return method(self.network.features(inputs), batch)


# --- batches --------------------------------------------------------------------------------------


def shuffled_batches(
    sizes: Sequence[int], batch: int, generator: np.random.Generator
) -> list[list[int]]:
    """Split examples into batches of similar length, in random order.

    Args:
        sizes: Words of each example.
        batch: Examples in a batch.
        generator: Determines the order.

    Returns:
        Numbers of examples; each is in one batch.
    """
    order = generator.permutation(len(sizes))
    batches: list[list[int]] = []
    for first in range(0, len(order), _POOL * batch):
        pool = order[first : first + _POOL * batch]
        pool = pool[np.argsort([sizes[k] for k in pool], kind="stable")]
        batches += [pool[k : k + batch].tolist() for k in range(0, len(pool), batch)]
    return [batches[k] for k in generator.permutation(len(batches))]


def sorted_batches(sizes: Sequence[int], batch: int) -> list[list[int]]:
    """Split examples into batches, longest first, so that memory runs out at once or never."""
    order = np.argsort([-size for size in sizes], kind="stable").tolist()
    return [order[first : first + batch] for first in range(0, len(order), batch)]


def chosen_share(count: int, share: float, seed: int) -> list[int]:
    """Sample a share of `count` examples; smaller shares are subsets of larger ones."""
    order = np.random.default_rng(seed).permutation(count)
    return sorted(order[: max(1, round(share * count))].tolist())

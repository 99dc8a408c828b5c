"""Features and head together: what is trained, saved and used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo.tasks.features.features import WordFeatures
from elmo.tasks.features.lookup import Lookups
from elmo.tasks.heads.base import Head, Task, send
from elmo.tasks.run.batches import sorted_batches

_MEASURED_AT_ONCE = 4
"""Batches are larger by this where no gradients are kept."""


class TaskNetwork(nn.Module):
    """All that learns.

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
        task: What examples are.
        network: What learns; moved to the device.
        lookups: Finds what is known of sentences.
        device: Where to compute.
        half: Whether products are computed in bfloat16.
    """

    def __init__(
        self,
        task: Task[Any, Any, Any],
        network: TaskNetwork,
        lookups: Lookups,
        device: torch.device,
        half: bool = False,
    ) -> None:
        self.task = task
        self.network = network.to(device)
        self.lookups = lookups
        self.device = device
        self._half = half

    def prepare(self, examples: Sequence[Any], settle: bool = False) -> None:
        """Embed all sentences of examples; see `Lookups.prepare`."""
        # Many examples may be about the same text, such as questions about a paragraph.
        distinct = {tuple(s): s for e in examples for s in self.task.sentences(e)}
        self.lookups.prepare(list(distinct.values()), settle)

    def loss(self, examples: Sequence[Any]) -> Tensor:
        """Give the mean loss of a batch, shape `()`, without the penalty of the mixes."""
        loss: Tensor = self._run(self.network.head.loss, examples)
        return loss

    def predict(
        self,
        examples: Sequence[Any],
        batch: int,
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[Any]:
        """Give a prediction for each example, in order."""
        self.network.eval()
        predictions: list[Any] = [None] * len(examples)
        sizes = [self.size(example) for example in examples]
        with torch.inference_mode():
            for numbers in sorted_batches(sizes, batch * _MEASURED_AT_ONCE):
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
        lookup = self.lookups(sentences)
        batch = send(self.task.collate(examples), self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._half):
            return method(self.network.features(lookup), batch)

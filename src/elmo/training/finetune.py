"""Domain fine-tuning: a published or trained model goes on learning from other text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.hub.names import open_model
from elmo.settings import TokenizerName
from elmo.text.vocabulary import Vocabulary
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shards import MANIFEST_FILE
from elmo.training.settings import LENGTHS, TrainSettings
from elmo.training.trainer import TrainReport, train

RATE = 1e-3
LAYER_DECAY = 0.6
"""Each layer further from the output learns at 0.6 of the rate of the one above it."""
HELDOUT = 0.05
"""Share of the text to be held out: a domain's text is smaller than a language's."""


def finetune(
    model: str,
    corpus: list[Path],
    settings: TrainSettings,
    tokenizer: TokenizerName = "whitespace",
    vocab_size: int | None = None,
) -> TrainReport:
    """Go on training a model on text of a domain.

    Without an output layer (published weights have none) a new one is learned first, with the
    layers below frozen, then all of them, the lower the more slowly.

    Args:
        model: Folder, weights file or Hub repository.
        corpus: A folder that `elmo prepare` wrote, or text files.
        settings: How; its `out` is needed. By default one pass over the text, two if the output
            layer is new.
        tokenizer: How text files are split.
        vocab_size: Words of a new output layer, if text files are given.
    """
    if settings.out is None:
        raise ConfigError("fine-tuning needs --out, a folder for the run")
    checkpoint = open_model(model)
    data = _prepared(corpus)
    if data is None:
        data = settings.out / "corpus"
        known = checkpoint.vocabulary if checkpoint.softmax else None
        choices: dict[str, Any] = {"tokenizer": tokenizer, "resume": True, "heldout": HELDOUT}
        if vocab_size is not None:
            choices["vocab_size"] = vocab_size
        _prepare(corpus, data, known, choices, show_progress=not settings.quiet)
    changes: dict[str, object] = {"start_from": model, "data": data}
    if all(getattr(settings, name) is None for name in LENGTHS):
        changes["epochs"] = 1.0 if checkpoint.softmax else 2.0
    if settings.rate is None and settings.optimizer == "adamw":
        changes["rate"] = RATE
    if settings.layer_decay == 1.0:
        changes["layer_decay"] = LAYER_DECAY
    return train(settings.replace(**changes))


def _prepared(corpus: list[Path]) -> Path | None:
    """Give the prepared folder, if the corpus is one."""
    if len(corpus) == 1 and (corpus[0] / MANIFEST_FILE).is_file():
        return corpus[0]
    return None


def _prepare(
    corpus: list[Path],
    out: Path,
    known: Vocabulary | None,
    choices: dict[str, Any],
    show_progress: bool,
) -> None:
    """Prepare text, with the vocabulary of the model's output layer if it has one."""
    if known is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        words = out.parent / "vocab.txt"
        known.write(words)
        choices = {**choices, "vocabulary": words}
    prepare(corpus, out, PrepareSettings(**choices), show_progress)

"""Domain fine-tuning: a published or trained model learns from other text."""

from __future__ import annotations

from pathlib import Path

from elmo.errors import ConfigError
from elmo.hub.names import open_model
from elmo.settings import TokenizerName
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shards import MANIFEST_FILE
from elmo.training.settings import LENGTHS, TrainSettings
from elmo.training.trainer import TrainReport, train

LEARNING_RATE = 1e-3
LAYER_DECAY = 0.6
"""Factor of the learning rate from each layer to the one below it."""
HELDOUT = 0.05
"""Fraction of the text to hold out: more than by default, as there is less text."""


def finetune(
    model: str,
    corpus: list[Path],
    settings: TrainSettings,
    tokenizer: TokenizerName = "whitespace",
    vocab_size: int | None = None,
) -> TrainReport:
    """Train a model further on text of a domain.

    Without an output layer (published weights have none) a new one is learned first, with the
    layers below frozen, then all layers, with discriminative learning rates.

    Args:
        model: Folder, weights file or Hub repository.
        corpus: A folder that `elmo prepare` wrote, or text files.
        settings: How; its `out` is needed. By default one epoch, two if the output layer is new.
        tokenizer: How text files are split.
        vocab_size: Words of a new output layer, if text files are given.
    """
    if settings.out is None:
        raise ConfigError("fine-tuning needs --out, a folder for the run")
    checkpoint = open_model(model)
    known = checkpoint.vocabulary if checkpoint.softmax else None
    if len(corpus) == 1 and (corpus[0] / MANIFEST_FILE).is_file():
        data = corpus[0]
    else:
        data = settings.out / "corpus"
        how = PrepareSettings(tokenizer=tokenizer, resume=True, heldout=HELDOUT)
        if vocab_size is not None:
            how = how.replace(vocab_size=vocab_size)
        if known is not None:  # the words of the output layer
            settings.out.mkdir(parents=True, exist_ok=True)
            known.write(settings.out / "vocab.txt")
            how = how.replace(vocabulary=settings.out / "vocab.txt")
        prepare(corpus, data, how, show_progress=not settings.quiet)
    changes: dict[str, object] = {"start_from": model, "data": data}
    if all(getattr(settings, name) is None for name in LENGTHS):
        changes["epochs"] = 2.0 if known is None else 1.0
    if settings.rate is None and settings.optimizer == "adamw":
        changes["rate"] = LEARNING_RATE
    if settings.layer_decay == 1.0:
        changes["layer_decay"] = LAYER_DECAY
    return train(settings.replace(**changes))

"""Domain fine-tuning: a published or trained model learns from other text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
HELDOUT_SHARE = 0.05
"""Fraction of the text to hold out: more than by default, as there is less text."""


def finetune(
    model: str | Path,
    inputs: Sequence[Path | str] | Path | str,
    settings: TrainSettings | None = None,
    *,
    tokenizer: TokenizerName | None = None,
    vocab_size: int | None = None,
    **changes: Any,
) -> TrainReport:
    """Train a model further on text of a domain.

        elmo.finetune("small-en", ["letters.txt"], out="tuned")

    Without an output layer (published weights have none) a new one is learned first, with the
    layers below frozen, then all layers, with discriminative learning rates.

    Args:
        model: Name, folder, weights file or Hub repository.
        inputs: A folder that `elmo prepare` wrote, or text files.
        settings: How; its `out` is needed. By default one epoch, two if the output layer is new.
        tokenizer: How text files are split; by default as the model's own texts were, else
            whitespace.
        vocab_size: Words of a new output layer, if text files are given.
        **changes: Fields of `TrainSettings`, over those of `settings`.
    """
    settings = (settings or TrainSettings()).replace(**changes)
    if settings.out is None:
        raise ConfigError("fine-tuning needs --out, a folder for the run")
    checkpoint = open_model(str(model))
    known = checkpoint.vocabulary if checkpoint.softmax else None
    places = [inputs] if isinstance(inputs, Path | str) else list(inputs)
    if len(places) == 1 and (Path(places[0]) / MANIFEST_FILE).is_file():
        data = Path(places[0])
    else:
        data = settings.out / "corpus"
        name = tokenizer or checkpoint.config.tokenizer or "whitespace"
        how = PrepareSettings(tokenizer=name, resume=True, heldout_share=HELDOUT_SHARE)
        if vocab_size is not None:
            how = how.replace(vocab_size=vocab_size)
        if known is not None:  # the words of the output layer
            settings.out.mkdir(parents=True, exist_ok=True)
            known.write(settings.out / "vocab.txt")
            how = how.replace(vocabulary=settings.out / "vocab.txt")
        prepare(places, data, how, show_progress=not settings.quiet)
    defaults: dict[str, object] = {}
    if all(getattr(settings, name) is None for name in LENGTHS):
        defaults["epochs"] = 2.0 if known is None else 1.0
    if settings.learning_rate is None and settings.optimizer == "adamw":
        defaults["learning_rate"] = LEARNING_RATE
    if settings.layer_decay == 1.0:
        defaults["layer_decay"] = LAYER_DECAY
    return train(settings, init_from=str(model), data=data, **defaults)

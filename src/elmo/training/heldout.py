"""The text that a prepared corpus holds out: how well does a model predict it?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm.auto import tqdm

from elmo.errors import InputError, WeightsError
from elmo.hub.names import open_model
from elmo.model.checkpoint import Checkpoint
from elmo.runtime.devices import find_device
from elmo.text.vocabulary import Vocabulary
from elmo.training.build import build_model, model_ids
from elmo.training.corpus.shards import Corpus
from elmo.training.language_model import LanguageModel, measure
from elmo.training.settings import TrainSettings
from elmo.training.streams import Streams

_ROWS = 32
_ROW_TOKENS = 500
"""Held-out text is read in up to 32 streams, each at least so long: the same for every batch."""


@dataclass(frozen=True, kw_only=True)
class HeldoutPerplexity:
    """How well a model predicts held-out documents, read on and on as in training."""

    forward: float
    backward: float
    mean: float
    """Of the two."""
    n_predictions: int
    """Words and boundaries that were predicted in each direction."""
    unknown_rate: float
    """Share of all held-out words that are not in the vocabulary."""


def heldout_streams(corpus: Corpus, model: LanguageModel, unroll: int) -> Streams | None:
    """Give the held-out text of a corpus as streams; None if there is none."""
    places = sum(len(s.tokens) + len(s.sentence_starts) - 1 for s in corpus.heldout)
    if places == 0:
        return None
    return Streams(
        corpus.heldout,
        corpus.vocabulary,
        model_ids(model, corpus.vocabulary),
        rows=max(1, min(_ROWS, places // _ROW_TOKENS)),
        unroll=min(unroll, places),
        shuffle="none",
    )


def heldout_perplexity(
    name: str,
    folder: Path,
    device: str | torch.device | None = None,
    most_words: int | None = None,
    show_progress: bool = False,
) -> HeldoutPerplexity:
    """Measure a trained model on the held-out text of a prepared corpus, as `elmo train` does.

    Args:
        name: The model, with an output layer for the words of the corpus.
        folder: What `elmo prepare` wrote.
        device: Where to compute.
        most_words: Stop after about so many words.
        show_progress: Whether to show progress.
    """
    corpus = Corpus.open(folder)
    place = find_device(device)
    _require_same_words(name, open_model(name), corpus.vocabulary, folder)
    settings = TrainSettings(start_from=name, data=folder)
    model = build_model(settings, corpus.vocabulary).model.to(place)
    streams = heldout_streams(corpus, model, settings.unroll)
    if streams is None:
        raise InputError(f"{folder} has no held-out text: prepare it with --heldout above 0")
    limit = None if most_words is None else -(-most_words // streams.rows)
    windows = streams.windows_per_epoch
    total = windows if limit is None else min(windows, -(-limit // streams.unroll))
    found = measure(
        model, tqdm(streams.one_pass(limit), total=total, disable=not show_progress), place
    )
    forward, backward = found.of_directions
    told = corpus.manifest.heldout
    return HeldoutPerplexity(
        forward=forward,
        backward=backward,
        mean=(forward + backward) / 2,
        n_predictions=found.n_tokens,
        unknown_rate=told.unknown / max(1, told.words),
    )


def _require_same_words(
    name: str, checkpoint: Checkpoint, expected: Vocabulary, folder: Path
) -> None:
    known = checkpoint.vocabulary
    if not checkpoint.softmax or known is None:
        raise WeightsError(f"{name} has no output layer: it cannot predict words")
    if known.words != expected.words:
        raise InputError(
            f"{name} predicts {len(known):,} words that are not the {len(expected):,} of the "
            f"vocabulary of {folder}: prepare the text with --vocabulary and the model's vocab.txt"
        )

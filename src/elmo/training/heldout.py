"""The held-out split of a prepared corpus: its streams, and the perplexity of a model on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from tqdm.auto import tqdm

from elmo.errors import InputError, WeightsError
from elmo.hub.names import open_model
from elmo.model.perplexity import Perplexity
from elmo.runtime.devices import find_device
from elmo.training.build import build_model, model_ids
from elmo.training.corpus.shards import Corpus
from elmo.training.language_model import LanguageModel, measure
from elmo.training.settings import TrainSettings
from elmo.training.streams import Streams

_ROWS = 32
_ROW_TOKENS = 500
"""Held-out text is read in up to 32 streams of at least so many tokens, whatever the batch."""


def heldout_streams(corpus: Corpus, model: LanguageModel, unroll: int) -> Streams | None:
    """Return the held-out text of a corpus as streams; None if there is none."""
    n_tokens = sum(len(s.tokens) + len(s.sentence_starts) - 1 for s in corpus.heldout)
    if n_tokens == 0:
        return None
    return Streams(
        corpus.heldout,
        corpus.vocabulary,
        model_ids(model, corpus.vocabulary),
        rows=max(1, min(_ROWS, n_tokens // _ROW_TOKENS)),
        unroll=min(unroll, n_tokens),
        shuffle="none",
    )


def heldout_perplexity(
    name: str,
    folder: Path,
    device: str | torch.device | None = None,
    most_words: int | None = None,
    show_progress: bool = False,
) -> Perplexity:
    """Measure a trained model on the held-out text of a prepared corpus, as `elmo train` does.

    Sentences and words are counted over all held-out text, even where `most_words` reads less.

    Args:
        name: The model, with an output layer for the words of the corpus.
        folder: What `elmo prepare` wrote.
        device: Where to compute.
        most_words: Stop after about so many words.
        show_progress: Whether to show a progress bar.
    """
    corpus = Corpus.open(folder)
    place = find_device(device)
    checkpoint = open_model(name)
    known, expected = checkpoint.vocabulary, corpus.vocabulary
    if not checkpoint.softmax or known is None:
        raise WeightsError(f"{name} has no output layer: it cannot predict words")
    if known.words != expected.words:
        raise InputError(
            f"{name} predicts {len(known):,} words that are not the {len(expected):,} of the "
            f"vocabulary of {folder}: prepare the text with --vocabulary and the model's vocab.txt"
        )
    settings = TrainSettings(init_from=name, data=folder)
    model = build_model(settings, corpus.vocabulary).model.to(place)
    streams = heldout_streams(corpus, model, settings.unroll_steps)
    if streams is None:
        raise InputError(f"{folder} has no held-out text: prepare it with --heldout-share above 0")
    limit = None if most_words is None else -(-most_words // streams.rows)
    windows = streams.windows_per_epoch
    total = windows if limit is None else min(windows, -(-limit // streams.unroll))
    found = measure(
        model, tqdm(streams.one_pass(limit), total=total, disable=not show_progress), place
    )
    counts = corpus.manifest.heldout
    return dataclasses.replace(
        found.perplexity,
        n_sentences=counts.sentences,
        n_words=counts.words,
        n_unknown=counts.unknown,
    )

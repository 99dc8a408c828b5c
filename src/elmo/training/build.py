"""Settings and corpus -> the model that is trained -> a checkpoint."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from elmo.config import ElmoConfig
from elmo.errors import ConfigError
from elmo.hub.names import open_model
from elmo.lm.output_base import OutputLayer
from elmo.lm.softmax import load_output_layer, make_output_layer
from elmo.model.bilm import BiLM, Checkpoint
from elmo.model.layers import WordEncoder
from elmo.settings import SoftmaxKind, TokenizerName
from elmo.text.alphabet import Alphabet
from elmo.text.characters import WordIds, word_ids
from elmo.text.static_vectors import initial_embedding
from elmo.text.vocabulary import Vocabulary
from elmo.training.language_model import LanguageModel
from elmo.training.settings import TrainSettings
from elmo.weights.files import is_adaptive

_FULL_SOFTMAX_WORDS = 5_000
"""Vocabulary up to which the full softmax is the default: it is exact and hardly slower."""
_MOST_SAMPLES = 8192
"""Candidates of the sampled softmax as published, for 793,471 words."""
_FROZEN_SHARE = 0.3
"""Fraction of a run after which a new output layer no longer disturbs the layers below it."""
_BY_CODEPOINT = ("tutorial", "novel")
"""Presets whose models read code points by default."""
_BATCH = {"tiny": 16, "tutorial": 16, "novel": 32}
"""Streams in a batch by preset; 128, as published, for the others."""


def batch_rows(settings: TrainSettings) -> int:
    """Return the number of streams in a batch."""
    return settings.batch_size or _BATCH.get(settings.preset, 128)


def model_ids(model: LanguageModel, vocabulary: Vocabulary) -> WordIds:
    """Return what turns words into what the model reads."""
    return word_ids(model.bilm.config, vocabulary, model.bilm.alphabet)


@dataclass(frozen=True)
class Built:
    """A model to be trained."""

    model: LanguageModel
    frozen_share: float
    """Fraction of the run in which only the output layer learns."""
    notes: list[str]
    """What the user should know about how it was made."""


def build_model(settings: TrainSettings, vocabulary: Vocabulary) -> Built:
    """Return the model of a run, with random weights or those of another model.

    Args:
        settings: The settings.
        vocabulary: The words of the corpus.
    """
    notes: list[str] = []
    frozen_share = settings.frozen_share or 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        if settings.init_from is None:
            bilm = _random_bilm(settings, vocabulary)
            output = _random_output(settings, vocabulary, bilm)
        else:
            checkpoint = open_model(settings.init_from)
            bilm = _loaded_bilm(settings, checkpoint, vocabulary)
            output, note = _loaded_output(settings, checkpoint, vocabulary, bilm)
            notes.append(note)
            if settings.frozen_share is None and not checkpoint.softmax:
                frozen_share = _FROZEN_SHARE
        if settings.word_vectors is not None:
            notes.append(_start_from_static_vectors(settings, bilm, vocabulary))
    if settings.freeze_word_vectors:
        _require_words(settings, bilm, "--freeze-word-vectors").embedding.weight.requires_grad_(
            False
        )
    if settings.compile:
        bilm.words.compile(dynamic=True)
    model = LanguageModel(bilm, output, settings.dropout, settings.kernels == "auto")
    return Built(model, frozen_share, notes)


def to_checkpoint(
    model: LanguageModel, vocabulary: Vocabulary, tokenizer: TokenizerName | None
) -> Checkpoint:
    """Return a model as a checkpoint, with its output layer and words.

    Args:
        model: The model.
        vocabulary: The words of the output layer.
        tokenizer: How the corpus was split; None keeps what the model says.
    """
    softmax = {
        name: tensor.detach().cpu().float().contiguous()
        for name, tensor in model.output.to_tensors().items()
    }
    saved = model.bilm.to_checkpoint()
    config = saved.config
    if tokenizer is not None:
        config = config.replace(tokenizer=tokenizer)
    return dataclasses.replace(saved, config=config, vocabulary=vocabulary, softmax=softmax)


# --- random weights ------------------------------------------------------------------------------


def _random_bilm(settings: TrainSettings, vocabulary: Vocabulary) -> BiLM:
    named = {
        "cell": settings.cell,
        "n_layers": settings.layers,
        "dim": settings.dim,
        "projection_dim": settings.projection_dim,
    }
    changes = {name: value for name, value in named.items() if value is not None}
    kind = settings.input or ("codepoints" if settings.preset in _BY_CODEPOINT else "characters")
    if kind == "words":
        config = ElmoConfig.preset(settings.preset, n_words=len(vocabulary), **changes)
        return BiLM(config, vocabulary)
    if kind == "characters":
        return BiLM(ElmoConfig.preset(settings.preset, **changes))
    alphabet = Alphabet.build(vocabulary.words)
    config = ElmoConfig.preset(settings.preset, n_characters=alphabet.n_characters, **changes)
    return BiLM(config, alphabet=alphabet)


def _softmax_kind(settings: TrainSettings, vocabulary: Vocabulary) -> SoftmaxKind:
    if settings.softmax is not None:
        return settings.softmax
    return "full" if len(vocabulary) <= _FULL_SOFTMAX_WORDS else "sampled"


def _n_samples(settings: TrainSettings, vocabulary: Vocabulary) -> int:
    """Return the number of candidates; of a small vocabulary an eighth is enough."""
    return settings.softmax_samples or max(512, min(_MOST_SAMPLES, len(vocabulary) // 8))


def _random_output(settings: TrainSettings, vocabulary: Vocabulary, bilm: BiLM) -> OutputLayer:
    kind = _softmax_kind(settings, vocabulary)
    tied = None
    if settings.tie_embeddings:
        tied = _require_words(settings, bilm, "--tie-embeddings").embedding.weight
    samples = _n_samples(settings, vocabulary)
    return make_output_layer(kind, len(vocabulary), bilm.config.projection_dim, samples, tied)


def _start_from_static_vectors(settings: TrainSettings, bilm: BiLM, vocabulary: Vocabulary) -> str:
    words = _require_words(settings, bilm, "--word-vectors")
    assert settings.word_vectors is not None
    generator = torch.Generator().manual_seed(settings.seed)
    table, n_found = initial_embedding(
        vocabulary, settings.word_vectors, bilm.config.projection_dim, generator
    )
    with torch.no_grad():
        words.embedding.weight[1:] = table
    return f"{settings.word_vectors}: vectors of {n_found:,} of {len(vocabulary):,} words"


def _require_words(settings: TrainSettings, bilm: BiLM, flag: str) -> WordEncoder:
    if not isinstance(bilm.words, WordEncoder):
        raise ConfigError(f"{flag} needs a model that reads words: give --input words, too")
    return bilm.words


# --- weights of another model -------------------------------------------------------------------


def _loaded_bilm(settings: TrainSettings, checkpoint: Checkpoint, vocabulary: Vocabulary) -> BiLM:
    same = checkpoint.vocabulary is None or checkpoint.vocabulary.words == vocabulary.words
    if not checkpoint.config.reads_characters and not same:
        raise ConfigError(
            f"{settings.init_from} reads {checkpoint.config.n_words:,} words, the corpus has a "
            f"vocabulary of {len(vocabulary):,} others; prepare it with "
            f"--vocabulary {settings.init_from}/vocab.txt"
        )
    bilm = BiLM.from_checkpoint(checkpoint)
    bilm.load_state_dict({k: t.clone() for k, t in bilm.state_dict().items()}, assign=True)
    return bilm.requires_grad_(True).train()


def _loaded_output(
    settings: TrainSettings, checkpoint: Checkpoint, vocabulary: Vocabulary, bilm: BiLM
) -> tuple[OutputLayer, str]:
    """Return the output layer, or the rows of it that fit the vocabulary, and a note about it."""
    if not checkpoint.softmax:
        return _random_output(settings, vocabulary, bilm), (
            f"{settings.init_from} has no output layer: a new one is learned"
        )
    assert checkpoint.vocabulary is not None
    if checkpoint.vocabulary.words == vocabulary.words:
        saved = {name: tensor.clone() for name, tensor in checkpoint.softmax.items()}
        adaptive = is_adaptive(saved)
        known = load_output_layer(
            saved,
            kind=settings.softmax if adaptive else _softmax_kind(settings, vocabulary),
            n_samples=_n_samples(settings, vocabulary),
            tied=None if adaptive or "weight" in saved else bilm.words.embedding.weight,
        )
        return known, "the model's output layer is trained further"
    output = _random_output(settings, vocabulary, bilm)
    rows = [(k, checkpoint.vocabulary.place(word)) for k, word in enumerate(vocabulary.words)]
    shared = [(new, old) for new, old in rows if old is not None]
    parameters = dict(output.named_parameters())
    copied = 0
    for name, old_rows in checkpoint.softmax.items():
        target = parameters.get(name)
        if isinstance(target, nn.Parameter) and target.shape[0] == len(vocabulary):
            new, old = (torch.tensor(places) for places in zip(*shared, strict=True))
            with torch.no_grad():
                target[new] = old_rows[old]
            copied = len(shared)
    return output, (
        f"the vocabulary is not the model's: the output layer takes {copied:,} of its "
        f"{len(vocabulary):,} words from the model"
    )

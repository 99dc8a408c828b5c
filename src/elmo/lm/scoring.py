"""Surprisal of words, perplexity of texts, and substitutes, by a biLM with an output layer.

The forward direction predicts word k from `<S> w1 ... w(k-1)` and at last `</S>`; the backward one
predicts word k from `</S> wn ... w(k+1)` and at last `<S>`. Both give a distribution over the
vocabulary of the model's output layer. A third one, *joint*, is their normalized product,

    p(v) = f(v) b(v) / sum over u of f(u) b(u),

which is high only for words that are likely in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.backends import choose
from elmo.embed.pipeline import carry_rows, windows
from elmo.embedder import expected_text
from elmo.errors import ConfigError, InputError
from elmo.lm.reading import look_at
from elmo.lm.shifted import Reader, TopOutputs, open_output_layer
from elmo.lm.softmax_losses import pick, row_chunks
from elmo.model.bilm import BiLM, Checkpoint
from elmo.model.perplexity import Perplexity
from elmo.settings import (
    Precision,
    StatePolicy,
    SurprisalUnit,
    TokenizerChoice,
    precision_of,
)
from elmo.text.files import Tokenizer, get_tokenizer
from elmo.text.sentences import Words, checked_sentences
from elmo.text.vocabulary import SPECIALS, UNKNOWN

Array = npt.NDArray[np.float32]

_WINDOW_TOKENS = 4096
"""Words that go through the output layer together; no result depends on it."""


@dataclass(frozen=True, kw_only=True)
class SentenceScore:
    """The surprisal of each word of a sentence: -log of its probability."""

    words: tuple[str, ...]
    known: tuple[bool, ...]
    """Whether a word is in the vocabulary; one that is not, or a written `<UNK>`, is unknown."""
    forward: Array
    """Given the words before, float32 `(n,)`."""
    backward: Array
    """Given the words after, float32 `(n,)`."""
    joint: Array
    """Given both, float32 `(n,)`; see the module."""
    end: float
    """Of the end of the sentence, by the forward direction."""
    begin: float
    """Of the beginning of the sentence, by the backward direction."""
    unit: SurprisalUnit = "nats"

    def to_dict(self) -> dict[str, Any]:
        """Return the score for JSON."""
        columns = {"forward": self.forward, "backward": self.backward, "joint": self.joint}
        rows = [
            {"word": word, "known": known, **{name: float(c[k]) for name, c in columns.items()}}
            for k, (word, known) in enumerate(zip(self.words, self.known, strict=True))
        ]
        return {"words": rows, "end": self.end, "begin": self.begin, "unit": self.unit}


class Substitute(NamedTuple):
    """A word for a position, and its probabilities there."""

    word: str
    joint: float
    forward: float
    backward: float


@dataclass(frozen=True, kw_only=True)
class Substitutes:
    """The likeliest words in the position of a word."""

    sentence: tuple[str, ...]
    position: int
    original: Substitute
    """The word of the sentence; as `<UNK>` if the vocabulary lacks it."""
    rank: int | None
    """Rank of that word among all words, from 1; None if it is unknown."""
    words: tuple[Substitute, ...]
    """The likeliest words, best first."""


class LanguageModelScorer:
    """Computes probabilities of words by a biLM with an output layer.

    Numbers depend on the sentence and the model alone, on a CPU bit for bit: not on the other
    sentences of the call, their order, or the size of a batch. Only `state="carry"` is different,
    by definition.

    Args:
        checkpoint: A model with `softmax` and `vocabulary`.
        precision: See `ELMo`.
        device: Where to compute; if None, a GPU if there is one.
        word_cache_mb: See `ELMo`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        precision: Precision = "fp32",
        device: str | torch.device | None = None,
        word_cache_mb: float | None = None,
    ) -> None:
        self.vocabulary, self._output = open_output_layer(checkpoint)
        self.config = checkpoint.config
        backend = choose(BiLM.from_checkpoint(checkpoint), device, precision)
        self._reader = Reader(backend, checkpoint.warm_state, word_cache_mb)
        self._output.to(self.device).requires_grad_(False).eval()
        unknown = self.vocabulary.place(UNKNOWN)
        assert unknown is not None
        self._unknown = unknown
        self.name: str | None = None
        """By which it was loaded."""
        self._watches = True

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path | None = None,
        *,
        options: str | Path | None = None,
        weights: str | Path | None = None,
        precision: Precision | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
        word_cache_mb: float | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: bool | str | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
    ) -> Self:
        """Load a model in any layout; the arguments are those of `ELMo.from_pretrained`."""
        from elmo.hub.names import HubOptions, default_model, open_model

        hub = HubOptions(
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            force_download=force_download,
        )
        checkpoint = open_model(name_or_path, options, weights, hub)
        chosen = precision_of(precision, dtype)
        scorer = cls(checkpoint, precision=chosen, device=device, word_cache_mb=word_cache_mb)
        scorer.name = str(weights or name_or_path or default_model())
        return scorer

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return self._reader.device

    @property
    def n_cut_words(self) -> int:
        """Words so far that were longer than the model reads and were cut."""
        return self._reader.n_cut_words

    def reset(self) -> None:
        """Forget the state that `state="carry"` has carried so far."""
        self._reader.carried.state = None

    # --- results ----------------------------------------------------------------------------------

    def score(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        state: StatePolicy = "zero",
        unit: SurprisalUnit = "nats",
        batch_size: int | None = None,
    ) -> list[SentenceScore]:
        """Return the surprisal of every word of every sentence.

        Args:
            sentences: Lists of words.
            state: Initial state of a sentence; see `ELMo.encode_tokens`.
            unit: `nats` or `bits`.
            batch_size: Sentences in a batch at most; it changes results only with `carry`, where
                sentence i follows sentence i - batch_size (64 unless told).
        """
        return list(self.stream(sentences, state=state, unit=unit, batch_size=batch_size))

    def stream(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        state: StatePolicy = "zero",
        unit: SurprisalUnit = "nats",
        batch_size: int | None = None,
    ) -> Iterator[SentenceScore]:
        """Yield what `score` returns, one by one and in bounded memory."""
        if unit not in get_args(SurprisalUnit):
            raise ConfigError(f"unit is {unit!r}, expected one of {get_args(SurprisalUnit)}")
        for window in self._windows(checked_sentences(sentences), state, batch_size):
            yield from self._scores(window, self._outputs(window, state, batch_size), unit)

    def perplexity(
        self,
        sentences: Iterable[Iterable[str]],
        *,
        state: StatePolicy = "zero",
        count_unknown: bool = True,
        batch_size: int | None = None,
    ) -> Perplexity:
        """Measure the perplexity of a text of any length in bounded memory.

        Each sentence gives one prediction for each word and one for its far boundary, as in
        training. Sentences without words are left out.

        Args:
            sentences: Lists of words.
            state: See `score`; what was carried before is forgotten.
            count_unknown: Whether words that are not in the vocabulary count, as `<UNK>`. A
                perplexity with many of them is low and says little.
            batch_size: See `score`.
        """
        self.reset()
        filled = (sentence for sentence in checked_sentences(sentences) if sentence)
        sums = [0.0, 0.0]
        n_sentences = n_words = n_unknown = n_predictions = 0
        for window in self._windows(filled, state, batch_size):
            targets = [self._targets(sentence) for sentence in window]
            losses = self._losses(self._outputs(window, state, batch_size), targets, count_unknown)
            for side, values in enumerate(losses):
                sums[side] += math.fsum(values)  # exact, whatever the order within a window
            n_predictions += len(losses[0])
            n_sentences += len(window)
            n_words += sum(map(len, window))
            n_unknown += sum(target.known.count(False) for target in targets)
        if not n_predictions:
            raise InputError("the text has no words: there is nothing to measure")
        forward, backward = (total / n_predictions for total in sums)
        return Perplexity.of_losses(
            forward,
            backward,
            n_sentences=n_sentences,
            n_words=n_words,
            n_unknown=n_unknown,
            n_predictions=n_predictions,
            counts_unknown=count_unknown,
        )

    def substitutes(
        self, sentence: Iterable[str], position: int, k: int = 10, *, state: StatePolicy = "zero"
    ) -> Substitutes:
        """Find the words that are likely in both directions in the position of one.

        They are ordered by their joint probability; sentence boundaries and `<UNK>` are left out.

        Args:
            sentence: Words.
            position: Of the word, from 0; negative ones count from the end.
            k: How many words.
            state: See `score`.
        """
        (words,) = checked_sentences([sentence])
        position = _checked_position(words, position)
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ConfigError(f"k is {k!r}, expected a whole number of at least 1")
        self._warn_of_words([words])
        (outputs,) = self._outputs([words], state, None)
        forward = self._output.log_probs(outputs.forward[position, None])[0]
        backward = self._output.log_probs(outputs.backward[position + 1, None])[0]
        joint = torch.log_softmax(forward + backward, dim=0)
        order = torch.sort(joint, descending=True, stable=True).indices.tolist()
        specials = {self.vocabulary.place(word) for word in SPECIALS}
        ranked = [place for place in order if place not in specials]
        table = torch.stack([joint, forward, backward], dim=1).double().exp()

        def entry(place: int) -> Substitute:
            return Substitute(self.vocabulary.words[place], *table[place].tolist())

        own = self.vocabulary.place(_with_unknown(words)[position])
        return Substitutes(
            sentence=tuple(words),
            position=position,
            original=entry(self._unknown if own is None else own),
            rank=ranked.index(own) + 1 if own is not None and own not in specials else None,
            words=tuple(entry(place) for place in ranked[:k]),
        )

    def warn_of_texts(
        self, texts: Sequence[str | Words], tokenizer: str, option: str = "--tokenizer {}"
    ) -> None:
        """Warn, once, of texts that do not look like what the model expects.

        Args:
            texts: Lines of a file, or lists of words: the beginning is enough.
            tokenizer: Name of the tokenizer that splits them.
            option: How a tokenizer is chosen, for the message.
        """
        own = self.config.tokenizer
        expected = expected_text(self.name, self.config, self.vocabulary)
        raw = (own or "english") if "{!r}" in option else "model"
        split: Tokenizer = get_tokenizer(cast("TokenizerChoice", tokenizer), own)
        if self._watches and look_at(texts, split, expected, option, raw):
            self._watches = False

    def _warn_of_words(self, sentences: list[Words]) -> None:
        option = "get_tokenizer({!r}) of elmo.text.files"
        self.warn_of_texts(sentences, "whitespace", option)

    # --- one window -------------------------------------------------------------------------------

    def _windows(
        self, sentences: Iterator[Words], state: StatePolicy, batch_size: int | None
    ) -> Iterator[list[Words]]:
        multiple = carry_rows(batch_size) if state == "carry" else 1
        for number, window in enumerate(windows(sentences, _WINDOW_TOKENS, multiple)):
            if number == 0:  # the beginning is enough
                self._warn_of_words(window)
            yield window

    def _outputs(
        self, window: list[Words], state: StatePolicy, batch_size: int | None
    ) -> list[TopOutputs]:
        """Compute the outputs for sentences, in their order."""
        read = dict(self._reader.outputs(list(map(_with_unknown, window)), state, batch_size))
        return [read[number] for number in range(len(window))]

    def _targets(self, sentence: Words) -> _Targets:
        words = (SPECIALS[0], *_with_unknown(sentence), SPECIALS[1])
        places = [self.vocabulary.place(word) for word in words]
        ids = [self._unknown if place is None else place for place in places]
        return _Targets(ids, [place != self._unknown for place in ids[1:-1]])

    def _losses(
        self, outputs: list[TopOutputs], targets: list[_Targets], count_unknown: bool
    ) -> tuple[list[float], list[float]]:
        """Return the surprisals that count, of both directions.

        All sentences go through the output layer together, which reads its weights only once.
        """
        counts = [[count_unknown or known for known in target.known] for target in targets]
        after = [place for target in targets for place in target.ids[1:]]
        before = [place for target in targets for place in target.ids[:-1]]
        forward = self._nll([o.forward for o in outputs], after)
        backward = self._nll([o.backward for o in outputs], before)
        forward = forward[torch.tensor([c for words in counts for c in (*words, True)])]
        backward = backward[torch.tensor([c for words in counts for c in (True, *words)])]
        return forward.tolist(), backward.tolist()

    def _scores(
        self, window: list[Words], outputs: list[TopOutputs], unit: SurprisalUnit
    ) -> Iterator[SentenceScore]:
        targets = [self._targets(sentence) for sentence in window]
        scale = 1 / math.log(2) if unit == "bits" else 1.0
        ends = self._nll([o.forward[-1:] for o in outputs], [t.ids[-1] for t in targets]).tolist()
        begins = self._nll([o.backward[:1] for o in outputs], [t.ids[0] for t in targets]).tolist()
        columns = self._word_scores(outputs, targets) * scale
        parts = torch.split(columns, [len(sentence) for sentence in window], dim=1)
        for number, (forward, backward, joint) in enumerate(parts):
            yield SentenceScore(
                words=tuple(window[number]),
                known=tuple(targets[number].known),
                forward=forward.numpy().copy(),
                backward=backward.numpy().copy(),
                joint=joint.numpy().copy(),
                end=ends[number] * scale,
                begin=begins[number] * scale,
                unit=unit,
            )

    def _word_scores(self, outputs: list[TopOutputs], targets: list[_Targets]) -> Tensor:
        """Return forward, backward and joint surprisals of all n words, `(3, n)`."""
        ids = torch.tensor([place for t in targets for place in t.ids[1:-1]], dtype=torch.int64)
        before = torch.cat([o.forward[:-1] for o in outputs])
        after = torch.cat([o.backward[1:] for o in outputs])
        scores = torch.empty(3, len(ids))
        for part in row_chunks(len(ids), len(self.vocabulary), self.device):
            forward = self._output.log_probs(before[part])
            backward = self._output.log_probs(after[part])
            joint = torch.log_softmax(forward + backward, dim=1)
            wanted = ids[part].to(self.device)
            for row, table in enumerate((forward, backward, joint)):
                scores[row, part] = -pick(table, wanted).cpu()
        return scores

    def _nll(self, rows: list[Tensor], targets: list[int]) -> Tensor:
        """Return negative log-likelihoods `(n,)` of n targets, by rows of outputs."""
        return self._output.nll(torch.cat(rows), torch.tensor(targets).to(self.device)).cpu()


class _Targets(NamedTuple):
    """The targets of both directions in a sentence of n words."""

    ids: list[int]
    """`<S> w1 ... wn </S>` as places in the vocabulary, n + 2 of them."""
    known: list[bool]
    """Which of the n words are in the vocabulary."""


def _with_unknown(words: Words) -> Words:
    """Return words with `<UNK>` for all its spellings, such as the `<unk>` of many corpora."""
    return [UNKNOWN if word.upper() == UNKNOWN else word for word in words]


def _checked_position(words: Sequence[str], position: int) -> int:
    if not -len(words) <= position < len(words):
        raise InputError(f"position {position} is outside the sentence of {len(words)} words")
    return position % len(words)

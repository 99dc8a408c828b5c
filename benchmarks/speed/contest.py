"""Everything that embeds the same text with the same weights, timed in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.common.allennlp import PEER, AllenNLP
from benchmarks.common.systems import (
    Ours,
    Sentences,
    Vectors,
    batch_size,
    in_given_order,
    in_sorted_order,
)
from benchmarks.common.timing import Contender, Rounds, Spread, interleave, rates, ratios
from benchmarks.speed.costs import Costs
from benchmarks.speed.peaks import Peaks
from benchmarks.speed.records import Agreement, CorpusRow, LatencyRow
from elmo.errors import WeightsError
from elmo.text.made_up import count_words, make_sentence

LATENCY_WORDS = 20
LATENCY_ROUNDS = 4
"""Rounds of the latency measurement for each round of the others: it is over in no time."""
TOLERANCE = 1e-3
"""Beyond this, fp32 results differ and it makes no sense to compare speeds."""
PEER_SENTENCES = 4096
"""At most so many sentences for AllenNLP, which would take minutes for more on any GPU."""


@dataclass(frozen=True)
class Roof:
    """What bounds the speed of a model on a machine."""

    costs: Costs
    peaks: Peaks

    def corpus_share(self, precision: str, words: int, distinct: int, seconds: float) -> float:
        """Return the part of the peak that a run over a text reached, at least."""
        return self.peaks.share_of_flops(precision, self.costs.least(words, distinct), seconds)

    def sentence_share(self, precision: str, words: int, seconds: float) -> float:
        """Return the least time for one sentence of new words as a part of the time it took."""
        operations = self.costs.least(words, words)
        read = self.costs.sentence_bytes(words, precision)
        return self.peaks.share_of_roof(precision, operations, read, seconds)


@dataclass(frozen=True)
class Entry(Contender):
    """A contender that may be judged by what the machine can do."""

    precision: str | None = None
    """In which numbers it computes, if the least work is known."""


@dataclass(frozen=True)
class Contest:
    """Our precisions and, where it is there, AllenNLP, on one device."""

    name: str
    """Of the model, for the line of progress."""
    device: torch.device
    ours: Sequence[Ours]
    peer: AllenNLP | None
    show_progress: bool

    # --- results ----------------------------------------------------------------------------------

    def check(
        self, sentences: Sentences, reference: Sequence[npt.NDArray[np.float64]]
    ) -> Iterator[Agreement]:
        """Compare all layers of some sentences.

        Args:
            sentences: Lists of words.
            reference: Their layers in float64, each `(n_layers, n, dim)`.

        Raises:
            WeightsError: fp32 results differ.
        """
        others = {"float64": list(reference)}
        if self.peer is not None:
            others[PEER] = [layers.astype(np.float64) for layers in self.peer.layers(sentences)]
        for ours in self.ours:
            found = ours.model.encode_tokens(sentences)
            for other, expected in others.items():
                yield _compare(ours, found, other, expected)

    # --- a corpus ---------------------------------------------------------------------------------

    def time_corpus(self, sentences: Sentences, rounds: int) -> dict[str, Rounds]:
        """Time every way to embed a corpus; return seconds by name."""
        ways = self._ways(sentences)
        # So that no one pays for what happens only the first time. On a GPU that depends on sizes.
        on_cpu = self.device.type == "cpu"
        interleave(self._ways(sentences[: batch_size(self.device)]) if on_cpu else ways, 1)
        return interleave(ways, rounds, f"{self.name}, corpus", self.show_progress)

    def judge_corpus(
        self, sentences: Sentences, seconds: Mapping[str, Rounds], roof: Roof
    ) -> list[CorpusRow]:
        """Compare what `time_corpus` gave."""
        ways = self._ways(sentences)
        speeds = {way.name: rates(way.words, seconds[way.name]) for way in ways}
        distinct = len({word for sentence in sentences for word in sentence})

        def share(way: Entry) -> float | None:
            if way.precision is None:
                return None
            median = Spread.of(seconds[way.name]).median
            return roof.corpus_share(way.precision, way.words, distinct, median)

        return [
            CorpusRow(
                name=way.name,
                words=way.words,
                seconds=seconds[way.name],
                words_per_second=Spread.of(speeds[way.name]),
                times_given=_times(speeds, way.name, self.given_order),
                times_sorted=_times(speeds, way.name, self.sorted_order),
                share_of_peak=share(way),
            )
            for way in ways
        ]

    def _ways(self, sentences: Sentences) -> list[Entry]:
        """Line the contenders up so that ours and AllenNLP's take turns."""
        pairs = [self._our_ways(ours, sentences) for ours in self.ours]
        first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if self.peer is None:
            return first + second
        part = sentences[:PEER_SENTENCES]
        given, in_order = (
            Entry(name, partial(run, self.peer, part, self.device), words=count_words(part))
            for name, run in (
                (self.given_order, in_given_order),
                (self.sorted_order, in_sorted_order),
            )
        )
        return [*first, given, *second, in_order]

    def _our_ways(self, ours: Ours, sentences: Sentences) -> tuple[Entry, Entry]:
        entry = partial(
            Entry, prepare=ours.forget, words=count_words(sentences), precision=ours.precision
        )
        in_one_call = partial(ours.in_one_call, sentences)
        if self.device.type == "cuda":
            stay = partial(ours.on_the_device, sentences)
            return (
                entry(f"{ours.name}, vectors on the GPU", stay),
                entry(f"{ours.name}, vectors in host memory", in_one_call),
            )
        few = f"{ours.name}, calls of {batch_size(self.device)}, given order"
        return (
            entry(f"{ours.name}, one call", in_one_call),
            entry(few, partial(ours.in_small_calls, sentences)),
        )

    @property
    def given_order(self) -> str:
        """What AllenNLP on the sentences as given is called."""
        return f"{PEER}, batches of {batch_size(self.device)}, given order"

    @property
    def sorted_order(self) -> str:
        """What AllenNLP on sorted sentences is called."""
        return f"{PEER}, batches of {batch_size(self.device)}, sorted"

    # --- one sentence -----------------------------------------------------------------------------

    def time_sentence(self, rounds: int) -> dict[str, Rounds]:
        """Time one sentence, whose words were never seen before or all seen before."""
        entries = self._sentence_ways()
        interleave(entries, 1)
        label = f"{self.name}, one sentence"
        return interleave(entries, LATENCY_ROUNDS * rounds, label, self.show_progress)

    def judge_sentence(self, seconds: Mapping[str, Rounds], roof: Roof) -> list[LatencyRow]:
        """Compare what `time_sentence` gave."""
        speeds = {name: rates(1, own) for name, own in seconds.items()}

        def share(entry: Entry) -> float | None:
            if entry.precision is None:
                return None
            median = Spread.of(seconds[entry.name]).median
            return roof.sentence_share(entry.precision, LATENCY_WORDS, median)

        return [
            LatencyRow(
                name=entry.name,
                seconds=seconds[entry.name],
                milliseconds=Spread.of([1000 * s for s in seconds[entry.name]]),
                times_peer=_times(speeds, entry.name, PEER),
                share_of_roof=share(entry),
            )
            for entry in self._sentence_ways()
        ]

    def _sentence_ways(self) -> list[Entry]:
        sentence = [make_sentence(LATENCY_WORDS)]
        entries: list[Entry] = []
        for ours in self.ours:
            run = partial(ours.in_one_call, sentence)
            new = f"{ours.name}, new words"
            entries.append(Entry(new, run, ours.forget, precision=ours.precision))
            entries.append(Entry(f"{ours.name}, words seen before", run, run))
        if self.peer is not None:
            # Between our two, so that both have it as their neighbor.
            peer = Entry(PEER, partial(in_given_order, self.peer, sentence, self.device))
            entries.insert(1, peer)
        return entries


def _compare(
    ours: Ours, found: Vectors, other: str, expected: Sequence[npt.NDArray[np.float64]]
) -> Agreement:
    difference = _largest([a - b for a, b in zip(found, expected, strict=True)])
    if ours.precision == "fp32" and not difference < TOLERANCE:
        raise WeightsError(
            f"{ours.name} and {other} differ by {difference:.3g} on the same weights: one of them "
            "is wrong, so no speed was measured"
        )
    return Agreement(
        name=ours.name,
        other=other,
        largest_difference=difference,
        largest_value=_largest(expected),
        standard_deviation=float(np.concatenate(expected, axis=1).std()),
    )


def _times(speeds: Mapping[str, Rounds], own: str, peer: str) -> Spread | None:
    return ratios(speeds[own], speeds[peer]) if peer in speeds else None


def _largest(arrays: Sequence[npt.NDArray[Any]]) -> float:
    return max(float(np.abs(array).max()) for array in arrays)

"""Measures how fast we embed text, beside AllenNLP, in one process and on the same weights.

    python benchmarks/embed.py

See README.md beside this file for what is measured and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch

import elmo
from corpus import count_words, make_sentence, make_sentences
from elmo.config import ElmoConfig, Preset
from elmo.linear import runs_natively
from elmo.settings import Precision
from machine import this_machine
from memory import MemoryRow, measure_memory
from peers import ALLENNLP_VERSION, AllenNLP, MissingPeerError, load_elmo_class
from report import (
    Agreement,
    BatchRow,
    LatencyRow,
    LinearityRow,
    Report,
    SizeReport,
    render,
)
from systems import BATCH_SIZE, Ours, Sentences, Vectors, in_given_order, in_sorted_order
from timing import Contender, Rounds, Spread, interleave, rates, ratios
from weights import count_parameters, weights_folder

PEER = f"AllenNLP {ALLENNLP_VERSION}"
GIVEN, SORTED = (
    f"{PEER}, batches of {BATCH_SIZE}, given order",
    f"{PEER}, batches of {BATCH_SIZE}, sorted",
)
LATENCY_WORDS = 20
LATENCY_ROUNDS = 4
"""Rounds of the latency measurement for each round of the others: it is over in no time."""
LINEARITY_ROUNDS = 3
"""At most so many rounds of the linearity measurement: it is long, and nothing is compared."""
TOLERANCE = 1e-3
"""Beyond this, fp32 results differ and it makes no sense to compare speeds."""


@dataclass(frozen=True)
class Amounts:
    """How much is measured."""

    sizes: tuple[Preset, ...]
    sentences: int
    repeats: int
    corpora: tuple[int, ...]
    """Sentences of the corpora of the linearity measurement."""
    lengths: tuple[int, ...]
    """Words of its single sentences."""


FULL = Amounts(
    sizes=("original", "small"),
    sentences=256,
    repeats=5,
    corpora=(64, 128, 256, 512, 1024),
    lengths=(20, 200, 2000, 20000),
)
QUICK = Amounts(
    sizes=("tiny",), sentences=2 * BATCH_SIZE, repeats=2, corpora=(16, 32), lengths=(20, 200)
)


@dataclass(frozen=True)
class Settings:
    """What the command line asks for."""

    amounts: Amounts
    threads: int
    precisions: tuple[Precision, ...]
    with_peers: bool


# --- one size -------------------------------------------------------------------------------------


def measure_size(size: Preset, settings: Settings) -> SizeReport:
    """Measure all there is to measure at one size."""
    folder = weights_folder(size)
    sentences = make_sentences(settings.amounts.sentences)
    # Before the models are in memory here, so that the machine has its memory for itself.
    _say(f"{size}: memory")
    memory = measure_memories(folder, settings)
    _say(f"{size}: loading")
    systems = [Ours(folder, precision) for precision in settings.precisions]
    peer = AllenNLP(folder) if settings.with_peers else None
    agreement = [] if peer is None else [check(ours, peer, sentences[:8]) for ours in systems]
    _say(f"{size}: corpus")
    batch = measure_batch(systems, peer, sentences, settings.amounts.repeats)
    _say(f"{size}: one sentence")
    latency = measure_latency(systems, peer, LATENCY_ROUNDS * settings.amounts.repeats)
    return SizeReport(
        size=size,
        parameters=count_parameters(size),
        sentences=len(sentences),
        tokens=count_words(sentences),
        distinct_words=len({word for sentence in sentences for word in sentence}),
        agreement=agreement,
        batch=batch,
        latency=latency,
        memory=memory,
    )


def check(ours: Ours, peer: AllenNLP, sentences: Sentences) -> Agreement:
    """Compare all layers of some sentences, and of one with words that are hard to spell."""
    sentences = [*sentences, ["naïve", "日本語", "x" * 48, "."]]
    expected = peer.layers(sentences)
    found = ours.in_one_call(sentences)
    difference = _largest([a - b for a, b in zip(found, expected, strict=True)])
    if ours.model.precision == "fp32" and not difference < TOLERANCE:
        raise SystemExit(f"{ours.name} and {PEER} differ by {difference}: nothing was measured")
    return Agreement(
        name=ours.name,
        largest_difference=difference,
        largest_value=_largest(expected),
        standard_deviation=float(np.concatenate(expected, axis=1).std()),
    )


def measure_batch(
    systems: Sequence[Ours], peer: AllenNLP | None, sentences: Sentences, rounds: int
) -> list[BatchRow]:
    """Time every way to embed the corpus, in turn."""
    # Once on a little text, so that no one pays for what happens only the first time.
    interleave(_batch_contenders(systems, peer, sentences[:BATCH_SIZE]), 1)
    seconds = interleave(_batch_contenders(systems, peer, sentences), rounds)
    tokens = count_words(sentences)
    return [
        BatchRow(
            name=name,
            seconds=own,
            tokens_per_second=rates(tokens, own),
            times_given=_times(seconds, GIVEN, own),
            times_sorted=_times(seconds, SORTED, own),
        )
        for name, own in seconds.items()
    ]


def _batch_contenders(
    systems: Sequence[Ours], peer: AllenNLP | None, sentences: Sentences
) -> list[Contender]:
    """Line the contenders up so that ours and AllenNLP's take turns."""
    small = f"calls of {BATCH_SIZE}, given order"
    in_one = [
        Contender(f"{ours.name}, one call", partial(ours.in_one_call, sentences), ours.forget)
        for ours in systems
    ]
    in_small = [
        Contender(f"{ours.name}, {small}", partial(ours.in_small_calls, sentences), ours.forget)
        for ours in systems
    ]
    if peer is None:
        return in_one + in_small
    given = Contender(GIVEN, partial(in_given_order, peer, sentences))
    in_order = Contender(SORTED, partial(in_sorted_order, peer, sentences))
    return [*in_one, given, *in_small, in_order]


def measure_latency(
    systems: Sequence[Ours], peer: AllenNLP | None, rounds: int
) -> list[LatencyRow]:
    """Time one sentence, whose words were never seen before or all seen before."""
    sentence = make_sentence(LATENCY_WORDS)
    contenders = []
    for ours in systems:
        run = partial(ours.in_one_call, [sentence])
        seen = partial(ours.model.word_vectors, sentence)
        contenders.append(Contender(f"{ours.name}, new words", run, ours.forget))
        contenders.append(Contender(f"{ours.name}, words seen before", run, seen))
    if peer is not None:
        # Between our two, so that both have it as their neighbour.
        contenders.insert(1, Contender(PEER, partial(peer.embed, [sentence])))
    interleave(contenders, 1)
    seconds = interleave(contenders, rounds)
    return [
        LatencyRow(
            name=name,
            seconds=own,
            milliseconds=Spread.of([1000 * s for s in own]),
            times_peer=_times(seconds, PEER, own),
        )
        for name, own in seconds.items()
    ]


def measure_memories(folder: Path, settings: Settings) -> list[MemoryRow]:
    """Measure each system in a process of its own."""
    measure = partial(
        measure_memory,
        folder=folder,
        sentences=settings.amounts.sentences,
        threads=settings.threads,
    )
    rows = [measure(f"ours {p}, one call", p) for p in settings.precisions]
    return [*rows, measure(GIVEN, "allennlp")] if settings.with_peers else rows


def _times(seconds: dict[str, Rounds], peer: str, own: Rounds) -> Spread | None:
    return ratios(seconds[peer], own) if peer in seconds else None


def _largest(arrays: Vectors) -> float:
    return max(float(np.abs(array).max()) for array in arrays)


# --- linearity ------------------------------------------------------------------------------------


def measure_linearity(size: Preset, amounts: Amounts) -> list[LinearityRow]:
    """Time growing corpora and growing sentences."""
    _say(f"{size}: linearity")
    ours = Ours(weights_folder(size), "fp32")
    texts = {f"{number} sentences": make_sentences(number) for number in amounts.corpora}
    texts |= {f"one sentence of {n} words": [make_sentence(n)] for n in amounts.lengths}
    contenders = [
        Contender(name, partial(ours.in_one_call, text), ours.forget)
        for name, text in texts.items()
    ]
    contenders[0].run()
    seconds = interleave(contenders, min(LINEARITY_ROUNDS, amounts.repeats))
    return [_linearity_row(name, count_words(texts[name]), own) for name, own in seconds.items()]


def _linearity_row(name: str, tokens: int, seconds: Rounds) -> LinearityRow:
    per_1000 = Spread.of([1000 * s / tokens for s in seconds])
    return LinearityRow(name, tokens, seconds, per_1000)


# --- the command line -----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and write the JSON if asked."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    torch.set_num_threads(options.threads)
    command = shlex.join(["python", f"benchmarks/{Path(__file__).name}", *given])
    report = Report(command=command, version=elmo.__version__, machine=this_machine())
    settings = _settings(options, report.notes)
    for size in settings.amounts.sizes:
        report.sizes.append(measure_size(size, settings))
    smallest = min(settings.amounts.sizes, key=lambda size: ElmoConfig.preset(size).dim)
    report.linearity_size = smallest
    report.linearity = measure_linearity(smallest, settings.amounts)
    print(render(report))
    if options.json is not None:
        text = json.dumps(dataclasses.asdict(report), indent=2) + "\n"
        options.json.write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--sizes", nargs="+", choices=get_args(Preset), help="models (original and small)")
    add("--sentences", type=_count, help=f"sentences of the corpus ({FULL.sentences})")
    add("--repeats", type=_count, help=f"rounds of each measurement ({FULL.repeats})")
    add("--threads", type=_count, default=2, help="threads (2)")
    add(
        "--precision",
        nargs="+",
        choices=get_args(Precision),
        default=list(get_args(Precision)),
        help="of our products (all that this CPU computes)",
    )
    add("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    add("--skip-peers", action="store_true", help="measure ours alone")
    add("--quick", action="store_true", help="a smoke run: a tiny model, little text, few rounds")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: expected at least 1")
    return number


def _settings(options: argparse.Namespace, notes: list[str]) -> Settings:
    """Decide what can be measured here; what cannot is noted."""
    amounts = QUICK if options.quick else FULL
    chosen = {name: getattr(options, name) for name in ("sizes", "sentences", "repeats")}
    return Settings(
        amounts=dataclasses.replace(amounts, **{k: v for k, v in chosen.items() if v is not None}),
        threads=options.threads,
        precisions=_precisions(options.precision, notes),
        with_peers=not options.skip_peers and _peer_is_there(notes),
    )


def _precisions(asked: Sequence[Precision], notes: list[str]) -> tuple[Precision, ...]:
    for precision in asked:
        if not runs_natively(precision):
            notes.append(f"this CPU has no instructions for {precision}: it was left out")
    native = tuple(precision for precision in asked if runs_natively(precision))
    return native or ("fp32",)


def _peer_is_there(notes: list[str]) -> bool:
    try:
        load_elmo_class()
    except MissingPeerError as error:
        notes.append(f"{error}. Ours was measured alone.")
        _say(str(error))
        return False
    return True


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", FutureWarning)  # of the peers, under newer libraries
    main()

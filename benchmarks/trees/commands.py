"""What is hashed of the commands: files of vectors, analyses, converted models, training, tasks.

Commands run in this process as `python -m elmo` runs them. Numbers are compared, the
words of messages are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks.trees.digest import contents, read, rows, without
from benchmarks.trees.inputs import STEPS, TASKS, TINY_RUN, elmo
from benchmarks.trees.names import renamed, renamed_report

Found = Iterator[tuple[str, Any]]
Flags = Sequence[str]


class Place(Protocol):
    """Where a check finds what it reads, and may write."""

    @property
    def inputs(self) -> Path:
        """What the old tree made."""

    @property
    def work(self) -> Path:
        """An empty folder."""

    def name_of(self, model: str) -> str:
        """Return what `--model` takes for a model."""


def as_json(*arguments: str | Path, leave_out: Sequence[str] = ()) -> Any:
    """Run a command that prints JSON; return it without notes in words."""
    found = renamed_report(json.loads(elmo(*arguments)))
    return without(found, "notes", "tokenizer", *leave_out)


# --- files of vectors -----------------------------------------------------------------------------

EMBEDDINGS: dict[str, Flags] = {
    "all.hdf5": (),
    "top.npz": ("--layers", "top", "--state", "warm"),
    "half.safetensors": ("--dtype", "float16", "--precision", "bf16"),
    "mix.parquet": ("--layers", "mix", "--batch-tokens", "50"),
    "carry.hdf5": ("--state", "carry", "--batch-size", "4", "--forget-sentences"),
    "int8.npz": ("--precision", "int8", "--layers", "1", "--batch-size", "5"),
    "raw.hdf5": ("--tokenizer", "english", "--layers", "average"),
}
"""Outputs of `elmo embed`, and the flags that make them."""


def embed(model: str, place: Place) -> Found:
    """Files that `elmo embed` writes."""
    text = place.inputs / ("chinese.txt" if model == "small-zh" else "english.txt")
    more = ["--model", place.name_of(model), "--device", "cpu", "--quiet"]
    for name, flags in EMBEDDINGS.items():
        path = place.work / f"{model}-{name}"
        elmo("embed", text, path, *flags, *more)
        yield name, read(path)
    if model == "small-zh":
        path = place.work / "chinese.hdf5"
        elmo("embed", place.inputs / "raw-chinese.txt", path, "--tokenizer", "chinese", *more)
        yield "raw text", read(path)
        return
    words, tokens = place.inputs / "words.txt", place.work / f"{model}-tokens.hdf5"
    elmo("cache", words, tokens, *more)
    yield "elmo cache", read(tokens)
    path = place.work / f"{model}-from-tokens.npz"
    elmo("embed", text, path, "--token-file", tokens, *more)
    yield "with a token file", read(path)


# --- questions ------------------------------------------------------------------------------------


def analysis(name: str, place: Place) -> Found:
    """Similar words, neighbors, and `elmo analyze`."""
    files = place.inputs
    corpus = ["--corpus", str(files / "plain.txt"), "--tokenizer", "whitespace", "--quiet"]
    if name == "similar":
        listed = ["--vocabulary", str(files / "words.txt"), "--format", "json", "--quiet"]
        yield "without context", json.loads(elmo("similar", "river", "bank", *listed))
        found = elmo("similar", "the", *corpus, "--min-count", "1", "--format", "json")
        yield "in a corpus", json.loads(found)
        centered = ["--remove-mean", "--layer", "1", "--min-count", "2", "--format", "json"]
        yield "mean removed", json.loads(elmo("similar", "the", *corpus, *centered))
    elif name == "neighbors":
        sentence = "She sat on the [bank] of the river ."
        yield "top", as_json("neighbors", sentence, *corpus, "--format", "json")
        more = ["--same-word", "--static-vectors", str(files / "vectors.txt"), "--format", "json"]
        yield "same word", as_json("neighbors", sentence, *corpus, *more)
    elif name == "contextuality":
        few = ["--min-contexts", "2", "--resamples", "50", "--json"]
        yield "all", as_json("analyze", "contextuality", *corpus, *few, leave_out=["corpus"])
    elif name == "senses":
        out = ["--out", str(place.work / "senses"), "--json", "--projection", "pca"]
        found = as_json("analyze", "senses", "the", *corpus, *out)
        # Clusters and projections are those of scikit-learn now.
        places = [(entry["words"], entry["position"]) for entry in found["occurrences"]]
        yield "occurrences", {"n_occurrences": found["n_occurrences"], "sample": places}
    else:
        pairs, few = files / "pairs.txt", ["--resamples", "50", "--json"]
        yield "isolated", as_json("analyze", "correlation", pairs, *few, "--quiet")
        found = as_json("analyze", "correlation", pairs, *few, *corpus, leave_out=["corpus"])
        yield "in context", found


def language_model(place: Place) -> Found:
    """`elmo perplexity`, `score` and `substitutes`; the mean of a folder has another meaning."""
    text = place.inputs / "english.txt"
    for state in ("zero", "carry"):
        flags = ["--state", state, "--tokenizer", "whitespace", "--json", "--quiet"]
        yield f"perplexity {state}", as_json("perplexity", "small-en", text, *flags)
        scores = elmo("score", "small-en", text, *flags).splitlines()
        yield f"score {state}", [json.loads(line) for line in scores]
    for model in ("characters", "words", "codepoints"):
        asked = ["perplexity", place.name_of(model), str(place.inputs / "data")]
        found = as_json(*asked, "--json", "--quiet")
        names = ("forward", "backward", "n_predictions", "unknown_rate")
        yield f"perplexity {model}", {name: found[name] for name in names}
    sentence = "The [bank] of the [river] ."
    yield "substitutes", as_json("substitutes", "small-en", sentence, "--json")


# --- models on disk -------------------------------------------------------------------------------

CONVERSIONS: dict[str, tuple[str, Flags]] = {
    "bundled to published": ("small-en", ("--to", "hdf5")),
    "bundled to half": ("small-zh", ("--dtype", "float16")),
    "published to ours": ("lstm", ()),
    "gru to published": ("gru", ("--to", "hdf5")),
    "words to published": ("words", ("--to", "hdf5")),
    "code points to ours": ("codepoints", ("--to", "elmo")),
    "adaptive to published": ("codepoints", ("--to", "hdf5")),
    "many languages to ours": ("manylangs", ()),
}
"""What is converted, and how."""


def convert(place: Place) -> Found:
    """Models that `elmo convert` writes, what it tells of them, and what a model is."""
    for name, (model, flags) in CONVERSIONS.items():
        folder = place.work / name.replace(" ", "-")
        elmo("convert", place.name_of(model), folder, *flags)
        yield name, contents(folder)
        yield f"{name}: info", as_json("info", folder, "--json", leave_out=["model", "card"])
    warm = place.work / "warm"
    elmo("convert", place.name_of("gru"), warm, "--to", "elmo",
         "--warm-up", place.inputs / "plain.txt")  # fmt: skip
    yield "warm", contents(warm)
    yield "info of a bundled model", as_json("info", "small-en", "--json")


# --- training -------------------------------------------------------------------------------------

RUNS: dict[str, Flags] = {
    "lstm, characters, full": ("--softmax", "full"),
    "lstm, characters, sampled": (
        *("--softmax", "sampled", "--softmax-samples", "5"),
        *("--grad-accumulation", "2"),
    ),
    "lstm, characters, adaptive": ("--softmax", "adaptive", "--optimizer", "adagrad"),
    "gru, characters, full": ("--cell", "gru", "--softmax", "full", "--layers", "3"),
    "gru, code points, sampled": ("--cell", "gru", "--input", "codepoints", "--softmax", "sampled"),
    "lstm, words, full, tied": ("--input", "words", "--tie-embeddings", "--softmax", "full"),
    "gru, words, adaptive": ("--input", "words", "--cell", "gru", "--softmax", "adaptive"),
    "sentences, unprojected": (
        *("--shuffle", "sentences", "--projection-dim", "64"),
        *("--state-reset-prob", "0.5"),
    ),
    "goes on from a model": ("--softmax", "full", "--layer-decay", "0.5"),
    "bf16": ("--precision", "bf16", "--weight-decay", "0.1"),
}
"""Runs of training, and their flags."""


def prepare(place: Place) -> Found:
    """Shards and vocabularies that `elmo prepare` writes."""
    kinds: dict[str, Flags] = {
        "words": ("--heldout-share", "0.1", "--min-count", "1"),
        "few": (
            *("--vocab-size", "50", "--max-sentence-length", "7"),
            *("--heldout-share", "0.2", "--seed", "3"),
        ),
        "english": ("--tokenizer", "english", "--workers", "2"),
    }
    for name, flags in kinds.items():
        folder = place.work / f"prepared-{name}"
        elmo("prepare", place.inputs / "grammar.txt", place.inputs / "plain.txt", folder, *flags)
        found = contents(folder)
        manifest = without(found["corpus.json"], "sources", "elmo_version")
        found["corpus.json"] = manifest | {"settings": renamed(manifest["settings"])}
        found["report.json"] = without(found["report.json"], "folder", "notes")
        yield name, found


def train(name: str, place: Place) -> Found:
    """Metrics and weights of a run."""
    out = place.work / "run" / name.replace(", ", "-").replace(" ", "-")
    flags = [*TINY_RUN, *RUNS[name], "--steps", str(STEPS)]
    if name.startswith("goes on"):
        flags += ["--init-from", place.name_of("lstm")]
    elmo("train", "--data", place.inputs / "data", "--out", out, *flags)
    yield from _trained(out)


def resume(place: Place) -> Found:
    """A run that is resumed after half of its steps."""
    out = place.work / "resumed"
    half = ["--steps", str(STEPS // 2)]
    elmo("train", "--data", place.inputs / "data", "--out", out, *TINY_RUN, *half)
    elmo("train", "--resume", out, "--steps", str(STEPS), "--quiet")
    yield from _trained(out)


def finetune(place: Place) -> Found:
    """Models that `elmo finetune` makes, with an output layer and without."""
    short = [flag for flag in TINY_RUN if flag not in ("--preset", "tiny")]
    for model in ("characters", "gru"):
        out = place.work / f"finetuned-{model}"
        flags = [*short, "--steps", str(STEPS), "--out", str(out)]
        elmo("finetune", place.name_of(model), place.inputs / "data", *flags)
        yield from ((f"{model}: {what}", value) for what, value in _trained(out))


def _trained(out: Path) -> Found:
    yield "metrics", list(map(renamed, rows(out / "metrics.jsonl")))
    model = contents(out / "last")
    model["config.json"] = without(model["config.json"], "tokenizer")  # older trees do not know it
    yield "weights", model


# --- tasks ----------------------------------------------------------------------------------------

TASK_RUNS: dict[str, Flags] = {
    "glove and elmo": ("--hidden-size", "8"),
    "elmo at both": ("--hidden-size", "8", "--elmo-at", "both", "--mix-l2", "0.1"),
    "elmo learns": ("--hidden-size", "6", "--features", "elmo", "--finetune-elmo"),
    "random": ("--hidden-size", "6", "--features", "random", "--random-dim", "9", "--layers", "1"),
}
"""How heads are trained."""


def task(name: str, place: Place) -> Found:
    """Metrics, weights and predictions of heads."""
    file, text = TASKS[name]
    data, cpu = str(place.inputs / file), ["--device", "cpu"]
    for way, flags in TASK_RUNS.items():
        out = place.work / f"{name}-{way.replace(' ', '-')}"
        given = ["--data", data, "--dev", data, "--out", str(out), *flags, *cpu, "--quiet"]
        given += ["--epochs", "2", "--batch-size", "4", "--cache-dir", str(place.work / "layers")]
        if "elmo" in way:
            given += ["--model", place.name_of("lstm")]
        if "glove" in way or "both" in way:
            given += ["--vectors", str(place.inputs / "vectors.txt")]
        elmo("task", "train", name, *given)
        yield f"{way}: metrics", list(map(renamed, rows(out / "metrics.jsonl")))
        yield f"{way}: result", renamed(read(out / "result.json"))
        yield f"{way}: weights", read(out / "model.safetensors")
        shown = place.work / f"{out.name}.jsonl"
        measure = ["--data", data, "--predictions", str(shown), "--json", "--quiet", *cpu]
        yield f"{way}: scores", as_json("task", "evaluate", out, *measure)
        yield f"{way}: predictions", rows(shown)
        predicted = elmo("task", "predict", out, text, *cpu).splitlines()
        yield f"{way}: for a text", [json.loads(line) for line in predicted]


COMMANDS: dict[str, Callable[[Any], Found]] = {
    **{f"embed {model}": partial(embed, model) for model in ("small-en", "small-zh", "gru")},
    **{
        f"analysis {name}": partial(analysis, name)
        for name in ("similar", "neighbors", "contextuality", "senses", "correlation")
    },
    "perplexity, score, substitutes": language_model,
    "convert": convert,
    "prepare": prepare,
    **{f"train {name}": partial(train, name) for name in RUNS},
    "train --resume": resume,
    "finetune": finetune,
    **{f"task {name}": partial(task, name) for name in TASKS},
}
"""The checks of commands by name."""

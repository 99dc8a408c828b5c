"""What is hashed of the library: vectors, the module of task models, the language model.

    python -m benchmarks.trees.checks --inputs FOLDER --work FOLDER --out FILE CHECK...

Each check is a function that yields names and values; a line of JSON for each goes to the file.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.trees import make_sentences, require_tree
from benchmarks.trees.commands import COMMANDS
from benchmarks.trees.digest import contents, digest
from benchmarks.trees.inputs import CHINESE, ENGLISH
from elmo import (
    Alphabet,
    CharacterMapper,
    ELMo,
    Elmo,
    ElmoConfig,
    LanguageModelScorer,
    ScalarMix,
    batch_to_ids,
    random_bilm,
)

Sentences = list[list[str]]
Found = Iterator[tuple[str, Any]]
PRECISIONS: Any = ("fp32", "fp16", "bf16", "int8")
STATES: Any = ("zero", "warm", "carry")


@dataclass(frozen=True)
class Place:
    """Where a check finds what it reads, and may write."""

    inputs: Path
    work: Path
    fixture: Path | None

    def name_of(self, model: str) -> str:
        """Return what `from_pretrained` takes for a model."""
        if model == "published":
            if self.fixture is None:
                raise SkippedError("the published fixture is not there (--fixture)")
            return str(self.fixture)
        trained = self.inputs / model / "last"
        folder = trained if trained.is_dir() else self.inputs / model
        return str(folder) if folder.is_dir() else model


class SkippedError(Exception):
    """A check cannot be made here, and why."""


def sentences_for(model: str) -> Sentences:
    """Return text that shows what a model does: hard words, repeated ones, empty sentences."""
    if model == "small-zh":
        return [line.split() for line in CHINESE]
    text = [line.split() for line in ENGLISH]
    more = {"original": 4, "small-en": 30}.get(model, 20)
    return text + make_sentences(more)


# --- vectors --------------------------------------------------------------------------------------


def vectors(model: str, place: Place) -> Found:
    """`encode_tokens` in every precision and state, layers, batches and kinds of numbers."""
    text = sentences_for(model)
    for precision in PRECISIONS:
        elmo = ELMo.from_pretrained(place.name_of(model), precision=precision, device="cpu")
        for state in STATES:
            elmo.reset()
            yield f"{precision} {state}", elmo.encode_tokens(text, state=state)
        yield f"{precision} carry, again", elmo.encode_tokens(text[::-1], state="carry")
        small: Any = {"state": "carry", "batch_size": 3}
        yield f"{precision} carry by 3", list(elmo.stream_tokens(text, **small))
        choices: Any = ("top", "average", "mix", 0, 1, -1)
        for layers in choices:
            yield f"{precision} layers {layers}", elmo.encode_tokens(text, layers=layers)
        batches: Any = ({"batch_size": 1}, {"batch_size": 7}, {"batch_tokens": 40})
        for batch in batches:
            yield f"{precision} {batch}", elmo.encode_tokens(text, **batch)
        yield f"{precision} float16", elmo.encode_tokens(text, dtype="float16")
        one = elmo.encode_tokens(text[:1], convert_to_tensor=True)
        yield f"{precision} one sentence", one
        yield f"{precision} words", elmo.word_vectors(text[1])


def encode(model: str, place: Place) -> Found:
    """`encode` and what else the object gives."""
    given: Any = {"tokenizer": "whitespace", "word_cache_mb": 0}
    elmo = ELMo.from_pretrained(place.name_of(model), device="cpu", **given)
    lines = [" ".join(sentence) for sentence in sentences_for(model)]
    yield "means", elmo.encode(lines)
    yield "one text", elmo.encode(lines[1])
    yield "top, scaled", elmo.encode(lines, layers="top", normalize_embeddings=True)
    yield "tokens", elmo.encode(lines, output_value="token_embeddings", batch_size=2)
    text = [line.split() for line in lines[:4]]
    yield "as TensorFlow Hub", elmo.outputs(text, [min(2, len(words)) for words in text])
    found = elmo.encode(lines, convert_to_tensor=True, state="warm")
    yield "warm", found
    yield "similarity", elmo.similarity(found, found[:2])
    yield "facts", [elmo.fingerprint, elmo.dim, elmo.n_layers, elmo.n_cut_words]
    yield "warmed up", _warmed(elmo, text)
    for name, twin in (("copied", copy.deepcopy(elmo)), ("pickled", pickle.dumps(elmo))):
        other = pickle.loads(twin) if isinstance(twin, bytes) else twin
        yield name, other.encode_tokens(text)
    layouts: Any = ("elmo",) if model in ("manylangs", "words") else ("elmo", "hdf5")
    for layout in layouts:
        elmo.save_pretrained(place.work / f"saved-{model}-{layout}", layout)
        yield f"saved as {layout}", contents(place.work / f"saved-{model}-{layout}")


def _warmed(elmo: ELMo, text: Sentences) -> Any:
    twin = copy.deepcopy(elmo)
    twin.warm_up(text)
    return twin.encode_tokens(text, state="warm")


# --- inside of task models ------------------------------------------------------------------------


def module(model: str, place: Place) -> Found:
    """`Elmo`: frozen and learning, forward, backward and a step."""
    text = [sentence for sentence in sentences_for(model)[:8] if sentence]
    settings: dict[str, dict[str, Any]] = {
        "frozen": {},
        "two, layer norm": {"num_output_representations": 2, "do_layer_norm": True},
        "boundaries": {"keep_sentence_boundaries": True, "mix": "average"},
        "carried": {"state": "carry", "mix": "top"},
        "fixed": {"scalar_mix_parameters": [0.1, 0.5, -0.3]} if model != "gru" else {"mix": 1},
        "dropout": {"dropout": 0.5},
        "learning": {"requires_grad": True},
        "learning, carried, penalty": {"requires_grad": True, "state": "carry", "l2": 0.1},
    }
    for name, given in settings.items():
        torch.manual_seed(5)
        elmo = Elmo.from_pretrained(place.name_of(model), **{"dropout": 0.0, **given})
        ids = elmo.batch_to_ids(text)
        yield f"{name}: first", elmo(ids)
        yield f"{name}: step", _step(elmo, ids)
        yield f"{name}: after it", elmo.eval()(ids)
    elmo.save_pretrained(place.work / f"module-{model}")
    yield "saved", contents(place.work / f"module-{model}")


def _step(elmo: Elmo, ids: torch.Tensor) -> Any:
    """Go one step down the gradient; return all gradients."""
    learning = [parameter for parameter in elmo.parameters() if parameter.requires_grad]
    if not learning:
        return "nothing learns"
    optimizer = torch.optim.SGD(learning, lr=0.1)
    representations = elmo(ids)["elmo_representations"]
    weights = torch.linspace(-1, 1, representations[0].numel()).view_as(representations[0])
    loss = sum(((r * weights).sum() for r in representations), elmo.penalty())
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in learning if parameter.grad is not None]
    optimizer.step()
    return [loss.detach(), gradients]


def published_call(place: Place) -> Found:
    """AllenNLP's own call, with its files, and ids as it makes them."""
    folder = Path(place.name_of("published"))
    files = folder / "options.json", folder / "lm_weights.hdf5"
    call: Any = Elmo  # as AllenNLP's own, which types do not tell
    elmo = call(*files, 2, dropout=0.0)
    text = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    text = [s.split() if isinstance(s, str) else s for s in list(text)[:5]]
    ids = batch_to_ids(text)
    yield "ids", ids
    yield "representations", elmo(ids)
    options, weights = files
    loaded = ELMo.from_pretrained(options=options, weights=weights, device="cpu")
    yield "vectors", loaded.encode_tokens(text, state="carry")


def parts(_: Place) -> Found:
    """Public bricks: random models, alphabets, ids, mixes."""
    text = [line.split() for line in ENGLISH if line]
    for cell in ("lstm", "gru"):
        config = ElmoConfig.preset("tiny", cell=cell, n_layers=3)
        bilm = random_bilm(config, seed=3)
        output = bilm(batch_to_ids(text))
        yield f"{cell}: layers", [output.layers, output.mask, *output.state]
        loss = output.layers.square().sum()
        yield f"{cell}: loss", loss.detach()
        yield f"{cell}: weights", dict(bilm.state_dict())
        yield f"{cell}: config", config.to_dict()
    alphabet = Alphabet.build(word for sentence in text for word in sentence)
    mapper = CharacterMapper(12, alphabet=alphabet)
    yield "code points", [mapper.rows(["naïve", "日本語", "the"]), alphabet.n_characters]
    mix = ScalarMix(3, do_layer_norm=True, initial_scalar_parameters=[0.5, -0.5, 1.0])
    layers = list(torch.arange(72, dtype=torch.float32).sin().view(3, 2, 3, 4))
    yield "mix", mix(layers, torch.tensor([[True, True, False], [True, True, True]]))


# --- the language model ---------------------------------------------------------------------------


def language_model(model: str, place: Place) -> Found:
    """`LanguageModelScorer`: scores, perplexity, substitutes."""
    text = sentences_for(model)[:12]
    precisions: Any = ("fp32", "bf16", "int8") if model == "small-en" else ("fp32",)
    for precision in precisions:
        scorer = LanguageModelScorer.from_pretrained(
            place.name_of(model), precision=precision, device="cpu"
        )
        for state in STATES:
            found = scorer.score(text, state=state, unit="bits" if state == "warm" else "nats")
            yield f"{precision} {state} scores", found
            yield f"{precision} {state} perplexity", _figures(scorer.perplexity(text, state=state))
        known = scorer.perplexity(text, count_unknown=False, batch_size=2)
        yield f"{precision} known", _figures(known)
        yield f"{precision} substitutes", scorer.substitutes(text[1], 1)


def _figures(found: Any) -> dict[str, Any]:
    """Return what a perplexity of any tree holds."""
    names = ("forward", "backward", "n_words", "n_unknown", "n_predictions")
    return {name: getattr(found, name) for name in names}


# --- all of them ----------------------------------------------------------------------------------

MODELS = "small-en small-zh published original gru unprojected words codepoints manylangs".split()
CHECKS: dict[str, Callable[[Place], Found]] = {
    **{f"vectors {model}": partial(vectors, model) for model in MODELS},
    **{
        f"encode {model}": partial(encode, model)
        for model in ("small-en", "published", "gru", "words", "codepoints", "manylangs")
    },
    **{f"module {model}": partial(module, model) for model in ("lstm", "gru", "words")},
    "module small-en": partial(module, "small-en"),
    "module as AllenNLP calls it": published_call,
    "parts": parts,
    **{
        f"language model {model}": partial(language_model, model)
        for model in ("small-en", "characters", "words", "codepoints")
    },
    **COMMANDS,
}


def run_check(name: str, place: Place, out: Path) -> None:
    """Write a line for each value of a check, and for its failure."""
    start = time.perf_counter()
    lines: list[dict[str, Any]] = []
    try:
        for what, value in CHECKS[name](place):
            lines.append({"what": what, "hash": digest(value)})
    except SkippedError as reason:
        lines.append({"what": "skipped", "skipped": str(reason)})
    except Exception as error:  # whatever it is: the other checks go on
        traceback.print_exc()
        lines.append({"what": "failed", "error": f"{type(error).__name__}: {error}"})
    lines[-1:] = [{**line, "seconds": time.perf_counter() - start} for line in lines[-1:]]
    with out.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"check": name, **line}) + "\n" for line in lines)


def main() -> None:
    """Run the checks that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("inputs", "work", "out", "fixture"):
        parser.add_argument(f"--{name}", type=Path, required=name != "fixture")
    parser.add_argument("checks", nargs="+", choices=CHECKS)
    given = parser.parse_args()
    require_tree()
    warnings.simplefilter("ignore")  # of words that are cut, and of precisions without instructions
    place = Place(given.inputs, given.work, given.fixture)
    for name in given.checks:
        print(f"== {name}", flush=True)
        run_check(name, place, given.out)


if __name__ == "__main__":
    main()

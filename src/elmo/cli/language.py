"""Commands that use a model as a language model: perplexity, score, substitutes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from elmo.cli.main import (
    DONE,
    AsJson,
    Flags,
    Quiet,
    app,
    note_on_cut_words,
    require_model,
    say,
    show,
)
from elmo.errors import ElmoError
from elmo.runtime.tables import NOTHING
from elmo.settings import ModelChoice, ReadingSettings, StatePolicy, SurprisalUnit, TokenizerChoice

if TYPE_CHECKING:
    from elmo.lm.scoring import LanguageModelScorer, SentenceScore, Substitutes
    from elmo.model.perplexity import Perplexity

_MODEL = ModelChoice()
_READING = ReadingSettings()
_WEIGHTS = (".safetensors", ".hdf5", ".h5", ".pkl")
_SHOWN = 40
"""Characters of a word that tables show."""

_Hyphen = Parameter(allow_leading_hyphen=True)  # "-" is standard input


@app.command
def perplexity(
    model: Annotated[str | None, Parameter(name="MODEL"), _Hyphen] = None,
    text: Annotated[str | None, Parameter(name="TEXT"), _Hyphen] = None,
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    settings: Annotated[ReadingSettings, Flags] = _READING,
    skip_unknown: bool = False,
    max_words: int | None = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Measure how well a model predicts a text, in both directions.

    Every sentence counts with its words and one boundary, as in training; blank lines do not. Of a
    folder that elmo prepare wrote, the held-out documents are read as streams, as in training.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub,
        with an output layer. With --model, or with --options and --weights, there is only TEXT;
        a single argument is TEXT, too, and the model the default one.
    text
        Text, one sentence a line (or raw text, see --tokenizer); may be compressed; - for standard
        input; or a folder that elmo prepare wrote.
    skip_unknown
        Do not count words that are not in the model's vocabulary.
    max_words
        Of a folder, read so many words at most.
    """
    choice, text = _model_and(text, model, choice)
    if text is None:
        raise ElmoError("elmo perplexity needs TEXT; see elmo perplexity --help")
    if Path(text).is_dir():
        return _show_heldout(choice, Path(text), max_words, as_json, quiet)
    scorer, tokenizer, sentences = _read(text, settings, choice, quiet)
    found = scorer.perplexity(
        sentences,
        state=settings.state,
        count_unknown=not skip_unknown,
        batch_size=settings.batch_size,
    )
    _show_perplexity(found, as_json, tokenizer)
    _tell_of_cut_words(scorer)
    return DONE


@app.command
def score(
    model: Annotated[str | None, Parameter(name="MODEL"), _Hyphen] = None,
    text: Annotated[str | None, Parameter(name="TEXT"), _Hyphen] = None,
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    settings: Annotated[ReadingSettings, Flags] = _READING,
    unit: SurprisalUnit = "nats",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Show the surprisal of each word of a text: by both directions, and jointly.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub,
        with an output layer. With --model, or with --options and --weights, there is only TEXT; a
        single argument that is a text file is TEXT, too, and the model the default one.
    text
        Text, one sentence a line (or raw text, see --tokenizer); may be compressed; standard input
        by default.
    unit
        Logarithms to the base e (nats) or 2 (bits).
    as_json
        As JSON, one sentence a line.
    """
    choice, text = _model_and(text, model, choice, alone="model")
    scorer, _, sentences = _read(text or "-", settings, choice, quiet)
    scores = scorer.stream(
        sentences, state=settings.state, unit=unit, batch_size=settings.batch_size
    )
    for number, scored in enumerate(scores, start=1):
        if as_json:
            show(json.dumps({"sentence": number, **scored.to_dict()}, ensure_ascii=False))
        else:
            _show_scores(number, scored)
    _tell_of_cut_words(scorer)
    return DONE


@app.command
def substitutes(
    model: Annotated[str | None, Parameter(name="MODEL"), _Hyphen] = None,
    sentence: Annotated[str | None, Parameter(name="SENTENCE"), _Hyphen] = None,
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    top: Annotated[int, Parameter(name=["--top", "-k"])] = 10,
    state: StatePolicy = "zero",
    tokenizer: TokenizerChoice = "model",
    as_json: AsJson = False,
) -> int:
    """List the words that are likely in both directions in the position of marked ones.

    For instance: elmo substitutes MODEL "The [bank] of the river ."

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub,
        with an output layer. With --model, or with --options and --weights, there is only SENTENCE;
        a single argument is SENTENCE, too, and the model the default one.
    sentence
        A sentence with one or more words in square brackets, each replaced on its own.
    top
        How many words.
    state
        Initial state of the sentence.
    tokenizer
        How the sentence is split into words; model: as the model's texts were.
    """
    choice, sentence = _model_and(sentence, model, choice)
    if sentence is None:
        raise ElmoError("elmo substitutes needs SENTENCE; see elmo substitutes --help")
    from elmo.lm.reading import split_marked
    from elmo.text.files import get_tokenizer

    scorer = _load(choice)
    chosen = get_tokenizer(tokenizer, scorer.config.tokenizer)
    words, positions = split_marked(sentence, chosen, scorer.warn_of_texts)
    results = [scorer.substitutes(words, place, top, state=state) for place in positions]
    if as_json:
        show(json.dumps([_as_json(result) for result in results], ensure_ascii=False, indent=2))
        return DONE
    for result in results:
        _show_substitutes(result)
    return DONE


def _show_heldout(
    choice: ModelChoice, folder: Path, words: int | None, as_json: bool, quiet: bool
) -> int:
    """Measure a model on the held-out documents of a prepared corpus."""
    from elmo.hub.names import DEFAULT_MODEL
    from elmo.training.corpus.shards import Manifest
    from elmo.training.heldout import heldout_perplexity

    if choice.options is not None:
        raise ElmoError("a folder of elmo prepare needs a model with an output layer: give --model")
    name = choice.model or DEFAULT_MODEL
    found = heldout_perplexity(name, folder, choice.device, words, show_progress=not quiet)
    _show_perplexity(found, as_json, Manifest.read(folder / "corpus.json").tokenizer)
    return DONE


def _show_perplexity(found: Perplexity, as_json: bool, tokenizer: str | None) -> None:
    if as_json:
        show(json.dumps({**found.to_dict(), "tokenizer": tokenizer}, indent=2))
        return
    show(f"forward     {found.forward:,.3f}")
    show(f"backward    {found.backward:,.3f}")
    show(f"mean        {found.mean:,.3f} (geometric)")
    show(f"tokenizer   {tokenizer or NOTHING}")
    show(f"sentences   {found.n_sentences:,}")
    show(f"words       {found.n_words:,}")
    treated = "counted as <UNK>" if found.counts_unknown else "not counted"
    show(f"unknown     {found.n_unknown:,} ({found.unknown_rate:.2%} of the words, {treated})")
    show(f"predictions {found.n_predictions:,} in each direction")


# --- what goes in ---------------------------------------------------------------------------------


def _model_and(
    rest: str | None, model: str | None, choice: ModelChoice, alone: str = "rest"
) -> tuple[ModelChoice, str | None]:
    """Interpret two arguments of which the first may be given as a flag instead.

    Args:
        rest: The second argument.
        model: The first argument.
        choice: The flags.
        alone: What a single argument is where no flag names a model: "model" or "rest".
    """
    is_named = bool(choice.model or choice.options or choice.weights)
    if is_named and rest is not None:
        raise ElmoError(
            f"the model is named twice: {model!r}, and by a flag; leave one of them out"
        )
    if is_named or (rest is None and (alone == "rest" or _is_text_file(model))):
        rest = model
    else:
        choice = dataclasses.replace(choice, model=model)
    require_model(choice)
    return choice, rest


def _is_text_file(name: str | None) -> bool:
    """Return whether a name is that of a file or a pipe, and not of weights."""
    from elmo.text.files import is_readable

    return name is not None and is_readable(name) and Path(name).suffix not in _WEIGHTS


def _load(choice: ModelChoice) -> LanguageModelScorer:
    from elmo.lm.scoring import LanguageModelScorer

    given = dataclasses.asdict(choice)
    return LanguageModelScorer.from_pretrained(given.pop("model"), **given)


def _read(
    path: str, settings: ReadingSettings, choice: ModelChoice, quiet: bool
) -> tuple[LanguageModelScorer, str, Iterator[list[str]]]:
    """Load a model; return it, the name of the tokenizer, and the sentences of a text."""
    from elmo.text.files import get_tokenizer, require_text

    require_text(path, settings.encoding)  # before the model is loaded
    from elmo.lm.reading import read_text

    scorer = _load(choice)
    tokenizer = get_tokenizer(settings.tokenizer, scorer.config.tokenizer)
    look = scorer.warn_of_texts
    sentences = read_text(path, tokenizer, settings.encoding, look, show_progress=not quiet)
    return scorer, tokenizer.name, sentences


# --- what comes out -------------------------------------------------------------------------------


def _show_scores(number: int, scored: SentenceScore) -> None:
    rows = list(
        zip(scored.words, scored.known, scored.forward, scored.backward, scored.joint, strict=True)
    )
    names = [_shown(word) + ("" if known else " (as <UNK>)") for word, known, *_ in rows]
    width = max(map(len, [f"sentence {number}", *names]))
    show(f"{f'sentence {number}':<{width}}   forward  backward     joint  ({scored.unit})")
    for name, (_, _, forward, backward, joint) in zip(names, rows, strict=True):
        show(f"{name:<{width}}  {forward:8.3f}  {backward:8.3f}  {joint:8.3f}")
    show(f"{'</S>':<{width}}  {scored.end:8.3f}")
    show(f"{'<S>':<{width}}  {'':8}  {scored.begin:8.3f}")
    show("")


def _show_substitutes(result: Substitutes) -> None:
    word = result.sentence[result.position]
    entries = [*result.words, result.original]
    width = max(len(_shown(entry.word)) for entry in entries)
    width = max(width, len("word"))
    show(f"in the place of {_shown(word)!r}, word {result.position + 1}:")
    show(f"rank  {'word':<{width}}     joint   forward  backward")
    for rank, entry in enumerate(result.words, start=1):
        mark = "  <- the word itself" if rank == result.rank else ""
        show(f"{rank:4}  {_shown(entry.word):<{width}}  {_percents(entry)}{mark}")
    if result.rank is None:
        show(
            f"   -  {result.original.word:<{width}}  {_percents(result.original)}  <- it is unknown"
        )
    elif result.rank > len(result.words):
        name = _shown(result.original.word)
        show(f"{result.rank:4}  {name:<{width}}  {_percents(result.original)}  <- the word itself")
    show("")


def _percents(entry: tuple[str, float, float, float]) -> str:
    return "  ".join(f"{value:8.3%}" for value in entry[1:])


def _as_json(result: Substitutes) -> dict[str, object]:
    return {
        "word": result.sentence[result.position],
        "position": result.position,
        "rank": result.rank,
        "original": result.original._asdict(),
        "substitutes": [entry._asdict() for entry in result.words],
    }


def _shown(word: str) -> str:
    return word if len(word) <= _SHOWN else word[: _SHOWN - 3] + "..."


def _tell_of_cut_words(scorer: LanguageModelScorer) -> None:
    if scorer.n_cut_words:
        say(note_on_cut_words(scorer.n_cut_words))

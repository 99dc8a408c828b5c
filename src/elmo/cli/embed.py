"""Commands that load a model and write vectors or weights: embed, info, convert, cache."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from elmo.cli.base import (
    DONE,
    STOPPED,
    Flags,
    app,
    load_model,
    say,
    show,
    told_of_cut_words,
)
from elmo.errors import ElmoError, OutputExistsError
from elmo.runtime.tables import counted
from elmo.settings import EmbedSettings, ModelChoice, ModelFormat, OutputDtype

if TYPE_CHECKING:
    from elmo.weights.card import ModelCard

_MODEL = ModelChoice()
_EMBED = EmbedSettings()


@app.command
def embed(
    source: Annotated[str, Parameter(name="INPUT", allow_leading_hyphen=True)],  # "-" is stdin
    output: Annotated[Path, Parameter(name="OUTPUT")],
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    settings: Annotated[EmbedSettings, Flags] = _EMBED,
    quiet: bool = False,
) -> int:
    """Embed the sentences of a text file into a file of vectors.

    Parameters
    ----------
    source
        Text, one sentence a line (or raw text, see --tokenizer); may be .gz, .xz, .bz2 or .zst;
        - for standard input. A blank line is an empty sentence.
    output
        File to write.
    choice
        Which model.
    settings
        How.
    quiet
        No progress, no report.
    """
    from elmo.bulk.embed_file import check_paths, embed_file
    from elmo.bulk.store import is_unfinished

    check_paths(source, output, settings)  # before the model is loaded, which takes a while
    model = load_model(choice, settings)
    try:
        report = embed_file(model, source, output, settings, show_progress=not quiet)
    except KeyboardInterrupt:
        kept = f"what is in {output} is safe: run the same with --resume to go on"
        say(f"interrupted; {kept if is_unfinished(output) else 'nothing was written'}")
        return STOPPED
    if quiet:
        return DONE
    if report is None:
        say(f"{output} is complete: nothing to do")
        return DONE
    resumed = f" ({report.n_resumed:,} were there before)" if report.n_resumed else ""
    say(
        f"{output}: {counted(report.n_sentences, 'sentence')}{resumed}, "
        f"{counted(report.n_words, 'word')} in "
        f"{report.seconds:.1f} s, {report.words_per_second:,.0f} words/s"
    )
    if not report.n_sentences:
        say(f"note: {'standard input' if source == '-' else source} is empty")
    if report.n_cut_words:
        say(told_of_cut_words(report.n_cut_words))
    return DONE


@app.command
def info(
    model: Annotated[str | None, Parameter(name="MODEL")] = None,
    /,
    *,
    options: Path | None = None,
    weights: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Tell what a model is: its card if it has one, sizes, parameters, fingerprint.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, weights file, or repository of the Hugging Face Hub;
        else the default model.
    options
        Instead of a model: an options.json, together with --weights.
    weights
        Instead of a model: a weights.hdf5, together with --options.
    as_json
        As JSON, for programs.
    """
    from elmo.hub.names import default_model, is_untrained, open_model

    checkpoint = open_model(model, options, weights, lookups=True)
    config = checkpoint.config
    facts: dict[str, Any] = {
        "model": str(model or weights or default_model()),
        "trained": weights is not None or not is_untrained(model),
        "parameters": sum(tensor.numel() for tensor in checkpoint.tensors.values()),
        "reads": _kind_of_input(config),
        "layers_of_vectors": config.n_layers + 1,
        "values_in_a_vector": config.output_dim,
        "warm_state": checkpoint.warm_state is not None,
        "softmax": bool(checkpoint.softmax),
        "sha256": checkpoint.fingerprint(),
        "config": config.to_dict(),
    }
    card, changed = _card_of(None if weights is not None else facts["model"])
    if as_json:
        if card is not None:
            facts |= {"card": dataclasses.asdict(card), "changed_files": changed}
        show(json.dumps(facts, indent=2, ensure_ascii=False))
        return DONE
    if card is not None:
        _show_card(card, changed)
    shown = {key: value for key, value in facts.items() if key != "config"} | facts["config"]
    del shown["model_type"]
    width = max(map(len, shown))
    for key, value in shown.items():
        show(f"{key:<{width}}  {f'{value:,}' if key == 'parameters' else value}")
    return DONE


def _card_of(name: str | None) -> tuple[ModelCard | None, list[str]]:
    """Give the card of a model, and which of its files are not what the card says."""
    from elmo.hub.names import find_folder
    from elmo.weights.card import CARD_JSON, ModelCard

    if name is None or name.startswith("random-"):
        return None, []
    folder = find_folder(name)
    folder = folder if folder.is_dir() else folder.parent
    if not (folder / CARD_JSON).is_file():
        return None, []
    card = ModelCard.read(folder / CARD_JSON)
    return card, card.changed_files(folder)


def _show_card(card: ModelCard, changed: list[str]) -> None:
    for line in card.lines():
        show(line)
    if card.files:
        show("")
        show("files and their SHA-256:")
    for name, digest in card.files.items():
        verdict = "NOT WHAT THE CARD SAYS" if name in changed else "checked"
        show(f"  {digest}  {name}  ({verdict})")
    if changed:
        say(f"note: {', '.join(changed)} changed since the card was written, or missing")
    show("")


@app.command
def convert(
    source: Annotated[str | None, Parameter(name="SRC")] = None,
    target: Annotated[Path | None, Parameter(name="DST")] = None,
    /,
    *,
    to: ModelFormat | None = None,
    options: Path | None = None,
    weights: Path | None = None,
    dtype: OutputDtype = "float32",
    warm_up: Path | None = None,
    card: Path | None = None,
    overwrite: bool = False,
) -> int:
    """Convert a model to another layout, bit for bit (or rounded, see --dtype).

    Parameters
    ----------
    source
        Folder, weights file, or repository of the Hugging Face Hub. With --options and --weights
        there is only DST.
    target
        Folder to write.
    to
        elmo: config.json + model.safetensors; hdf5: options.json + weights.hdf5. By default the
        one that SRC is not; elmo with --dtype float16 or --card.
    options
        Instead of SRC: an options.json, together with --weights.
    weights
        Instead of SRC: a weights.hdf5, together with --options.
    dtype
        float16 halves the files and keeps about three decimal digits of each weight (layout elmo
        only).
    warm_up
        Tokenised text, one sentence a line, to burn in the state of --state warm; it is saved in
        the folder (layout elmo only).
    card
        A card.json to put beside the model, with the SHA-256 of its files filled in and a README.md
        made from it (layout elmo only).
    overwrite
        Replace a model that is in DST already.
    """
    from elmo.hub.names import open_model
    from elmo.model.checkpoint import is_adaptive
    from elmo.weights.storage import in_numbers_of, save_checkpoint

    if weights is not None and target is None and source is not None:
        target, source = Path(source), None  # the pair stands for SRC
    if target is None:
        raise ElmoError("elmo convert needs SRC and DST; see elmo convert --help")
    checkpoint = open_model(source, options, weights, lookups=True)
    ours = dtype == "float16" or card is not None or checkpoint.format != "elmo"
    layout = to or ("elmo" if ours else "hdf5")
    described = _card_to_write(card, layout)
    _refuse_own_folder(weights or Path(source or ""), target)
    _refuse_to_replace(target, overwrite)
    if warm_up is not None:
        checkpoint = _warmed(checkpoint, warm_up)
    save_checkpoint(checkpoint, target, layout, dtype)
    checkpoint = in_numbers_of(checkpoint, dtype)
    if described is not None:
        _write_card(described, checkpoint, target)
    if layout == "hdf5" and checkpoint.warm_state is not None:
        say("note: the layout hdf5 has no place for a warm state; it was left out")
    if layout == "hdf5" and is_adaptive(checkpoint.softmax):
        say("note: the layout hdf5 has no place for an adaptive softmax; it was left out")
    say(f"{target}: layout {layout}, sha256 {checkpoint.fingerprint()}")
    return DONE


@app.command
def cache(
    vocabulary: Annotated[Path, Parameter(name="VOCABULARY")],
    output: Annotated[Path, Parameter(name="OUTPUT")],
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Compute the context-free vectors of a list of words once, for elmo embed --token-file.

    The file is bilm-tf's token-embedding HDF5: a dataset 'embedding', row r for line r.

    Parameters
    ----------
    vocabulary
        Words, one a line.
    output
        HDF5 file to write.
    choice
        Which model.
    overwrite
        Replace a file that exists.
    quiet
        No progress, no report.
    """
    from tqdm import tqdm

    from elmo.embed.words import write_token_file
    from elmo.text.files import refuse_to_replace
    from elmo.text.vocabulary import Vocabulary

    refuse_to_replace(vocabulary, output)
    if output.exists() and not overwrite:  # before anything is read that can be read only once
        raise OutputExistsError(f"{output} exists; give --overwrite to replace it")
    words = Vocabulary.read(vocabulary).words
    model = load_model(choice)
    write_token_file(
        output,
        words,
        model.compute_word_vectors,
        model.fingerprint,
        overwrite=overwrite,
        progress=lambda starts: tqdm(starts, disable=quiet, unit="k words"),
    )
    if not quiet:
        say(f"{output}: {counted(len(words), 'word')} of {model.config.projection_dim} values")
    return DONE


def _kind_of_input(config: Any) -> str:
    if not config.reads_characters:
        return f"words of a vocabulary of {config.n_words:,}"
    if config.has_alphabet:
        return f"code points, {config.n_characters:,} ids"
    return "UTF-8 bytes"


def _warmed(checkpoint: Any, text: Path) -> Any:
    """Give the same weights with a state burned in on a text."""
    from elmo.embedder import ELMo
    from elmo.text.files import TextFile, WhitespaceTokenizer, read_sentences

    model = ELMo(checkpoint, device="cpu")
    with TextFile(text) as file:
        model.warm_up(read_sentences(file, WhitespaceTokenizer()))
    return model.to_checkpoint()


def _card_to_write(path: Path | None, layout: ModelFormat) -> ModelCard | None:
    from elmo.weights.card import ModelCard

    if path is None:
        return None
    if layout != "elmo":
        raise ElmoError("--card goes with the layout elmo; leave --to out")
    return ModelCard.read(path)


def _write_card(card: ModelCard, checkpoint: Any, folder: Path) -> None:
    from elmo.weights.card import CARD_JSON

    parameters = sum(tensor.numel() for tensor in checkpoint.tensors.values())
    card = dataclasses.replace(card, parameters=parameters).sealed(folder)
    text = card.markdown(checkpoint.config, checkpoint.fingerprint())
    (folder / "README.md").write_text(text, encoding="utf-8")
    (folder / CARD_JSON).write_text(card.to_json(), encoding="utf-8")


def _refuse_own_folder(source: Path, target: Path) -> None:
    folder = source.parent if source.is_file() else source
    if folder.exists() and target.exists() and folder.samefile(target):
        raise OutputExistsError(
            f"{target} is the folder of the model that is to be converted, which would be "
            "replaced: name another folder"
        )


def _refuse_to_replace(folder: Path, overwrite: bool) -> None:
    names = ("config.json", "model.safetensors", "options.json", "weights.hdf5", "characters.txt")
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise OutputExistsError(
            f"{folder} holds {there[0]} already; give --overwrite to replace it"
        )

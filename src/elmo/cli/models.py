"""The commands about models as files: elmo models, elmo info, elmo convert."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from elmo.cli.main import DONE, app, say, show
from elmo.errors import ElmoError, OutputExistsError
from elmo.runtime.tables import NOTHING
from elmo.settings import Group, OutputDtype
from elmo.weights.formats import FORMATS, OURS

if TYPE_CHECKING:
    from elmo.config import ElmoConfig
    from elmo.hub.names import PublishedModel
    from elmo.model.bilm import Checkpoint
    from elmo.weights.card import ModelCard

_FORMATS = "; ".join(f"{format.name}: {format.files}" for format in FORMATS)
_WRITTEN = "; ".join(f"{format.name}: {format.files}" for format in FORMATS if format.is_written)
_FEW = 5
"""Models whose addresses are shown with the list."""
_ONLY_LONG = "time", "device", "cost"
"""Facts of a card that its short form leaves out."""
_CACHE = Group("Downloads")
_WIDTHS = 60, 100
"""Columns of a terminal that tables are fitted to, at least and at most."""


@app.command(
    name="models",
    help_epilogue="Other models are folders, zip or tar archives of them, or repositories of the "
    f"Hugging Face Hub, in one of these formats: {_FORMATS}.",
)
def models(
    text: Annotated[str | None, Parameter(name="TEXT")] = None,
    /,
    *,
    language: str | None = None,
    long: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    download: Annotated[str | None, _CACHE] = None,
    remove: Annotated[str | None, _CACHE] = None,
    cache_dir: Annotated[Path | None, _CACHE] = None,
    force: Annotated[bool, _CACHE] = False,
    quiet: Annotated[bool, _CACHE] = False,
) -> int:
    """List the models that are known by name: bundled ones, and published ones to download.

    Every name can be given wherever a model is asked for; a published model is downloaded when it
    is first used, into ELMO_CACHE or ~/.cache/elmo-torch. Any other model of the NLPL word vectors
    repository is nlpl:ID. With ELMO_OFFLINE=1 the network is never used; ELMO_MIRROR names a
    server to ask instead.

    Parameters
    ----------
    text
        Only those with this text in their name, language, description, format or license.
    language
        Only those for a language: its code or its name, such as de or german.
    long
        Format, license and place, too, and descriptions in full.
    as_json
        As JSON, for programs.
    download
        Download this one ahead of its use.
    remove
        Delete this one from the cache.
    cache_dir
        Another place for downloads.
    force
        With --download: even if it is there.
    quiet
        No progress.
    """
    if download is not None and remove is not None:
        raise ElmoError("--download and --remove exclude each other; give one")
    if download is not None:
        return _download(download, cache_dir, force=force, quiet=quiet)
    if remove is not None:
        return _remove(remove, cache_dir)
    rows = [row for row in _known(cache_dir) if _mentions(row, text) and _is_for(row, language)]
    if as_json:
        show(json.dumps(rows, indent=2, ensure_ascii=False))
        return DONE
    if not rows:
        from elmo.hub.names import similar_names

        similar = similar_names(text or "")
        more = f"; did you mean {' or '.join(similar)}?" if similar else ""
        asked = f"mentions {text!r}" if language is None else f"is for the language {language!r}"
        say(f"no known model {asked}{more}")
        return DONE
    _show_models(rows, long)
    return DONE


def _known(cache_dir: Path | None) -> list[dict[str, Any]]:
    """Return a row for every model that has a name."""
    from elmo.hub.cache import bytes_in, cached_folder, mirrored
    from elmo.hub.names import PUBLISHED, bundled_models
    from elmo.weights.card import CARD_JSON, ModelCard

    rows = []
    for name, folder in bundled_models().items():
        path = folder / CARD_JSON
        card = ModelCard(name=name, language="", description="", license="")
        card = ModelCard.read(path) if path.is_file() else card
        rows.append(
            _about(card, bytes_in(folder), OURS.name)
            | {"where": "bundled", "folder": str(folder), "addresses": []}
        )
    for model in PUBLISHED.values():
        there = cached_folder(model, cache_dir)
        rows.append(
            _about(model, model.size, model.kind)
            | {
                "where": "network" if there is None else "cached",
                "folder": None if there is None else str(there),
                "addresses": [mirrored(file).address for file in model.files.values()],
            }
        )
    return rows


def _about(model: ModelCard | PublishedModel, size: int | None, format: str) -> dict[str, Any]:
    return {
        "name": model.name,
        "language": model.language,
        "description": model.description,
        "parameters": model.parameters or None,
        "bytes": size,
        "format": format,
        "license": model.license,
    }


def _mentions(row: dict[str, Any], text: str | None) -> bool:
    names = ("name", "language", "description", "format", "license", "where")
    return text is None or text.casefold() in " ".join(row[name] for name in names).casefold()


def _is_for(row: dict[str, Any], language: str | None) -> bool:
    """Return whether a model is for a language, given as a code or as a word of descriptions."""
    if language is None:
        return True
    asked = language.casefold()
    words = re.findall(r"\w+", row["description"].casefold())
    return asked == row["language"].casefold() or asked in words


def _show_models(rows: list[dict[str, Any]], long: bool) -> None:
    """Show a table that fits the terminal, models of one language together."""
    languages = list(dict.fromkeys(row["language"] for row in rows))
    rows = sorted(rows, key=lambda row: languages.index(row["language"]))
    names = ("name", "language", "size", "where", "what")
    columns = (*names[:3], "format", "license", *names[3:]) if long else names
    cells = [
        {
            "name": row["name"],
            "language": row["language"],
            "size": _size(row),
            "format": row["format"],
            "license": row["license"],
            "where": _where(row, long),
            "what": row["description"],
        }
        for row in rows
    ]
    lines = [columns, *([line[column] for column in columns] for line in cells)]
    for line in _aligned(lines, None if long else _terminal_width()):
        show(line)
    if not long:
        show("\n--language CODE: those for one; --long: formats and licenses; --json: everything")
    if not long and len(rows) > _FEW:
        return
    for row in rows:
        show(f"\n{row['name']}:")
        for place in (row["folder"], *row["addresses"]):
            if place:
                show(f"  {place}")


def _where(row: dict[str, Any], long: bool) -> str:
    """Return where the files of a model are, or that, or whence, they are to be downloaded."""
    if row["folder"]:
        return str(row["where"])
    return urlsplit(row["addresses"][0]).netloc if long else "download"


def _terminal_width() -> int:
    """Return the columns of the terminal, within bounds; 80 where there is none."""
    least, most = _WIDTHS
    return max(least, min(most, shutil.get_terminal_size().columns))


def _aligned(lines: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return a table aligned on the left; its last column is cut where it would be too wide."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    if width is None:
        return list(aligned)
    return [line if len(line) <= width else line[: width - 1].rstrip() + "…" for line in aligned]


def _size(row: dict[str, Any]) -> str:
    if row["bytes"] is not None:
        return f"{row['bytes'] / 1e6:,.0f} MB"
    if row["parameters"] is not None:  # float32, and next to nothing else in the file
        return f"~{4 * row['parameters'] / 1e6:,.0f} MB"
    return NOTHING


def _published(name: str) -> PublishedModel:
    """Find a model that can be downloaded, or raise with what else the name is."""
    from elmo.hub.names import bundled_models, find_published, similar_names

    if name in bundled_models():
        raise ElmoError(f"{name} comes with the package: there is nothing to download or to remove")
    found = find_published(name)
    if found is None:
        similar = [known for known in similar_names(name) if find_published(known)]
        more = f"did you mean {' or '.join(similar)}? " if similar else ""
        raise ElmoError(f"no published model {name!r}; {more}'elmo models' lists all names")
    return found


def _download(name: str, cache_dir: Path | None, *, force: bool, quiet: bool) -> int:
    from elmo.hub.cache import bytes_in, network_options, obtain

    model = _published(name)
    options = dataclasses.replace(network_options(force=force), show_progress=not quiet)
    folder = obtain(model, cache_dir, options)
    if not quiet:
        say(f"{model.name}: {bytes_in(folder):,} bytes in {folder}")
    return DONE


def _remove(name: str, cache_dir: Path | None) -> int:
    from elmo.hub.cache import folder_of, remove

    model = _published(name)
    freed = remove(model, cache_dir)
    place = folder_of(model, cache_dir)
    say(f"{model.name}: {freed:,} bytes freed in {place}" if freed else f"{model.name}: not here")
    return DONE


# --- elmo info ------------------------------------------------------------------------------------


@app.command
def info(
    model: Annotated[str | None, Parameter(name="MODEL")] = None,
    /,
    *,
    options: Path | None = None,
    weights: Path | None = None,
    long: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Show what a model is: its card if it has one, sizes, parameters, fingerprint.

    Parameters
    ----------
    model
        A name that elmo models lists, folder, archive, weights file, or repository of the Hugging
        Face Hub; else the default model.
    options
        Instead of a model: the description of --weights, such as options.json.
    weights
        Instead of a model: a weights file, together with --options.
    long
        All sizes, and all that the card holds: sources, figures and the commands that measure
        them, how it was made, checksums of its files.
    as_json
        As JSON, for programs.
    """
    from elmo.hub.names import default_model, is_untrained, open_model

    checkpoint = open_model(model, options, weights, lookups=True)
    config = checkpoint.config
    facts: dict[str, Any] = {
        "model": str(model or weights or default_model()),
        "trained": weights is not None or not is_untrained(model),
        "parameters": checkpoint.n_parameters,
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
            facts |= {"card": json.loads(card.to_json()), "changed_files": changed}
        show(json.dumps(facts, indent=2, ensure_ascii=False))
        return DONE
    if long:
        if card is not None:
            _show_card(card, changed)
        shown = {key: value for key, value in facts.items() if key != "config"} | facts["config"]
        del shown["model_type"]
    else:
        about = card.description if card is not None else _without_card(facts["trained"])
        show(textwrap.fill(f"{card.name if card else facts['model']}: {about}", 80) + "\n")
        known = {} if card is None else card.facts()
        shown = {key: known[key] for key in known if key not in _ONLY_LONG} | _in_short(checkpoint)
        if card is not None and card.files:
            shown["files"] = f"changed: {', '.join(changed)}" if changed else "as the card says"
    width = max(map(len, shown))
    for key, value in shown.items():
        text = f"{value:,}" if key == "parameters" and long else str(value)
        lines = [text] if long else textwrap.wrap(text, 80 - width - 2)
        show(f"{key:<{width}}  " + f"\n{'':<{width}}  ".join(lines))
    if not long:
        more = "figures, sources, checksums, all sizes" if card is not None else "all sizes"
        show(f"\n--long: {more}; --json: the same for programs")
    if changed:
        say(f"note: {', '.join(changed)} changed since the card was written, or missing")
    return DONE


def _without_card(trained: bool) -> str:
    return "a biLM without a card" if trained else "random weights, for tests"


def _in_short(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the sizes of a model that matter to its users."""
    config = checkpoint.config
    parts = {
        "a warm state": checkpoint.warm_state is not None,
        "an output layer": bool(checkpoint.softmax),
        "vectors of whole words": checkpoint.lookup is not None,
    }
    projected = f", projected to {config.projection_dim:,}" if config.has_projection else ""
    facts = {
        "parameters": f"{checkpoint.n_parameters:,}",
        "reads": _kind_of_input(config),
        "tokenizer": config.tokenizer or "not known: raw text needs --tokenizer",
        "vectors of a word": f"{config.n_layers + 1} of {config.output_dim:,} values",
        "recurrent layers": f"{config.n_layers} of {config.dim:,} {config.cell.upper()} "
        f"cells{projected}, forward and backward",
        "also there": ", ".join(name for name, there in parts.items() if there),
        "fingerprint": checkpoint.fingerprint(),
    }
    return {name: value for name, value in facts.items() if value}


def _card_of(name: str | None) -> tuple[ModelCard | None, list[str]]:
    """Return the card of a model, and which of its files are not what the card says."""
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
    show("")


# --- elmo convert ---------------------------------------------------------------------------------


@app.command
def convert(
    source: Annotated[str | None, Parameter(name="SRC")] = None,
    target: Annotated[Path | None, Parameter(name="DST")] = None,
    /,
    *,
    to: Annotated[
        str | None,
        Parameter(
            help=f"{_WRITTEN}. By default the one that SRC is not; {OURS.name} with --dtype "
            "float16, --card or --warm-up."
        ),
    ] = None,
    options: Path | None = None,
    weights: Path | None = None,
    dtype: OutputDtype = "float32",
    warm_up: Path | None = None,
    card: Path | None = None,
    overwrite: bool = False,
) -> int:
    """Convert a model to another format, bit for bit (or rounded, see --dtype).

    Parameters
    ----------
    source
        Folder, archive, weights file, or repository of the Hugging Face Hub. With --options and
        --weights there is only DST.
    target
        Folder to write.
    options
        Instead of SRC: the description of --weights, such as options.json.
    weights
        Instead of SRC: a weights file, together with --options.
    dtype
        float16 halves the files and keeps about three decimal digits of each weight (format elmo
        only).
    warm_up
        Tokenized text, one sentence a line, to burn in the state of --state warm; it is saved in
        the folder (format elmo only).
    card
        A card.json to put beside the model, with the SHA-256 of its files filled in and a README.md
        made from it (format elmo only).
    overwrite
        Replace a model that is in DST already.
    """
    from elmo.hub.names import open_model
    from elmo.weights.formats import save_checkpoint

    if weights is not None and target is None and source is not None:
        target, source = Path(source), None  # the pair stands for SRC
    if target is None:
        raise ElmoError("elmo convert needs SRC and DST; see elmo convert --help")
    checkpoint = open_model(source, options, weights, lookups=True)
    keep = dtype == "float16" or card is not None or warm_up is not None
    written = (format.name for format in FORMATS if format.is_written)
    other = next(name for name in written if name != checkpoint.format)
    chosen = to or (OURS.name if keep else other)
    described = _card_to_write(card, chosen)
    _refuse_own_folder(weights or Path(source or ""), target)
    _refuse_to_replace(target, overwrite)
    if warm_up is not None:
        checkpoint = _warmed(checkpoint, warm_up)
    stored = save_checkpoint(checkpoint, target, chosen, dtype)
    if described is not None:
        _write_card(described, stored, target)
    say(f"{target}: format {chosen}, sha256 {stored.fingerprint()}")
    return DONE


def _kind_of_input(config: ElmoConfig) -> str:
    if not config.reads_characters:
        return f"words of a vocabulary of {config.n_words:,}"
    spelling = "characters of an alphabet" if config.has_alphabet else "UTF-8 bytes"
    return f"words of up to {config.max_characters - 2} {spelling}"


def _warmed(checkpoint: Checkpoint, text: Path) -> Checkpoint:
    """Return the same weights with a state burned in on a text."""
    from elmo.embedder import ELMo
    from elmo.text.files import TextFile, WhitespaceTokenizer, read_sentences

    model = ELMo(checkpoint, device="cpu")
    with TextFile(text) as file:
        model.warm_up(read_sentences(file, WhitespaceTokenizer()))
    return model.to_checkpoint()


def _card_to_write(path: Path | None, format: str) -> ModelCard | None:
    from elmo.weights.card import ModelCard

    if path is None:
        return None
    if format != OURS.name:
        raise ElmoError(f"--card goes with the format {OURS.name}; leave --to out")
    return ModelCard.read(path)


def _write_card(card: ModelCard, checkpoint: Checkpoint, folder: Path) -> None:
    from elmo.runtime.files import write_text
    from elmo.weights.card import CARD_JSON, README

    card = dataclasses.replace(card, parameters=checkpoint.n_parameters).sealed(folder)
    text = card.markdown(checkpoint.config, checkpoint.fingerprint())
    write_text(folder / README, text)
    write_text(folder / CARD_JSON, card.to_json())


def _refuse_own_folder(source: Path, target: Path) -> None:
    folder = source.parent if source.is_file() else source
    if folder.exists() and target.exists() and folder.samefile(target):
        raise OutputExistsError(
            f"{target} is the folder of the model that is to be converted, which would be "
            "replaced: name another folder"
        )


def _refuse_to_replace(folder: Path, overwrite: bool) -> None:
    from elmo.weights.formats import CHARACTERS_FILE

    names = [name for format in FORMATS for name in (format.options, format.weights)]
    names.append(CHARACTERS_FILE)
    there = [name for name in names if (folder / name).exists()]
    if there and not overwrite:
        raise OutputExistsError(
            f"{folder} holds {there[0]} already; give --overwrite to replace it"
        )

"""The command elmo models: which models have names, where they are, and how to get them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from elmo.cli.base import DONE, app, left_table, say, show
from elmo.errors import ElmoError

if TYPE_CHECKING:
    from elmo.hub.registry import PublishedModel

_FEW = 5
"""Models whose addresses are shown with the list."""


@app.command(name="models")
def models(
    text: Annotated[str | None, Parameter(name="TEXT")] = None,
    /,
    *,
    download: str | None = None,
    remove: str | None = None,
    cache_dir: Path | None = None,
    force: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    quiet: bool = False,
) -> int:
    """List the models that are known by name: bundled ones, and published ones to download.

    Every name can be given wherever a model is asked for; a published model is downloaded when it
    is first used, into ELMO_CACHE or ~/.cache/elmo-torch. Any other model of the NLPL word vectors
    repository is nlpl:ID. With ELMO_OFFLINE=1 the network is never asked; ELMO_MIRROR names a
    server to ask instead.

    Parameters
    ----------
    text
        Only those with this text in their name, language, description, format or licence.
    download
        Download this one ahead of its use.
    remove
        Delete this one from the cache.
    cache_dir
        Another place for downloads.
    force
        With --download: even if it is there.
    as_json
        As JSON, for programs.
    quiet
        No progress.
    """
    if download is not None and remove is not None:
        raise ElmoError("--download and --remove exclude each other; give one")
    if download is not None:
        return _download(download, cache_dir, force=force, quiet=quiet)
    if remove is not None:
        return _remove(remove, cache_dir)
    rows = [row for row in _known(cache_dir) if _mentions(row, text)]
    if as_json:
        show(json.dumps(rows, indent=2, ensure_ascii=False))
        return DONE
    if not rows:
        from elmo.hub.registry import similar_names

        similar = similar_names(text or "")
        more = f"; did you mean {' or '.join(similar)}?" if similar else ""
        say(f"no known model mentions {text!r}{more}")
        return DONE
    _show_models(rows)
    return DONE


def _known(cache_dir: Path | None) -> list[dict[str, Any]]:
    """Describe every model that has a name, in the order in which they are listed."""
    from elmo.hub.cache import bytes_in, cached_folder, mirrored
    from elmo.hub.registry import PUBLISHED, bundled_models
    from elmo.weights.card import CARD_JSON, ModelCard

    rows: list[dict[str, Any]] = []
    for name, folder in bundled_models().items():
        path = folder / CARD_JSON
        card = ModelCard.read(path) if path.is_file() else None
        rows.append(
            {
                "name": name,
                "language": card.language if card else "",
                "description": card.description if card else "",
                "parameters": card.parameters if card else None,
                "bytes": bytes_in(folder),
                "format": "elmo",
                "licence": card.licence if card else "",
                "where": "bundled",
                "folder": str(folder),
                "addresses": [],
            }
        )
    for model in PUBLISHED.values():
        there = cached_folder(model, cache_dir)
        rows.append(
            {
                "name": model.name,
                "language": model.language,
                "description": model.description,
                "parameters": model.parameters,
                "bytes": model.size,
                "format": model.format,
                "licence": model.licence,
                "where": "network" if there is None else "cached",
                "folder": None if there is None else str(there),
                "addresses": [mirrored(file).address for file in model.files.values()],
            }
        )
    return rows


def _mentions(row: dict[str, Any], text: str | None) -> bool:
    names = ("name", "language", "description", "format", "licence", "where")
    return text is None or text.casefold() in " ".join(row[name] for name in names).casefold()


def _show_models(rows: list[dict[str, Any]]) -> None:
    header = ("name", "language", "size", "format", "licence", "where", "what")
    lines = [
        (
            row["name"],
            row["language"],
            _size(row),
            row["format"],
            row["licence"],
            row["where"] if row["folder"] else urlsplit(row["addresses"][0]).netloc,
            row["description"],
        )
        for row in rows
    ]
    show(left_table(header, lines))
    if len(rows) > _FEW:
        return
    for row in rows:
        show("")
        show(f"{row['name']}:")
        for place in (row["folder"], *row["addresses"]):
            if place:
                show(f"  {place}")


def _size(row: dict[str, Any]) -> str:
    if row["bytes"] is not None:
        return f"{row['bytes'] / 1e6:,.0f} MB"
    if row["parameters"] is not None:  # float32, and next to nothing else in the file
        return f"about {4 * row['parameters'] / 1e6:,.0f} MB"
    return "?"


def _published(name: str) -> PublishedModel:
    """Find a model that can be downloaded, or say what else the name is."""
    from elmo.hub.registry import bundled_models, find_published, similar_names

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

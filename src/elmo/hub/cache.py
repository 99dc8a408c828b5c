"""Where published models are kept after their download, and how they get there.

    ~/.cache/elmo-torch/            or what ELMO_CACHE names; see `runtime.files.cache_folder`
      original/options.json         a folder for each model, under its short name
      original/weights.hdf5
      nlpl-195/model/               the files of an archive; the archive itself is not kept
      */NAME.sha256.json            checksums; they outlive the files, see `download`

`ELMO_OFFLINE=1`: the network is never used. `ELMO_MIRROR=https://host/path`: every file is asked
for there, under the host and path of its own address (the tree that `wget -x` makes).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from elmo.errors import ConfigError, MissingFileError, OutputError, reason_of
from elmo.hub.download import RECORD_SUFFIX, FetchOptions, RemoteFile, by_hand, download_lock, fetch
from elmo.runtime.files import cache_folder, output_errors

if TYPE_CHECKING:
    from elmo.hub.names import PublishedModel

_UNPACKED = "model"


def is_offline() -> bool:
    """Return whether the environment forbids the network."""
    return os.environ.get("ELMO_OFFLINE", "").lower() not in ("", "0", "no", "false")


def network_options(offline: bool = False, force: bool = False) -> FetchOptions:
    """Return how the network is used, as the environment and a caller say."""
    options = FetchOptions(offline=offline or is_offline(), force=force)
    if not (given := os.environ.get("ELMO_TIMEOUT")):
        return options
    try:
        timeout = float(given)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout < float("inf"):
        raise ConfigError(f"ELMO_TIMEOUT is {given!r}, expected a number of seconds")
    return replace(options, timeout=timeout)


def folder_of(model: PublishedModel, cache_dir: str | Path | None = None) -> Path:
    """Return the folder of a published model, which may not exist yet."""
    return Path(cache_dir or cache_folder()) / model.name.replace(":", "-")


def cached_folder(model: PublishedModel, cache_dir: str | Path | None = None) -> Path | None:
    """Return the folder with the files of a model; None if they are not all in the cache."""
    folder = folder_of(model, cache_dir)
    if model.is_archive:
        folder = folder / _UNPACKED
        return folder if folder.is_dir() else None
    return folder if all((folder / name).is_file() for name in model.files) else None


def obtain(
    model: PublishedModel,
    cache_dir: str | Path | None = None,
    options: FetchOptions | None = None,
) -> Path:
    """Download a published model, unless it is in the cache.

    Args:
        model: Which.
        cache_dir: Another place for downloads.
        options: How the network is used; by default as the environment says.

    Returns:
        The folder with its files.
    """
    options = options or network_options()
    folder = folder_of(model, cache_dir)
    if model.is_archive:
        return _obtain_archive(model, folder, options)
    if options.offline:
        _require_all(model, folder)
    for name, file in model.files.items():
        fetch(mirrored(file), folder / name, options)
    return folder


def _require_all(model: PublishedModel, folder: Path) -> None:
    missing = [
        by_hand(mirrored(file), folder / name)
        for name, file in model.files.items()
        if not (folder / name).is_file()
    ]
    if missing:
        raise MissingFileError(
            f"{model.name} is not in the cache, and the network may not be used (ELMO_OFFLINE or "
            f"local_files_only). {'. '.join(missing)}"
        )


def _obtain_archive(model: PublishedModel, folder: Path, options: FetchOptions) -> Path:
    from elmo.hub.archives import extract_model

    unpacked = folder / _UNPACKED
    if unpacked.is_dir() and not options.force:
        return unpacked
    if options.offline:
        _require_all(model, folder)
    [(name, file)] = model.files.items()
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with download_lock(unpacked, options):
        if not unpacked.is_dir() or options.force:  # no other process was quicker
            archive = fetch(mirrored(file), folder / name, options)
            shutil.rmtree(unpacked, ignore_errors=True)
            extract_model(archive, unpacked)
            archive.unlink()
    return unpacked


def remove(model: PublishedModel, cache_dir: str | Path | None = None) -> int:
    """Delete a model from the cache, halves of downloads included, but not its checksums.

    Returns:
        How many bytes that freed.
    """
    folder = folder_of(model, cache_dir)
    if not folder.is_dir():
        return 0
    freed = 0
    try:
        for path in sorted(folder.iterdir()):
            if path.name.endswith(RECORD_SUFFIX) and not path.name.startswith("."):
                continue
            freed += bytes_in(path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError as error:
        raise OutputError(f"cannot delete {error.filename}: {reason_of(error)}") from error
    return freed


def bytes_in(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(inside.stat().st_size for inside in path.rglob("*") if inside.is_file())


def mirrored(file: RemoteFile) -> RemoteFile:
    """Return the same file at the mirror that `ELMO_MIRROR` names, if it names one."""
    mirror = os.environ.get("ELMO_MIRROR")
    if not mirror:
        return file
    if urlsplit(mirror).scheme not in ("http", "https"):
        raise ConfigError(f"ELMO_MIRROR is {mirror!r}, expected an address as https://host/path")
    address = urlsplit(file.address)
    return replace(file, address=f"{mirror.rstrip('/')}/{address.netloc}{address.path}")

"""Where published models are kept after their download, and how they get there.

    ~/.cache/elmo-torch/            or what `runtime.files.cache_folder` returns
      original/options.json         a folder for each model, under its short name
      original/weights.hdf5
      nlpl-195/model/               what is needed of an archive; the archive itself is not kept
      */NAME.sha256.json            checksums; they outlive the files, see `downloads`

`ELMO_OFFLINE=1`: the network is never asked. `ELMO_MIRROR=https://host/path`: every file is asked
for there, under the host and path of its own address (the tree that `wget -x` makes).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from elmo.errors import ConfigError, MissingFileError, OutputError
from elmo.hub.archives import extract
from elmo.hub.download import RECORD_SUFFIX, download_lock, fetch
from elmo.hub.registry import PublishedModel
from elmo.hub.transfer import FetchOptions, RemoteFile, by_hand
from elmo.runtime.files import cache_folder, output_errors

_UNPACKED = "model"
_WANTED = {
    "zip (hdf5)": ("*.hdf5", "options.json", "vocab*.txt*", "meta.json", "LICENSE*"),
    "zip (manylangs)": ("*.json", "char.dic", "word.dic", "encoder.pkl", "token_embedder.pkl"),
}


def folder_of(model: PublishedModel, cache_dir: str | Path | None = None) -> Path:
    """Return the folder of a model's files, in the cache or in another folder for downloads."""
    return Path(cache_dir or cache_folder()) / model.folder_name


def is_offline() -> bool:
    """Tell whether the environment forbids the network."""
    return os.environ.get("ELMO_OFFLINE", "").lower() not in ("", "0", "no", "false")


def network_options(offline: bool = False, force: bool = False) -> FetchOptions:
    """Give what the environment and a caller say about the network, together."""
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


def cached_folder(model: PublishedModel, cache_dir: str | Path | None = None) -> Path | None:
    """Give the folder of a model that is in the cache, all of it; None if it is not."""
    folder = folder_of(model, cache_dir)
    if model.is_archive:
        unpacked = folder / _UNPACKED
        return unpacked if unpacked.is_dir() else None
    return folder if all((folder / name).is_file() for name in model.files) else None


def obtain(
    model: PublishedModel,
    cache_dir: str | Path | None = None,
    options: FetchOptions | None = None,
) -> Path:
    """Have a published model in the cache.

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
            f"{model.name} is not in the cache, and the network may not be asked (ELMO_OFFLINE or "
            f"local_files_only). {'. '.join(missing)}"
        )


def _obtain_archive(model: PublishedModel, folder: Path, options: FetchOptions) -> Path:
    unpacked = folder / _UNPACKED
    if unpacked.is_dir() and not options.force:
        return unpacked
    [(name, file)] = model.files.items()
    if options.offline:
        return _unpack(model, fetch(mirrored(file), folder / name, options), unpacked)
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with download_lock(unpacked, options):
        if unpacked.is_dir() and not options.force:  # another process was quicker
            return unpacked
        return _unpack(model, fetch(mirrored(file), folder / name, options), unpacked)


def _unpack(model: PublishedModel, archive: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    extract(archive, folder, _WANTED[model.format])
    archive.unlink()
    return folder


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
        raise OutputError(f"cannot delete {error.filename}: {error.strerror}") from error
    return freed


def bytes_in(path: Path) -> int:
    """Count the bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(inside.stat().st_size for inside in path.rglob("*") if inside.is_file())


def mirrored(file: RemoteFile) -> RemoteFile:
    """Give the same file at the mirror that `ELMO_MIRROR` names, if it names one."""
    mirror = os.environ.get("ELMO_MIRROR")
    if not mirror:
        return file
    if urlsplit(mirror).scheme not in ("http", "https"):
        raise ConfigError(f"ELMO_MIRROR is {mirror!r}, expected an address as https://host/path")
    address = urlsplit(file.address)
    return replace(file, address=f"{mirror.rstrip('/')}/{address.netloc}{address.path}")

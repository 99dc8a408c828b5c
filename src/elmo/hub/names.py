"""Names of models: folders, files, what comes with the package, published ones, and the Hub."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from elmo.config import ElmoConfig, Preset
from elmo.errors import ConfigError, ElmoWarning, MissingFileError
from elmo.hub.archives import is_archive, unpacked
from elmo.hub.cache import is_offline, network_options, obtain
from elmo.hub.registry import bundled_models, find_published, similar_names
from elmo.model.bilm import random_bilm
from elmo.model.checkpoint import Checkpoint
from elmo.weights.formats import known_files, load_checkpoint, patterns

DEFAULT_MODEL = "small-en"
"""Name of the model that is loaded when none is named."""

_WITHOUT_IT = "random-small"  # where the trained one is not installed

_RANDOM = "random-"
_ADDRESSES = ("http://", "https://", "s3://")


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Where and how models are downloaded; the names are those of `transformers`.

    `revision` and `token` are for the Hub alone.
    """

    revision: str | None = None
    cache_dir: str | Path | None = None
    token: str | None = None
    local_files_only: bool = False
    force_download: bool = False


def open_model(
    name: str | Path | None = None,
    options: str | Path | None = None,
    weights: str | Path | None = None,
    hub: HubOptions | None = None,
    *,
    lookups: bool = False,
) -> Checkpoint:
    """Read a model, wherever it is.

    Args:
        name: A folder, a weights file, a zip or tar archive of a folder, a model that comes with
            the package (`small-en`), a published one by its short name (`original`; see `elmo
            models`), a repository of the Hub such as `someone/elmo-small`, or `random-` and the
            name of a preset (`random-small`) for an untrained model of that size; the default
            model if None. What exists on the disk goes first.
        options: Instead of a name: the description of `weights`, such as `options.json`.
        weights: Instead of a name: a weights file, such as `weights.hdf5`.
        hub: How models are downloaded.
        lookups: Whether the caller can use vectors of whole words beside characters; models of
            ELMoForManyLangs have them, and give other vectors without. If not, they are refused.
    """
    _require_paths(name_or_path=name, options=options, weights=weights)
    if options is not None or weights is not None:
        return load_checkpoint(*_explicit_pair(name, options, weights), lazily=True)
    if name is None:
        name = default_model()
    if isinstance(name, str) and name.startswith(_RANDOM) and not Path(name).exists():
        return _untrained(name)
    checkpoint = load_checkpoint(find_folder(name, hub), lazily=True)
    if checkpoint.lookup is not None and not lookups:
        raise ConfigError(
            f"{name} has vectors of whole words beside its characters (ELMoForManyLangs): it can "
            "embed (ELMo, elmo embed), but not be trained, scored with, or part of a task model"
        )
    return checkpoint


def default_model() -> str:
    """Return the name of the model that is loaded when none is named."""
    return DEFAULT_MODEL if DEFAULT_MODEL in bundled_models() else _WITHOUT_IT


def is_untrained(name: str | Path | None) -> bool:
    """Return whether a name stands for a model with random weights."""
    return str(name or default_model()).startswith(_RANDOM)


def _require_paths(**given: object) -> None:
    for argument, value in given.items():
        if value is not None and not isinstance(value, str | Path):
            raise ConfigError(
                f"{argument} is {value!r} of type {type(value).__name__}, expected a text or a path"
            )


def _explicit_pair(
    name: str | Path | None, options: str | Path | None, weights: str | Path | None
) -> tuple[Path, Path]:
    if options is None or weights is None:
        present, missing = ("weights", "options") if options is None else ("options", "weights")
        raise ConfigError(
            f"--{present} needs --{missing}: a model is either a name or a pair of options and "
            "weights"
        )
    if name is not None:
        raise ConfigError(
            "a model is either a name or a pair of options and weights: received both, "
            f"{str(name)!r} and {str(weights)!r}"
        )
    for part in (options, weights):
        if str(part).startswith(_ADDRESSES):
            raise MissingFileError(
                f"{part} is an address, expected a file: download it first, or name the model "
                "instead ('elmo models' lists those that are downloaded when first used)"
            )
    return Path(weights), Path(options)


def _untrained(name: str) -> Checkpoint:
    preset = name.removeprefix(_RANDOM)
    if preset not in get_args(Preset):
        names = ", ".join(_RANDOM + size for size in get_args(Preset))
        raise MissingFileError(f"no model {name!r}; untrained models are {names}")
    warnings.warn(
        f"{name!r} has random weights: its vectors have no meaning. "
        "Name a model that 'elmo models' lists, a folder or a repository of the Hub to embed for "
        "real.",
        ElmoWarning,
        stacklevel=4,
    )
    return random_bilm(ElmoConfig.preset(preset)).to_checkpoint()  # type: ignore[arg-type]


def find_folder(name: str | Path, hub: HubOptions | None = None) -> Path:
    """Return the folder or weights file that a name stands for; download or unpack it first."""
    hub = hub or HubOptions()
    path = Path(name)
    if path.exists():
        return unpacked(path) if path.is_file() and is_archive(path) else path
    if isinstance(name, str):
        bundled = bundled_models().get(name)
        if bundled is not None:
            return bundled
        published = find_published(name)
        if published is not None:
            options = network_options(hub.local_files_only, hub.force_download)
            return obtain(published, hub.cache_dir, options)
        if _is_repository(name):
            return _download(name, hub)
    raise MissingFileError(f"no such model folder or file: {name}. {_advice(str(name))}")


def _advice(name: str) -> str:
    similar = similar_names(name)
    if similar and "/" not in name:
        return f"Did you mean {' or '.join(similar)}? 'elmo models' lists all names"
    return f"Give a folder with {known_files()}, or a name that 'elmo models' lists"


def _is_repository(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and "\\" not in name


def _download(name: str, hub: HubOptions) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            name,
            revision=hub.revision,
            cache_dir=hub.cache_dir,
            token=hub.token,
            local_files_only=hub.local_files_only or is_offline(),
            force_download=hub.force_download,
            allow_patterns=patterns(),
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise MissingFileError(
            f"{name!r} is no folder here and could not be had from the Hugging Face Hub: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    return Path(folder)

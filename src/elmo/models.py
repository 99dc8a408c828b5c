"""Names of models: folders, files, the Hugging Face Hub, and what comes with the package."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from elmo.bilm import random_bilm
from elmo.checkpoint import Checkpoint, load_checkpoint
from elmo.config import ElmoConfig, Preset
from elmo.errors import ConfigError, ElmoWarning, MissingFileError
from elmo.model_files import CHARACTERS_FILE, ModelFiles, find_model, name_files

DEFAULT_MODEL = "random-small"
"""What is loaded when nobody names a model. Until trained weights ship, it is an untrained one."""

_RANDOM = "random-"
_HUB_FILES = ["config.json", "*.safetensors", "*options*.json", "*.hdf5", "*.h5", "vocab*.txt*"]
_HUB_FILES += [CHARACTERS_FILE]


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Where and how the Hub is asked; the names are those of `transformers`."""

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
) -> Checkpoint:
    """Read a model, wherever it is.

    Args:
        name: A folder, a weights file, a repository of the Hub such as `someone/elmo-small`, or
            `random-` and the name of a preset (`random-small`) for an untrained model of that
            size; the default model if None.
        options: Instead of a name: an `options.json`, together with `weights`.
        weights: Instead of a name: a `weights.hdf5`, together with `options`.
        hub: How the Hub is asked.
    """
    if options is not None or weights is not None:
        return load_checkpoint(_explicit_pair(name, options, weights))
    if name is None:
        name = DEFAULT_MODEL
    if isinstance(name, str) and name.startswith(_RANDOM) and not Path(name).exists():
        return _untrained(name)
    return load_checkpoint(find_model(_folder(name, hub or HubOptions())))


def is_untrained(name: str | Path | None) -> bool:
    """Tell whether a name stands for a model with random weights."""
    return str(name or DEFAULT_MODEL).startswith(_RANDOM)


def _explicit_pair(
    name: str | Path | None, options: str | Path | None, weights: str | Path | None
) -> ModelFiles:
    if name is not None or options is None or weights is None:
        raise ConfigError(
            "a model is either a name or a pair of options and weights: "
            f"received name={name!r}, options={str(options)!r}, weights={str(weights)!r}"
        )
    return name_files(Path(options), Path(weights))


def _untrained(name: str) -> Checkpoint:
    preset = name.removeprefix(_RANDOM)
    if preset not in get_args(Preset):
        names = ", ".join(_RANDOM + size for size in get_args(Preset))
        raise MissingFileError(f"no model {name!r}; untrained models are {names}")
    warnings.warn(
        f"{name!r} has random weights: its vectors have no meaning. "
        "Name a model folder or a repository of the Hub to embed for real.",
        ElmoWarning,
        stacklevel=4,
    )
    return random_bilm(ElmoConfig.preset(preset)).to_checkpoint()  # type: ignore[arg-type]


def _folder(name: str | Path, hub: HubOptions) -> Path:
    path = Path(name)
    if path.exists():
        return path
    if isinstance(name, Path) or not _is_repository(name):
        raise MissingFileError(
            f"no such model folder or file: {name}. Give a folder with config.json and "
            "model.safetensors, or with options.json and weights.hdf5"
        )
    return _download(name, hub)


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
            local_files_only=hub.local_files_only,
            force_download=hub.force_download,
            allow_patterns=_HUB_FILES,
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise MissingFileError(
            f"{name!r} is no folder here and could not be had from the Hugging Face Hub: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    return Path(folder)

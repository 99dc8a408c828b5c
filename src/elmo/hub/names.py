"""Names of models: folders, files, what comes with the package, published ones, and the Hub.

Published models are listed in published.toml; none of their files is ours. Nothing here imports
PyTorch before a model is read, so that a mistyped name is refused at once.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from elmo.config import ElmoConfig, Preset
from elmo.errors import ConfigError, ElmoWarning, MissingFileError
from elmo.hub.archives import is_archive, unpacked
from elmo.hub.cache import cached_folder, is_offline, network_options, obtain
from elmo.hub.download import RemoteFile
from elmo.weights.formats import (
    FORMATS,
    HDF5,
    MANYLANGS,
    OURS,
    find_model,
    known_files,
    load_checkpoint,
    patterns,
)

if TYPE_CHECKING:
    from elmo.model.bilm import Checkpoint
    from elmo.weights.card import ModelCard

DEFAULT_MODEL = "small-en"
"""Name of the model that is loaded when none is named."""
BUNDLED = Path(__file__).parents[1] / "bundled"
"""Models that come with the package, a folder each."""

_WITHOUT_IT = "random-small"  # where the trained one is not installed

_RANDOM = "random-"
_ADDRESSES = ("http://", "https://", "s3://")
_TABLE = Path(__file__).with_name("published.toml")
_NLPL = "https://vectors.nlpl.eu/repository/20/{}.zip"
_NLPL_MANYLANGS = "http://vectors.nlpl.eu/repository/11/{}.zip"


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Where and how models are downloaded; the names are those of `transformers`.

    `revision` and `token` are for the Hub alone.
    """

    revision: str | None = None
    cache_dir: str | Path | None = None
    token: bool | str | None = None
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
    if _is_preset(name):
        return _untrained(str(name))
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


def _is_preset(name: str | Path) -> bool:
    """Return whether a name is that of an untrained model, of a preset that exists."""
    if not isinstance(name, str) or not name.startswith(_RANDOM) or Path(name).exists():
        return False
    if name.removeprefix(_RANDOM) not in get_args(Preset):
        names = ", ".join(_RANDOM + size for size in get_args(Preset))
        raise MissingFileError(f"no model {name!r}; untrained models are {names}")
    return True


def _untrained(name: str) -> Checkpoint:
    warnings.warn(
        f"{name!r} has random weights: its vectors have no meaning. "
        "Name a model that 'elmo models' lists, a folder or a repository of the Hub to embed for "
        "real.",
        ElmoWarning,
        stacklevel=4,
    )
    from elmo.model.bilm import random_bilm

    return random_bilm(ElmoConfig.preset(name.removeprefix(_RANDOM))).to_checkpoint()  # type: ignore[arg-type]


def require_known(
    name: str | Path | None, options: str | Path | None = None, weights: str | Path | None = None
) -> None:
    """Raise an error if there can be no such model; nothing is read or downloaded.

    Call it before what imports PyTorch: a mistyped name is then refused at once. A repository of
    the Hub is not asked for.

    Args:
        name: As in `open_model`, like the others.
        options: Instead of a name.
        weights: Instead of a name.
    """
    _require_paths(name_or_path=name, options=options, weights=weights)
    if options is not None or weights is not None:
        find_model(*_explicit_pair(name, options, weights))
    elif name is not None and not _is_preset(name):
        _locate(name)


def find_folder(name: str | Path, hub: HubOptions | None = None) -> Path:
    """Return the folder or weights file that a name stands for; download or unpack it first."""
    hub = hub or HubOptions()
    found = _locate(name)
    if found is None:
        return _download(str(name), hub)
    if isinstance(found, PublishedModel):
        options = network_options(hub.local_files_only, hub.force_download)
        return obtain(found, hub.cache_dir, options)
    return unpacked(found) if found.is_file() and is_archive(found) else found


def _locate(name: str | Path) -> Path | PublishedModel | None:
    """Return the path or the published model that a name stands for; None for a Hub repository."""
    path = Path(name)
    if path.is_dir():
        _require_no_run(path)
    if path.exists():
        return path
    if (path.parent / "best").is_dir() and path.parent != Path():
        _require_no_run(path.parent)  # a mistyped `run/best` is no repository of the Hub
    if isinstance(name, str):
        found = bundled_models().get(name) or find_published(name)
        if found is not None or _is_repository(name):
            return found
    raise MissingFileError(f"no such model folder or file: {name}. {_advice(str(name))}")


def _require_no_run(folder: Path) -> None:
    """Raise an error if there is no model in a folder, but in folders inside, as in a run's."""
    inside = list(folder.iterdir())
    endings = {Path(format.weights).suffix for format in FORMATS}
    if any(path.suffix in endings for path in inside):
        return
    models = [str(path) for path in sorted(inside) if (path / OURS.options).is_file()]
    if models:
        raise MissingFileError(
            f"{folder} is the folder of several models: name {' or '.join(models)}"
        )


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


# --- what is known of a model without reading it --------------------------------------------------


def find_card(
    name: str | Path | None = None, cache_dir: str | Path | None = None
) -> ModelCard | None:
    """Return what is known of a model, quickly: nothing is downloaded, no weights are read.

    Args:
        name: As in `open_model`.
        cache_dir: Another place of downloads.

    Returns:
        The card in its folder; of a published model its name, language and license. None if there
        is neither.
    """
    from elmo.weights.card import CARD_JSON, ModelCard

    name = default_model() if name is None else name
    published = find_published(str(name))
    folder = Path(name)
    if not folder.exists():
        cached = None if published is None else cached_folder(published, cache_dir)
        folder = bundled_models().get(str(name)) or cached or folder
    path = (folder.parent if folder.is_file() else folder) / CARD_JSON
    if path.is_file():
        return ModelCard.read(path)
    if published is None:
        return None
    return ModelCard(
        name=published.name,
        language=published.language,
        description=published.description,
        license=published.license,
    )


# --- published models -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A model that others published."""

    name: str
    """Short name, for `from_pretrained`."""
    language: str
    description: str
    format: str
    """Name of its weight format."""
    license: str
    files: dict[str, RemoteFile]
    """What has to be downloaded, by the name that it gets in the cache."""
    parameters: int | None = None
    """If they are known."""

    @property
    def is_archive(self) -> bool:
        """Whether its files come in one archive."""
        return any(name.endswith(".zip") for name in self.files)

    @property
    def kind(self) -> str:
        """Its format, and whether it comes in an archive."""
        return f"zip ({self.format})" if self.is_archive else self.format

    @property
    def size(self) -> int | None:
        """Bytes to download, if they are known."""
        sizes = [file.size for file in self.files.values() if file.size is not None]
        return sum(sizes) or None


def _published() -> Iterator[PublishedModel]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    for row in table["models"]:
        files = {name: RemoteFile(**file) for name, file in row.pop("files").items()}
        yield PublishedModel(files=files, **row)
    for code, (number, language) in table["manylangs"].items():
        yield PublishedModel(
            name=f"manylangs:{code}",
            language=code,
            description=f"{language}, 20 million words",
            format=MANYLANGS.name,
            license="MIT (ELMoForManyLangs)",
            files={f"{number}.zip": RemoteFile(address=_NLPL_MANYLANGS.format(number))},
        )


PUBLISHED: dict[str, PublishedModel] = {model.name: model for model in _published()}
"""Every published model with a name of its own. Any other of the NLPL repository is `nlpl:ID`."""


def find_published(name: str) -> PublishedModel | None:
    """Find a published model by its short name; capitals do not matter."""
    for known, model in PUBLISHED.items():
        if known.casefold() == name.casefold():
            return model
    number = re.fullmatch(r"nlpl:0*([1-9]\d{0,5})", name.casefold())
    if number is None:
        return None
    model_name = f"nlpl:{number[1]}"
    return PUBLISHED.get(model_name) or PublishedModel(
        name=model_name,
        language="?",
        description="from the NLPL word vectors repository",
        format=HDF5.name,
        license="as its meta.json says",
        files={f"{number[1]}.zip": RemoteFile(address=_NLPL.format(number[1]))},
    )


# --- names ----------------------------------------------------------------------------------------


def bundled_models() -> dict[str, Path]:
    """Return the models that came with this installation, and their folders."""
    folders = sorted(path.parent for path in BUNDLED.glob(f"*/{OURS.options}"))
    return {folder.name: folder for folder in folders}


def all_names() -> list[str]:
    """Return every name of a model: bundled, published and untrained ones."""
    untrained = [f"random-{preset}" for preset in get_args(Preset)]
    return [*bundled_models(), *PUBLISHED, *untrained]


def similar_names(name: str) -> list[str]:
    """Return the known names that the user may have meant."""
    by_key = {known.casefold(): known for known in all_names()}
    found = difflib.get_close_matches(name.casefold(), by_key, n=3, cutoff=0.55)
    inside = [key for key in by_key if len(name) > 2 and name.casefold() in key]
    return [by_key[key] for key in dict.fromkeys([*found, *inside[:3]])][:4]

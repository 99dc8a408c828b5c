"""Models that have names: those that come with the package, and published ones, see published.toml.

None of the published files is ours.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from elmo.config import Preset
from elmo.hub.download import RemoteFile
from elmo.weights.formats import HDF5, MANYLANGS, OURS

BUNDLED = Path(__file__).parents[1] / "bundled"
"""Models that come with the package, a folder each."""

_TABLE = Path(__file__).with_name("published.toml")
_NLPL = "https://vectors.nlpl.eu/repository/20/{}.zip"
_NLPL_MANYLANGS = "http://vectors.nlpl.eu/repository/11/{}.zip"


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A model that others published."""

    name: str
    """Short name, for `from_pretrained`."""
    language: str
    description: str
    format: str
    """Name of its weight format."""
    licence: str
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
            licence="MIT (ELMoForManyLangs)",
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
        licence="as its meta.json says",
        files={f"{number[1]}.zip": RemoteFile(address=_NLPL.format(number[1]))},
    )


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

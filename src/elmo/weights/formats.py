"""The weight formats: every way in which a biLM lies on disk.

A format is a module of this package and a line of `FORMATS`; the loader, `elmo convert`, downloads
and archives know no other list. This table imports no format, so that help texts come at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from elmo.errors import ConfigError, MissingFileError

if TYPE_CHECKING:
    from elmo.model.checkpoint import Checkpoint
    from elmo.settings import OutputDtype
    from elmo.weights.parts import ModelFiles


class FormatModule(Protocol):
    """What the module of a format has."""

    PATTERNS: Sequence[str]
    """Names of all files that a model may have; downloads and archives bring these."""

    def find(self, path: Path, options: Path | None = None) -> ModelFiles | None:
        """Find the files of a model.

        Args:
            path: A folder or a weights file, which exists.
            options: The description of the model, if it is not beside the weights.

        Returns:
            The files; None if this is another format.
        """

    def read(self, files: ModelFiles) -> Checkpoint:
        """Read a model. Whatever differs between formats is checked here."""

    def write(self, checkpoint: Checkpoint, folder: Path, dtype: OutputDtype) -> None:
        """Write a model, whose weights are representable in `dtype`, into a folder.

        The folder may not exist: see `parts.make_folder`.

        A format that is only read has no such function.
        """


@dataclass(frozen=True)
class Format:
    """A line of the table."""

    name: str
    options: str
    """Usual name of the file with the sizes."""
    weights: str
    """Usual name of the file with the weights."""
    module: str
    is_written: bool = True
    """Whether models can be converted to this format."""

    @property
    def files(self) -> str:
        """The files, for messages."""
        return f"{self.options} + {self.weights}"

    @property
    def code(self) -> FormatModule:
        """The module, imported when it is first used."""
        return cast(FormatModule, import_module(self.module))


OURS = Format("elmo", "config.json", "model.safetensors", "elmo.weights.folder")
"""The only format that has a place for everything that a checkpoint may hold."""
MANYLANGS = Format(
    "manylangs", "config.json", "encoder.pkl", "elmo.weights.manylangs", is_written=False
)
HDF5 = Format("hdf5", "options.json", "weights.hdf5", "elmo.weights.published")

FORMATS = [OURS, MANYLANGS, HDF5]
"""In the order in which a folder is searched for them."""


def format_named(name: str) -> Format:
    """Return the format that models can be converted to by this name."""
    written = {format.name: format for format in FORMATS if format.is_written}
    if name not in written:
        raise ConfigError(f"format is {name!r}, expected one of {', '.join(written)}")
    return written[name]


def patterns() -> list[str]:
    """Return patterns for the names of all files that models of any format may have."""
    return list(dict.fromkeys(name for format in FORMATS for name in format.code.PATTERNS))


def known_files() -> str:
    """Return the usual files of every format, for messages."""
    return " or ".join(f"{format.files} ({format.name})" for format in FORMATS)


def find_model(path: Path | str, options: Path | str | None = None) -> tuple[Format, ModelFiles]:
    """Find the files of a model.

    Args:
        path: A folder or a weights file.
        options: The description of the model, if it is not beside the weights.

    Returns:
        The first format that knows them, and the files.
    """
    path, options = Path(path), None if options is None else Path(options)
    for part in (path, options):
        if part is not None and not part.exists():
            raise MissingFileError(f"no such model folder or file: {part}")
    for format in FORMATS:
        if (files := format.code.find(path, options)) is not None:
            return format, files
    if path.is_dir():
        listing = ", ".join(sorted(inside.name for inside in path.iterdir())[:10]) or "nothing"
        raise MissingFileError(
            f"{path}: no weights file (found: {listing}); expected {known_files()}, or name "
            "options and weights one by one"
        )
    raise MissingFileError(
        f"{path} is no weights file of a known format; expected a folder with {known_files()}, or "
        "such a weights file"
    )

"""The weight formats: every way in which a biLM lies on disk, found, read and written.

A format is a module of this package and a line of `FORMATS`; the loader, `elmo convert`, downloads
and archives know no other list. Formats, and PyTorch with them, are imported when they are used:
help texts and refusals come at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, get_args

from elmo.errors import ConfigError, MissingFileError, OutputExistsError
from elmo.runtime.input_files import require_file
from elmo.settings import OutputDtype

if TYPE_CHECKING:
    from elmo.model.bilm import Checkpoint

VOCABULARY_FILE = "vocab.txt"
CHARACTERS_FILE = "characters.txt"


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Where the parts of a model are."""

    options: Path
    weights: Path
    vocabulary: Path | None = None
    characters: Path | None = None
    """The alphabet; only models that encode words as code points need one."""


class FormatModule(Protocol):
    """What the module of a format has."""

    PATTERNS: Sequence[str]
    """Names of all files that a model may have; downloads and archives bring these."""

    def find(self, path: Path) -> tuple[Path, Path] | None:
        """Find the weights of a model and their description, where names vary.

        A format whose files always have the same names has no such function.

        Args:
            path: A folder or a weights file, which exists.

        Returns:
            The two files, of which the second need not exist; None if this is another format.
        """

    def read(self, files: ModelFiles) -> Checkpoint:
        """Read a model. Whatever differs between formats is checked here."""

    def write(self, checkpoint: Checkpoint, folder: Path, dtype: OutputDtype) -> None:
        """Write a model, whose weights are representable in `dtype`, into a folder.

        The folder may not exist: see `files.make_folder`.

        A format that is only read has no such function.
        """


@dataclass(frozen=True)
class Format:
    """A line of the table."""

    name: str
    options: str
    """Usual name of the file with the sizes."""
    weights: str
    """Usual name of the file with the weights; others with its ending are taken, if named."""
    module: str
    has_find: bool = False
    """Whether files have other names, too, and the module finds them."""
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

    def find(self, path: Path) -> tuple[Path, Path] | None:
        """Find weights and description; see `FormatModule.find`."""
        if self.has_find:
            return self.code.find(path)
        weights = path / self.weights if path.is_dir() else path
        if weights.suffix != Path(self.weights).suffix or not weights.exists():
            return None
        return weights, weights.with_name(self.options)


OURS = Format("elmo", "config.json", "model.safetensors", "elmo.weights.folder")
"""The only format that has a place for everything that a checkpoint may hold."""
MANYLANGS = Format(
    "manylangs", "config.json", "encoder.pkl", "elmo.weights.manylangs", is_written=False
)
HDF5 = Format("hdf5", "options.json", "weights.hdf5", "elmo.weights.published", has_find=True)

FORMATS = [OURS, MANYLANGS, HDF5]
"""In the order in which a folder is searched for them."""


def patterns() -> list[str]:
    """Return patterns for the names of all files that models of any format may have."""
    return list(dict.fromkeys(name for format in FORMATS for name in format.code.PATTERNS))


def known_files() -> str:
    """Return the usual files of every format, for messages."""
    return " or ".join(f"{format.files} ({format.name})" for format in FORMATS)


# --- reading --------------------------------------------------------------------------------------


def load_checkpoint(
    path: Path | str, options: Path | str | None = None, *, lazily: bool = False
) -> Checkpoint:
    """Read a model in any format, checking every tensor against the configuration.

    Args:
        path: A folder or a weights file.
        options: The description of the model, if it is not beside the weights.
        lazily: Leave the output layer in its file until it is first used; vectors need none.
            Its shapes are checked all the same. Only our own format has a file for it.
    """
    format, files = find_model(path, options)
    require_parts(files)
    checkpoint = format.code.read(files)
    from elmo.weights.files import completed
    from elmo.weights.integrity import warn_of_changes

    checkpoint = completed(replace(checkpoint, format=format.name), files, lazily)
    warn_of_changes(files.weights.parent)
    return checkpoint


def require_parts(files: ModelFiles) -> None:
    """Raise an error unless all parts of a model are regular files."""
    for part, what in (
        (files.options, "description of the model"),
        (files.weights, "weights file"),
        (files.vocabulary, "vocabulary file"),
        (files.characters, "list of characters"),
    ):
        if part is not None:
            require_file(part, what)


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
        if (found := format.find(path)) is not None:
            weights, usual = found
            return format, _with_lists(weights, options or usual)
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


def _with_lists(weights: Path, options: Path) -> ModelFiles:
    """Return weights and description, which must exist, with the lists beside the weights."""
    if not options.exists():
        raise MissingFileError(f"{weights} is there, but not its {options.name} beside it")
    characters = weights.with_name(CHARACTERS_FILE)
    return ModelFiles(
        options=options,
        weights=weights,
        vocabulary=_find_vocabulary(weights.parent),
        characters=characters if characters.exists() else None,
    )


def _find_vocabulary(folder: Path) -> Path | None:
    # bilm-tf's own is called vocab-2016-09-10.txt. Copies that editors leave behind, and lists of
    # characters that other tools call a vocabulary, are none.
    others = (
        path
        for path in sorted(folder.glob("vocab*"))
        if path.name.endswith((".txt", ".txt.gz")) and "char" not in path.name
    )
    usual = [folder / VOCABULARY_FILE, folder / f"{VOCABULARY_FILE}.gz"]
    return next((path for path in (*usual, *others) if path.exists()), None)


# --- writing --------------------------------------------------------------------------------------


def format_named(name: str) -> Format:
    """Return the format that models can be converted to by this name."""
    written = {format.name: format for format in FORMATS if format.is_written}
    if name not in written:
        raise ConfigError(f"format is {name!r}, expected one of {', '.join(written)}")
    return written[name]


def save_checkpoint(
    checkpoint: Checkpoint,
    folder: Path | str,
    format: str = OURS.name,
    dtype: OutputDtype = "float32",
) -> Checkpoint:
    """Write a model in any format that can be written.

    Args:
        checkpoint: The model.
        folder: Where to.
        format: Name of the format.
        dtype: Type of the stored weights: `float16` halves the files of our own format and keeps
            about three decimal digits. Other formats are always float32.

    Returns:
        The model that was written: its weights are rounded with float16.
    """
    from elmo.text.characters import require_alphabet
    from elmo.weights.files import rounded_checkpoint

    chosen, folder = format_named(format), Path(folder)
    if dtype not in get_args(OutputDtype):
        raise ConfigError(f"dtype is {dtype!r}, expected one of {get_args(OutputDtype)}")
    require_alphabet(checkpoint.config, checkpoint.alphabet)
    for first in FORMATS[: FORMATS.index(chosen)]:
        if (folder / first.weights).exists():
            raise OutputExistsError(
                f"{folder} holds {first.weights}, which would be loaded in the place of a model "
                f"in the format {format}; choose another folder"
            )
    stored = rounded_checkpoint(checkpoint, dtype)
    chosen.code.write(stored, folder, dtype)
    return stored

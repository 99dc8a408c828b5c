"""The table of output formats, and what is checked before an output is opened.

Sentence i of the input has the key "i" (HDF5, npz, safetensors) or the row i (Parquet). Its
vectors have shape `(layers, words, dim)`, or `(words, dim)` where one vector a word was asked for.
Each file says which model and settings made it. `docs/formats.md` describes the files.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from elmo.bulk.hdf5 import Hdf5Writer
from elmo.bulk.npz import NpzWriter
from elmo.bulk.parquet import ParquetWriter
from elmo.bulk.safetensors_file import SafetensorsWriter
from elmo.bulk.writer import VectorInfo, VectorWriter, work_folder
from elmo.errors import ConfigError, MissingExtraError, OutputError, OutputExistsError
from elmo.runtime.files import output_errors, refuse_if_locked
from elmo.settings import OutputFormat

FORMATS: dict[OutputFormat, type[VectorWriter]] = {
    "hdf5": Hdf5Writer,
    "parquet": ParquetWriter,
    "npz": NpzWriter,
    "safetensors": SafetensorsWriter,
}
"""All formats, by the names that users give."""


def format_of(path: Path | str, asked: OutputFormat | None = None) -> OutputFormat:
    """Return the format asked for, else that of the file name's ending, else the default."""
    if asked is not None:
        return asked
    ending = Path(path).suffix[1:].lower()
    by_ending = (name for name, writer in FORMATS.items() if ending in writer.endings)
    return next(by_ending, "hdf5")


def open_writer(
    path: Path | str,
    format: OutputFormat,
    info: VectorInfo,
    *,
    resume: bool = False,
    overwrite: bool = False,
    forget_sentences: bool = False,
) -> VectorWriter:
    """Create an output, or resume an unfinished one.

    Args:
        path: Output file.
        format: Its format.
        info: What it will hold.
        resume: Resume an unfinished output, if there is one.
        overwrite: Replace an output that exists.
        forget_sentences: Leave `sentence_to_index` out of an HDF5 file.
    """
    check_output(path, format, resume, overwrite)
    with output_errors(path):
        return FORMATS[format](Path(path), info, resume, overwrite, forget_sentences)


def is_complete(path: Path | str) -> bool:
    """Return whether an output exists and no run has left it unfinished."""
    return Path(path).is_file() and not is_unfinished(path)


def is_unfinished(path: Path | str) -> bool:
    """Return whether a run has left an output that can be resumed."""
    return work_folder(Path(path)).is_dir()


def check_output(
    path: Path | str, format: OutputFormat, resume: bool = False, overwrite: bool = False
) -> None:
    """Refuse an output that may not or cannot be written, before hours of work; change nothing."""
    if format not in FORMATS:
        raise ConfigError(f"format is {format!r}, expected one of {', '.join(FORMATS)}")
    writer = FORMATS[format]
    if writer.extra is not None and find_spec(writer.package) is None:
        raise MissingExtraError(f"the format {format!r}", writer.extra)
    if resume and overwrite:
        raise ConfigError("--resume goes on with an output, --overwrite starts anew: give one")
    if str(path) == "-":
        raise OutputError("vectors cannot be written to standard output: name a file")
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder, expected the name of a file")
    refuse_if_locked(work_folder(path), path)
    if overwrite or resume:
        return
    if is_unfinished(path):
        raise OutputExistsError(
            f"{path} is unfinished; give --resume to complete it or --overwrite to start anew"
        )
    if path.exists():
        raise OutputExistsError(f"{path} exists; give --overwrite to replace it")

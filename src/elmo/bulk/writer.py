"""Files of vectors: the table of their formats, checks before work begins, and `VectorWriter`.

Sentence i of the input has the key "i" (HDF5, npz, safetensors) or the row i (Parquet). Its
vectors have shape `(layers, words, dim)`, or `(words, dim)` where one vector a word was asked for.
Each file says which model, settings and text made it. `docs/formats.md` describes the files.

One process writes an output at a time, and can resume what another left. While a file is being
written, a folder `OUTPUT.partial` beside it keeps what is needed for that: the sentences that are
in (`sentences.jsonl`), what the file is about (`info.json`), the carried state if there is one
(`state-N.safetensors`), and what the format adds. Files that only grow need no more than a flush to
disk after each list: a line or a vector that was torn by a kill is cut off.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmo.errors import (
    ConfigError,
    MissingExtraError,
    MissingFileError,
    OutputError,
    OutputExistsError,
)
from elmo.runtime.files import (
    LOCK_FILE,
    lock_output,
    output_errors,
    refuse_if_locked,
    remove_partial_files,
    sha256_of,
)
from elmo.settings import EmbedSettings, Layers, OutputDtype, OutputFormat, TokenizerName
from elmo.text.files import get_tokenizer, refuse_to_replace, require_text
from elmo.text.sentences import Words

Array = npt.NDArray[Any]

N_WRITTEN = "n_sentences"
TEXT = "text_sha256"
"""Names of two facts that a complete file adds to those of `VectorInfo`."""


@dataclass(frozen=True)
class Format:
    """A line of the table of output formats."""

    endings: tuple[str, ...]
    """Of file names that mean this format, without the dot."""
    writer: str
    """Module and name of its `VectorWriter`, imported when it is first used."""
    extra: str | None = None
    """The extra of this distribution that the format needs."""
    package: str = ""
    """The package that the extra brings, by which it is known to be there."""
    has_layers: bool = True
    """Whether a word may have a vector of each layer; else it has one."""

    @property
    def code(self) -> type[VectorWriter]:
        """The writer."""
        module, name = self.writer.split(":")
        return cast("type[VectorWriter]", getattr(import_module(module), name))


FORMATS: dict[OutputFormat, Format] = {
    "hdf5": Format(("hdf5", "h5"), "elmo.bulk.hdf5:Hdf5Writer"),
    "parquet": Format(("parquet",), "elmo.bulk.spool:ParquetWriter", "parquet", "pyarrow"),
    "npz": Format(("npz",), "elmo.bulk.spool:NpzWriter"),
    "safetensors": Format(("safetensors",), "elmo.bulk.spool:SafetensorsWriter"),
}
"""All formats, by the names that users give."""


# --- before work begins ---------------------------------------------------------------------------


def check_paths(source: Path | str, output: Path | str, settings: EmbedSettings) -> None:
    """Refuse an input that cannot be read or an output that may not be written; change nothing."""
    require_text(source, settings.encoding)
    if settings.tokenizer != "model":
        get_tokenizer(settings.tokenizer)
    for path in (source, settings.token_file, settings.token_vocabulary):
        if path is not None:
            refuse_to_replace(path, output)
    format = format_of(output, settings.format)
    check_output(output, format, settings.layers, settings.resume, settings.overwrite)


def format_of(path: Path | str, asked: OutputFormat | None = None) -> OutputFormat:
    """Return the format asked for, else that of the file name's ending, else HDF5.

    An ending that no format has is refused: a file named out.xyz should not hold HDF5.
    """
    ending = Path(path).suffix[1:].lower()
    if asked is not None or not ending:
        return asked or "hdf5"
    for name, format in FORMATS.items():
        if ending in format.endings:
            return name
    known = ", ".join(f".{ending}" for format in FORMATS.values() for ending in format.endings)
    raise ConfigError(
        f"{path}: vectors are not written as .{ending}; expected a name that ends in {known}, or "
        f"--format {'|'.join(FORMATS)}"
    )


def check_output(
    path: Path | str,
    format: OutputFormat,
    layers: Layers | str,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Refuse an output that may not or cannot be written, before hours of work; change nothing."""
    _check_format(format, layers)
    if resume and overwrite:
        raise ConfigError("--resume goes on with an output, --overwrite starts anew: give one")
    if str(path) == "-":
        raise OutputError("vectors cannot be written to standard output: name a file")
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder, expected the name of a file")
    if not path.parent.is_dir():
        raise MissingFileError(
            f"cannot write {path}: there is no folder {path.parent}; make it first"
        )
    refuse_if_locked(work_folder(path), path)
    if overwrite or resume:
        return
    if is_unfinished(path):
        raise OutputExistsError(
            f"{path} is unfinished; give --resume to complete it or --overwrite to start anew"
        )
    if path.exists():
        raise OutputExistsError(f"{path} exists; give --overwrite to replace it")


def _check_format(format: OutputFormat, layers: Layers | str) -> None:
    """Refuse a format that is unknown, lacks its package, or has no place for these layers."""
    if format not in FORMATS:
        raise ConfigError(f"format is {format!r}, expected one of {', '.join(FORMATS)}")
    extra = FORMATS[format].extra
    if extra is not None and find_spec(FORMATS[format].package) is None:
        raise MissingExtraError(f"the format {format!r}", extra)
    if layers == "all" and not FORMATS[format].has_layers:
        raise ConfigError(
            f"layers is 'all', but the format {format} has one vector a word; give --layers top, "
            "average, mix or a layer's number"
        )


def is_complete(path: Path | str) -> bool:
    """Return whether an output exists and no run has left it unfinished."""
    return Path(path).is_file() and not is_unfinished(path)


def is_unfinished(path: Path | str) -> bool:
    """Return whether a run has left an output that can be resumed."""
    return work_folder(Path(path)).is_dir()


def require_made_of(
    path: Path, format: OutputFormat, info: VectorInfo, sentences: Iterable[Words]
) -> None:
    """Refuse a complete output that is not what these settings make of this text.

    Args:
        path: The output.
        format: Its format.
        info: What it should hold.
        sentences: All sentences of the text.
    """
    try:
        found = FORMATS[format].code.read_facts(path)
    except (OSError, ValueError, KeyError, BadZipFile, SafetensorError) as error:
        raise OutputExistsError(
            f"{path} exists, but no run of elmo embed has written it as {format} ({error}): name "
            "another output, or give --overwrite to replace it"
        ) from None
    _require_same(path, found, info)
    digest = hashlib.sha256()
    for words in sentences:
        digest.update(_json_line(words))
    if found.get(TEXT) != digest.hexdigest():
        raise OutputError(
            f"{path} is complete, with {found.get(N_WRITTEN)} sentences of another text: give the "
            "same input, name another output, or start anew with --overwrite"
        )


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
    check_output(path, format, info.layers, resume, overwrite)
    return FORMATS[format].code(Path(path), info, resume, overwrite, forget_sentences)


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class VectorInfo:
    """Facts that a file of vectors carries; a run can only be resumed with the same."""

    model_sha256: str
    layers: str
    state: str
    dtype: OutputDtype
    dim: int
    n_layers: int
    """Layers of each word in the file; 0 where there is one vector a word and no such axis."""
    tokenizer: TokenizerName
    """What split the text into words."""
    precision: str
    batch_size: int
    """Rows of a batch with carried state; 0 where it does not matter."""
    elmo_version: str

    def shape(self, words: int) -> tuple[int, ...]:
        """Return the shape of the vectors of a sentence: `([layers], words, dim)`."""
        return (self.n_layers, words, self.dim) if self.n_layers else (words, self.dim)


class VectorWriter:
    """Writes the vectors of sentences, one list after another; use it in a `with` block.

    It holds the lock of its output until it is finished or closed. A format is a subclass with
    `_create`, `_recover`, `_append_vectors`, `_finish` and `read_facts`.

    Args:
        path: Output file.
        info: What it holds.
        resume: Resume an unfinished output, if there is one.
        overwrite: Replace an output that exists.
        forget_sentences: Leave `sentence_to_index` out of an HDF5 file.
    """

    def __init__(
        self,
        path: Path,
        info: VectorInfo,
        resume: bool = False,
        overwrite: bool = False,
        forget_sentences: bool = False,
    ) -> None:
        self.path = path
        self.info = info
        self.work = work_folder(path)
        self._forget_sentences = forget_sentences
        self._sentences = self.work / "sentences.jsonl"
        self._is_new = not (resume and self.work.is_dir())
        if self._is_new and path.exists() and not overwrite:
            raise OutputExistsError(f"{path} exists; give --overwrite to replace it")
        self.n_written = 0
        with output_errors(path):
            self.work.mkdir(exist_ok=True)
            self._lock = lock_output(self.work, path)
            try:
                if self._is_new:
                    self.path.unlink(missing_ok=True)
                    for old in self.work.iterdir():
                        if old.name != LOCK_FILE:
                            old.unlink()
                    self._sentences.touch()
                    facts = json.dumps(asdict(info), indent=2)
                    (self.work / "info.json").write_text(f"{facts}\n")
                    self._create()
                else:
                    _require_same(path, self._begun_with(), info)
                    remove_partial_files(self.work)
                    self.n_written = self._recover()
            except BaseException:
                self._give_up()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._give_up()
        self._lock.release()

    def close(self) -> None:
        """Release the lock; an unfinished output can be resumed."""
        self._lock.release()

    def _give_up(self) -> None:
        """Keep what can be resumed; delete an output that this run created if it is empty."""
        if self._is_new and not self.n_written:
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self.work, ignore_errors=True)
        self.close()

    def written_sentences(self) -> Iterator[Words]:
        """Yield the sentences that are in already."""
        with self._sentences.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def append(self, sentences: Sequence[Words], vectors: Sequence[Array]) -> None:
        """Write the next sentences; when it returns, they are on the disk.

        Args:
            sentences: Their words.
            vectors: Their vectors, each of the shape that `info` says.
        """
        typed = [array.astype(self.info.dtype, copy=False) for array in vectors]
        with self._output_errors():
            # Sentences first: there are never vectors whose sentence is not known.
            append_to(self._sentences, b"".join(_json_line(words) for words in sentences))
            self._append_vectors(typed)
        self.n_written += len(sentences)

    def finish(self) -> None:
        """Complete the file; nothing can be appended afterwards."""
        with self._output_errors():
            self._finish()
        self._lock.release()
        shutil.rmtree(self.work)

    def facts(self) -> dict[str, Any]:
        """Return what a complete file says about itself."""
        text = sha256_of(self._sentences)
        return asdict(self.info) | {N_WRITTEN: self.n_written, TEXT: text}

    def keep_state(self, tensors: Mapping[str, Array], n_sentences: int) -> None:
        """Keep a model's carried state as it is after so many sentences.

        It is written before those sentences are; the one before is kept until they are in.
        """
        with self._output_errors():
            save_file(dict(tensors), self._state_file(n_sentences))
        for old in self.work.glob("state-*.safetensors"):
            if old not in (self._state_file(n_sentences), self._state_file(self.n_written)):
                old.unlink()

    def kept_state(self) -> dict[str, Array]:
        """Return the carried state as it was after the last sentence that is in."""
        try:
            return load_file(self._state_file(self.n_written))
        except (FileNotFoundError, SafetensorError) as error:
            raise OutputError(
                f"{self.work} does not hold the carried state after sentence {self.n_written}: "
                f"{error}; start again with --overwrite"
            ) from None

    def _state_file(self, n_sentences: int) -> Path:
        return self.work / f"state-{n_sentences}.safetensors"

    def _begun_with(self) -> dict[str, Any]:
        """Return the facts with which an unfinished output was begun."""
        try:
            facts: dict[str, Any] = json.loads((self.work / "info.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise OutputError(
                f"{self.work} is damaged ({error}); start again with --overwrite"
            ) from None
        return facts

    def _output_errors(self) -> AbstractContextManager[None]:
        advice = f"{self.n_written} sentences are in; run the same command with --resume to go on"
        return output_errors(self.path, advice)

    # --- what a format does ---------------------------------------------------------------------

    def _create(self) -> None:
        """Create what the format needs of an output without sentences."""
        raise NotImplementedError

    def _recover(self) -> int:
        """Recover an unfinished output; return how many sentences are in."""
        raise NotImplementedError

    def _append_vectors(self, vectors: list[Array]) -> None:
        """Write the vectors of the next sentences, in the numbers that `info` says."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Complete the file."""
        raise NotImplementedError

    @staticmethod
    def read_facts(path: Path) -> Mapping[str, Any]:
        """Return what a complete file says about itself, as values or as text."""
        raise NotImplementedError


def _require_same(path: Path, before: Mapping[str, Any], info: VectorInfo) -> None:
    for name, now in asdict(info).items():
        begun = before.get(name)
        if isinstance(begun, np.generic):  # as h5py reads the numbers among the attributes
            begun = begun.item()
        if str(begun) != str(now):
            raise OutputError(
                f"{path} was begun with {name}={begun!r} and cannot be resumed with "
                f"{name}={now!r}; use the same settings, or --overwrite to start anew"
            )


def work_folder(path: Path) -> Path:
    """Return the folder of an unfinished output."""
    return path.with_name(path.name + ".partial")


def _json_line(words: Words) -> bytes:
    return json.dumps(words).encode() + b"\n"


def append_to(path: Path, content: bytes) -> None:
    """Append bytes to a file, flushed to disk."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def keep_lines(path: Path, count: int) -> None:
    """Cut a file after its first lines."""
    end = 0
    with path.open("rb") as lines:
        for _, line in zip(range(count), lines, strict=False):
            end += len(line)
    os.truncate(path, end)

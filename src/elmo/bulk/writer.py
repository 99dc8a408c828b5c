"""What all writers of vector files share: resumed, one process at a time, nothing written is lost.

While a file is being written, a folder `OUTPUT.partial` beside it keeps what is needed to resume:
the sentences that are in (`sentences.jsonl`), what the file is about (`info.json`), the carried
state if there is one (`state-N.safetensors`), and what the format adds. Files that only grow need
no more than a flush to disk after each list: a line or a vector that was torn by a kill is cut off.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmo.errors import OutputError, OutputExistsError
from elmo.runtime.files import LOCK_FILE, lock_output, output_errors, remove_partial_files
from elmo.settings import OutputDtype
from elmo.text.sentences import Words

Array = npt.NDArray[Any]

N_WRITTEN = "n_sentences"


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
    tokenizer: str
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
    `_create`, `_recover`, `_append_vectors` and `_finish`.

    Args:
        path: Output file.
        info: What it holds.
        resume: Resume an unfinished output, if there is one.
        overwrite: Replace an output that exists.
        forget_sentences: Leave `sentence_to_index` out of an HDF5 file.
    """

    endings: ClassVar[tuple[str, ...]]
    """Endings of file names that mean this format, without the dot."""
    extra: ClassVar[str | None] = None
    """The extra of this distribution that the format needs."""
    package: ClassVar[str] = ""
    """The package that the extra brings, by which it is known to be there."""

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
        self.work.mkdir(parents=True, exist_ok=True)
        self._lock = lock_output(self.work, path)
        self.n_written = 0
        try:
            if self._is_new:
                _remove(path)
                _empty(self.work)
                self._create()
            else:
                self._check_same_settings()
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
        self.close()

    def close(self) -> None:
        """Release the lock; an unfinished output can be resumed."""
        self._lock.release()

    def _give_up(self) -> None:
        """Keep what can be resumed; delete an output that this run created if it is empty."""
        if self._is_new and not self.n_written:
            _remove(self.path)
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
        self.close()
        shutil.rmtree(self.work)

    def facts(self) -> dict[str, Any]:
        """Return what a complete file says about itself."""
        return asdict(self.info) | {N_WRITTEN: self.n_written}

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

    def _check_same_settings(self) -> None:
        try:
            before = json.loads((self.work / "info.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise OutputError(
                f"{self.work} is damaged ({error}); start again with --overwrite"
            ) from None
        now = asdict(self.info)
        for name in now:
            if before.get(name) != now[name]:
                raise OutputError(
                    f"{self.path} was begun with {name}={before.get(name)!r} and cannot be "
                    f"resumed with {name}={now[name]!r}; use the same settings, or --overwrite to "
                    "start anew"
                )

    def _output_errors(self) -> AbstractContextManager[None]:
        advice = f"{self.n_written} sentences are in; run the same command with --resume to go on"
        return output_errors(self.path, advice)

    # --- what a format does ---------------------------------------------------------------------

    def _create(self) -> None:
        """Create the files of an output without sentences."""
        self._sentences.touch()
        (self.work / "info.json").write_text(json.dumps(asdict(self.info), indent=2) + "\n")

    def _recover(self) -> int:
        """Recover an unfinished output; return how many sentences are in."""
        raise NotImplementedError

    def _append_vectors(self, vectors: list[Array]) -> None:
        """Write the vectors of the next sentences, in the numbers that `info` says."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Complete the file."""
        raise NotImplementedError


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


def _empty(folder: Path) -> None:
    """Remove everything from a folder but its lock."""
    for path in folder.iterdir():
        if path.name != LOCK_FILE:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

"""What all writers of vector files do: sentences kept beside them, one process at a time, resuming.

While a file is being written, a folder `OUTPUT.partial` beside it keeps what is needed to go on
after an interruption: the sentences so far, and what an unfinished format cannot hold itself.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elmo.bulk.journal import (
    LOCK_FILE,
    take_alone,
)
from elmo.errors import (
    OutputError,
    OutputExistsError,
    reason_of,
)
from elmo.settings import OutputDtype
from elmo.text.sentences import Words

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class VectorInfo:
    """What a file of vectors says about itself; a run can only be resumed with the same."""

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
        """Give the shape of the vectors of a sentence."""
        return (self.n_layers, words, self.dim) if self.n_layers else (words, self.dim)


class VectorWriter:
    """Writes the vectors of sentences, one list after another; use it in a `with` block.

    It is the only one in all processes that writes to its path until it is finished or closed.

    Args:
        path: Output file.
        info: What it holds.
        resume: Go on with an unfinished output, if there is one.
        overwrite: Replace an output that exists.
    """

    def __init__(self, path: Path, info: VectorInfo, resume: bool, overwrite: bool) -> None:
        self.path = path
        self.info = info
        self.work = work_folder(path)
        self._sentences = self.work / "sentences.jsonl"
        self._is_new = not (resume and self.work.is_dir())
        if self._is_new and path.exists() and not overwrite:
            raise OutputExistsError(f"{path} exists; give --overwrite to replace it")
        self.work.mkdir(parents=True, exist_ok=True)
        self._lock = take_alone(self.work, path)
        self.n_written = 0
        try:
            if self._is_new:
                _remove(path)
                _empty(self.work)
                self._create()
            else:
                self._check_same_settings()
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
        """Let others write; what is not finished can be resumed."""
        self._lock.release()

    def _give_up(self) -> None:
        """Leave what can be resumed; what this run began, and nothing is in yet, goes again."""
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
        """Write the next sentences; afterwards they are safe.

        Args:
            sentences: Their words.
            vectors: Their vectors, each of the shape that `info` says.
        """
        typed = [array.astype(self.info.dtype, copy=False) for array in vectors]
        try:
            # Sentences first: there are never vectors whose sentence is not known.
            append_safely(self._sentences, b"".join(_json_line(words) for words in sentences))
            self._append_vectors(typed)
        except OSError as error:
            raise OutputError(self._trouble(error)) from error
        self.n_written += len(sentences)

    def finish(self) -> None:
        """Complete the file; nothing can be appended afterwards."""
        try:
            self._finish()
        except OSError as error:
            raise OutputError(self._trouble(error)) from error
        self.close()
        shutil.rmtree(self.work)

    def keep_state(self, tensors: Mapping[str, Array], n_sentences: int) -> None:
        """Keep a model's carried state as it is after so many sentences.

        It is written before those sentences are; the one before is kept until they are in.
        """
        save_file(dict(tensors), self._state_file(n_sentences))
        for old in self.work.glob("state-*.safetensors"):
            if old not in (self._state_file(n_sentences), self._state_file(self.n_written)):
                old.unlink()

    def kept_state(self) -> dict[str, Array]:
        """Give the carried state as it was after the last sentence that is in."""
        try:
            return load_file(self._state_file(self.n_written))
        except (FileNotFoundError, SafetensorError) as error:
            raise OutputError(
                f"{self.work} does not hold the carried state after sentence {self.n_written}: "
                f"{error}; start again with --overwrite"
            ) from None

    def _state_file(self, n_sentences: int) -> Path:
        return self.work / f"state-{n_sentences}.safetensors"

    def _create(self) -> None:
        self._sentences.touch()
        (self.work / "info.json").write_text(json.dumps(asdict(self.info), indent=2) + "\n")

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

    def _trouble(self, error: OSError) -> str:
        return (
            f"cannot write {self.path}: {reason_of(error)}. {self.n_written} sentences are in; "
            "run the same command with --resume to go on"
        )

    def _recover(self) -> int:
        """Put an unfinished output in order; returns how many sentences are in."""
        raise NotImplementedError

    def _append_vectors(self, vectors: list[Array]) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


def work_folder(path: Path) -> Path:
    """Give the folder of an unfinished output."""
    return path.with_name(path.name + ".partial")


def _json_line(words: Words) -> bytes:
    return json.dumps(words).encode() + b"\n"


def append_safely(path: Path, content: bytes) -> None:
    """Add to a file what must outlast a crash."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def keep_lines(path: Path, count: int) -> None:
    """Cut a file behind its first lines."""
    end = 0
    with path.open("rb") as lines:
        for _, line in zip(range(count), lines, strict=False):
            end += len(line)
    os.truncate(path, end)


def _empty(folder: Path) -> None:
    """Remove what is in a folder, but for the lock that is held on it."""
    for path in folder.iterdir():
        if path.name != LOCK_FILE:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

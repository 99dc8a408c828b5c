"""The folder that `elmo prepare` makes: whether it may be written, and whether to resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmo.errors import InputError, OutputError, OutputExistsError
from elmo.runtime.files import (
    LOCK_FILE,
    lock_output,
    refuse_if_locked,
    remove_partial_files,
    sha256_of,
    write_text,
)
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shards import (
    COUNTS_FILE,
    MANIFEST_FILE,
    REPORT_FILE,
    VOCABULARY_FILE,
    WORK_FOLDER,
    Manifest,
)

_RUN_FILE = "run.json"


class CorpusFolder:
    """An output folder before it is complete.

    Args:
        path: The folder.
        settings: How it is to be made.
        sources: From which files.
    """

    def __init__(self, path: Path, settings: PrepareSettings, sources: list[str]) -> None:
        self.path = path
        self.work = path / WORK_FOLDER
        """Files that are needed until the corpus is complete."""
        self._settings = settings
        self._about: dict[str, Any] = {
            "settings": settings.result_settings(),
            "sources": sources,
            "vocabulary_sha256": settings.vocabulary and sha256_of(settings.vocabulary),
        }

    def is_complete(self) -> bool:
        """Return whether there is nothing to do; raise if the folder must not be written."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file, expected a folder to make")
        refuse_if_locked(self.work, self.path)
        finished, begun = (self.path / MANIFEST_FILE).exists(), self.work.is_dir()
        if self._settings.overwrite and (finished or begun):
            return False
        if not (finished or begun):
            if self.path.is_dir() and any(self.path.iterdir()):
                raise OutputExistsError(
                    f"{self.path} holds files that are no prepared corpus: choose another folder"
                )
            return False
        if not self._settings.resume:
            raise OutputExistsError(
                f"{self.path} holds a prepared corpus already; give --overwrite to replace it"
                if finished
                else f"{self.path} is unfinished; give --resume to complete it or --overwrite to "
                "start anew"
            )
        if finished:
            manifest = Manifest.read(self.path / MANIFEST_FILE)
            self._refuse_difference({"settings": manifest.settings, "sources": manifest.sources})
            if begun:  # the run before ended between its last two steps
                shutil.rmtree(self.work)
        elif (self.work / _RUN_FILE).exists():  # it is the first file of a run
            self._refuse_difference(json.loads((self.work / _RUN_FILE).read_text("utf-8")))
        return finished

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make or empty the folder and lock it for a block, after which it is complete."""
        self.work.mkdir(parents=True, exist_ok=True)
        lock = lock_output(self.work, self.path)
        try:
            if self._settings.overwrite:
                self._remove_corpus()
            remove_partial_files(self.path)
            write_text(self.work / _RUN_FILE, json.dumps(self._about))
            yield
        except InputError:
            if all(file.name in (_RUN_FILE, LOCK_FILE) for file in self.work.iterdir()):
                lock.release()  # nothing can be resumed
                shutil.rmtree(self.work)
                if not any(self.path.iterdir()):
                    self.path.rmdir()
            raise
        else:
            lock.release()
            shutil.rmtree(self.work)
        finally:
            lock.release()

    def discard_work(self) -> None:
        """Delete what was done so far: it cannot become a corpus."""
        for file in self.work.iterdir():
            if file.name != LOCK_FILE:
                file.unlink()

    def _refuse_difference(self, saved: Mapping[str, Any]) -> None:
        difference = self._settings.difference(saved["settings"])
        digest = self._about["vocabulary_sha256"]
        if not difference and saved.get("vocabulary_sha256", digest) != digest:
            difference = f"{self._settings.vocabulary} has changed"
        if not difference:
            difference = _files_difference(list(saved["sources"]), self._about["sources"])
        if difference:
            raise OutputError(
                f"{self.path} was begun in another way: {difference}; give the same again, or "
                "--overwrite to start anew"
            )

    def _remove_corpus(self) -> None:
        """Remove what `prepare` writes, the manifest first, and nothing else."""
        names = (MANIFEST_FILE, REPORT_FILE, VOCABULARY_FILE, COUNTS_FILE)
        shards = [*self.path.glob("train-*.safetensors"), *self.path.glob("heldout-*.safetensors")]
        for file in [*(self.path / name for name in names), *shards]:
            file.unlink(missing_ok=True)
        self.discard_work()


def _files_difference(before: Sequence[str], now: Sequence[str]) -> str:
    """Return in words how two lists of files differ; empty if they do not."""
    if list(before) == list(now):
        return ""
    gone = [f"without {name}" for name in before if name not in now]
    added = [f"with {name}" for name in now if name not in before]
    if gone or added:
        return "the corpus is now " + " and ".join([*gone[:1], *added[:1]])
    return "the files of the corpus come in another order"

"""A prepared corpus on disk: vocabulary, memory-mapped shards, and a manifest.

Words of the vocabulary have ids below its length. Every other word of a shard is rare: it has an id
of its own behind them, and the shard holds its spelling, so that a model that reads characters
reads it as it is, although it is `<UNK>` to the softmax. `docs/formats.md` describes the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elmo.errors import InputError, MissingFileError
from elmo.runtime.array_files import map_arrays
from elmo.runtime.files import sha256_of
from elmo.settings import TokenizerName

if TYPE_CHECKING:  # it imports PyTorch, which workers that write shards do not need
    from elmo.text.vocabulary import Vocabulary

FORMAT_VERSION = 1
MANIFEST_FILE = "corpus.json"
VOCABULARY_FILE = "vocab.txt"
COUNTS_FILE = "counts.txt"
REPORT_FILE = "report.json"
WORK_FOLDER = ".work"
SPECIALS = ("<S>", "</S>", "<UNK>")
"""The first words of a vocabulary, as in `elmo.text.vocabulary`, which imports PyTorch."""


class Shard:
    """Consecutive documents of a corpus, mapped into memory.

    Args:
        path: A file of a prepared corpus.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        arrays, self.metadata = map_arrays(self.path)
        try:
            self.tokens: npt.NDArray[np.uint32] = arrays["tokens"]
            """Words of all sentences one after another, `(n_words,)`; see the module."""
            self.sentence_starts: npt.NDArray[np.int64] = arrays["sentence_starts"]
            """First word of each sentence, `(n_sentences + 1,)`."""
            self.document_starts: npt.NDArray[np.int64] = arrays["document_starts"]
            """First sentence of each document, `(n_documents + 1,)`."""
            self._rare_letters: npt.NDArray[np.uint8] = arrays["rare_letters"]
            self._rare_starts: npt.NDArray[np.int64] = arrays["rare_starts"]
        except KeyError as error:
            raise InputError(
                f"{path} is no shard of a corpus: it lacks the array {error}"
            ) from None
        self._check()

    @property
    def n_rare(self) -> int:
        """Number of rare words, those outside the vocabulary."""
        return len(self._rare_starts) - 1

    def rare_words(self, numbers: Sequence[int] | npt.NDArray[Any]) -> list[str]:
        """Return the spelling of rare words.

        Args:
            numbers: From 0 to below `n_rare`, in any order.
        """
        starts, ends = (places.tolist() for places in self._rare_places(numbers))
        letters = self._rare_letters
        return [letters[a:b].tobytes().decode() for a, b in zip(starts, ends, strict=True)]

    def rare_bytes(
        self, numbers: Sequence[int] | npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the spelling of rare words as UTF-8, without a Python step for each of them.

        Args:
            numbers: From 0 to below `n_rare`, in any order.

        Returns:
            The bytes of all words, one after another, and the bytes of each, `(len(numbers),)`.
        """
        starts, ends = self._rare_places(numbers)
        lengths = ends - starts
        before = np.cumsum(lengths) - lengths
        places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
        return self._rare_letters[places], lengths

    def _rare_places(
        self, numbers: Sequence[int] | npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        chosen = np.asarray(numbers, np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < self.n_rare:
            raise IndexError(f"rare words of {self.path.name} have numbers 0 to {self.n_rare - 1}")
        return self._rare_starts[chosen], self._rare_starts[chosen + 1]

    def _check(self) -> None:
        pairs = (
            (self.document_starts, len(self.sentence_starts) - 1),
            (self.sentence_starts, len(self.tokens)),
            (self._rare_starts, len(self._rare_letters)),
        )
        for starts, end in pairs:
            if not len(starts) or starts[0] != 0 or starts[-1] != end:
                raise InputError(f"{self.path} is damaged: the lengths of its arrays disagree")


@dataclass(frozen=True, kw_only=True)
class SplitCounts:
    """How much text a split has, or a part of it."""

    words: int = 0
    unknown: int = 0
    """Words that are not in the vocabulary."""
    sentences: int = 0
    documents: int = 0
    longest_sentence: int = 0
    long_words: int = 0
    """Words of more than 48 bytes in UTF-8, which the standard models cut: of the 50 characters
    that they read, two mark where a word begins and ends."""

    def __add__(self, other: SplitCounts) -> SplitCounts:
        sums = {key: value + getattr(other, key) for key, value in asdict(self).items()}
        sums["longest_sentence"] = max(self.longest_sentence, other.longest_sentence)
        return SplitCounts(**sums)


@dataclass(frozen=True)
class FileFacts:
    """Size and checksum of a file of the corpus."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a prepared corpus; `corpus.json`."""

    format_version: int
    elmo_version: str
    tokenizer: TokenizerName | None = None
    """How its texts were split; None in a corpus that does not say so."""
    settings: Mapping[str, Any]
    """The fields of `PrepareSettings` that matter to the result."""
    sources: tuple[str, ...]
    """Text files that it was made from."""
    heldout_by: str
    """What was held out: documents, passages, lines, files or nothing."""
    vocabulary_words: int
    vocabulary_sha256: str
    types: int
    """Distinct words of the training split."""
    train: SplitCounts
    heldout: SplitCounts
    files: Mapping[str, FileFacts]
    """The shards, by name."""

    def to_json(self) -> str:
        """Return the content of `corpus.json`."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read `corpus.json`."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            version = fields["format_version"]
            if version != FORMAT_VERSION:
                raise InputError(
                    f"{path}: format version {version}, this release reads {FORMAT_VERSION}; "
                    "prepare the corpus again"
                )
            fields["sources"] = tuple(fields["sources"])
            fields["files"] = {name: FileFacts(**facts) for name, facts in fields["files"].items()}
            for split in ("train", "heldout"):
                fields[split] = SplitCounts(**fields[split])
            return cls(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is damaged or no manifest of a corpus: {error!r}") from None


@dataclass(frozen=True)
class Corpus:
    """A folder that `elmo prepare` wrote; `Corpus.open` reads one."""

    folder: Path
    manifest: Manifest
    vocabulary: Vocabulary
    train: list[Shard]
    heldout: list[Shard]

    @classmethod
    def open(cls, folder: Path | str) -> Corpus:
        """Open a prepared corpus; nothing but headers and the vocabulary is read.

        Fails if the folder is none, is unfinished, or if a file is missing or has another size
        than the manifest says.
        """
        from elmo.text.vocabulary import Vocabulary

        folder = Path(folder)
        manifest = Manifest.read(_manifest_path(folder))
        vocabulary_file = folder / VOCABULARY_FILE
        vocabulary = Vocabulary.read(vocabulary_file)
        if (
            sha256_of(vocabulary_file) != manifest.vocabulary_sha256
            or len(vocabulary) != manifest.vocabulary_words
        ):
            raise InputError(
                f"{vocabulary_file} is not the vocabulary that {folder} was prepared with "
                f"({manifest.vocabulary_words:,} words); restore it or prepare the corpus again"
            )
        shards = {name: _open_shard(folder, name, facts) for name, facts in manifest.files.items()}
        splits = (
            [shard for name, shard in shards.items() if name.startswith(split)]
            for split in ("train", "heldout")
        )
        return cls(folder, manifest, vocabulary, *splits)

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of the vocabulary and all shards."""
        digest = hashlib.sha256(self.manifest.vocabulary_sha256.encode())
        for name, facts in self.manifest.files.items():
            digest.update(f"{name} {facts.sha256}\n".encode())
        return digest.hexdigest()


def _manifest_path(folder: Path) -> Path:
    path = folder / MANIFEST_FILE
    if path.is_file():
        return path
    if (folder / WORK_FOLDER).is_dir():
        raise InputError(
            f"{folder} is unfinished: complete it with the same elmo prepare and --resume"
        )
    if not folder.is_dir():
        raise MissingFileError(f"no such folder: {folder}; elmo prepare makes one from text")
    raise MissingFileError(
        f"{folder} is no prepared corpus: it has no {MANIFEST_FILE}; elmo prepare makes one"
    )


def _open_shard(folder: Path, name: str, facts: FileFacts) -> Shard:
    path = folder / name
    if not path.is_file():
        raise MissingFileError(f"{path} is missing: restore it or prepare the corpus again")
    size = path.stat().st_size
    if size != facts.size:
        raise InputError(
            f"{path} is damaged: it has {size:,} bytes, expected {facts.size:,}; prepare the "
            "corpus again"
        )
    return Shard(path)

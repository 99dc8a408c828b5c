"""Text files -> a prepared corpus: streaming, in parallel, and restartable at any moment.

1. The text is cut into blocks; each is tokenised and becomes a part with numbers of its own.
2. What is held out is decided, words are counted part by part, and sorted lists of counts are
   merged into the vocabulary.
3. Parts become shards: their numbers are replaced by places in the vocabulary.

Every file appears complete or not at all, and what it holds depends on the text and the settings
alone. So a run that was interrupted goes on with the files that are there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from elmo import __version__
from elmo.errors import InputError, OutputError
from elmo.runtime.files import output_errors, sha256_of, write_text
from elmo.text.files import get_tokenizer
from elmo.training.corpus.counting import (
    PARTS_A_RUN,
    CountedWords,
    CountJob,
    Facts,
    SideFacts,
    merged,
    most_frequent,
    read_count_facts,
    write_counts,
)
from elmo.training.corpus.folder import CorpusFolder
from elmo.training.corpus.heldout_split import Side, Split, choose_split
from elmo.training.corpus.part_files import Part, PartFacts, PartJob, read_facts, write_part
from elmo.training.corpus.report import PrepareReport, TextFacts, make_report
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
    FileFacts,
    Manifest,
    SideCounts,
)
from elmo.training.corpus.sources import BLOCK_CHARACTERS, BlockReader, find_files
from elmo.training.corpus.workers import Mapper, default_workers, workers

_SIDES: tuple[Side, Side] = ("train", "heldout")
_NOT_CHOSEN = frozenset({*SPECIALS, "!!!MAXTERMID"})  # the last is skipped by readers of lists
_CHARACTERS_A_WORD = 6
_LITTLE_TEXT = 1 << 20


def prepare(
    corpus: Sequence[Path | str],
    out: Path | str,
    settings: PrepareSettings | None = None,
    show_progress: bool = False,
) -> PrepareReport | None:
    """Turn text files into a vocabulary and shards for training.

    Args:
        corpus: Text files, folders or globs; one paragraph or sentence a line, a blank line (or
            the end of a file) ends a document.
        out: Folder to make.
        settings: How.
        show_progress: Show a progress bar.

    Returns:
        The report; None if `settings.resume` found the corpus complete.
    """
    settings = settings or PrepareSettings()
    out = Path(out)
    files = _files(corpus, settings.heldout_files, out)
    given = _read_vocabulary(settings.vocabulary) if settings.vocabulary else None
    folder = CorpusFolder(out, settings, [str(file) for file, _ in files])
    if folder.is_complete():
        return None
    get_tokenizer(settings.tokenizer)  # a missing extra is told here, not by every worker
    advice = "what was done is kept: run the same with --resume"
    with output_errors(out, advice), folder.begun():
        with workers(_n_workers(settings, files)) as mapper:
            return _Run(folder, settings, files, given, mapper, show_progress).finish()


def _files(
    corpus: Sequence[Path | str], heldout: Sequence[str], out: Path
) -> list[tuple[Path, bool]]:
    """List the text files, and whether they are held out; the output may lie among them."""
    held = find_files(heldout)
    elsewhere = {file.resolve() for file in held}
    train = [
        file
        for file in find_files(corpus)
        if file.resolve() not in elsewhere and not file.resolve().is_relative_to(out.resolve())
    ]
    return [*((file, False) for file in train), *((file, True) for file in held)]


def _n_workers(settings: PrepareSettings, files: list[tuple[Path, bool]]) -> int:
    if settings.workers is not None:
        return settings.workers
    # Starting processes takes longer than a little text does.
    small = sum(file.stat().st_size for file, _ in files) < _LITTLE_TEXT
    return 1 if small else default_workers()


class _Run:
    """One run of `prepare`.

    Args:
        folder: Folder to complete.
        settings: How.
        files: Text files, and whether they are held out whole.
        vocabulary: Words that somebody gave; None to count them.
        mapper: Does the work, in other processes perhaps.
        show_progress: Show progress bars.
    """

    def __init__(
        self,
        folder: CorpusFolder,
        settings: PrepareSettings,
        files: list[tuple[Path, bool]],
        vocabulary: list[str] | None,
        mapper: Mapper,
        show_progress: bool,
    ) -> None:
        self._folder, self.out, self.work = folder, folder.path, folder.work
        self.settings, self.files = settings, files
        self._given = vocabulary
        self._map, self._silent = mapper, not show_progress
        self.parts: list[Path] = []
        self.facts: list[PartFacts] = []
        self.notes: list[str] = []
        self.n_words_done = 0
        """Words that this run tokenised itself."""
        self._started = time.perf_counter()

    # --- the three passes -------------------------------------------------------------------------

    def finish(self) -> PrepareReport:
        """Do what is left to do."""
        self._make_parts()
        if not sum(fact.n_words for fact in self.facts):
            self._folder.forget()
            raise InputError(
                f"the corpus is empty: {len(self.files)} "
                f"{'file' if len(self.files) == 1 else 'files'} without a single word"
            )
        share = 0.0 if self.settings.heldout_files else self.settings.heldout
        split = choose_split(map(Part, self.parts), self.facts, share, self.settings.seed)
        counted, lists = self._count(split)
        if not counted["train"].n_words:
            raise InputError(
                "every file of the corpus is also one of --heldout-files: nothing is left to train "
                "on"
            )
        if share and not counted["heldout"].n_words:
            self.notes.append("the text is too short to hold anything out")
        n_types = self._write_vocabulary(lists, counted["train"])
        shards = self._make_shards(split, counted)
        manifest = self._manifest(split, counted, n_types, shards)
        return self._close(manifest)

    def _make_parts(self) -> None:
        """Tokenise the text; parts that are there are kept, if their text is still the same."""
        facts: dict[int, PartFacts] = {}
        waiting: deque[tuple[int, int]] = deque()
        total = sum(path.stat().st_size for path, _ in self.files)
        with tqdm(
            total=total, unit="B", unit_scale=True, desc="tokenise", disable=self._silent
        ) as bar:

            def jobs() -> Iterator[PartJob]:
                for number, (job, size) in enumerate(self._blocks()):
                    self.parts.append(job.path)
                    known = self._known_part(job)
                    if known is None:
                        waiting.append((number, size))
                        yield job
                    else:
                        facts[number] = known
                        bar.update(size)

            for fact in self._map(write_part, jobs()):
                number, size = waiting.popleft()
                facts[number] = fact
                self.n_words_done += fact.n_words
                bar.update(size)
        self.facts = [facts[number] for number in range(len(facts))]

    def _blocks(self) -> Iterator[tuple[PartJob, int]]:
        """Yield the text as jobs, with the bytes read for each."""
        size = min(BLOCK_CHARACTERS, self.settings.shard_words * _CHARACTERS_A_WORD)
        number = 0
        for path, heldout in self.files:
            noted = False
            for block in BlockReader(path, self.settings.encoding, size):
                if block.cut_line and not noted:
                    noted = True
                    last_line = block.first_line + block.text.count("\n")
                    self.notes.append(
                        f"{path}, line {last_line}: longer than {size:,} characters; lines like "
                        "this are cut at ends of sentences or white space"
                    )
                job = PartJob(
                    path=self.work / f"part-{number:06d}.safetensors",
                    text=block.text,
                    source=str(path),
                    heldout=heldout,
                    tokenizer=self.settings.tokenizer,
                    min_sentence=self.settings.min_sentence,
                    max_sentence=self.settings.max_sentence,
                )
                yield job, block.stored_bytes
                number += 1

    def _known_part(self, job: PartJob) -> PartFacts | None:
        known = read_facts(job.path)
        if known is not None and known.digest != job.digest():
            raise OutputError(
                f"{job.source} is not the text that {self.out} was begun with (there it is "
                f"{known.source}, or it was changed since); give --overwrite to start anew"
            )
        return known

    def _count(self, split: Split) -> tuple[Facts, list[Path]]:
        """Count the words of every part, and what both sides have."""
        numbered = list(enumerate(self.parts))
        jobs = [
            CountJob(
                path=self.work / f"counts-{first:06d}.safetensors",
                parts=tuple(numbered[first : first + PARTS_A_RUN]),
                split=split,
            )
            for first in range(0, len(numbered), PARTS_A_RUN)
        ]
        known = {job.path: read_count_facts(job.path) for job in jobs}
        missing = [job for job in jobs if known[job.path] is None]
        total: Facts = {side: SideFacts() for side in _SIDES}
        done = self._map(write_counts, missing)
        for job in tqdm(jobs, desc="count", unit="list", disable=self._silent):
            facts = known[job.path] or next(done)
            for side in _SIDES:
                total[side].add(facts[side])
        return total, [job.path for job in jobs]

    def _write_vocabulary(self, lists: list[Path], train: SideFacts) -> int:
        """Write the vocabulary and its counts; gives the number of different words."""
        watched = CountedWords()
        rows = watched.watch(merged(lists, self.work))
        if self._given is None:
            room = self.settings.vocab_size - len(SPECIALS)
            chosen = most_frequent(rows, room, self.settings.min_count, _NOT_CHOSEN)
            if not chosen and self.settings.min_count > 1:
                self._folder.forget()
                raise InputError(
                    f"no word of the corpus occurs --min-count {self.settings.min_count:,} times: "
                    "choose a lower one"
                )
            words = [*SPECIALS, *(word for word, _ in chosen)]
            counts = dict(chosen)
        else:
            words = self._given
            wanted = set(words).difference(SPECIALS)
            counts = {word: count for word, count in rows if word in wanted}
        begin, end, unknown = SPECIALS
        counts[unknown] = train.n_words - sum(counts.values())
        counts[begin] = counts[end] = train.n_sentences
        write_text(self.out / VOCABULARY_FILE, "".join(f"{word}\n" for word in words))
        write_text(self.out / COUNTS_FILE, "".join(f"{counts.get(word, 0)}\n" for word in words))
        self._n_vocabulary, self._unknown = len(words), words.index(unknown)
        return watched.n_types

    def _make_shards(self, split: Split, counted: Facts) -> dict[str, tuple[Side, ShardFacts]]:
        """Write the shards of both sides; those that are there are kept."""
        jobs = [
            ShardJob(
                path=self.out / f"{side}-{number:05d}.safetensors",
                side=side,
                parts=tuple(self.parts[part] for part in parts),
                split=split,
                vocabulary=self.out / VOCABULARY_FILE,
                unknown=self._unknown,
            )
            for side in _SIDES
            for number, parts in enumerate(
                plan_shards(counted[side].part_words, self.settings.shard_words)
            )
        ]
        known = {job.path: read_shard_facts(job.path) for job in jobs}
        done = self._map(write_shard, [job for job in jobs if known[job.path] is None])
        return {
            job.path.name: (job.side, known[job.path] or next(done))
            for job in tqdm(jobs, desc="write", unit="shard", disable=self._silent)
        }

    # --- the end ----------------------------------------------------------------------------------

    def _manifest(
        self,
        split: Split,
        counted: Facts,
        n_types: int,
        shards: dict[str, tuple[Side, ShardFacts]],
    ) -> Manifest:
        by: str = split.unit if split.limit else "nothing"
        return Manifest(
            format_version=FORMAT_VERSION,
            elmo_version=__version__,
            tokenizer=self.settings.tokenizer,
            settings=self.settings.result_settings(),
            sources=tuple(str(path) for path, _ in self.files),
            heldout_by="files" if self.settings.heldout_files else by,
            vocabulary_words=self._n_vocabulary,
            vocabulary_sha256=sha256_of(self.out / VOCABULARY_FILE),
            types=n_types,
            train=_side_counts(counted, shards, "train"),
            heldout=_side_counts(counted, shards, "heldout"),
            files={name: FileFacts(f.size, f.sha256) for name, (_, f) in shards.items()},
        )

    def _close(self, manifest: Manifest) -> PrepareReport:
        """Write the report and, last of all, the manifest."""
        found = TextFacts(
            cut_sentences=sum(fact.n_cut_sentences for fact in self.facts),
            short_sentences=sum(fact.n_short_sentences for fact in self.facts),
            boundary_marks=sum(fact.n_boundary_marks for fact in self.facts),
        )
        if found.boundary_marks:
            self.notes.append(
                f"<S> and </S> stand in the text {found.boundary_marks:,} times and were left out: "
                "models set these marks themselves"
            )
        seconds = time.perf_counter() - self._started
        report = make_report(self.out, manifest, found, self.notes, seconds, self.n_words_done)
        write_text(self.out / REPORT_FILE, report.to_json())
        write_text(self.out / MANIFEST_FILE, manifest.to_json())
        return report


def _side_counts(
    counted: Facts, shards: dict[str, tuple[Side, ShardFacts]], side: Side
) -> SideCounts:
    facts = counted[side]
    return SideCounts(
        words=facts.n_words,
        unknown=sum(shard.n_unknown for its_side, shard in shards.values() if its_side == side),
        sentences=facts.n_sentences,
        documents=facts.n_documents,
        longest_sentence=facts.longest_sentence,
        long_words=facts.n_long_words,
    )


def _read_vocabulary(path: Path) -> list[str]:
    """Read a list of words that somebody made, and check it."""
    from elmo.text.vocabulary import Vocabulary

    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(
            f"{path} is no regular file, and a list of words is read again when a run goes on: "
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

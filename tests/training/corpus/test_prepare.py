"""`elmo prepare`: every word comes back, whatever the blocks, the workers and the interruptions."""

import bz2
import gzip
import json
import lzma
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo
from elmo.cli.main import main
from elmo.errors import (
    ConfigError,
    ElmoWarning,
    InputError,
    MissingExtraError,
    MissingFileError,
    OutputError,
    OutputExistsError,
)
from elmo.runtime.array_files import pack_words, write_arrays
from elmo.training.corpus import counting, workers
from elmo.training.corpus import settings as prepare_settings
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.corpus.shards import Corpus
from elmo.training.corpus.sources import BlockReader, find_files
from elmo.training.corpus.workers import default_workers

ALL = PrepareSettings(heldout_share=0, min_count=1)


def counts_of(corpus):
    return list(map(int, (corpus.folder / "counts.txt").read_text().split()))


def all_rare_words(shard):
    return shard.rare_words(range(shard.n_rare))


def sentences_of(shards, vocabulary):
    """Documents of sentences of words, as the shards hold them."""
    documents = []
    for shard in shards:
        rare = all_rare_words(shard)
        words = [*vocabulary.words, *rare]
        sentences = [
            [words[number] for number in shard.tokens[a:b]]
            for a, b in pairwise(shard.sentence_starts)
        ]
        documents += [sentences[a:b] for a, b in pairwise(shard.document_starts)]
    return documents


def sides_of(folder):
    corpus = Corpus.open(folder)
    return [sentences_of(side, corpus.vocabulary) for side in (corpus.train, corpus.heldout)]


def files_of(folder):
    """Content of everything that must not depend on how a run went."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "report.json"}


def make_documents(n_documents, seed=0):
    generator = random.Random(seed)
    words = [f"w{number}" for number in range(300)]
    weights = [1 / (number + 1) for number in range(300)]
    return [
        [
            generator.choices(words, weights, k=generator.randint(1, 12))
            for _ in range(generator.randint(1, 6))
        ]
        for _ in range(n_documents)
    ]


def as_text(documents):
    return "\n\n".join("\n".join(" ".join(words) for words in doc) for doc in documents) + "\n"


def write(path, documents):
    path.write_text(as_text(documents), encoding="utf-8")
    return path


# --- what comes out ----------------------------------------------------------------------------

WORD = st.sampled_from(["the", "a", "cat", "Öl", "河", "x" * 60, "<UNK>", "!!!MAXTERMID", "z"])
DOCUMENTS = st.lists(
    st.lists(st.lists(WORD, min_size=1, max_size=9), min_size=1, max_size=5), min_size=1, max_size=8
)


@settings(max_examples=60)
@given(documents=DOCUMENTS, shard_words=st.sampled_from([30, 100, 10**6]), share=st.floats(0, 0.9))
def test_every_word_comes_back_in_order(tmp_path_factory, documents, shard_words, share):
    folder = tmp_path_factory.mktemp("law")
    text = write(folder / "text.txt", documents)
    chosen = replace(ALL, shard_words=shard_words, heldout_share=share, vocab_size=6)
    report = prepare([text], folder / "out", chosen)
    train, heldout = sides_of(folder / "out")
    everything = Counter(tuple(words) for doc in documents for words in doc)
    found = [tuple(words) for side in (train, heldout) for doc in side for words in doc]
    # Small blocks cut inside lines; words, and their number, stay.
    if shard_words == 10**6:
        assert Counter(found) == everything
        if not heldout:
            assert train == documents
    assert Counter(word for words in found for word in words) == Counter(
        word for words, count in everything.items() for word in words * count
    )
    assert report.train.words + report.heldout.words == sum(map(len, found))
    assert report.train.words > 0
    shutil.rmtree(folder)


@given(documents=DOCUMENTS, size=st.integers(4, 9), min_count=st.integers(1, 3))
def test_the_vocabulary_is_the_most_frequent_words_of_the_training_text(
    tmp_path_factory, documents, size, min_count
):
    folder = tmp_path_factory.mktemp("law")
    text = write(folder / "text.txt", documents)
    chosen = replace(ALL, vocab_size=size, min_count=min_count, heldout_share=0.3)
    try:
        report = prepare([text], folder / "out", chosen)
    except InputError:
        assert min_count > 1  # and no word of the training text occurs so often
        return
    train, _ = sides_of(folder / "out")
    counts = Counter(word for doc in train for words in doc for word in words)
    assert report.types == len(counts)
    frequent = [
        word
        for word, count in sorted(counts.items(), key=lambda row: (-row[1], row[0].encode()))
        if count >= min_count and word not in ("<UNK>", "!!!MAXTERMID")
    ]
    expected = ["<S>", "</S>", "<UNK>", *frequent[: size - 3]]
    corpus = Corpus.open(folder / "out")
    assert list(corpus.vocabulary.words) == expected
    listed = dict(zip(expected, counts_of(corpus), strict=True))
    assert all(listed[word] == counts[word] for word in expected[3:])
    assert sum(listed[word] for word in expected[2:]) == corpus.manifest.train.words
    assert corpus.manifest.train.unknown == listed["<UNK>"]
    shutil.rmtree(folder)


def test_the_result_does_not_depend_on_the_workers(tmp_path):
    text = write(tmp_path / "text.txt", make_documents(400))
    chosen = PrepareSettings(shard_words=500, vocab_size=60, heldout_share=0.1)
    for count in (1, 2, 3):
        prepare([text], tmp_path / f"out{count}", replace(chosen, workers=count))
    first = files_of(tmp_path / "out1")
    assert sum(name.startswith("train") for name in first) > 5
    assert files_of(tmp_path / "out2") == files_of(tmp_path / "out3") == first
    assert not (tmp_path / "out1" / ".work").exists()


def test_counts_are_exact_however_many_lists_are_merged(tmp_path, monkeypatch):
    text = write(tmp_path / "text.txt", make_documents(200))
    chosen = PrepareSettings(shard_words=40, workers=1)
    prepare([text], tmp_path / "plain", chosen)
    monkeypatch.setattr("elmo.training.corpus.prepare.PARTS_A_LIST", 1)
    monkeypatch.setattr(counting, "_MERGED_WORDS", 1)  # in many windows
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(1)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 30, hard))
    try:  # more lists than files may be open
        report = prepare([text], tmp_path / "merged", chosen)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert report.train.words // 40 > 60
    assert files_of(tmp_path / "merged") == files_of(tmp_path / "plain")


def test_words_are_merged_window_by_window(tmp_path):
    words = [f"w{number:04d}" for number in range(1000)]
    for name, counts in (("a", [1] * 1000), ("b", [2] * 1000)):
        letters, starts = pack_words(words)
        arrays = {"type_letters": letters, "type_starts": starts, "counts": np.array(counts)}
        write_arrays(tmp_path / name, arrays, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_MERGED_WORDS", 600)
        merged = list(counting.merge_counts([tmp_path / "a", tmp_path / "b"]))
    assert merged == [(word, 3) for word in words]


def test_long_sentences_are_cut_and_short_ones_left_out(tmp_path):
    (tmp_path / "text.txt").write_text("a\nb c\n" + "d " * 7 + "\n")
    chosen = replace(ALL, min_sentence_length=2, max_sentence_length=3)
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", chosen)
    ((document,), _) = sides_of(tmp_path / "out")
    assert document == [["b", "c"], ["d"] * 3, ["d"] * 3, ["d"]]
    assert (report.cut_sentences, report.short_sentences) == (1, 1)
    assert report.train.longest_sentence == 3


def test_boundary_marks_in_the_text_are_left_out_and_told(tmp_path):
    (tmp_path / "text.txt").write_text("<S> a b </S>\nc <s>\n")
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", ALL)
    assert sides_of(tmp_path / "out")[0] == [[["a", "b"], ["c", "<s>"]]]
    assert report.boundary_marks == 2
    assert "were left out" in report.notes[0]


def test_raw_english_is_split_into_sentences(tmp_path):
    (tmp_path / "text.txt").write_text("Mr. Fox can't. He went.\n\nBye.\n")
    prepare([tmp_path / "text.txt"], tmp_path / "out", replace(ALL, tokenizer="english"))
    assert sides_of(tmp_path / "out")[0] == [
        [["Mr.", "Fox", "ca", "n't", "."], ["He", "went", "."]],
        [["Bye", "."]],
    ]


def test_a_missing_extra_is_named_before_anything_is_made(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("a\n")
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(MissingExtraError, match="chinese"):
        prepare([tmp_path / "text.txt"], tmp_path / "out", replace(ALL, tokenizer="chinese"))
    assert not (tmp_path / "out").exists()


# --- held-out text -----------------------------------------------------------------------------


def test_documents_are_held_out_whole_where_there_are_enough(tmp_path):
    documents = make_documents(500)
    text = write(tmp_path / "text.txt", documents)
    report = prepare([text], tmp_path / "out", replace(ALL, heldout_share=0.1))
    train, heldout = sides_of(tmp_path / "out")
    assert report.heldout_by == "documents"
    assert 25 < len(heldout) < 90
    assert sorted(train + heldout) == sorted(documents)
    other = replace(ALL, heldout_share=0.1, seed=1)
    prepare([text], tmp_path / "other", other)
    assert sides_of(tmp_path / "other")[1] != heldout


def test_copies_of_a_document_are_on_one_side(tmp_path):
    documents = make_documents(150)
    text = write(tmp_path / "text.txt", documents * 3)
    prepare([text], tmp_path / "out", replace(ALL, heldout_share=0.1))
    train, heldout = (
        {json.dumps(document) for document in side} for side in sides_of(tmp_path / "out")
    )
    assert heldout
    assert not train & heldout


@pytest.mark.parametrize(("n_lines", "unit"), [(30, "lines"), (6000, "passages")])
def test_in_one_long_document_passages_or_lines_are_held_out(tmp_path, n_lines, unit):
    lines = [f"line{number} of {number % 7}" for number in range(n_lines)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", replace(ALL, heldout_share=0.1))
    train, heldout = sides_of(tmp_path / "out")
    assert report.heldout_by == unit
    assert heldout
    assert train
    found = sorted(" ".join(words) for side in (train, heldout) for doc in side for words in doc)
    assert found == sorted(lines)
    # What was taken out of the middle leaves two documents, not one with a gap.
    for document in train:
        numbers = [int(words[0].removeprefix("line")) for words in document]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@given(share=st.floats(0.0001, 0.999), seed=st.integers(0, 10**9))
def test_something_is_held_out_and_something_left_whatever_chance_does(
    tmp_path_factory, share, seed
):
    folder = tmp_path_factory.mktemp("law")
    (folder / "text.txt").write_text("a b\nc d\ne f\n")
    report = prepare(
        [folder / "text.txt"], folder / "out", replace(ALL, heldout_share=share, seed=seed)
    )
    assert report.train.sentences > 0
    assert report.heldout.sentences > 0
    shutil.rmtree(folder)


def test_a_text_of_one_line_is_all_for_training_and_says_so(tmp_path):
    (tmp_path / "text.txt").write_text("a b\n")
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", replace(ALL, heldout_share=0.5))
    assert (report.train.words, report.heldout.words) == (2, 0)
    assert "too short to hold anything out" in report.notes[0]
    assert Corpus.open(tmp_path / "out").heldout == []


def test_files_can_be_held_out_whole(tmp_path):
    write(tmp_path / "a.txt", [[["a", "a"]]])
    write(tmp_path / "b.txt", [[["b", "a"]]])
    chosen = replace(ALL, heldout_share=0.5, heldout_files=(str(tmp_path / "b*"),))
    report = prepare([tmp_path / "*.txt"], tmp_path / "out", chosen)
    assert sides_of(tmp_path / "out") == [[[["a", "a"]]], [[["b", "a"]]]]
    assert report.heldout_by == "files"
    assert "b" not in Corpus.open(tmp_path / "out").vocabulary  # counted in training text alone
    with pytest.raises(InputError, match="nothing is left to train on"):
        prepare([tmp_path / "b.txt"], tmp_path / "none", chosen)


# --- sources -----------------------------------------------------------------------------------


def test_files_folders_and_globs_are_read_whatever_their_packing(tmp_path):
    zstd = pytest.importorskip("backports.zstd", reason="the extra 'zst' is not installed")
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").write_bytes(b"\0")
    (folder / "a.txt").write_bytes(b"plain\n")
    (folder / "b.gz").write_bytes(gzip.compress(b"gzip\n"))
    (folder / "c.xz").write_bytes(lzma.compress(b"xz"))
    (folder / "d.bz2").write_bytes(bz2.compress(b"bz2\r\n"))
    (folder / "deep" / "e.zst").write_bytes(zstd.compress(b"\xef\xbb\xbfzst\n"))
    prepare([folder], tmp_path / "out", ALL)
    train, _ = sides_of(tmp_path / "out")
    assert train == [[["plain"]], [["gzip"]], [["xz"]], [["bz2"]], [["zst"]]]
    prepare([str(folder / "[ab].*"), folder / "c.xz"], tmp_path / "some", ALL)
    assert sides_of(tmp_path / "some")[0] == [[["plain"]], [["gzip"]], [["xz"]]]


def test_a_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.warns(ElmoWarning, match="named twice"):
        assert find_files([tmp_path, tmp_path / "a.txt"]) == [tmp_path / "a.txt"]


def test_the_output_may_lie_in_the_folder_of_the_texts(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n")
    report = prepare([tmp_path], tmp_path / "out", ALL)
    again = prepare([tmp_path], tmp_path / "out", replace(ALL, resume=True))
    assert again.was_complete
    assert replace(again, was_complete=False) == report


def test_what_cannot_be_found_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for place, message in [
        ("gone.txt", "no such text file or folder: .*gone.txt"),
        ("*.txt", r"no file matches .*\*\.txt"),
        ("empty", "no files in the folder .*empty"),
    ]:
        with pytest.raises(MissingFileError, match=message):
            prepare([tmp_path / place], tmp_path / "out", ALL)
    assert not (tmp_path / "out").exists()
    (tmp_path / "text.txt").write_text("a\n")
    prepare([tmp_path / "text.txt"], tmp_path / "out", ALL)
    with pytest.raises(InputError, match="is a prepared corpus already"):
        prepare([tmp_path / "out"], tmp_path / "again", ALL)


@settings(max_examples=100)
@given(text=st.text(alphabet="ab \n.。", max_size=60), size=st.integers(1, 30))
def test_blocks_joined_are_the_text(tmp_path_factory, text, size):
    path = tmp_path_factory.getbasetemp() / "blocks.txt"
    path.write_bytes(text.encode())
    blocks = list(BlockReader(path, "utf-8", size))
    assert "".join(block.text for block in blocks) == text
    assert all(len(block.text) <= size for block in blocks)
    for block, following in pairwise(blocks):
        assert following.first_line == block.first_line + block.text.count("\n")
        assert block.cut_line == (not block.text.endswith("\n"))
        # A line is cut only if it does not fit into a block.
        assert "\n" not in block.text or not block.cut_line


def test_other_encodings_are_read(tmp_path):
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        (tmp_path / "text").write_bytes("café é\n".encode(encoding))
        prepare([tmp_path / "text"], tmp_path / encoding, replace(ALL, encoding=encoding))
        assert sides_of(tmp_path / encoding)[0] == [[["café", "é"]]]


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n\n  \n\t\n"])
def test_an_empty_corpus_is_refused_and_nothing_is_left(tmp_path, content):
    (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(InputError, match="the corpus is empty: 1 file without a single word"):
        prepare([tmp_path / "text.txt"], tmp_path / "out", ALL)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nab\0c\n", r"bad\.bin, line 2: a NUL byte; this is a binary file"),
        (b"fine\nfine\ncaf\xe9 x\n", r"bad\.bin, line 3: byte 0xe9, number 14 of the text, is not"),
        (b"\xff\xfea\0", r"bad\.bin, line 1: byte 0xff, number 1 of"),
        (b"cut \xe6\xb2", r"bad\.bin, line 1: byte 0xe6, number 5"),
    ],
)
def test_a_binary_file_is_named_with_line_and_byte(tmp_path, content, message):
    (tmp_path / "bad.bin").write_bytes(content)
    with pytest.raises(InputError, match=message):
        prepare([tmp_path / "bad.bin"], tmp_path / "out", ALL)


def test_a_text_that_cannot_be_read_leaves_nothing_in_the_way_of_the_next_try(tmp_path):
    (tmp_path / "text.txt").write_bytes("un café\n".encode("latin-1") * 20)
    with pytest.raises(InputError, match="not valid utf-8"):
        prepare([tmp_path / "text.txt"], tmp_path / "out", ALL)
    assert not (tmp_path / "out").exists()
    prepare([tmp_path / "text.txt"], tmp_path / "out", replace(ALL, encoding="latin-1"))


def test_a_count_that_no_word_has_is_refused(tmp_path):
    text = write(tmp_path / "text.txt", make_documents(5))
    with pytest.raises(InputError, match="no word of the corpus occurs min_count 1,000 times"):
        prepare([text], tmp_path / "out", replace(ALL, min_count=1000))
    assert not (tmp_path / "out").exists()


def test_a_pipe_is_not_read_and_said_to_be_one(tmp_path):
    text = write(tmp_path / "text.txt", make_documents(5))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no regular file"):
        prepare([tmp_path / "pipe"], tmp_path / "out", ALL)
    with pytest.raises(InputError, match="no regular file"):
        prepare([text], tmp_path / "out", replace(ALL, vocabulary=tmp_path / "pipe"))


def test_the_place_of_a_bad_byte_is_right_far_into_a_file(tmp_path):
    good = "é ok\n".encode() * 500_000
    (tmp_path / "bad").write_bytes(good + b"\xff\n")
    with pytest.raises(InputError, match=rf"line 500001: byte 0xff, number {len(good) + 1:,} of"):
        prepare([tmp_path / "bad"], tmp_path / "out", replace(ALL, workers=1))
    (tmp_path / "bad").write_bytes(good)
    report = prepare([tmp_path / "bad"], tmp_path / "out", replace(ALL, workers=1, resume=True))
    assert report.train.words == 1_000_000


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_damaged_packed_file_is_named(tmp_path, suffix):
    packed = {".gz": gzip.compress, ".xz": lzma.compress}[suffix](b"word " * 1000)
    (tmp_path / f"text{suffix}").write_bytes(packed[:-9])
    with pytest.raises(InputError, match=rf"text\{suffix} is damaged or cut short"):
        prepare([tmp_path / f"text{suffix}"], tmp_path / "out", ALL)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("a\nb\n", "lacks <S>, </S>, <UNK>"),
        ("<S>\n</S>\n<UNK>\na\nb\na\n", "lists 'a' twice, as words 4 and 6"),
        ("<S>\n</S>\n<UNK>\n\na\n", "word 4: '' is no word"),
        ("<S>\n</S>\n<UNK>\na b\n", "word 4: 'a b' is no word"),
    ],
)
def test_a_bad_vocabulary_is_refused(tmp_path, words, message):
    (tmp_path / "text.txt").write_text("a\n")
    (tmp_path / "list.txt").write_text(words)
    with pytest.raises(InputError, match=message):
        prepare(
            [tmp_path / "text.txt"],
            tmp_path / "out",
            replace(ALL, vocabulary=tmp_path / "list.txt"),
        )
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_of_ones_own_is_used_in_its_order(tmp_path):
    (tmp_path / "text.txt").write_text("a a c\nb\n")
    (tmp_path / "list.txt").write_text("b\n</S>\n<UNK>\n<S>\nmissing\na\n")
    chosen = replace(ALL, vocabulary=tmp_path / "list.txt")
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", chosen)
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.vocabulary.words == ("b", "</S>", "<UNK>", "<S>", "missing", "a")
    assert counts_of(corpus) == [1, 2, 1, 2, 0, 2]
    assert report.train.unknown == 1
    assert sides_of(tmp_path / "out")[0] == [[["a", "a", "c"], ["b"]]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab_size": 3},
        {"min_count": 0},
        {"heldout_share": 1.0},
        {"heldout_share": -0.1},
        {"max_sentence_length": 1, "min_sentence_length": 2},
        {"workers": 0},
        {"shard_words": 0},
        {"encoding": "klingon"},
        {"resume": True, "overwrite": True},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match="|".join(wrong)):
        PrepareSettings(**wrong)


def test_a_note_says_that_small_shards_cut_documents(tmp_path):
    text = write(tmp_path / "text.txt", make_documents(50))
    report = prepare([text], tmp_path / "small", replace(ALL, shard_words=10))
    assert "--shard-words is 10:" in report.notes[0]
    assert report.train.documents > 50
    report = prepare([text], tmp_path / "whole", replace(ALL, shard_words=10_000))
    assert report.notes == ()
    assert report.train.documents == 50


def test_an_output_that_exists_is_not_touched_unless_allowed(tmp_path):
    text = write(tmp_path / "text.txt", make_documents(5))
    out = tmp_path / "out"
    out.mkdir()
    prepare([text], out, ALL)  # an empty folder is fine
    before = files_of(out)
    with pytest.raises(OutputExistsError, match="overwrite"):
        prepare([text], out, ALL)
    assert files_of(out) == before
    (out / "notes.md").write_text("mine")
    write(text, make_documents(6))
    prepare([text], out, replace(ALL, overwrite=True))
    assert files_of(out)["vocab.txt"] != before["vocab.txt"]
    assert (out / "notes.md").read_text() == "mine"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    for chosen in (ALL, replace(ALL, overwrite=True), replace(ALL, resume=True)):
        with pytest.raises(OutputExistsError, match="choose another folder"):
            prepare([text], tmp_path / "full", chosen)
    with pytest.raises(OutputError, match="is a file"):
        prepare([text], tmp_path / "full" / "precious", ALL)


def test_one_line_of_100_mb_is_read_in_bounded_memory(tmp_path):
    """The limit on memory is the operating system's, on a process of its own."""
    line = ("The quick brown fox isn't here. " * 32_768).encode()
    with (tmp_path / "text.txt").open("wb") as file:
        for _ in range(100):
            file.write(line)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from elmo.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", code, "prepare", str(tmp_path / "text.txt")),
            *(str(tmp_path / "out"), "--tokenizer", "english", "--json", "--quiet"),
            *("--workers", "1"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["train"]["words"] + report["heldout"]["words"] == 100 * 32_768 * 8
    assert "line 1: longer than" in done.stderr
    assert report["train"]["longest_sentence"] == 8  # nothing was cut inside a sentence


# --- interruptions -----------------------------------------------------------------------------


def start(tmp_path, *flags):
    """Start the real command on a text of many small parts."""
    text = tmp_path / "text.txt"
    if not text.exists():
        write(text, make_documents(12_000))
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "elmo", "prepare", str(text), str(tmp_path / "out")),
            *("--shard-words", "2000", "--vocab-size", "200", "--workers", "2", "--quiet", *flags),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process, folder, pattern, more_than):
    for _ in range(6000):
        if len(list(folder.glob(pattern))) > more_than:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    raise AssertionError("nothing was written")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    process = start(folder)
    assert process.wait(timeout=300) == 0, process.stderr.read()
    return folder


def test_killed_runs_are_completed_by_resume_byte_for_byte(tmp_path, uninterrupted):
    shutil.copy(uninterrupted / "text.txt", tmp_path / "text.txt")
    out = tmp_path / "out"
    moments = [(".work/part-*", 3), (".work/part-*", 40), (".work/counts-*", 1), ("train-*", 4)]
    for number, (pattern, more_than) in enumerate(moments):
        process = start(tmp_path, *(["--resume"] if number else []))
        wait_for(process, out, pattern, more_than)
        process.kill()
        process.communicate(timeout=60)
        assert not (out / "corpus.json").exists()
    resumed = start(tmp_path, "--resume")
    assert resumed.wait(timeout=300) == 0, resumed.stderr.read()
    ours, theirs = files_of(out), files_of(uninterrupted / "out")
    for files in (ours, theirs):  # the manifest names the text, which lies elsewhere
        files["corpus.json"] = json.loads(files["corpus.json"]) | {"sources": []}
    assert ours == theirs


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_run_says_how_to_go_on_and_leaves_no_process(tmp_path, uninterrupted):
    shutil.copy(uninterrupted / "text.txt", tmp_path / "text.txt")
    process = start(tmp_path)
    wait_for(process, tmp_path / "out", ".work/part-*", 2)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)  # returns when nobody holds the pipe any more
    assert process.returncode == 1, message
    assert "--resume" in message
    assert "Traceback" not in message
    with pytest.raises(OutputExistsError, match="unfinished"):
        prepare([tmp_path / "text.txt"], tmp_path / "out")


def test_two_runs_do_not_write_to_one_folder(tmp_path, uninterrupted):
    shutil.copy(uninterrupted / "text.txt", tmp_path / "text.txt")
    process = start(tmp_path)
    wait_for(process, tmp_path / "out", ".work/part-*", 2)
    for choices in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(OutputExistsError, match="another elmo process is writing"):
            prepare([tmp_path / "text.txt"], tmp_path / "out", PrepareSettings(**choices))
    assert process.wait(timeout=300) == 0, process.stderr.read()
    assert files_of(tmp_path / "out").keys() == files_of(uninterrupted / "out").keys()


def interrupted(tmp_path, monkeypatch, **choices):
    """Run until some parts are there."""
    text = write(tmp_path / "text.txt", make_documents(100))
    chosen = PrepareSettings(shard_words=100, workers=1, **choices)
    from elmo.training.corpus import prepare as module

    plain, left = module.write_part, iter(range(5))

    def write_or_stop(job):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return plain(job)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_part", write_or_stop)
        with pytest.raises(KeyboardInterrupt):
            prepare([text], tmp_path / "out", chosen)
    return text, replace(chosen, resume=True)


def test_other_settings_cannot_resume_a_run_and_are_named(tmp_path, monkeypatch):
    text, chosen = interrupted(tmp_path, monkeypatch)
    with pytest.raises(OutputError, match="min_count was 2 and is 3 now, seed was 0 and is 7"):
        prepare([text], tmp_path / "out", replace(chosen, min_count=3, seed=7))
    report = prepare([text], tmp_path / "out", replace(chosen, workers=2))
    assert report.train.words > 0
    with pytest.raises(OutputError, match="seed was 0 and is 1"):
        prepare([text], tmp_path / "out", replace(chosen, seed=1))


def test_other_text_cannot_resume_a_run_and_is_named(tmp_path, monkeypatch):
    text, chosen = interrupted(tmp_path, monkeypatch)
    (tmp_path / "more.txt").write_text("more\n")
    with pytest.raises(OutputError, match=r"the corpus is now with .*more\.txt"):
        prepare([text, tmp_path / "more.txt"], tmp_path / "out", chosen)
    before = text.read_text()
    text.write_text("changed " + before)
    with pytest.raises(OutputError, match=r"text\.txt is not the text that .*out was begun with"):
        prepare([text], tmp_path / "out", chosen)
    text.write_text(before)
    assert prepare([text], tmp_path / "out", chosen) is not None


def test_a_changed_vocabulary_cannot_resume_a_run(tmp_path, monkeypatch):
    words = tmp_path / "list.txt"
    words.write_text("<S>\n</S>\n<UNK>\nw1\n")
    text, chosen = interrupted(tmp_path, monkeypatch, vocabulary=words)
    words.write_text("<S>\n</S>\n<UNK>\nw2\n")
    with pytest.raises(OutputError, match=r"list\.txt has changed"):
        prepare([text], tmp_path / "out", chosen)


def test_damaged_work_files_are_made_again(tmp_path, monkeypatch):
    text, chosen = interrupted(tmp_path, monkeypatch)
    part = tmp_path / "out" / ".work" / "part-000002.safetensors"
    part.write_bytes(part.read_bytes()[:-5])
    prepare([text], tmp_path / "out", chosen)
    prepare([text], tmp_path / "whole", replace(chosen, resume=False))
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from elmo.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("count", ["1", "2"])
def test_no_space_left_stops_the_run_and_resume_completes_it(tmp_path, count):
    """The operating system itself refuses to let files grow, as a full disk does."""
    text = write(tmp_path / "text.txt", make_documents(3000))
    command = ["prepare", str(text), str(tmp_path / "out"), "--workers", count, "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, "60000", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "no space left" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").rglob("*.partial"))
    assert main([*command, "--resume"]) == 0
    prepare([text], tmp_path / "whole", PrepareSettings())
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_worker_that_is_ended_from_outside_is_told(tmp_path):
    with pytest.raises(OutputError, match="resume"), workers.workers(2) as mapper:
        list(mapper(os._exit, [3, 3, 3]))


# --- the command -------------------------------------------------------------------------------


def test_the_command_shows_a_table_or_json(tmp_path, capsys):
    text = write(tmp_path / "text.txt", make_documents(50))
    assert main(["prepare", str(text), str(tmp_path / "out"), "--vocab-size", "50"]) == 0
    shown = capsys.readouterr()
    assert "unknown rate" in shown.out
    assert "words/s" in shown.out
    assert "tokenize" in shown.err
    assert main(["prepare", str(text), str(tmp_path / "two"), "--json", "--quiet"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert shown.err == ""
    assert report == json.loads((tmp_path / "two" / "report.json").read_text())
    corpus = Corpus.open(tmp_path / "two")
    assert report["train"]["words"] == sum(len(shard.tokens) for shard in corpus.train)
    assert report["train"]["words"] == int(sum(counts_of(corpus)[2:]))


def test_preparing_takes_fields_of_its_settings_and_returns_a_report(tmp_path):
    text = write(tmp_path / "text.txt", make_documents(50))
    report = elmo.prepare(str(text), tmp_path / "out", vocab_size=50, show_progress=False)
    assert report.vocabulary_words == 50
    assert str(report).startswith(report.table())
    assert "unknown rate" in report._repr_html_()
    again = elmo.prepare(text, tmp_path / "out", vocab_size=50, resume=True, show_progress=False)
    assert again.was_complete
    assert again.train == report.train


@pytest.mark.parametrize(
    ("text", "tokenizer", "note"),
    [
        ("The cat isn't here, is it?\n", "whitespace", "looks raw .* use --tokenizer english"),
        ("他笑道我不去了你们自己去罢\n", "whitespace", "looks raw .* use --tokenizer chinese"),
        ("The cat is n't here , is it ?\n", "english", "split into words already"),
        ("The cat is n't here , is it ?\n", "whitespace", None),
        ("The cat isn't here, is it?\n", "english", None),
    ],
)
def test_a_note_says_that_text_does_not_fit_its_tokenizer(tmp_path, text, tokenizer, note):
    (tmp_path / "text.txt").write_text(text * 20, encoding="utf-8")
    chosen = replace(ALL, tokenizer=tokenizer)
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", chosen)
    assert len(report.notes) == (note is not None)
    if note:
        assert re.search(note, report.notes[0])


def test_long_words_are_explained_by_what_a_model_reads(tmp_path):
    (tmp_path / "text.txt").write_text(f"{'x' * 48} a\n{'y' * 49} b\n")
    report = prepare([tmp_path / "text.txt"], tmp_path / "out", ALL)
    assert report.train.long_words == 1
    assert "words of more than 48 bytes" in report.table()
    assert "50 characters of a word, its 48 bytes" in report.table()
    (tmp_path / "text.txt").write_text(f"{'x' * 48} a\n")
    report = prepare([tmp_path / "text.txt"], tmp_path / "short", ALL)
    assert "50 characters" not in report.table()


def test_flags_of_the_command_reach_the_settings(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name} {name} {name}\n", encoding="utf-8")
    flags = "--min-count 1 --max-sentence-length 2 --seed 3 --encoding ascii --quiet".split()
    flags += ["--heldout-files", str(tmp_path / "b.txt")]
    out = str(tmp_path / "out")
    assert main(["prepare", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), out, *flags]) == 0
    assert sides_of(tmp_path / "out") == [[[["a", "a"], ["a"]]], [[["b", "b"], ["b"]]]]
    assert main(["prepare", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), out, *flags]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (
        main(["prepare", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), out, *flags, "--resume"])
        == 0
    )
    assert main(["prepare", "only-one"]) == 2
    assert "needs CORPUS and OUT" in capsys.readouterr().err


def test_settings_that_do_not_change_the_result_are_not_in_the_manifest():
    names = PrepareSettings().result_settings().keys()
    assert not {"workers", "resume", "overwrite"} & names
    assert set(prepare_settings._WITHOUT_EFFECT).isdisjoint(names)


def test_the_benchmark_runs_and_writes_its_figures(tmp_path):
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "benchmarks.prepare", "--sentences", "300", "--workers", "1"]
    command += ["--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "figures.json").read_text())["run"]
    assert run["words"] > 300
    assert run["words_per_second"] > 0
    assert run["parent_mb"] > 0
    assert "words_per_second" in done.stdout


@pytest.mark.parametrize(
    ("guard", "expected"), [("", 1), ("if __name__ == '__main__':\n    ", None)]
)
def test_a_script_without_a_guard_prepares_in_one_process(tmp_path, guard, expected):
    script = tmp_path / "script.py"
    script.write_text(
        f"from elmo.training.corpus import workers\n{guard}print(workers.default_workers())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == (expected or default_workers())


def test_a_report_shows_its_notes(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("She isn't here, he said. He won't come, she said.\n" * 40)
    report = elmo.prepare(text, tmp_path / "out", workers=1)
    assert report.notes
    assert all(f"note: {note}" in str(report) for note in report.notes)

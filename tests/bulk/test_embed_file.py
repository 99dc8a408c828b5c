"""Whole files: any input, bounded memory, and runs that are really interrupted."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import h5py
import numpy as np
import pytest

from elmo import ELMo, ElmoConfig, random_bilm
from elmo.bulk.embed_file import embed_file
from elmo.bulk.writer import check_paths
from elmo.cli.main import main
from elmo.errors import (
    ConfigError,
    ElmoWarning,
    InputError,
    MissingFileError,
    OutputError,
    OutputExistsError,
)
from elmo.settings import EmbedSettings

SMALL_BATCHES = EmbedSettings(batch_tokens=8)
WORDS = "the old cat sat on a mat and saw Zoë 's 日本 map of https://example.org/a/b .".split()


@pytest.fixture(scope="module")
def model():
    return ELMo(random_bilm(ElmoConfig.preset("tiny")), device="cpu")


def make_text(n_lines, seed=0):
    generator = random.Random(seed)
    lines = [generator.choices(WORDS, k=generator.randint(0, 12)) for _ in range(n_lines)]
    return "".join(" ".join(words) + "\n" for words in lines)


def write_text(tmp_path, n_lines=40):
    path = tmp_path / "text.txt"
    path.write_text(make_text(n_lines), encoding="utf-8")
    return path


def read(path):
    with h5py.File(path, "r") as file:
        assert file.attrs["complete"]
        keys = sorted((key for key in file if key.isdecimal()), key=int)
        return [file[key][...] for key in keys]


def assert_same(a, b):
    assert len(a) == len(b)
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)


def sentences_of(path):
    return [line.split() for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.parametrize("state", ["zero", "warm", "carry"])
@pytest.mark.parametrize("layers", ["all", "top", "average", "mix", 1])
def test_a_file_gets_the_vectors_that_the_object_gives(tmp_path, model, state, layers):
    text, out = write_text(tmp_path), tmp_path / "out.h5"
    settings = EmbedSettings(layers=layers, state=state, batch_tokens=16, batch_size=3)
    report = embed_file(model, text, out, settings)
    model.reset()
    batch = 3 if state == "carry" else None
    expected = model.encode_tokens(sentences_of(text), layers=layers, state=state, batch_size=batch)
    assert_same(read(out), expected)
    assert report.n_sentences == 40
    assert report.n_words == sum(map(len, sentences_of(text)))
    assert report.n_resumed == 0


def test_blank_lines_are_kept_as_empty_sentences(tmp_path, model):
    (tmp_path / "text").write_text("\na b\n\n\nc\n\n")
    embed_file(model, tmp_path / "text", tmp_path / "out")
    assert [array.shape[1] for array in read(tmp_path / "out")] == [0, 2, 0, 0, 1, 0]


def test_a_last_line_without_its_end_counts(tmp_path, model):
    (tmp_path / "text").write_bytes(b"a b\nc")
    embed_file(model, tmp_path / "text", tmp_path / "out")
    assert [array.shape[1] for array in read(tmp_path / "out")] == [2, 1]


def test_raw_text_is_split_by_the_tokenizer_named(tmp_path, model):
    (tmp_path / "text").write_text("Don't stop. It works!\n\nYes.\n")
    embed_file(model, tmp_path / "text", tmp_path / "out", EmbedSettings(tokenizer="english"))
    expected = [["Do", "n't", "stop", "."], ["It", "works", "!"], [], ["Yes", "."]]
    assert_same(read(tmp_path / "out"), model.encode_tokens(expected))


def test_long_words_are_cut_and_counted(tmp_path):
    model = ELMo(random_bilm(ElmoConfig.preset("tiny")), device="cpu")
    (tmp_path / "text").write_text("short " + "x" * 49 + " " + "y" * 48 + "\n" + "x" * 49 + "\n")
    with pytest.warns(ElmoWarning, match="were cut"):
        report = embed_file(model, tmp_path / "text", tmp_path / "out")
    assert report.n_cut_words == 2


def test_standard_input_is_read(tmp_path, model, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\nc\n")))
    embed_file(model, "-", tmp_path / "out")
    assert_same(read(tmp_path / "out"), model.encode_tokens([["a", "b"], ["c"]]))


def test_a_bad_line_stops_the_run_and_what_came_before_is_kept(tmp_path, model):
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_bytes(b"a b c d e f g h i j\n" * 20 + b"caf\xe9\n" + b"k l\n")
    with pytest.raises(InputError, match=r"line 21: byte 0xe9 at place 4 is not valid utf-8"):
        embed_file(model, text, out, SMALL_BATCHES)
    with h5py.File(out, "r") as file:
        assert 0 < file.attrs["n_sentences"] <= 20
    text.write_bytes(b"a b c d e f g h i j\n" * 20 + b"caf\xc3\xa9\n" + b"k l\n")
    embed_file(model, text, out, replace(SMALL_BATCHES, resume=True))
    assert_same(read(out), model.encode_tokens(sentences_of(text)))


def test_another_encoding_can_be_named(tmp_path, model):
    (tmp_path / "text").write_bytes("café\n".encode("latin-1"))
    settings = EmbedSettings(encoding="latin-1")
    embed_file(model, tmp_path / "text", tmp_path / "out", settings)
    assert_same(read(tmp_path / "out"), model.encode_tokens([["café"]]))
    with pytest.raises(InputError, match="no encoding 'klingon'"):
        embed_file(model, tmp_path / "text", tmp_path / "o", EmbedSettings(encoding="klingon"))


def test_a_mistake_leaves_nothing_in_the_way_of_the_next_try(tmp_path, model):
    (tmp_path / "text").write_bytes("café\n".encode("latin-1"))
    with pytest.raises(InputError, match="not valid utf-8"):
        embed_file(model, tmp_path / "text", tmp_path / "out")
    embed_file(model, tmp_path / "text", tmp_path / "out", EmbedSettings(encoding="latin-1"))
    before = (tmp_path / "out").read_bytes()
    for wrong in ({"batch_size": 0}, {"batch_tokens": 0}):
        with pytest.raises(ConfigError, match="is 0, expected"):
            embed_file(
                model, tmp_path / "text", tmp_path / "out", EmbedSettings(overwrite=True, **wrong)
            )
    assert (tmp_path / "out").read_bytes() == before


@pytest.mark.parametrize("name", ["text", "link", "hard", "folder/../text"])
def test_the_input_is_not_replaced_by_the_output(tmp_path, model, name):
    (tmp_path / "folder").mkdir()
    text = tmp_path / "text"
    text.write_text("a b\n")
    (tmp_path / "link").symlink_to(text)
    (tmp_path / "hard").hardlink_to(text)
    for settings in (EmbedSettings(overwrite=True), EmbedSettings(resume=True), EmbedSettings()):
        with pytest.raises(OutputExistsError, match="is the input, too"):
            embed_file(model, text, tmp_path / name, settings)
    words = EmbedSettings(overwrite=True, token_vocabulary=tmp_path / name)
    with pytest.raises(OutputExistsError, match="is the input, too"):
        embed_file(model, os.devnull, text, words)
    assert text.read_text() == "a b\n"


def test_a_pipe_is_read_once_and_in_full(tmp_path, model):
    os.mkfifo(tmp_path / "pipe")
    settings = EmbedSettings(batch_tokens=8)
    with ThreadPoolExecutor() as pool:
        written = pool.submit((tmp_path / "pipe").write_text, make_text(40), encoding="utf-8")
        check_paths(tmp_path / "pipe", tmp_path / "out", settings)
        report = embed_file(model, tmp_path / "pipe", tmp_path / "out", settings)
        written.result()
    assert report.n_sentences == 40
    assert embed_file(model, os.devnull, tmp_path / "none").n_sentences == 0


def test_the_ending_of_the_output_says_which_format(tmp_path, model):
    embed_file(model, write_text(tmp_path, 3), tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        assert {"0", "1", "2"} <= set(file.files)


def test_bad_paths_are_refused_before_anything_is_touched(tmp_path, model):
    text = write_text(tmp_path)
    with pytest.raises(MissingFileError, match="no such text file"):
        embed_file(model, tmp_path / "missing", tmp_path / "out")
    assert list(tmp_path.iterdir()) == [text]
    (tmp_path / "out").write_text("precious")
    with pytest.raises(OutputExistsError):
        embed_file(model, text, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "precious"


def test_resuming_a_complete_output_does_nothing(tmp_path, model):
    text, out = write_text(tmp_path), tmp_path / "out"
    embed_file(model, text, out)
    before = out.read_bytes()
    assert embed_file(model, text, out, EmbedSettings(resume=True)) is None
    assert out.read_bytes() == before


@pytest.mark.parametrize("name", ["out.h5", "out.npz"])
def test_a_complete_output_of_another_text_is_not_resumed(tmp_path, model, name):
    text, out = write_text(tmp_path), tmp_path / name
    embed_file(model, text, out)
    before = out.read_bytes()
    (tmp_path / "other").write_text(make_text(40, seed=1), encoding="utf-8")
    with pytest.raises(OutputError, match="40 sentences of another text"):
        embed_file(model, tmp_path / "other", out, EmbedSettings(resume=True))
    with pytest.raises(OutputError, match="begun with layers='all'"):
        embed_file(model, text, out, EmbedSettings(resume=True, layers="top"))
    assert out.read_bytes() == before


class Stop(Exception):
    """Raised in the middle of a run."""


@pytest.mark.parametrize("state", ["zero", "carry"])
@pytest.mark.parametrize("format", ["hdf5", "npz"])
@pytest.mark.parametrize("windows", [0, 1, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path, model, monkeypatch, state, format, windows
):
    text = write_text(tmp_path)
    settings = EmbedSettings(state=state, format=format, batch_tokens=8, batch_size=2)
    embed_file(model, text, tmp_path / "whole", settings)
    plain = ELMo.stream_windows

    def stream_and_stop(self, *args, **kwargs):
        yield from islice(plain(self, *args, **kwargs), windows)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(ELMo, "stream_windows", stream_and_stop)
        with pytest.raises(Stop):
            embed_file(model, text, tmp_path / "parts", settings)
    report = embed_file(model, text, tmp_path / "parts", replace(settings, resume=True))
    assert report.n_sentences == 40
    assert (report.n_resumed > 0) == (windows > 0)
    if format == "hdf5":
        assert_same(read(tmp_path / "parts"), read(tmp_path / "whole"))
    else:
        assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_run_on_another_text_cannot_be_resumed(tmp_path, model):
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_bytes(b"a b c d e f g h\n" * 20 + b"\xff\n")
    with pytest.raises(InputError):
        embed_file(model, text, out, SMALL_BATCHES)
    text.write_text("a b c d e f g h\n" * 2 + "something else\n")
    with pytest.raises(OutputError, match="another text: sentence 2 was 'a b c d e f g h', now"):
        embed_file(model, text, out, replace(SMALL_BATCHES, resume=True))
    text.write_text("a b c d e f g h\n" * 2)
    with pytest.raises(OutputError, match="the end of the text"):
        embed_file(model, text, out, replace(SMALL_BATCHES, resume=True))


def start_embedding(folder, *flags):
    """Start the real command on a text that takes it a while."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text(make_text(12_000), encoding="utf-8")
        ELMo(
            random_bilm(ElmoConfig.preset("tiny", dim=256, n_layers=3)), device="cpu"
        ).save_pretrained(folder / "model")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "elmo", "embed", str(text), str(folder / "out.h5")),
            *("--model", str(folder / "model"), "--batch-tokens", "256", "--quiet", *flags),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_second_process_is_refused_while_one_writes(tmp_path, capsys):
    process = start_embedding(tmp_path)
    out = tmp_path / "out.h5"
    wait_until_some_is_written(process, out)
    for flags in ([], ["--resume"], ["--overwrite"]):
        given = ["embed", str(tmp_path / "text.txt"), str(out), "--model", "random-tiny", *flags]
        assert main(given) == 2
        assert f"another elmo process is writing {out}: wait for it" in capsys.readouterr().err
    _, message = process.communicate(timeout=120)
    assert process.returncode == 0, message
    assert len(read(out)) == 12_000
    assert not (tmp_path / "out.h5.partial").exists()


def wait_until_some_is_written(process, out, more_than=0):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        try:
            with h5py.File(out, "r") as file:
                if file.attrs["n_sentences"] > more_than:
                    return
        except (OSError, KeyError):
            pass  # it is being written this moment
        time.sleep(0.02)
    raise AssertionError("nothing was written")


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_command_leaves_a_valid_file_and_resume_completes_it(tmp_path):
    process = start_embedding(tmp_path)
    wait_until_some_is_written(process, tmp_path / "out.h5")
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 1, message
    assert "--resume" in message
    assert "Traceback" not in message
    with h5py.File(tmp_path / "out.h5", "r") as file:
        n_written = file.attrs["n_sentences"]
        assert 0 < n_written < 12_000
        first = [file[str(number)][...] for number in range(n_written)]
    resumed = start_embedding(tmp_path, "--resume")
    assert resumed.wait(timeout=120) == 0
    vectors = read(tmp_path / "out.h5")
    model = ELMo.from_pretrained(tmp_path / "model", device="cpu")
    assert_same(vectors, model.encode_tokens(sentences_of(tmp_path / "text.txt")))
    assert_same(first, vectors[:n_written])


def test_a_killed_command_is_completed_by_resume(tmp_path):
    for flags in ([], ["--resume"], ["--resume"]):
        process = start_embedding(tmp_path, *flags)
        out = tmp_path / "out.h5"
        written = 0
        if flags:
            with h5py.File(out, "r") as file:
                written = file.attrs["n_sentences"]
        wait_until_some_is_written(process, out, more_than=written)
        time.sleep(random.Random(len(flags)).random() / 10)
        process.kill()
        process.communicate(timeout=60)
    assert start_embedding(tmp_path, "--resume").wait(timeout=120) == 0
    model = ELMo.from_pretrained(tmp_path / "model", device="cpu")
    assert_same(read(out), model.encode_tokens(sentences_of(tmp_path / "text.txt")))
    assert not (tmp_path / "out.h5.partial").exists()


MEMORY = """
import resource, sys
from elmo import ELMo, ElmoConfig, random_bilm
from elmo.bulk.embed_file import embed_file
from elmo.settings import EmbedSettings
model = ELMo(random_bilm(ElmoConfig.preset("tiny")), device="cpu", word_cache_mb=0.1)
embed_file(model, sys.argv[1], sys.argv[2], EmbedSettings(batch_tokens=256))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for n_lines in (500, 20_000):
        text = tmp_path / f"{n_lines}.txt"
        text.write_text(make_text(n_lines), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(text), str(tmp_path / f"{n_lines}.h5")],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        peaks.append(int(done.stdout) / 1024)
    # The larger output has 45 MB of vectors; what may grow is the index of its sentences, 1 MB.
    size = os.path.getsize(tmp_path / "20000.h5") / 2**20  # noqa: PTH202
    assert size > 40
    assert peaks[1] - peaks[0] < 15, (peaks, size)

"""Files of vectors: every format opens with other people's readers, and nothing written is lost."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from elmo.bulk import hdf5, spool
from elmo.bulk.hdf5 import Hdf5Writer
from elmo.bulk.spool import SpoolWriter
from elmo.bulk.writer import (
    FORMATS,
    VectorInfo,
    check_paths,
    format_of,
    is_complete,
    open_writer,
    require_made_of,
)
from elmo.errors import (
    ConfigError,
    ElmoWarning,
    MissingExtraError,
    MissingFileError,
    OutputError,
    OutputExistsError,
)
from elmo.settings import EmbedSettings, OutputFormat

ALL_LAYERS = VectorInfo(
    model_sha256="ab" * 32,
    layers="all",
    state="zero",
    dtype="float32",
    dim=4,
    n_layers=3,
    tokenizer="whitespace",
    precision="fp32",
    batch_size=0,
    elmo_version="0",
)
ONE_LAYER = replace(ALL_LAYERS, layers="top", n_layers=0)

SENTENCES = [["A", "cat"], [], ["Über", "den", "/", "Wolken", "."], ["A", "cat"], ["日本"]]


def info_of(format):
    """Return the facts of a file with all layers, or with one where the format has no more."""
    return ALL_LAYERS if FORMATS[format].has_layers else ONE_LAYER


def vectors_of(sentences, info, seed=0):
    generator = np.random.default_rng(seed)
    return [
        generator.standard_normal(info.shape(len(words))).astype(info.dtype) for words in sentences
    ]


def write(path, format, info, sentences=SENTENCES, **options):
    vectors = vectors_of(sentences, info)
    writer = open_writer(path, format, info, **options)
    writer.append(sentences[:2], vectors[:2])
    writer.append(sentences[2:], vectors[2:])
    writer.finish()
    return vectors


def read_hdf5(path, info):
    with h5py.File(path, "r") as file:
        keys = [key for key in file if key != "sentence_to_index"]
        return [file[str(number)][...] for number in range(len(keys))]


def read_npz(path, info):
    with np.load(path, allow_pickle=False) as file:
        keys = [key for key in file.files if key.isdecimal()]
        return [file[str(number)] for number in range(len(keys))]


def read_safetensors(path, info):
    with safe_open(path, "np") as file:
        return [file.get_tensor(str(number)) for number in range(len(file.keys()))]


def read_parquet(path, info):
    table = pq.read_table(path)
    names = [f"layer_{k}" for k in range(info.n_layers)] or ["vectors"]
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    arrays = [np.array(row, dtype=info.dtype).reshape(len(names), -1, info.dim) for row in rows]
    return arrays if info.n_layers else [array[0] for array in arrays]


READERS = {
    "hdf5": read_hdf5,
    "npz": read_npz,
    "safetensors": read_safetensors,
    "parquet": read_parquet,
}

REFUSED = ["out.csv", "out.txt", "out.npy", "out.json"]
"""Names that other programs understand and no format has: a format that takes one shortens this."""

SPOOLED = [name for name, format in FORMATS.items() if issubclass(format.code, SpoolWriter)]


def assert_holds(path, format, info, vectors):
    found = READERS[format](path, info)
    assert len(found) == len(vectors)
    for expected, array in zip(vectors, found, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_the_table_has_the_formats_that_settings_and_documents_name():
    documented = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert set(FORMATS) == set(get_args(OutputFormat)) == set(READERS)
    assert all(f"| `{name}` |" in documented for name in FORMATS)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make_info", [info_of, lambda format: ONE_LAYER], ids=["all", "one"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_readers_see_what_was_written(tmp_path, format, make_info, dtype):
    info = replace(make_info(format), dtype=dtype)
    path = tmp_path / "out"
    assert_holds(path, format, info, write(path, format, info))
    assert is_complete(path)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_text_without_sentences_makes_a_valid_empty_file(tmp_path, format):
    open_writer(tmp_path / "out", format, info_of(format)).finish()
    assert READERS[format](tmp_path / "out", info_of(format)) == []


def test_hdf5_opens_with_code_written_for_allennlp(tmp_path):
    vectors = write(tmp_path / "out.h5", "hdf5", ALL_LAYERS)
    with h5py.File(tmp_path / "out.h5", "r") as file:
        index = json.loads(file["sentence_to_index"][0])
        assert file["sentence_to_index"].shape == (1,)
        # Of equal sentences the last one counts, as in AllenNLP.
        assert index == {"A cat": "3", "": "1", "Über den / Wolken .": "2", "日本": "4"}
        np.testing.assert_array_equal(file[index["A cat"]], vectors[3])
        assert set(file) == {"0", "1", "2", "3", "4", "sentence_to_index"}


def test_sentences_can_be_forgotten(tmp_path):
    write(tmp_path / "out.h5", "hdf5", ALL_LAYERS, forget_sentences=True)
    with h5py.File(tmp_path / "out.h5", "r") as file:
        assert "sentence_to_index" not in file


def test_an_index_that_would_not_fit_in_memory_is_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "_INDEX_LIMIT", 10)
    with pytest.warns(ElmoWarning, match="sentence_to_index"):
        write(tmp_path / "out.h5", "hdf5", ALL_LAYERS)
    with h5py.File(tmp_path / "out.h5", "r") as file:
        assert "sentence_to_index" not in file
        assert file.attrs["complete"]


def test_every_file_says_what_made_it(tmp_path):
    text = "".join(f"{json.dumps(words)}\n" for words in SENTENCES)
    digest = hashlib.sha256(text.encode()).hexdigest()
    expected = asdict(ALL_LAYERS) | {"n_sentences": 5, "text_sha256": digest}
    for format in ("hdf5", "npz", "safetensors", "parquet"):
        write(tmp_path / format, format, ALL_LAYERS)
    with h5py.File(tmp_path / "hdf5", "r") as file:
        attributes = dict(file.attrs)
        assert attributes.pop("complete")
        assert attributes == expected
    with np.load(tmp_path / "npz") as file:
        assert json.loads(file["info.json"]) == expected
        assert [json.loads(line) for line in file["sentences.jsonl"].splitlines()] == SENTENCES
    as_text = {key: str(value) for key, value in expected.items()}
    with safe_open(tmp_path / "safetensors", "np") as file:
        metadata = file.metadata()
        assert json.loads(metadata.pop("sentences")) == SENTENCES
        assert metadata == as_text
    table = pq.read_table(tmp_path / "parquet")
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert as_text.items() <= metadata.items()
    assert table["words"].to_pylist() == SENTENCES
    assert table["sentence"].to_pylist() == [0, 1, 2, 3, 4]


def test_a_parquet_file_has_many_row_groups_if_it_is_large(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "_ROW_GROUP_BYTES", 100)
    vectors = write(tmp_path / "out", "parquet", ALL_LAYERS)
    assert pq.ParquetFile(tmp_path / "out").num_row_groups > 1
    assert_holds(tmp_path / "out", "parquet", ALL_LAYERS, vectors)


def test_too_many_sentences_for_a_safetensors_header_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "_HEADER_LIMIT", 100)
    with pytest.raises(OutputError, match="use hdf5 or parquet"):
        write(tmp_path / "out", "safetensors", ALL_LAYERS)


@pytest.mark.parametrize("format", FORMATS)
def test_an_output_that_exists_is_refused_and_left_alone(tmp_path, format):
    path = tmp_path / "out"
    path.write_text("precious")
    for resume in (False, True):
        with pytest.raises(OutputExistsError, match="overwrite"):
            open_writer(path, format, info_of(format), resume=resume)
    assert path.read_text() == "precious"
    vectors = write(path, format, info_of(format), overwrite=True)
    assert_holds(path, format, info_of(format), vectors)


def test_bad_places_and_formats_are_refused(tmp_path):
    with pytest.raises(OutputError, match="is a folder"):
        open_writer(tmp_path, "hdf5", ALL_LAYERS)
    with pytest.raises(OutputError, match="standard output"):
        open_writer("-", "hdf5", ALL_LAYERS)
    with pytest.raises(ConfigError, match="'xml', expected one of hdf5"):
        open_writer(tmp_path / "out", "xml", ALL_LAYERS)
    with pytest.raises(ConfigError, match="give one"):
        open_writer(tmp_path / "out", "hdf5", ALL_LAYERS, resume=True, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(MissingFileError, match="cannot write"):
        open_writer(tmp_path / "file" / "out", "hdf5", ALL_LAYERS)


def test_all_layers_are_refused_by_a_format_with_one_vector_a_word(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "npz", replace(FORMATS["npz"], has_layers=False))
    refusal = "layers is 'all', but the format npz has one vector a word; give layers top, average"
    with pytest.raises(ConfigError, match=refusal):
        open_writer(tmp_path / "out.npz", "npz", ALL_LAYERS)
    (tmp_path / "text.txt").write_text("A cat\n")
    with pytest.raises(ConfigError, match=refusal):
        check_paths(tmp_path / "text.txt", tmp_path / "out.npz", EmbedSettings())
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]
    check_paths(tmp_path / "text.txt", tmp_path / "out.npz", EmbedSettings(layers=1))
    vectors = write(tmp_path / "out.npz", "npz", ONE_LAYER)
    assert_holds(tmp_path / "out.npz", "npz", ONE_LAYER, vectors)


def test_a_mistyped_folder_is_named_and_not_created(tmp_path):
    with pytest.raises(MissingFileError, match=r"there is no folder .*/vectros; make it first"):
        open_writer(tmp_path / "vectros" / "out.h5", "hdf5", ALL_LAYERS)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("elmo.bulk.writer.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install pyarrow"):
        open_writer(tmp_path / "out", "parquet", ALL_LAYERS)


@pytest.mark.parametrize("format", FORMATS)
def test_an_unfinished_output_asks_for_a_decision(tmp_path, format):
    writer = open_writer(tmp_path / "out", format, info_of(format))
    writer.append(SENTENCES, vectors_of(SENTENCES, info_of(format)))
    assert not is_complete(tmp_path / "out")
    with pytest.raises(OutputExistsError, match="another elmo process is writing"):
        open_writer(tmp_path / "out", format, info_of(format), resume=True)
    writer.close()
    with pytest.raises(OutputExistsError, match="unfinished; give resume"):
        open_writer(tmp_path / "out", format, info_of(format))


@pytest.mark.parametrize("format", FORMATS)
@settings(deadline=None, max_examples=15)
@given(cut=st.integers(0, len(SENTENCES)))
def test_a_resumed_file_equals_an_uninterrupted_one(tmp_path_factory, format, cut):
    path = tmp_path_factory.mktemp("out") / "out"
    vectors = vectors_of(SENTENCES, info_of(format))
    open_writer(path, format, info_of(format)).append(SENTENCES[:cut], vectors[:cut])
    writer = open_writer(path, format, info_of(format), resume=True)
    assert writer.n_written == cut
    assert list(writer.written_sentences()) == SENTENCES[:cut]
    writer.append(SENTENCES[cut:], vectors[cut:])
    writer.finish()
    assert_holds(path, format, info_of(format), vectors)


@pytest.mark.parametrize("format", SPOOLED)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_torn_working_folder_loses_only_what_was_torn(tmp_path_factory, format, data):
    """Whatever a killed process left of its files, whole sentences are kept and the rest goes."""
    path = tmp_path_factory.mktemp("out") / "out"
    vectors = vectors_of(SENTENCES, info_of(format))
    writer = open_writer(path, format, info_of(format))
    writer.append(SENTENCES, vectors)
    writer.close()
    for name in ("vectors.bin", "sentences.jsonl"):
        file = writer.work / name
        os.truncate(file, data.draw(st.integers(0, file.stat().st_size), label=name))
    resumed = open_writer(path, format, info_of(format), resume=True)
    n = resumed.n_written
    resumed.append(SENTENCES[n:], vectors[n:])
    resumed.finish()
    assert_holds(path, format, info_of(format), vectors)


def test_an_hdf5_output_that_was_killed_before_its_file_was_begun_is_resumed(tmp_path):
    path = tmp_path / "out"
    writer = open_writer(path, "hdf5", ALL_LAYERS)
    writer.close()
    path.unlink()
    (writer.work / "journal").unlink()
    assert_holds(path, "hdf5", ALL_LAYERS, write(path, "hdf5", ALL_LAYERS, resume=True))


def test_an_hdf5_file_is_complete_and_readable_after_every_list(tmp_path):
    path = tmp_path / "out"
    vectors = vectors_of(SENTENCES, ALL_LAYERS)
    writer = open_writer(path, "hdf5", ALL_LAYERS)
    for number, (words, array) in enumerate(zip(SENTENCES, vectors, strict=True)):
        writer.append([words], [array])
        with h5py.File(path, "r") as file:
            assert file.attrs["n_sentences"] == number + 1
            assert not file.attrs["complete"]
            np.testing.assert_array_equal(file[str(number)], array)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("name", "value"), [("model_sha256", "cd" * 32), ("state", "warm"), ("dtype", "float16")]
)
def test_a_run_with_other_settings_cannot_be_resumed(tmp_path, format, name, value):
    open_writer(tmp_path / "out", format, info_of(format))
    other = replace(info_of(format), **{name: value})
    with pytest.raises(OutputError, match=f"{name}=.*cannot be resumed with {name}="):
        open_writer(tmp_path / "out", format, other, resume=True)


def test_damaged_outputs_are_said_to_be_damaged(tmp_path):
    path = tmp_path / "out"
    writer = open_writer(path, "hdf5", ALL_LAYERS)
    writer.append(SENTENCES, vectors_of(SENTENCES, ALL_LAYERS))
    writer.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(OutputError, match="damaged"):
        open_writer(path, "hdf5", ALL_LAYERS, resume=True)
    (writer.work / "info.json").write_text("{")
    with pytest.raises(OutputError, match="damaged"):
        open_writer(path, "hdf5", ALL_LAYERS, resume=True)


def test_the_carried_state_kept_is_that_after_the_last_sentence_written(tmp_path):
    writer = open_writer(tmp_path / "out", "hdf5", ALL_LAYERS)
    vectors = vectors_of(SENTENCES, ALL_LAYERS)
    for number in range(3):
        writer.keep_state({"hidden": np.full(2, float(number + 1))}, number + 1)
        assert writer.n_written == number  # killed here, the state before is still at hand
        if number:
            assert writer.kept_state()["hidden"][0] == number
        writer.append(SENTENCES[number : number + 1], vectors[number : number + 1])
        assert writer.kept_state()["hidden"][0] == number + 1
    assert len(list(writer.work.glob("state-*"))) == 2
    for file in writer.work.glob("state-*"):
        file.unlink()
    with pytest.raises(OutputError, match="carried state after sentence 3"):
        writer.kept_state()


def fail_in(writer):
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_that_fails_before_a_sentence_is_in_leaves_nothing(tmp_path, format):
    path = tmp_path / "out"
    fail_in(open_writer(path, format, info_of(format)))
    assert list(tmp_path.iterdir()) == []
    writer = open_writer(path, format, info_of(format))
    writer.append(SENTENCES[:1], vectors_of(SENTENCES, info_of(format))[:1])
    fail_in(writer)
    for _ in range(2):  # what is in stays, also when it is resumed and fails again
        writer = open_writer(path, format, info_of(format), resume=True)
        assert writer.n_written == 1
        fail_in(writer)


@pytest.mark.parametrize(
    ("name", "asked", "format"),
    [
        ("out.npz", None, "npz"),
        ("out.SAFETENSORS", None, "safetensors"),
        ("out.parquet", None, "parquet"),
        ("out.h5", None, "hdf5"),
        ("out", None, "hdf5"),
        ("out.npz", "hdf5", "hdf5"),
    ],
)
def test_the_format_is_what_was_asked_for_or_what_the_name_ends_in(name, asked, format):
    assert format_of(name, asked) == format


@pytest.mark.parametrize("name", [*REFUSED, "out.xyz", "v1.2"])
def test_an_ending_that_no_format_has_is_refused_with_those_that_are_known(name):
    with pytest.raises(ConfigError, match=r"\.hdf5, \.h5, \.parquet, \.npz, \.safetensors"):
        format_of(name)
    assert format_of(name, "npz") == "npz"


# --- an output that is complete -------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_complete_output_is_known_by_its_text_and_settings(tmp_path, format):
    path = tmp_path / "out"
    write(path, format, info_of(format))
    require_made_of(path, format, info_of(format), iter(SENTENCES))
    for other in (SENTENCES[:-1], [*SENTENCES, []], [["a"], *SENTENCES[1:]], []):
        with pytest.raises(OutputError, match="complete, with 5 sentences of another text"):
            require_made_of(path, format, info_of(format), other)
    for name, value in (("model_sha256", "cd" * 32), ("layers", "mix"), ("tokenizer", "english")):
        with pytest.raises(OutputError, match=f"begun with {name}="):
            require_made_of(path, format, replace(info_of(format), **{name: value}), SENTENCES)


def test_numbers_of_a_complete_output_are_shown_as_python_shows_them(tmp_path):
    write(tmp_path / "out", "hdf5", ALL_LAYERS)
    with pytest.raises(OutputError, match="begun with batch_size=0 and cannot"):
        require_made_of(tmp_path / "out", "hdf5", replace(ALL_LAYERS, batch_size=5), SENTENCES)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_no_output_is_not_taken_for_a_complete_one(tmp_path, format):
    path = tmp_path / "out"
    path.write_text("precious")
    with pytest.raises(OutputExistsError, match="no run of elmo embed has written it"):
        require_made_of(path, format, info_of(format), SENTENCES)


FULL_DISK = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bulk.test_writer import SENTENCES, info_of, vectors_of
from elmo.errors import OutputError
from elmo.bulk.writer import open_writer
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]),) * 2)
info = info_of(sys.argv[3])
writer = open_writer(Path(sys.argv[2]), sys.argv[3], info)
vectors = vectors_of(SENTENCES, info)
try:
    for _ in range(100000):
        writer.append(SENTENCES, vectors)
except OutputError as error:
    print(writer.n_written, error)
"""


@pytest.mark.parametrize("format", FORMATS)
def test_no_space_left_stops_the_run_and_leaves_a_valid_output(tmp_path, format):
    """The operating system itself refuses to let the files grow, as a full disk does."""
    path = tmp_path / "out"
    limit = str(1_600_000 if format == "hdf5" else 20_000)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(Path(__file__).parents[1]), str(path), format, limit],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    count, message = done.stdout.split(" ", 1)
    assert "no space left" in message
    assert "with resume to go on" in message
    writer = open_writer(path, format, info_of(format), resume=True)
    n = writer.n_written  # of the list that did not fit, whole sentences may have been kept
    assert n >= int(count) > 0
    vectors = vectors_of(SENTENCES, info_of(format))
    done_of_list = n % len(SENTENCES)
    writer.append(SENTENCES[done_of_list:], vectors[done_of_list:])
    writer.finish()
    assert_holds(path, format, info_of(format), vectors * (n // len(SENTENCES) + 1))


def test_reserving_space_does_not_make_a_file_larger_than_its_content(tmp_path):
    writer = Hdf5Writer(tmp_path / "out", ALL_LAYERS)
    writer.append(SENTENCES, vectors_of(SENTENCES, ALL_LAYERS))
    assert (tmp_path / "out").stat().st_size < 100_000
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


READS = """
import sys, time
import h5py
with h5py.File(sys.argv[1], "r"):
    print("open", flush=True)
    sys.stdin.readline()
    time.sleep(0.3)
"""


def reader_of(path):
    """Start a process that has a file open, until a line comes and a moment longer."""
    command = [sys.executable, "-c", READS, str(path)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert reader.stdout.readline() == "open\n"
    return reader


def test_a_writer_waits_for_those_who_look_into_the_file(tmp_path):
    path = tmp_path / "out.h5"
    vectors = vectors_of(SENTENCES, ALL_LAYERS)
    writer = open_writer(path, "hdf5", ALL_LAYERS)
    for some in (slice(0, 2), slice(2, None)):
        reader = reader_of(path)
        reader.stdin.write("\n")
        reader.stdin.flush()
        writer.append(SENTENCES[some], vectors[some])
        assert reader.wait() == 0
    writer.finish()
    for found, expected in zip(read_hdf5(path, ALL_LAYERS), vectors, strict=True):
        assert np.array_equal(found, expected)


def test_a_file_that_stays_open_elsewhere_is_told_and_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "out.h5"
    writer = open_writer(path, "hdf5", ALL_LAYERS)
    writer.append(SENTENCES[:2], vectors_of(SENTENCES, ALL_LAYERS)[:2])
    writer.close()
    monkeypatch.setattr(hdf5, "_PATIENCE", 0.2)
    reader = reader_of(path)
    with pytest.raises(OutputError, match=r"open elsewhere .* resume"):
        open_writer(path, "hdf5", ALL_LAYERS, resume=True)
    reader.communicate("\n")
    assert open_writer(path, "hdf5", ALL_LAYERS, resume=True).n_written == 2

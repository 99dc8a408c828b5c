"""HDF5 files that lie about their shapes, and disks that are full."""

import hashlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

from elmo.errors import InputError, WeightsError
from elmo.runtime.hdf5_files import dataset_of, reading_hdf5, texts_of, writing_hdf5


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"shape": (65536, 32768), "chunks": (64, 64), "fillvalue": 1.0}, "was never filled"),
        ({"shape": (2**40,), "chunks": (2**20,), "compression": "gzip"}, "was never filled"),
        ({"shape": (4,), "maxshape": (None,), "chunks": (2**28,)}, "was never filled"),
        ({"shape": (4,), "external": [("/etc/passwd", 0, 16)]}, "in other files"),
        ({"shape": (4,), "dtype": "S8"}, "expected floating-point"),
        ({"shape": (4,), "dtype": "i4"}, "expected floating-point"),
    ],
)
def test_a_dataset_that_lies_is_refused_before_it_is_read(tmp_path, layout, message):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", **{"dtype": "f4", **layout})
    with (
        pytest.raises(WeightsError, match=message),
        reading_hdf5(tmp_path / "a.h5") as file,
    ):
        dataset_of(tmp_path / "a.h5", file, "x")


@pytest.mark.parametrize("link", [h5py.SoftLink("/y"), h5py.ExternalLink("/etc/passwd", "/y")])
def test_links_are_not_followed(tmp_path, link):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = link
    with (
        pytest.raises(WeightsError, match="'x' is no dataset of this file"),
        reading_hdf5(tmp_path / "a.h5") as file,
    ):
        dataset_of(tmp_path / "a.h5", file, "x")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="is a folder"), reading_hdf5(tmp_path):
        pass


def write_texts(path, texts):
    with writing_hdf5(path) as (file, _):
        file.create_dataset("x", data=texts, dtype=h5py.string_dtype())


@pytest.mark.parametrize(
    "texts", [["a"], ["", "b", ""], ["x" * 9000, "語"], [str(n) for n in range(999)]]
)
def test_texts_are_read_without_the_library(tmp_path, texts):
    path = tmp_path / "a.h5"
    write_texts(path, texts)
    with reading_hdf5(path) as file:
        assert texts_of(path, "x", file["x"], 10**6) == texts
        assert file["x"].asstr()[...].tolist() == texts
    with pytest.raises(WeightsError, match="expected at most"), reading_hdf5(path) as file:
        texts_of(path, "x", file["x"], sum(len(text.encode()) for text in texts) - 1)


def test_damaged_texts_are_told(tmp_path):
    path = tmp_path / "a.h5"
    write_texts(path, ["abc", "def"])
    path.write_bytes(path.read_bytes().replace(b"GCOL", b"GCOX"))
    with pytest.raises(WeightsError, match="text 0 of 'x' is damaged"), reading_hdf5(path) as file:
        texts_of(path, "x", file["x"], 100)


def test_equal_content_is_equal_bytes(tmp_path):
    for name in "ab":
        with writing_hdf5(tmp_path / name) as (file, _):
            file["deep/x"] = np.arange(9, dtype=np.float32)
    digests = {hashlib.sha256((tmp_path / name).read_bytes()).digest() for name in "ab"}
    assert len(digests) == 1


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
from elmo.errors import WriteError
from elmo.runtime.hdf5_files import writing_hdf5
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    with writing_hdf5(Path(sys.argv[1])) as (file, _):
        for number in range(20):
            file[f"group{number}/x"] = np.ones((50, 50), np.float32)
        file["texts"] = ["text"] * 1000
except WriteError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [1, 100, 3000, 50_000, 190_000])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, size):
    result = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a.h5"), str(size)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result
    assert result.stdout == f"cannot write {tmp_path / 'a.h5'}: no space left on the disk\n"
    assert list(tmp_path.iterdir()) == []

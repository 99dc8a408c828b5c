"""Archives: only the files of a model, and nothing that an archive can do."""

import os
import zipfile

import pytest

from elmo.errors import MissingFileError, WeightsError
from elmo.hub import archives
from elmo.hub.archives import extract


@pytest.fixture
def zipped(tmp_path):
    """Write a zip archive of (name or ZipInfo, content) pairs."""

    def write(*members, method=zipfile.ZIP_DEFLATED):
        path = tmp_path / "archive.zip"
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in members:
                archive.writestr(name, content)
        return path

    return write


def test_only_what_is_wanted_is_unpacked_under_bare_names(tmp_path, zipped):
    archive = zipped(("a/model.hdf5", b"weights"), ("a/options.json", b"{}"), ("a/run.py", b"x"))
    names = extract(archive, tmp_path / "out", ("*.hdf5", "options.json"))
    assert names == ["model.hdf5", "options.json"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "model.hdf5": b"weights",
        "options.json": b"{}",
    }


def link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("../model.hdf5", b"x")], "leads out of it"),
        ([("/model.hdf5", b"x")], "leads out of it"),
        ([("a/../../model.hdf5", b"x")], "leads out of it"),
        ([("C:model.hdf5", b"x")], "leads out of it"),
        ([(link("model.hdf5"), b"/etc/passwd")], "is a link: refused"),
        ([("model.hdf5", bytes(20_000_000))], "claims to grow"),
        ([("a/model.hdf5", b"x"), ("b/model.hdf5", b"y")], "it is unclear which"),
    ],
)
def test_an_archive_with_tricks_is_refused_and_leaves_nothing(tmp_path, zipped, members, message):
    archive = zipped(*members)
    with pytest.raises(WeightsError, match=message):
        extract(archive, tmp_path / "deep" / "out", ("*.hdf5",))
    assert list((tmp_path / "deep").iterdir()) == []


def test_an_archive_without_a_model_says_what_it_holds(tmp_path, zipped):
    with pytest.raises(MissingFileError, match=r"found model\.bin; expected config\.json \+ model"):
        extract(zipped(("model.bin", b"word2vec")), tmp_path / "out", ("*.hdf5",))


def test_limits_of_archives_hold(tmp_path, zipped, monkeypatch):
    archive = zipped(("a.hdf5", b"12345"), ("b.hdf5", b"12345"))
    monkeypatch.setattr(archives, "LARGEST_CONTENT", 9)
    with pytest.raises(WeightsError, match="would unpack to 10 bytes"):
        extract(archive, tmp_path / "out", ("*.hdf5",))
    monkeypatch.setattr(archives, "MOST_MEMBERS", 1)
    with pytest.raises(WeightsError, match="lists 2 files"):
        extract(archive, tmp_path / "out", ("*.hdf5",))


@pytest.mark.parametrize("damage", [b"", b"PK", b"no archive at all"])
def test_what_is_no_archive_is_told(tmp_path, damage):
    (tmp_path / "archive.zip").write_bytes(damage)
    with pytest.raises(WeightsError, match="not a readable archive"):
        extract(tmp_path / "archive.zip", tmp_path / "out", ("*.hdf5",))


def test_a_damaged_member_is_told(tmp_path, zipped):
    archive = zipped(("model.hdf5", os.urandom(5000)), method=zipfile.ZIP_STORED)
    content = bytearray(archive.read_bytes())
    content[2000] ^= 255
    archive.write_bytes(content)
    with pytest.raises(WeightsError, match="Bad CRC-32"):
        extract(archive, tmp_path / "out", ("*.hdf5",))
    assert not (tmp_path / "out").exists()

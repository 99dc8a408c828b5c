"""Files that are changed as a whole: as any file while open, and whole whenever a process dies."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.bulk.hdf5 import JournaledFile, begin_journal, recover
from elmo.errors import OutputError

PLACES = st.integers(0, 3 * 4096)
CONTENTS = st.binary(max_size=64) | st.integers(0, 9000).map(lambda size: bytes(range(250)) * size)
ACTIONS = st.lists(
    st.tuples(st.just("write"), PLACES, CONTENTS.map(lambda content: content[:9000]))
    | st.tuples(st.just("read"), PLACES, st.integers(0, 9000))
    | st.tuples(st.just("truncate"), PLACES, st.none()),
    max_size=12,
)


def begun(folder, content):
    path, journal = folder / "file", folder / "journal"
    path.write_bytes(content)
    begin_journal(path, journal)
    return path, journal


def do(file, actions):
    """Do what is said, and give what was read: all that is there, then 0."""
    read = []
    for action, place, value in actions:
        if action == "truncate":
            file.truncate(place)
            continue
        file.seek(place)
        if action == "write":
            file.write(value)
        else:
            buffer = bytearray(b"\xff" * value)
            size = file.readinto(buffer)
            assert file.tell() == place + size or not size
            read.append(bytes(buffer[:size]))
    return read


def as_bytes_io(content, actions):
    """The same in memory; a place behind the end is filled with 0, as it is on a disk."""
    file, read = io.BytesIO(content), []
    for action in actions:
        name, place, _ = action
        if name == "truncate" and place > len(file.getvalue()):
            file.seek(0, os.SEEK_END)
            file.write(bytes(place - len(file.getvalue())))
        read += do(file, [action])
    return file.getvalue(), read


@settings(deadline=None, max_examples=60)
@given(content=CONTENTS.map(lambda content: content[:9000]), actions=ACTIONS)
def test_a_writer_sees_its_changes_and_others_only_what_is_committed(
    tmp_path_factory, content, actions
):
    path, journal = begun(tmp_path_factory.mktemp("files"), content)
    expected, expected_reads = as_bytes_io(content, actions)
    with JournaledFile(path, journal) as file:
        assert do(file, actions) == expected_reads
        assert path.read_bytes()[: len(content)] == content
        assert file.seek(0, os.SEEK_END) == len(expected)
        file.seek(0)
        assert file.read() == expected
    assert path.read_bytes() == content  # nothing was committed
    with JournaledFile(path, journal) as file:
        do(file, actions)
        file.commit()
        do(file, actions)
    assert path.read_bytes() == expected


def test_settling_a_file_changes_nothing_but_what_was_not_committed(tmp_path):
    path, journal = begun(tmp_path, bytes(10_000))
    with JournaledFile(path, journal) as file:
        do(file, [("write", 5000, b"abc"), ("write", 9999, b"defg")])
        file.commit()
    committed = path.read_bytes()
    recover(path, journal)
    assert path.read_bytes() == committed
    with path.open("ab") as file:
        file.write(b"what a killed process added")
    recover(path, journal)
    assert path.read_bytes() == committed


def test_space_that_was_reserved_and_not_used_is_given_back(tmp_path):
    path, journal = begun(tmp_path, b"12345")
    with JournaledFile(path, journal) as file:
        file.reserve(100_000)
        do(file, [("write", 5, b"67")])
        file.commit()
    assert path.read_bytes() == b"1234567"


def test_a_journal_that_is_no_journal_is_not_followed(tmp_path):
    path, journal = begun(tmp_path, b"12345")
    journal.write_bytes(b"{")
    with pytest.raises(ValueError, match="Expecting"):
        recover(path, journal)
    assert path.read_bytes() == b"12345"


def test_a_file_that_lost_its_end_is_not_filled_up(tmp_path):
    path, journal = begun(tmp_path, b"12345")
    os.truncate(path, 3)
    with pytest.raises(ValueError, match="3 bytes, expected at least 5"):
        recover(path, journal)
    assert path.read_bytes() == b"123"


DIES_EVERYWHERE = """
import os, shutil, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
from bulk.test_writer import ALL_LAYERS, read_hdf5, vectors_of
from elmo.bulk import hdf5
from elmo.bulk.writer import is_complete, open_writer

folder = Path(sys.argv[2])
sentences = [["word"] * (number % 7) for number in range(60)]
vectors = vectors_of(sentences, ALL_LAYERS)

def dying(after):
    left = iter(range(after))
    def alive():
        return next(left, None) is not None
    write_at, fsync, replace, rmtree = (
        hdf5._write_at, os.fsync, Path.replace, shutil.rmtree)
    def write_or_die(file, view, place):
        if alive() or not len(view):
            return write_at(file, view, place)
        write_at(file, view[: len(view) // 2], place)  # a write that was torn
        os._exit(9)
    def or_die(call):
        return lambda *args, **named: call(*args, **named) if alive() else os._exit(9)
    hdf5._write_at = write_or_die
    os.fsync, Path.replace, shutil.rmtree = or_die(fsync), or_die(replace), or_die(rmtree)

def check(path, n):
    found = read_hdf5(path, ALL_LAYERS)
    assert len(found) == n, (len(found), n)
    for array, expected in zip(found, vectors):
        assert np.array_equal(array, expected)

def deaths(name, begin, change):
    # Does a change again and again, dying a step later each time; gives how many steps it has.
    begin(folder / "begun")
    steps = 0
    while True:
        shutil.rmtree(folder / "tried", ignore_errors=True)
        shutil.copytree(folder / "begun", folder / "tried")
        path = folder / "tried" / "out.h5"
        child = os.fork()
        if not child:
            dying(steps)
            change(path)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9), (name, steps, status)
        writer = open_writer(path, "hdf5", ALL_LAYERS, resume=True)
        n = writer.n_written
        assert list(writer.written_sentences()) == sentences[:n]
        assert n in ((50,) if status == 0 else (40, 50)), (name, steps, n)
        check(path, n)
        writer.append(sentences[n:], vectors[n:])
        writer.finish()
        assert is_complete(path)
        check(path, 60)
        if status == 0:
            break
        steps += 1
    shutil.rmtree(folder / "begun")
    print(name, steps)

def begin(into):
    into.mkdir()
    writer = open_writer(into / "out.h5", "hdf5", ALL_LAYERS)
    writer.append(sentences[:20], vectors[:20])
    writer.append(sentences[20:40], vectors[20:40])

def append(path):
    writer = open_writer(path, "hdf5", ALL_LAYERS, resume=True)
    writer.append(sentences[40:50], vectors[40:50])

def append_and_nearly_finish(path):
    append(path)
    writer = open_writer(path, "hdf5", ALL_LAYERS, resume=True)
    shutil.rmtree = lambda _: os._exit(9)
    writer.finish()

deaths("append", begin, append)

# The same with a run that dies after all is in, before its folder is gone.
begin(folder / "begun")
child = os.fork()
if not child:
    append_and_nearly_finish(folder / "begun" / "out.h5")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
writer = open_writer(folder / "begun" / "out.h5", "hdf5", ALL_LAYERS, resume=True)
assert writer.n_written == 50
writer.append(sentences[50:], vectors[50:])
writer.finish()
check(folder / "begun" / "out.h5", 60)
"""


def test_an_hdf5_file_is_whole_at_whatever_step_its_writer_dies(tmp_path):
    """A process of its own is ended at every single write, in the middle of it."""
    done = subprocess.run(
        [sys.executable, "-c", DIES_EVERYWHERE, str(Path(__file__).parents[1]), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    name, steps = done.stdout.split()
    assert name == "append"
    assert int(steps) > 10


def test_a_file_that_others_hold_open_is_waited_for_and_then_told(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    path, journal = begun(tmp_path, b"12345")
    monkeypatch.setattr("elmo.bulk.hdf5._PATIENCE", 0.1)
    with path.open("rb") as reader, JournaledFile(path, journal) as file:
        fcntl.flock(reader, fcntl.LOCK_SH)
        do(file, [("write", 0, b"x")])
        with pytest.raises(OutputError, match=r"open elsewhere .* resume"):
            file.commit()
        assert path.read_bytes() == b"12345"
        fcntl.flock(reader, fcntl.LOCK_UN)
        file.commit()
    assert path.read_bytes() == b"x2345"

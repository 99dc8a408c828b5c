"""Atomic writes, locks between processes, the cache folder, checksums."""

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmo.errors import InputError, OutputError, OutputExistsError
from elmo.runtime.files import (
    LOCK_FILE,
    PARTIAL_FILES,
    cache_folder,
    lock_output,
    locked,
    output_errors,
    refuse_if_locked,
    remove_partial_files,
    replacing,
    sha256_of,
    try_lock,
    write_text,
)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of a folder until its standard input ends."""
    code = (
        "import sys; from pathlib import Path; from elmo.runtime.files import lock_output\n"
        "folder = Path(sys.argv[1]); lock = lock_output(folder, folder); print(flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert list(tmp_path.glob(PARTIAL_FILES)) == [temporary]
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", path], stdout=subprocess.PIPE, text=True)
    write_text(path, "content")
    assert reader.communicate(timeout=60)[0] == "content"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # the outer block ends last
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    kept = tmp_path / "folder" / "file"
    for path in (kept, kept.with_name(".file.12ab34cd.partial"), tmp_path / ".a.0.partial"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    remove_partial_files(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]


def test_a_temporary_file_may_be_in_another_folder(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    with replacing(tmp_path / "file", folder=work) as temporary:
        temporary.write_text("text")
        assert temporary.parent == work
    assert (tmp_path / "file").read_text() == "text"


def test_everything_is_on_the_disk_before_and_after_the_rename(tmp_path, monkeypatch):
    path, calls = tmp_path / "file", []
    monkeypatch.setattr(
        os, "fsync", lambda handle: calls.append((os.fstat(handle).st_size, path.exists()))
    )
    write_text(path, "content")
    assert calls[0] == (len("content"), False)
    assert [existed for _, existed in calls] == [False, True]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_permissions_are_those_of_any_new_file(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


def test_errors_of_the_system_say_what_could_not_be_written_and_why(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*file: No such file"):
        write_text(tmp_path / "nowhere" / "file", "text")
    with pytest.raises(OutputError, match=r"no space left on the disk; make room$"):
        with output_errors("out", "make room"):
            raise OSError(errno.ENOSPC, "full")


def test_advice_is_added_to_the_error_of_a_file_inside(tmp_path):
    with pytest.raises(OutputError) as caught:
        with output_errors(tmp_path, "make room"), replacing(tmp_path / "file"):
            raise OSError(errno.ENOSPC, "full")
    assert str(caught.value) == (
        f"cannot write {tmp_path / 'file'}: no space left on the disk; make room"
    )


def test_errors_of_our_own_pass_as_they_are(tmp_path):
    for error in (InputError("bad input"), OutputError("made with other settings")):
        with pytest.raises(type(error)) as caught, output_errors(tmp_path, "make room"):
            raise error
        assert caught.value is error


@pytest.mark.parametrize("lock", [lock_output, refuse_if_locked])
def test_an_output_is_written_by_one_process(tmp_path, holder, lock):
    assert try_lock(tmp_path / LOCK_FILE) is None
    with pytest.raises(OutputExistsError, match="another elmo process is writing vectors"):
        lock(tmp_path, Path("vectors"))


def test_a_lock_ends_with_its_process(tmp_path, holder):
    holder.kill()
    holder.wait()
    refuse_if_locked(tmp_path, tmp_path)
    lock_output(tmp_path, tmp_path).release()


def test_a_lock_that_was_released_can_be_taken_again(tmp_path):
    refuse_if_locked(tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        lock_output(tmp_path, tmp_path).release()


def test_waiting_for_a_lock_is_announced_once(tmp_path, holder):
    waited = []

    def announce():
        waited.append("waiting")
        holder.kill()  # the system releases its lock

    with locked(tmp_path / LOCK_FILE, announce):
        assert waited == ["waiting"]
        assert try_lock(tmp_path / LOCK_FILE) is None
    with locked(tmp_path / LOCK_FILE, announce):
        assert waited == ["waiting"]


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/elmo-torch"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/elmo-torch"),
        ("darwin", {"XDG_CACHE_HOME": "xdg"}, "home/Library/Caches/elmo-torch"),
        ("win32", {}, "home/AppData/Local/elmo-torch"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/elmo-torch"),
        ("linux", {"ELMO_CACHE": "chosen", "XDG_CACHE_HOME": "xdg"}, "chosen"),
        ("darwin", {"ELMO_CACHE": "~/chosen"}, "home/chosen"),
    ],
)
def test_the_cache_folder_follows_the_environment_and_the_system(
    tmp_path, monkeypatch, platform, variables, expected
):
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("ELMO_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        home_or_path = value if value.startswith("~") else str(tmp_path / value)
        monkeypatch.setenv(name, home_or_path)
    assert cache_folder() == tmp_path / expected
    assert cache_folder("kernels", "x") == tmp_path / expected / "kernels" / "x"


def test_sha256_is_that_of_the_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert sha256_of(path) == hashlib.sha256(b"content").hexdigest()

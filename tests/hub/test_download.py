"""Downloads from a real server that fails in every way: resumed, checked, locked, or told."""

import errno
import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import DownloadError, MissingFileError, OutputError, WeightsError
from elmo.hub import download
from elmo.hub.download import FetchOptions, RemoteFile, fetch, part_path, record_path
from file_server import Faults, serve

CONTENT = bytes(range(256)) * 2000
QUICK = FetchOptions(timeout=5, attempts=2, wait=0, show_progress=False)


@pytest.fixture(scope="module")
def running():
    with serve() as server:
        yield server


@pytest.fixture
def server(running, monkeypatch):
    """A server with one file and no faults."""
    monkeypatch.setenv("no_proxy", "*")
    running.files = {"/weights.hdf5": CONTENT}
    running.faults = Faults()
    running.requests = []
    return running


@pytest.fixture
def file(server):
    return RemoteFile(address=f"{server.address}/weights.hdf5")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "models" / "weights.hdf5"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def only_files(folder):
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


# --- what goes well -------------------------------------------------------------------------------


def test_a_file_arrives_whole_with_its_checksum_beside_it(server, file, target):
    assert fetch(file, target, QUICK) == target
    assert target.read_bytes() == CONTENT
    record = json.loads(record_path(target).read_text())
    assert record["sha256"] == sha256(CONTENT)
    assert record["address"] == file.address
    assert not record["published"]
    assert only_files(target.parent) == {"weights.hdf5", "weights.hdf5.sha256.json"}


def test_a_file_that_is_there_needs_no_network(server, file, target):
    fetch(file, target, QUICK)
    fetch(file, target, QUICK)
    fetch(file, target, replace(QUICK, offline=True))
    assert len(server.requests) == 1


def test_a_file_that_a_person_put_there_is_taken_and_remembered(file, target):
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    fetch(file, target, replace(QUICK, offline=True))
    assert json.loads(record_path(target).read_text())["sha256"] == sha256(CONTENT)


def test_a_published_checksum_and_size_are_kept(file, target):
    known = replace(file, size=len(CONTENT), sha256=sha256(CONTENT))
    fetch(known, target, QUICK)
    assert json.loads(record_path(target).read_text())["published"]


def test_progress_is_shown_on_standard_error(file, target, capsys):
    fetch(file, target, replace(QUICK, show_progress=True))
    captured = capsys.readouterr()
    assert "weights.hdf5" in captured.err
    assert "512k/512k" in captured.err
    assert captured.out == ""


def test_a_redirect_is_followed(server, file, target):
    server.files["/new"] = CONTENT
    with serve() as other:
        other.faults.redirect = f"{server.address}/new"
        fetch(RemoteFile(address=f"{other.address}/old"), target, QUICK)
    assert target.read_bytes() == CONTENT


# --- broken connections ---------------------------------------------------------------------------


@settings(max_examples=12)
@given(cuts=st.lists(st.integers(1, 200_000), max_size=4), ranges=st.booleans())
def test_however_often_the_connection_breaks_the_bytes_are_the_same(
    running, tmp_path_factory, cuts, ranges
):
    running.files = {"/weights.hdf5": CONTENT}
    running.faults = Faults(cuts=list(cuts), ranges=ranges)
    target = tmp_path_factory.mktemp("cuts") / "weights.hdf5"
    options = replace(QUICK, attempts=9)
    fetch(RemoteFile(address=f"{running.address}/weights.hdf5"), target, options)
    assert target.read_bytes() == CONTENT


def test_a_cut_connection_is_resumed_where_it_broke_off(server, file, target):
    server.faults.cuts = [100_000, 50_000]
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT
    asked = [(byte_range, status) for _, byte_range, status in server.requests]
    assert asked == [(None, 200), ("bytes=100000-", 206), ("bytes=150000-", 206)]


def test_a_later_process_goes_on_where_a_killed_one_stopped(server, file, target, tmp_path):
    server.faults.stall = 30
    code = (
        "import sys; from pathlib import Path; from elmo.hub.download import RemoteFile, fetch\n"
        "fetch(RemoteFile(address=sys.argv[1]), Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, file.address, str(target)], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: part_path(target).exists() and part_path(target).stat().st_size > 0)
    finally:
        process.kill()
        process.wait()
    server.faults.stall = 0
    there = part_path(target).stat().st_size
    assert 0 < there < len(CONTENT)
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1][1:] == (f"bytes={there}-", 206)
    assert not part_path(target).exists()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_file_that_was_complete_when_the_process_died_is_not_asked_for_again(
    server, file, target, monkeypatch
):
    monkeypatch.setattr(Path, "replace", refuse_target(target))
    with pytest.raises(OutputError):
        fetch(file, target, QUICK)
    monkeypatch.undo()
    assert part_path(target).read_bytes() == CONTENT
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 1


def refuse_target(target, replace=Path.replace):
    def refuse(self, other):
        if other == target:
            raise OSError(errno.EIO, "the disk is gone")
        return replace(self, other)

    return refuse


def test_a_file_that_changed_on_the_server_is_not_glued_to_the_old_half(server, file, target):
    with pytest.raises(DownloadError, match=r"100,000 bytes have arrived and are kept"):
        fetch_half_then_fail(server, file, target)
    server.faults = Faults()
    changed = bytes(reversed(CONTENT))
    server.files["/weights.hdf5"] = changed
    fetch(file, target, QUICK)
    assert target.read_bytes() == changed
    assert server.requests[-1][1:] == ("bytes=100000-", 200)


def fetch_half_then_fail(server, file, target):
    """Bring the first bytes, then let every connection break off at once."""
    server.faults.cuts = [100_000, 0, 0, 0]
    fetch(file, target, QUICK)


def test_a_file_that_became_shorter_is_taken_anew(server, file, target):
    with pytest.raises(DownloadError, match=r"100,000 bytes have arrived and are kept"):
        fetch_half_then_fail(server, file, target)
    server.faults = Faults(careless=True)
    server.files["/weights.hdf5"] = CONTENT[:5000]
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT[:5000]
    assert [status for *_, status in server.requests[-2:]] == [416, 200]


@pytest.mark.parametrize("faults", [{"tags": False}, {"weak_tags": True}, {"ranges": False}])
def test_servers_that_cannot_resume_safely_still_deliver(server, file, target, faults):
    server.faults = Faults(cuts=[100_000], **faults)
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT


def test_a_connection_that_breaks_again_and_again_is_given_up_with_advice(server, file, target):
    server.faults.cuts = [0] * 10
    with pytest.raises(DownloadError, match="2 times in a row") as caught:
        fetch(file, target, QUICK)
    assert f"Download {file.address} elsewhere and place it at {target}" in str(caught.value)
    assert only_files(target.parent) == set()


def test_a_slow_server_is_told(server, file, target):
    server.faults = Faults(stall=20, cuts=[200_000, 0, 0])
    with pytest.raises(DownloadError, match=r"sent nothing for 0.2 s, 2 times.*100,000 .* kept"):
        fetch(file, target, replace(QUICK, timeout=0.2))
    server.faults = Faults()
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(server, file, target):
    server.faults.status = 503
    with pytest.raises(DownloadError, match=r"answers 503 .*2 times in a row\. Try again later"):
        fetch(file, target, QUICK)
    assert len(server.requests) == 2


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"), [(404, "has no such file"), (403, "refuses it"), (418, "does not give")]
)
def test_a_file_that_is_not_to_be_had_is_told_at_once(server, file, target, status, words):
    server.faults.status = status
    with pytest.raises(MissingFileError, match=f"{words} .*{status}"):
        fetch(file, target, QUICK)
    assert len(server.requests) == 1
    assert only_files(target.parent) == set()


def test_a_wrong_checksum_is_refused_and_deleted(file, target):
    wrong = replace(file, sha256="0" * 64)
    with pytest.raises(WeightsError, match=rf"{sha256(CONTENT)}, expected 0{{64}}; it was deleted"):
        fetch(wrong, target, QUICK)
    assert only_files(target.parent) == set()


def test_what_was_trusted_once_is_enforced_from_then_on(server, file, target):
    fetch(file, target, QUICK)
    changed = bytes(len(CONTENT))
    server.files["/weights.hdf5"] = changed
    for force in (True, False):  # again on demand, or because it was deleted
        with pytest.raises(WeightsError, match=r"the first time.*delete .*sha256\.json"):
            fetch(file, target, replace(QUICK, force=force))
        if force:
            assert target.read_bytes() == CONTENT  # the good one stays
            target.unlink()
    record_path(target).unlink()
    fetch(file, target, QUICK)
    assert target.read_bytes() == changed


def test_a_file_that_changed_on_the_disk_is_told(file, target):
    fetch(file, target, QUICK)
    target.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(WeightsError, match="damaged or exchanged"):
        fetch(file, target, QUICK)
    target.write_bytes(CONTENT)  # the same bytes at another time are the same file
    fetch(file, target, replace(QUICK, offline=True))


def test_another_size_than_the_published_one_is_refused_before_it_is_read(server, file, target):
    with pytest.raises(WeightsError, match=r"has 512,000 bytes, expected 7"):
        fetch(replace(file, size=7), target, QUICK)
    server.faults.announced = 100
    with pytest.raises(WeightsError, match=r"has 100 bytes, expected 512,000"):
        fetch(replace(file, size=len(CONTENT)), target, QUICK)
    assert only_files(target.parent) == set()


def test_more_than_the_limit_is_not_read(server, file, target, monkeypatch):
    monkeypatch.setattr(download, "LARGEST", 1000)
    with pytest.raises(WeightsError, match=r"more than the 1,000 allowed"):
        fetch(file, target, QUICK)
    server.faults.lengths = False
    with pytest.raises(MissingFileError, match="does not tell how long"):
        fetch(file, target, QUICK)
    with pytest.raises(WeightsError, match=r"sends more than the 1,000 bytes"):
        fetch(replace(file, size=1000), target, QUICK)
    assert only_files(target.parent) == set()


def test_an_empty_file_is_refused(server, file, target):
    server.files["/weights.hdf5"] = b""
    with pytest.raises(WeightsError, match="empty file"):
        fetch(file, target, QUICK)


def test_without_a_network_the_place_for_the_file_is_named(target):
    file = RemoteFile(address="http://no-such-host.invalid/weights.hdf5")
    place = f"Download {file.address} elsewhere and place it at {target}"
    with pytest.raises(MissingFileError, match="the network may not be used") as caught:
        fetch(file, target, replace(QUICK, offline=True))
    assert place in str(caught.value)
    assert not target.parent.exists()
    with pytest.raises(DownloadError, match="cannot be reached") as caught:
        fetch(file, target, QUICK)
    assert place in str(caught.value)


def test_addresses_that_are_no_web_addresses_are_not_opened(tmp_path, target):
    (tmp_path / "secret").write_text("secret")
    for address in (f"file://{tmp_path / 'secret'}", "ftp://127.0.0.1/x"):
        with pytest.raises(MissingFileError, match="is no web address"):
            fetch(RemoteFile(address=address), target, QUICK)


def test_a_redirect_out_of_the_web_is_refused(server, file, target, tmp_path):
    server.faults.redirect = f"file://{tmp_path / 'secret'}"
    with pytest.raises(MissingFileError):
        fetch(file, target, QUICK)


# --- the disk -------------------------------------------------------------------------------------


def test_a_disk_that_is_too_small_is_told_before_the_download(file, target, monkeypatch):
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(OutputError, match=r"needs 512,000 bytes more, but only 10 are free"):
        fetch(file, target, QUICK)


def test_a_disk_that_fills_up_is_told_and_what_arrived_is_kept(server, file, target):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*300,000 bytes have arrived"):
            fetch(file, target, QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    fetch(file, target, QUICK)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1][1:] == ("bytes=300000-", 206)


def test_a_folder_that_cannot_be_made_is_told(file, tmp_path):
    (tmp_path / "models").touch()
    with pytest.raises(OutputError, match="cannot write"):
        fetch(file, tmp_path / "models" / "weights.hdf5", QUICK)


# --- two processes --------------------------------------------------------------------------------


def test_two_processes_at_once_make_one_download(server, file, target):
    server.faults.stall = 1.5
    code = (
        "import sys; from pathlib import Path; from elmo.hub.download import RemoteFile, fetch\n"
        "fetch(RemoteFile(address=sys.argv[1]), Path(sys.argv[2]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, file.address, str(target)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = "".join(process.communicate(timeout=60)[1] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], said
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 1

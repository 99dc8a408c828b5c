"""The reader of files that are not trusted: regular, bounded, and always an `ElmoError`."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import ConfigError, ElmoError, InputError, MissingFileError
from elmo.runtime.input_files import (
    DEEPEST,
    damage_errors,
    is_bare_name,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    require_file,
    split_lines,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
)


def test_a_regular_file_or_a_link_to_one_has_a_size(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert require_file(tmp_path / "file") == require_file(tmp_path / "link") == 5


def test_what_is_no_regular_file_is_refused_at_once_and_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with socket.socket(socket.AF_UNIX) as bound:
        folder = os.open(tmp_path, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
    for name, found in (
        ("pipe", "is a named pipe"),
        ("zero", "is a device"),
        ("socket", "is a socket"),
        (".", "is a folder"),
        ("loop", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("\0", "cannot be read"),
    ):
        with pytest.raises(InputError, match=found):
            read_json(tmp_path / name)
    with pytest.raises(MissingFileError, match="no such list"):
        read_text(tmp_path / "gone", what="list")


def test_a_file_that_is_too_large_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(bytes(11))
    with pytest.raises(InputError, match="has 11 bytes, expected at most 10 in a list"):
        read_bytes(tmp_path / "file", 10, "list")
    assert read_bytes(tmp_path / "file", 11) == bytes(11)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested"),
        ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "nested"),
        ("9" * 5000, "5,000 digits"),
        ("9" * 21, "21 digits"),
        ('{"a": "\\ud800"}', "surrogates"),
        (b"\xff", "utf-8"),
        ("", "Expecting value"),
    ],
)
def test_json_that_cannot_be_used_is_refused(text, message):
    with pytest.raises(ConfigError, match=f"here is not valid JSON: .*{message}"):
        parse_json(text, "here")


@given(VALUES)
def test_other_json_is_read_as_ever(value):
    import json

    assert parse_json(json.dumps(value), "here") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), "here") == value


@given(st.lists(st.text(st.characters(blacklist_characters="\n"))))
def test_lines_end_at_line_feeds_alone(lines):
    assert split_lines("here", "".join(f"{line}\n" for line in lines)) == lines


def test_a_list_of_too_many_lines_is_refused():
    with pytest.raises(InputError, match="has 9 lines, expected at most 8"):
        split_lines("here", "\n" * 9, 8)


@pytest.mark.parametrize(
    "error", [IndexError("x"), MemoryError(), RecursionError("deep"), OSError(5)]
)
def test_whatever_a_library_raises_becomes_an_error_that_names_the_file(error):
    with (
        pytest.raises(ElmoError, match="here is not a readable archive"),
        damage_errors("here", "archive"),
    ):
        raise error


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", "\\x", "a\0", "x" * 256])
def test_a_name_that_leads_elsewhere_is_none(name):
    assert not is_bare_name(name)
    assert is_bare_name("vocab.txt")

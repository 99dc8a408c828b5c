"""A corpus that is packed for transfer comes out with the same bytes."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings

SCRIPT = Path(__file__).parents[2] / "recipes" / "mix" / "pack_corpus.py"
TEXT = "The cat sat on the mat .\nIt was zxqv qvxz .\n\nA dog barked ; the naïve cat ran .\n"


def pack_corpus():
    spec = importlib.util.spec_from_file_location("pack_corpus", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments):
    command = [sys.executable, SCRIPT, *arguments, "--workers", "1"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def corpus(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(30 * TEXT, encoding="utf-8")
    prepare([text], tmp_path / "corpus", PrepareSettings(vocab_size=8, workers=1))
    return tmp_path / "corpus"


def test_a_packed_corpus_is_unpacked_to_the_same_bytes(tmp_path, corpus):
    assert run("pack", corpus, tmp_path / "parts").returncode == 0
    assert run("unpack", tmp_path / "parts", tmp_path / "again").returncode == 0
    files = [path for path in corpus.iterdir() if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in files)
    for path in files:
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_a_damaged_part_is_named(tmp_path, corpus):
    run("pack", corpus, tmp_path / "parts")
    part = next((tmp_path / "parts").glob("vocab*"))
    head, digits = part.read_bytes().split(b'"sha256": "', 1)
    other = b"1" if digits[:1] == b"0" else b"0"
    part.write_bytes(head + b'"sha256": "' + other + digits[1:])
    done = run("unpack", tmp_path / "parts", tmp_path / "again")
    assert done.returncode == 1
    assert part.name in done.stderr
    assert "damaged" in done.stderr


@given(st.lists(st.integers(0, 2**40), max_size=50))
def test_numbers_of_any_size_come_back(numbers):
    module = pack_corpus()
    values = np.array(numbers, np.int64)
    assert module.widen(*module.narrow(values), "<i8") == values.tobytes()

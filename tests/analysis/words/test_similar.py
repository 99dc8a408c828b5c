"""Lists of similar words, and what an index was made of."""

import csv
import io
import json
import subprocess
import sys

import pytest

from elmo.analysis.words.similar import (
    SimilarReport,
    SimilarWords,
    read_stop_words,
    require_same,
)
from elmo.errors import ConfigError, MissingFileError


def test_a_saved_index_answers_without_pytorch(random_index, tmp_path):
    random_index().save(tmp_path / "words.index")
    code = (
        "import sys; from elmo.cli.main import main; sys.modules['torch'] = None\n"
        f"sys.exit(main(['similar', 'w1', '--index', {str(tmp_path / 'words.index')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "similar to w1" in done.stdout


def test_flags_that_contradict_an_index_are_reported(tmp_path):
    require_same(tmp_path, {"layer": "1", "model": "x"}, {"layer": "1", "model": None})
    with pytest.raises(ConfigError, match=r"made with layer '1', not '2'"):
        require_same(tmp_path, {"layer": "1"}, {"layer": "2"})


def test_lists_as_json_and_csv_hold_the_same(random_index):
    found = SimilarReport([SimilarWords("w1", random_index().similar("w1", 3))], 40, 6)
    as_json = json.loads(found.render("json"))[0]["similar"]
    as_csv = list(csv.DictReader(io.StringIO(found.render("csv"))))
    assert [row["word"] for row in as_csv] == [entry["word"] for entry in as_json]
    assert [int(row["count"]) for row in as_csv] == [entry["count"] for entry in as_json]
    assert "w1" in found.render("table")
    assert "no other word" in SimilarReport([SimilarWords("w1", [])], 40, 6).text()


def test_stop_words_come_from_a_list_or_a_file(tmp_path):
    assert "the" in read_stop_words("english")
    (tmp_path / "stop.txt").write_text("Und\n\noder\n")
    assert read_stop_words(str(tmp_path / "stop.txt")) == {"und", "oder"}
    assert read_stop_words(None) == frozenset()
    with pytest.raises(MissingFileError, match="expected 'english' or a file"):
        read_stop_words("klingon")

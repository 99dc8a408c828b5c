"""The benchmark of training runs."""

import re
import sys

from benchmarks import train


def test_steps_and_memory_of_a_training_are_printed(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a small text for a small model .\n" * 200)
    flags = ["--preset", "tiny", "--steps", "20", "--text", str(text)]
    monkeypatch.setattr(sys, "argv", ["train", *flags])
    train.main()
    printed = capsys.readouterr().out
    assert re.search(r"^steps/s +\d", printed, flags=re.MULTILINE)
    assert re.search(r"^memory +[\d,]+ MB", printed, flags=re.MULTILINE)

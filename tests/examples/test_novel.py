"""The example that trains on a novel: reads it as people have it, and says what it does."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "novel.py"


@pytest.fixture(scope="module")
def novel():
    specification = importlib.util.spec_from_file_location("novel", EXAMPLE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_it_imports_from_elmo_alone():
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    imported = [line.split()[1] for line in lines if line.startswith(("import ", "from "))]
    assert {name for name in imported if name.startswith("elmo")} == {"elmo"}
    assert set(imported) <= {"elmo", "__future__", *sys.stdlib_module_names}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
def test_it_reads_utf_8_and_gb18030(novel, encoding):
    assert novel.decoded("第一回 宝玉笑道。".encode(encoding)) == "第一回 宝玉笑道。"


def test_chapters_are_documents_and_blank_lines_between_paragraphs_do_not_cut_them(novel):
    text = """My Novel

    CHAPTER I. Down the hole

    It was late, and the lamps of the town
    were lit. Nobody came.

    "Who is there?" she said.

    CHAPTER II

    The end.
    """
    assert novel.chapters(text) == [
        "My Novel",
        'It was late, and the lamps of the town were lit. Nobody came.\n"Who is there?" she said.',
        "The end.",
    ]


def test_wrapped_chinese_is_joined_without_spaces_and_a_sentence_is_no_heading(novel):
    text = (
        "第一回 风尘怀闺秀\n话说天下大势、分久必\n合。\n第四回中既将诸事表明\uff0e\n第二回\n完。\n"
    )
    assert novel.chapters(text) == ["话说天下大势、分久必合。\n第四回中既将诸事表明\uff0e", "完。"]


def test_it_trains_and_says_what_it_does(novel, tmp_path, monkeypatch, capsys):
    chance = random.Random(0)
    names, places = ["Alice", "the queen", "the king", "the cat"], ["garden", "hall", "town"]
    lines = [
        f"{chance.choice(names)} met {chance.choice(names)} in the {chance.choice(places)} {k}."
        for k in range(200)
    ]
    book = tmp_path / "book.txt"
    text = "\n\n".join(lines)
    book.write_text(f"CHAPTER 1\n\n{text}\n\nCHAPTER 2\n\n{text}\n", encoding="utf-8")
    flags = [str(book), "queen", "--steps", "1", "--min-count", "5", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["novel.py", *flags])
    novel.main()
    shown = capsys.readouterr().out
    assert "2 chapters" in shown
    assert "unknown rate" in shown
    assert "step 1," in shown
    assert "similar to queen" in shown
    assert "Alice" in shown.split("similar to queen")[1]
    novel.main()  # nothing is trained again
    assert "would train it longer" in capsys.readouterr().out

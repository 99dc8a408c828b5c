"""Raw text: tokenizers and text files."""
# ruff: noqa: RUF001 - Chinese punctuation is meant

import bz2
import gzip
import io
import lzma
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.errors import InputError, MissingExtraError, MissingFileError
from elmo.text.files import TextFile, WhitespaceTokenizer, get_tokenizer, read_sentences


@given(text=st.text())
def test_white_space_splits_as_python_does(text):
    assert get_tokenizer("whitespace").sentences(text) == [text.split()]


def test_spacy_splits_by_the_rules_of_the_treebank():
    pytest.importorskip("spacy", reason="the extra 'text' is not installed")
    english = get_tokenizer("spacy")
    assert english.sentences("Don't go. It's $5!") == [
        ["Do", "n't", "go", "."],
        ["It", "'s", "$", "5", "!"],
    ]
    assert english.sentences("One\n two") == [["One", "two"]]


def test_chinese_is_split_into_sentences_and_words():
    pytest.importorskip("rjieba", reason="the extra 'zh' is not installed")
    chinese = get_tokenizer("chinese")
    first, second, third, fourth = chinese.sentences("我来到北京清华大学。“你好吗？”他说\n再见")
    assert first == ["我", "来到", "北京", "清华大学", "。"]
    # A closing quotation mark stays with its sentence.
    assert second[0] == "“"
    assert second[-2:] == ["？", "”"]
    assert "".join(third) == "他说"
    assert fourth == ["再见"]


@settings(max_examples=30)
@given(text=st.text(alphabet="ab 。！；?\n我们”", max_size=20))
def test_no_character_of_a_chinese_text_is_lost(text):
    pytest.importorskip("rjieba", reason="the extra 'zh' is not installed")
    words = [word for sentence in get_tokenizer("chinese").sentences(text) for word in sentence]
    assert "".join("".join(words).split()) == "".join(text.split())


def test_chinese_words_that_were_split_by_hand_stay_as_they_are():
    pytest.importorskip("rjieba", reason="the extra 'zh' is not installed")
    chinese = get_tokenizer("chinese")
    assert chinese.sentences("清华 大学 在 北 京 。 再 见 了") == [
        ["清华", "大学", "在", "北", "京", "。"],
        ["再", "见", "了"],
    ]
    # Spaces between verses, or around a foreign word, are no word boundaries of this kind.
    assert "床前明月光" not in chinese.sentences("床前明月光 疑是地上霜 举头望明月")[0]
    assert chinese.sentences("我来到 Python 北京清华大学") == [
        ["我", "来到", "Python", "北京", "清华大学"]
    ]


@pytest.mark.parametrize("name", ["whitespace", "english", "spacy", "chinese"])
@pytest.mark.parametrize("blank", ["", "  ", "\n\t\n"])
def test_a_blank_text_is_one_empty_sentence(name, blank):
    pytest.importorskip("spacy", reason="the extra 'text' is not installed")
    pytest.importorskip("rjieba", reason="the extra 'zh' is not installed")
    assert get_tokenizer(name).sentences(blank) == [[]]


def test_a_tokenizer_of_ones_own_is_handed_through():
    class Letters:
        name = "letters"

        def sentences(self, text):
            return [list(text)]

    letters = Letters()
    assert get_tokenizer(letters) is letters


def test_an_unknown_tokenizer_is_named_together_with_the_known_ones():
    with pytest.raises(InputError, match=r"'german'.*whitespace, english, spacy, chinese"):
        get_tokenizer("german")


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("spacy", "spacy", "text"), ("chinese", "rjieba", "zh")]
)
def test_a_missing_extra_is_named(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)  # importing it now fails
    with pytest.raises(MissingExtraError, match=rf"'{extra}' extra: pip install ") as caught:
        get_tokenizer(name)
    assert isinstance(caught.value, ImportError)
    assert name in str(caught.value)


def lines_of(path, **settings):
    with TextFile(path, **settings) as file:
        return list(file)


CONTENT = "one two\n\nÖl 河 🤗\n"
COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
if sys.version_info >= (3, 14):
    from compression import zstd
else:
    zstd = pytest.importorskip("backports.zstd", reason="the extra 'zst' is not installed")
COMPRESS[".zst"] = zstd.compress


def test_reading_zst_without_its_package_names_the_extra(tmp_path, monkeypatch):
    for name in ("backports.zstd", "compression.zstd", "backports", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "text.zst"
    path.write_bytes(COMPRESS[".zst"](b"a"))
    with pytest.raises(MissingExtraError, match=r"\.zst.*pip install backports\.zstd"):
        TextFile(path)
    (tmp_path / "text.gz").write_bytes(b"not packed")  # other damage is still told as such
    with pytest.raises(InputError, match="is damaged"):
        lines_of(tmp_path / "text.gz")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_are_read_whatever_the_compression(tmp_path, suffix):
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](CONTENT.encode()))
    assert lines_of(path) == ["one two", "", "Öl 河 🤗"]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_compressed_file_that_is_cut_short_is_named(tmp_path, suffix):
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](CONTENT.encode() * 100)[:-10])
    with pytest.raises(InputError, match=rf"text.txt\{suffix} is damaged or cut short"):
        lines_of(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_file_that_is_not_compressed_after_all_is_named(tmp_path, suffix):
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(CONTENT.encode())
    with pytest.raises(InputError, match=rf"text.txt\{suffix} is damaged"):
        lines_of(path)


def test_invalid_utf8_is_reported_with_file_line_and_place(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\nalso fine\ncaf\xe9 au lait\n")
    with pytest.raises(InputError, match=r"latin.txt, line 3: byte 0xe9 at place 4 is not valid"):
        lines_of(path)
    assert lines_of(path, encoding="latin-1")[2] == "café au lait"


def test_lines_before_an_invalid_one_are_still_given(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\n\xff\n")
    with TextFile(path) as file:
        lines = iter(file)
        assert next(lines) == "fine"
        with pytest.raises(InputError, match="line 2"):
            next(lines)


def test_a_byte_order_mark_belongs_to_no_word(tmp_path):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\xef\xbb\xbfthree")
    # Only at the very beginning is it a mark; later on it is a character.
    assert lines_of(path) == ["one", "two", "\ufeffthree"]


def test_only_a_line_feed_ends_a_line(tmp_path):
    path = tmp_path / "separators.txt"
    path.write_text("a\u2028b\u0085c\x0bd\x0ce\rf\ng", encoding="utf-8", newline="")
    assert lines_of(path) == ["a\u2028b\u0085c\x0bd\x0ce\rf", "g"]


@given(
    lines=st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n")))
)
def test_lines_come_back_as_they_were_written(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "law.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    expected = [line.removeprefix("\ufeff") if n == 0 else line for n, line in enumerate(lines)]
    assert lines_of(path) == expected


def test_an_empty_file_has_no_lines(tmp_path):
    path = tmp_path / "empty.txt"
    path.touch()
    assert lines_of(path) == []


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, message in ((tmp_path / "gone.txt", "no such text file"), (tmp_path, "is a folder")):
        with pytest.raises((MissingFileError, InputError), match=message):
            TextFile(path)


def test_an_encoding_whose_lines_do_not_end_in_one_byte_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("one\ntwo\n", encoding="utf-16")
    for encoding in ("utf-16", "utf-16-le", "utf-32", "cp037"):
        with pytest.raises(InputError, match=f"iconv -f {encoding} -t utf-8"):
            TextFile(path, encoding)
    path.write_text("eins\nzwei\n")
    for encoding in ("utf-8-sig", "latin-1", "gb18030", "shift_jis", "utf-7"):
        assert lines_of(path, encoding=encoding)[1] == "zwei"
    with pytest.raises(InputError, match="no encoding 'hex'"):
        TextFile(path, "hex")


def test_packed_bytes_under_another_name_are_said_to_be_packed(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(gzip.compress(CONTENT.encode()))
    with pytest.raises(InputError, match=r"looks like gzip.*gunzip -c"):
        lines_of(path)


def test_what_may_not_be_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.touch()
    monkeypatch.setattr("elmo.text.files.os.access", lambda *_: False)  # root may read everything
    with pytest.raises(InputError, match=r"text.txt cannot be read: check its permissions"):
        TextFile(path)


def test_a_text_that_is_not_read_to_its_end_is_closed_without_an_import(tmp_path, monkeypatch):
    """When Python ends, it closes what was left open, and can import nothing any more."""
    (tmp_path / "text.txt").write_text(CONTENT)
    lines = iter(TextFile(tmp_path / "text.txt"))
    next(lines)
    monkeypatch.setattr("elmo.text.files.damage", None)
    lines.close()


def test_progress_is_told_in_bytes_of_the_file_as_stored(tmp_path):
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(CONTENT.encode()))
    with TextFile(path) as file:
        assert file.total_bytes == path.stat().st_size
        assert file.bytes_read == 0
        list(file)
        assert file.bytes_read == file.total_bytes


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\nc\n")))
    with TextFile("-") as file:
        assert file.total_bytes is None
        assert file.bytes_read == 0
        assert list(file) == ["a b", "c"]
        assert file.name == "standard input"


def test_a_blank_line_is_an_empty_sentence(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b\n\n c\n")
    with TextFile(path) as file:
        assert list(read_sentences(file, WhitespaceTokenizer())) == [["a", "b"], [], ["c"]]


def test_damage_inside_a_compressed_file_is_told(tmp_path):
    data = bytearray(gzip.compress(b"hello world\n" * 200))
    data[10] ^= 0xFF
    (tmp_path / "text.gz").write_bytes(data)
    (tmp_path / "text.bz2").write_text("not compressed\n")
    for name in ("text.gz", "text.bz2"):
        with pytest.raises(InputError, match=f"{name} is damaged"):
            list(TextFile(tmp_path / name))

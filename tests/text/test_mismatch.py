"""Text that does not look like what a model expects."""
# ruff: noqa: RUF001 - Chinese punctuation and Cyrillic letters are meant

import json
import lzma
from itertools import islice
from pathlib import Path

import pytest

from elmo.text.files import get_tokenizer
from elmo.text.mismatch import Expected, describe_mismatch
from elmo.text.sentences import LINES_LOOKED_AT

ENGLISH = Expected(language="en", tokenizer="english", unknown_rate=0.03)
CHINESE = Expected(language="zh", tokenizer="chinese", unknown_rate=0.1)
DATA = Path(__file__).parents[3] / "shared" / "data"
"""Real text, where it lies beside the repository."""

RAW_ENGLISH = (
    'She washed her hair. It isn\'t dry yet, but "soon" it will be!',
    "The U.S. Senate (and Mr. Fox) met on Monday; nobody came.",
    "Where did you go? I'd have come, too.",
)
SPLIT_ENGLISH = (
    "She washed her hair . It is n't dry yet , but `` soon '' it will be !",
    "The U.S. Senate -LRB- and Mr. Fox -RRB- met on Monday ; nobody came .",
    "Where did you go ? I 'd have come , too .",
)
RAW_CHINESE = (
    "她昨天去了北京清华大学。",
    "今天天气很好，我们一起去公园吧！",
    "你什么时候回来？我等你吃饭。",
)
SPLIT_CHINESE = (
    "她 昨天 去 了 北京 清华大学 。",
    "今天 天气 很 好 ， 我们 一起 去 公园 吧 ！",
    "你 什么 时候 回来 ？ 我 等 你 吃饭 。",
)
GERMAN = (
    "Der Hund lief über die Straße und sah den Mann mit dem Hut nicht .",
    "Das ist ein gutes Buch , und es ist auch für Kinder von der Schule .",
)
RUSSIAN = ("Мама мыла раму , а папа читал газету .", "Сегодня хорошая погода .")


@pytest.mark.parametrize("line", RAW_ENGLISH)
@pytest.mark.parametrize("expected", [ENGLISH, Expected()], ids=["card", "no card"])
def test_a_single_line_of_raw_english_is_noted_where_it_is_taken_for_split(line, expected):
    note = describe_mismatch([line], "whitespace", expected)
    assert note is not None
    assert "looks raw" in note


@pytest.mark.parametrize("line", RAW_CHINESE)
def test_a_single_line_of_raw_chinese_is_noted_where_it_is_taken_for_split(line):
    note = describe_mismatch([line], "whitespace", CHINESE)
    assert note is not None
    assert "without spaces" in note


def test_the_model_s_own_tokenizer_is_advised_if_it_is_known():
    def advice(text, expected, **choices):
        return describe_mismatch(text, "whitespace", expected, **choices)

    assert advice(RAW_ENGLISH, ENGLISH).endswith("use --tokenizer model for raw text")
    assert advice(RAW_ENGLISH, Expected()).endswith("use --tokenizer english for raw text")
    assert advice(RAW_CHINESE, Expected()).endswith("use --tokenizer chinese for raw text")
    python = advice(RAW_ENGLISH, ENGLISH, option="tokenizer={!r}", raw="english")
    assert python.endswith("use tokenizer='english' for raw text")


@pytest.mark.parametrize(
    ("text", "tokenizer", "expected"),
    [
        (SPLIT_ENGLISH, "english", ENGLISH),
        (SPLIT_ENGLISH, "spacy", Expected()),
        (SPLIT_CHINESE, "chinese", CHINESE),
        (SPLIT_CHINESE, "chinese", Expected()),
    ],
)
def test_split_text_is_noted_where_it_is_split_again(text, tokenizer, expected):
    note = describe_mismatch(text, tokenizer, expected)
    assert "looks split into words already" in note
    assert note.endswith("use --tokenizer whitespace")


@pytest.mark.parametrize(
    ("text", "tokenizer", "expected"),
    [
        (RAW_ENGLISH, "english", ENGLISH),
        (SPLIT_ENGLISH, "whitespace", ENGLISH),
        ([line.split() for line in SPLIT_ENGLISH], "whitespace", ENGLISH),
        (RAW_CHINESE, "chinese", CHINESE),
        (SPLIT_CHINESE, "whitespace", CHINESE),
        (RAW_ENGLISH, "whitespace", Expected(language="en", tokenizer="whitespace")),
        (["no punctuation at all", "just words in a row"] * 20, "whitespace", ENGLISH),
        (["Mr. Fox of Acme Inc.", "He left the U.S.", "They sell oil etc."], "whitespace", ENGLISH),
        (["hello"] * 3, "whitespace", ENGLISH),
        (["[ 1 ] See the list .", "[ 2 ] See it again ."], "whitespace", ENGLISH),
        (["[1]", "A note , as it stands in a text ."], "whitespace", ENGLISH),
        (["a , b , c", "d , e , f", "g , h , i"], "whitespace", ENGLISH),
        (["Well, yes, I do.", "No, not, it is.", "Oh, oh, oh my."], "english", ENGLISH),
        (["单行本由North Star Pictures发行，已发行20册。"], "chinese", CHINESE),
        (["", "  ", "\n"], "whitespace", ENGLISH),
        ([], "whitespace", ENGLISH),
        ([[], []], "whitespace", ENGLISH),
    ],
)
def test_nothing_is_said_of_text_as_it_should_be(text, tokenizer, expected):
    assert describe_mismatch(text, tokenizer, expected) is None


@pytest.mark.parametrize(
    ("text", "expected", "what"),
    [
        (RUSSIAN, ENGLISH, "Cyrillic script"),
        (SPLIT_CHINESE, ENGLISH, "Chinese script"),
        (SPLIT_ENGLISH, CHINESE, "Latin script"),
        (GERMAN, ENGLISH, "looks like German"),
        (SPLIT_ENGLISH, Expected(language="de"), "looks like English"),
        (SPLIT_ENGLISH, Expected(language="German"), "looks like English"),
    ],
)
def test_another_language_is_noted(text, expected, what):
    assert what in describe_mismatch(text, "whitespace", expected)


def test_nothing_is_said_of_a_language_that_is_not_known():
    assert describe_mismatch(RUSSIAN, "whitespace", Expected(language="?")) is None
    assert describe_mismatch(GERMAN, "whitespace", Expected()) is None


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([json.dumps({"text": "A cat .", "label": 1})] * 5, "JSON"),
        (json.dumps([{"text": "A cat .", "label": 1}] * 5, indent=2).split("\n"), "JSON"),
        ([json.dumps([{"text": "A cat ."}] * 5)], "JSON"),
        ([json.dumps(["A", "cat", "."])] * 3, "JSON"),
        (["id\ttext", "1\tA cat sat .", "2\tA dog , too ."], "TSV"),
        (["id,text", '1,"A cat, sat."', "2,A dog."], "CSV"),
        (["id;text", "1;A cat, sat.", "2;A dog."], "CSV"),
        (["EU NNP B-NP B-ORG", "rejects VBZ B-VP O", "German JJ B-NP B-MISC"], "CoNLL"),
        (["river", "bank", "green", "was"] * 5, "one word a line"),
    ],
)
def test_what_is_no_text_is_noted(lines, what):
    assert what in describe_mismatch(lines, "whitespace", ENGLISH)


def test_a_share_of_unknown_words_far_above_the_card_s_is_noted():
    known = Expected(language="en", unknown_rate=0.03, vocabulary={"the", "cat", "sat", "on"})
    assert describe_mismatch(["the cat sat on the cat"] * 50, "whitespace", known) is None
    note = describe_mismatch(["the cat vidis la katon"] * 50, "whitespace", known)
    assert note.startswith("60% of the words are unknown to the model, of its own text 3.0%")


def test_unknown_words_of_raw_text_are_counted_after_it_is_split():
    known = Expected(unknown_rate=0.03, vocabulary={"it", "is", "n't", "so", "."})
    split = get_tokenizer("english").sentences
    assert describe_mismatch(["it isn't so."] * 50, "english", known, split=split) is None
    assert "unknown" in describe_mismatch(["ĝi ne tiel."] * 80, "english", known, split=split)


def test_no_more_lines_are_taken_than_are_looked_at():
    lines = iter(["A cat sat ."] * (LINES_LOOKED_AT + 5))
    assert describe_mismatch(lines, "whitespace", ENGLISH) is None
    assert len(list(lines)) == 5


def real(name):
    """Return the beginning of a file of real text."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{name} is not beside the repository (../shared/data)")
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, LINES_LOOKED_AT)]


def column(lines, number):
    """Return the sentences of a file with one word a line."""
    sentences = "\n".join(lines).split("\n\n")
    rows = ([line.split("\t") for line in s.split("\n") if line[:1] != "#"] for s in sentences)
    return [" ".join(row[number] for row in words if len(row) > number) for words in rows]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lm/en-wiki-1.txt.xz", ENGLISH),
        ("lm/en-books.txt.xz", ENGLISH),
        ("zh/zh-wiki.txt.xz", CHINESE),
        ("zh/zh-classics.txt.xz", CHINESE),
    ],
)
def test_real_raw_text_is_right_with_the_model_s_tokenizer_alone(name, expected):
    lines = real(name)
    assert describe_mismatch(lines, expected.tokenizer, expected) is None
    assert "looks raw" in describe_mismatch(lines, "whitespace", expected)


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("lm/wikitext2-valid.txt", None, ENGLISH),
        ("tasks/pos_ewt/en_ewt-ud-dev.conllu.xz", 1, ENGLISH),
        ("tasks/btc/a.conll.xz", 0, ENGLISH),
        ("tasks/pos_zh_gsd/zh-ud-dev.conllu.xz", 1, CHINESE),
    ],
)
def test_real_split_text_is_right_at_white_space_alone(name, number, expected):
    lines = real(name) if number is None else column(real(name), number)
    assert describe_mismatch(lines, "whitespace", expected) is None
    assert "split into words" in describe_mismatch(lines, expected.tokenizer, expected)

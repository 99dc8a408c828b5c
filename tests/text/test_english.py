"""The rule tokenizer for English: its behavior is what the English model was trained with."""
# ruff: noqa: RUF001 - typographic quotation marks are meant

import doctest
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elmo.text.english
from elmo.text.english import EnglishTokenizer

ENGLISH = EnglishTokenizer()


def split(text):
    """Sentences as strings, words between spaces."""
    return [" ".join(words) for words in ENGLISH.sentences(text)]


def test_the_example_of_the_docstring_is_true():
    results = doctest.testmod(elmo.text.english)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("don't can't won't Didn’t", "do n't ca n't wo n't Did n’t"),
        ("it's I'm we'll they'd've O'Brien's", "it 's I 'm we 'll they 'd 've O'Brien 's"),
        ("the dogs' bones", "the dogs ' bones"),
        ("cannot gonna 'tis '90s 'em", "can not gon na 't is '90s 'em"),
        ("rock'n'roll o'clock", "rock'n'roll o'clock"),
        ("1,000.5 10:30 3/4 -5 .5 5th 1990s", "1,000.5 10:30 3/4 -5 .5 5th 1990s"),
        ("$5 US$1,000 £60m 50% #1", "$ 5 US$ 1,000 £ 60m 50 % # 1"),
        ("1914–1918, 20°C", "1914 – 1918 , 20°C"),
        ("well-known -ism anti- state-of-the-art", "well-known -ism anti- state-of-the-art"),
        ("no—yes no--yes wait... what…", "no — yes no -- yes wait ... what …"),
        ('"quoted" “curly” ‘single’ (word)', '" quoted " “ curly ” ‘ single ’ ( word )'),
        ("word(s) and/or [1]", "word ( s ) and / or [ 1 ]"),
        ("AT&T R&B C++ C# @user #tag", "AT&T R&B C++ C# @user #tag"),
        ("see http://example.com/a_(b)?x=1, ok", "see http://example.com/a_(b)?x=1 , ok"),
        ("(www.example.org).", "( www.example.org ) ."),
        ("mail joe.b@example.co.uk; amazon.com", "mail joe.b@example.co.uk ; amazon.com"),
        ("What?! No!!! :-) <br>", "What ?! No !!! :-) <br>"),
        ("U.S.-led U.S.'s e.g. p.m. Ph.D.", "U.S.-led U.S. 's e.g. p.m. Ph.D."),
        ("_emphasis_ *bold*", "_ emphasis _ * bold *"),
        ("naïve Ελλάδα हिन्दी 日本語", "naïve Ελλάδα हिन्दी 日本語"),
    ],
)
def test_words_are_split_as_in_the_treebank(text, words):
    assert " ".join(word for words in ENGLISH.sentences(text) for word in words) == words


@pytest.mark.parametrize(
    "text",
    [
        "Mr. and Mrs. Fox met Dr. No on St. John 's street .",
        "J. R. R. Tolkien and John F. Kennedy wrote .",
        "The U.S. President came at 5 p.m. on Jan. 5 , 1990 .",
        "See No. 5 , pp. 3-4 , vol. II and fig. 7 .",
        "Roe v. Wade , e.g. The Case , vs. The State .",
        "He met Smith et al. in Acme Inc. headquarters .",
        '" Why ? " she asked .',
        "Apples , pears , etc. are fruit .",
        "1 . First of all",
    ],
)
def test_abbreviations_initials_and_small_letters_end_no_sentence(text):
    # Already split, so that what is compared is the sentence alone.
    raw = text.replace(" ,", ",").replace(" .", ".").replace(" 's", "'s").replace(" ?", "?")
    assert split(raw.replace('" W', '"W').replace('? "', '?"')) == [text]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "He left. She stayed! Why? It rained.",
            ["He left .", "She stayed !", "Why ?", "It rained ."],
        ),
        ("He moved to the U.S. The end.", ["He moved to the U.S.", "The end ."]),
        ("It works for Acme Inc. It pays.", ["It works for Acme Inc .", "It pays ."]),
        ("Apples, etc. Pears too.", ["Apples , etc .", "Pears too ."]),
        ("(He left.) She stayed.", ["( He left . )", "She stayed ."]),
        ('He said "go." She went.', ['He said " go . "', "She went ."]),
        ("He left. “Good,” she said.", ["He left .", "“ Good , ” she said ."]),
        ("Is it? No. I think not.", ["Is it ?", "No .", "I think not ."]),
        ("In 1990. In 1991.", ["In 1990 .", "In 1991 ."]),
        ("Wait... Then go.", ["Wait ...", "Then go ."]),
        ("They sing. John came in. Mary left.", ["They sing .", "John came in .", "Mary left ."]),
        ("a line\nis a paragraph", ["a line", "is a paragraph"]),
        ("World War I. The end.", ["World War I.", "The end ."]),
    ],
)
def test_sentences_end_where_they_should(text, sentences):
    assert split(text) == sentences


TRICKY = st.text(alphabet="ab. '’\"n't-s()U.S,$1/:@wW_&#+!?<>…\n")


@settings(max_examples=300)
@given(text=st.one_of(st.text(), TRICKY))
def test_no_character_is_changed_lost_or_added(text):
    sentences = ENGLISH.sentences(text)
    assert "".join(word for words in sentences for word in words) == "".join(text.split())
    assert all(sentences) or sentences == [[]]


@settings(max_examples=500)
@given(
    text=st.from_regex(
        r"""[\["(“]?(?:[a-zA-Z]{1,4}|cannot|Mr|etc|no|X)(-[a-z]+)?["”)\],;:.]{0,4}""",
        fullmatch=True,
    )
)
def test_the_short_way_for_plain_words_changes_nothing(text):
    short = elmo.text.english._split_plain(text)
    if short is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(elmo.text.english, "_split_plain", lambda text: None)
            assert elmo.text.english._split_words(text) == short


@given(text=TRICKY)
def test_what_was_split_before_does_not_change_what_comes_after(text):
    assert EnglishTokenizer().sentences(text) == ENGLISH.sentences(text)


@pytest.mark.parametrize(
    "unit", ["a", "a.A", "n't", "-a", "1.", "http://", "@a", "a'", "a-", "..-", "a.b.", "x@", "<a"]
)
def test_time_grows_with_the_length_of_a_word_and_not_with_its_square(unit):
    # Not a measurement: squares would take hours here, and the limit is generous.
    start = time.process_time()
    ENGLISH.sentences(unit * 100_000)
    assert time.process_time() - start < 30


def test_what_is_remembered_stays_bounded(monkeypatch):
    monkeypatch.setattr(elmo.text.english, "_CACHE_LIMIT", 10)
    tokenizer = EnglishTokenizer()
    for number in range(100):
        assert tokenizer.sentences(f"word{number} x.") == [[f"word{number}", "x", "."]]
        assert len(tokenizer._words) <= 12

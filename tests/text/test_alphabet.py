"""Alphabets: their files, their ids, and words that are spelled with them."""

import copy
import pickle
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo import Alphabet, CharacterMapper, ElmoConfig, batch_to_ids
from elmo.errors import ConfigError, InputError, MissingFileError
from elmo.text.alphabet import FIRST_CHARACTER, SPECIAL_CHARACTERS, UNKNOWN_CHARACTER
from elmo.text.characters import require_alphabet
from oracle import alphabet_spelling
from strategies import ALPHABET, word_config, words

# Every way in which a line could be mistaken: its end, nothing, an escape, a mark, half a pair.
ODD = (
    "\0\t\n\v\f\r\x1c\x1d\x1e\x1f \x7f\x85\xa0\xad\u0300\u061c\u200b\u200e\u2028\u2029\u3000\ufeff"
    "\ufffe\uffff\ue000\\<>#\"'uU0河🤗\U000e0001\U0010ffff"
)


def alphabets():
    """Draw an alphabet; odd characters come often."""
    character = st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=("Cs",)))
    return st.lists(character, min_size=1, max_size=30, unique=True).map(Alphabet)


def written(folder, *lines, specials=SPECIAL_CHARACTERS):
    path = folder / "characters.txt"
    path.write_bytes("".join(f"{line}\n" for line in (*specials, *lines)).encode())
    return path


# --- ids ------------------------------------------------------------------------------------------


@given(alphabet=alphabets())
def test_characters_have_consecutive_ids_after_the_special_ones(alphabet):
    ids = [alphabet.id(character) for character in alphabet.characters]
    assert ids == list(range(FIRST_CHARACTER, FIRST_CHARACTER + len(alphabet)))
    assert alphabet.ids(alphabet.characters).tolist() == ids
    assert alphabet.text(ids) == alphabet.characters
    assert max(ids) < alphabet.n_characters
    assert all(character in alphabet for character in alphabet.characters)


@given(alphabet=alphabets(), text=st.text())
def test_what_is_not_in_the_alphabet_is_unknown(alphabet, text):
    ids = alphabet.ids(text).tolist()
    for character, number in zip(text, ids, strict=True):
        assert (number == UNKNOWN_CHARACTER) == (character not in alphabet.characters)
        assert (character in alphabet) == (character in alphabet.characters)
    readable = "".join(c if c in alphabet.characters else "\ufffd" for c in text)
    assert alphabet.text(ids) == readable


def test_lone_surrogates_are_unknown_characters():
    assert Alphabet("ab").ids("a\ud800b").tolist() == [7, UNKNOWN_CHARACTER, 8]


@pytest.mark.parametrize(("size", "rows"), [(1, 8), (253, 260), (254, 263), (255, 263), (256, 263)])
def test_no_alphabet_has_as_many_rows_as_the_bytes(size, rows):
    alphabet = Alphabet(map(chr, range(0x4E00, 0x4E00 + size)))
    assert alphabet.n_characters == rows
    assert ElmoConfig(n_characters=alphabet.n_characters).has_alphabet
    require_alphabet(ElmoConfig(n_characters=rows), alphabet)


@pytest.mark.parametrize(
    ("characters", "message"),
    [
        ("", "at least one character"),
        ("aba", "characters 7 and 9 are both 'a'"),
        (["a", "bc"], "character 8 is 'bc', expected one code point"),
        (["a", ""], "character 8 is ''"),
        (["a", 5], "character 8 is 5"),
        ("a\udfff", "half of a surrogate pair"),
    ],
)
def test_what_is_no_alphabet_is_told(characters, message):
    with pytest.raises(InputError, match=message):
        Alphabet(characters)


# --- an object that cannot change -----------------------------------------------------------------


@given(alphabet=alphabets(), other=alphabets())
def test_alphabets_of_the_same_characters_are_equal(alphabet, other):
    assert alphabet == Alphabet(alphabet.characters)
    assert hash(alphabet) == hash(Alphabet(list(alphabet.characters)))
    assert (alphabet == other) == (alphabet.characters == other.characters)
    assert alphabet != alphabet.characters


def test_an_alphabet_cannot_be_changed():
    alphabet = Alphabet("ab")
    for name in ("characters", "_characters", "_ids", "new"):
        with pytest.raises(AttributeError):
            setattr(alphabet, name, "c")
    with pytest.raises(ValueError, match="read-only"):
        alphabet._ids[ord("a")] = 3


def test_an_alphabet_can_be_copied_and_pickled():
    for twin in (copy.deepcopy(ALPHABET), pickle.loads(pickle.dumps(ALPHABET))):
        assert twin == ALPHABET
        assert twin.ids("thé?").tolist() == ALPHABET.ids("thé?").tolist()
    assert "18 characters" in repr(ALPHABET)


# --- building -------------------------------------------------------------------------------------


@given(drawn=st.lists(words()), min_count=st.integers(1, 3), max_size=st.integers(1, 5))
def test_an_alphabet_is_built_by_frequency(drawn, min_count, max_size):
    counts = Counter("".join(drawn))
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    expected = [character for character in ranked if counts[character] >= min_count][:max_size]
    if not expected:
        with pytest.raises(InputError, match=f"no character occurs {min_count} times or more"):
            Alphabet.build(drawn, min_count, max_size)
        return
    built = Alphabet.build(iter(drawn), min_count, max_size)
    assert built.characters == "".join(expected)
    assert built == Alphabet.from_counts(counts, min_count, max_size)


def test_surrogates_are_left_out_of_what_is_built():
    assert Alphabet.build(["a\ud800", "\ud800"]).characters == "a"


@pytest.mark.parametrize("limits", [{"min_count": 0}, {"max_size": 0}, {"max_size": -1}])
def test_impossible_limits_are_named(limits):
    with pytest.raises(InputError, match=r"(min_count|max_size) is .*at least 1"):
        Alphabet.build(["a"], **limits)


# --- characters.txt -------------------------------------------------------------------------------


@given(alphabet=alphabets())
def test_a_file_gives_the_same_alphabet_back(tmp_path_factory, alphabet):
    path = tmp_path_factory.getbasetemp() / "characters.txt"
    alphabet.write(path)
    assert Alphabet.read(path) == alphabet
    content = path.read_bytes()
    # A line a character, whatever it is: only then is the number of a line the id.
    assert content.count(b"\n") == len(SPECIAL_CHARACTERS) + len(alphabet)
    assert len(content.decode().splitlines()) == len(SPECIAL_CHARACTERS) + len(alphabet)
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert Alphabet.read(path) == alphabet
    path.write_bytes(b"\xef\xbb\xbf" + content.removesuffix(b"\n"))
    assert Alphabet.read(path) == alphabet


def test_every_code_point_survives_the_file(tmp_path):
    everything = [chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000]
    alphabet = Alphabet(everything)
    alphabet.write(tmp_path / "characters.txt")
    assert Alphabet.read(tmp_path / "characters.txt") == alphabet


def test_the_file_is_readable(tmp_path):
    Alphabet("河 \t\n\0\\🤗").write(tmp_path / "characters.txt")
    assert (tmp_path / "characters.txt").read_text().splitlines() == [
        *("<S>", "</S>", "<W>", "</W>", "<PAD>", "<UNK>"),
        *("河", r"\u0020", r"\u0009", r"\u000a", r"\u0000", r"\\", "🤗"),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a", "bc"], r"line 8: 'bc' is no single character"),
        (["a", "", "b"], r"line 8: '' is no single character"),
        (["\\"], r"line 7: '\\\\' is no single character"),
        ([r"\u12"], r"line 7: .* is no single character"),
        ([r"\U00110000"], r"line 7: .*beyond the last code point"),
        ([r"\ud800"], r"half of a surrogate pair"),
        (["a", "b", r"\u0061"], r"characters 7 and 9 are both 'a'"),
        ([], "at least one character"),
    ],
)
def test_a_damaged_file_is_told_line_by_line(tmp_path, lines, message):
    with pytest.raises(InputError, match=message) as told:
        Alphabet.read(written(tmp_path, *lines))
    assert "characters.txt" in str(told.value)


@pytest.mark.parametrize("specials", [(), SPECIAL_CHARACTERS[1:], ("<UNK>", "<PAD>")])
def test_a_file_without_its_special_characters_is_told(tmp_path, specials):
    path = written(tmp_path, *"abcdefg", specials=specials)
    with pytest.raises(InputError, match=r"begins with the lines .*; expected <S>, </S>, <W>"):
        Alphabet.read(path)


def test_a_missing_or_binary_file_is_told(tmp_path):
    with pytest.raises(MissingFileError, match=r"no such file of characters: .*gone"):
        Alphabet.read(tmp_path / "gone")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not valid UTF-8"):
        Alphabet.read(tmp_path / "binary")


# --- spelling -------------------------------------------------------------------------------------


@given(
    drawn=st.lists(st.one_of(words(), st.text(st.sampled_from(ALPHABET.characters)))),
    max_characters=st.sampled_from([3, 4, 7, 50]),
)
def test_words_are_spelled_by_their_code_points(drawn, max_characters):
    mapper = CharacterMapper(max_characters, alphabet=ALPHABET)
    rows = mapper.rows(drawn)
    assert rows.shape == (len(drawn), max_characters)
    assert rows.dtype == torch.int64
    expected = [alphabet_spelling(word, max_characters, ALPHABET.characters) for word in drawn]
    assert rows.tolist() == [[1 + number for number in row] for row in expected]
    for word, row in zip(drawn, rows.tolist(), strict=True):
        if word in ("<S>", "</S>"):
            assert not mapper.are_cut([word]).any()
            continue
        # What is read back is the word, cut after a whole character, unknown ones marked.
        kept = word[: max_characters - 2]
        assert ALPHABET.text(row) == "".join(c if c in ALPHABET else "\ufffd" for c in kept)
        assert mapper.are_cut([word])[0] == (kept != word)


def test_the_marks_have_the_ids_of_their_lines():
    mapper = CharacterMapper(5, alphabet=Alphabet("石头"))
    assert mapper.rows(["<S>", "</S>", "头?", ""]).tolist() == [
        [3, 1, 4, 5, 5],
        [3, 2, 4, 5, 5],
        [3, 8, 6, 4, 5],
        [3, 4, 5, 5, 5],
    ]


def test_a_batch_is_spelled_with_the_alphabet():
    ids = batch_to_ids([["石头", "记"], ["头"]], 6, Alphabet("石头记"))
    assert ids.tolist() == [
        [[3, 7, 8, 4, 5, 5], [3, 9, 4, 5, 5, 5]],
        [[3, 8, 4, 5, 5, 5], [0] * 6],
    ]


def test_added_tokens_may_use_any_id_of_the_alphabet():
    mapper = CharacterMapper(5, {"[MASK]": 8}, Alphabet("石头记"))
    assert mapper.rows(["[MASK]"]).tolist() == [[3, 9, 4, 5, 5]]
    with pytest.raises(InputError, match=r"id 9 of 'new' is outside 0\.\.8"):
        CharacterMapper(5, {"new": 9}, Alphabet("石头记"))


# --- alphabets and configurations -----------------------------------------------------------------


def test_a_model_without_its_alphabet_is_told():
    with pytest.raises(ConfigError, match=r"n_characters is 26: .* so it needs its alphabet"):
        require_alphabet(ElmoConfig(n_characters=26), None)


def test_an_alphabet_of_another_size_is_told():
    with pytest.raises(ConfigError, match=r"n_characters is 262, but .* 18 .* needs 25; give"):
        require_alphabet(ElmoConfig(), ALPHABET)


def test_a_model_that_reads_words_takes_no_alphabet():
    with pytest.raises(ConfigError, match="reads whole words"):
        require_alphabet(word_config(), ALPHABET)

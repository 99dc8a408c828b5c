"""Words as character ids, as every published model spells them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo import CharacterMapper, batch_to_ids
from elmo.errors import InputError
from elmo.text.characters import ragged_positions
from oracle import spelling
from strategies import batches, words


@given(drawn=st.lists(words(), max_size=6), max_characters=st.sampled_from([3, 4, 7, 50]))
def test_rows_are_the_published_spelling_shifted_by_one(drawn, max_characters):
    rows = CharacterMapper(max_characters).rows(drawn)
    assert rows.shape == (len(drawn), max_characters)
    assert rows.dtype == torch.int64
    assert rows.tolist() == [[1 + n for n in spelling(word, max_characters)] for word in drawn]


def test_the_example_of_the_published_code():
    # `character_ids_to_embed` of AllenNLP's test: "one" and "two" with 50 places.
    rows = batch_to_ids([["one"]])[0, 0].tolist()
    assert rows == [259, 112, 111, 102, 260] + [261] * 45


def test_boundaries_are_spelled_by_their_own_characters():
    rows = CharacterMapper(5).rows(["<S>", "</S>", "<s>"]).tolist()
    assert rows[0] == [259, 257, 260, 261, 261]
    assert rows[1] == [259, 258, 260, 261, 261]
    # Another spelling is a word like any other.
    assert rows[2] == [259, ord("<") + 1, ord("s") + 1, ord(">") + 1, 260]


def test_a_word_is_cut_inside_a_code_point_as_published():
    row = CharacterMapper(5).rows(["aé河"])[0].tolist()
    assert row == [259, ord("a") + 1, 0xC3 + 1, 0xA9 + 1, 260]
    assert CharacterMapper(4).rows(["aé"])[0].tolist() == [259, ord("a") + 1, 0xC3 + 1, 260]


def test_lone_surrogates_are_dropped():
    mapper = CharacterMapper()
    assert torch.equal(mapper.rows(["a\ud800b"]), mapper.rows(["ab"]))
    long = "\ud800" * 60 + "é" * 60  # what is dropped takes no room
    found = mapper.rows(["x", long, "\udc00", "河"])
    assert torch.equal(found, mapper.rows(["x", "é" * 60, "", "河"]))


def test_the_empty_word_is_its_two_marks():
    assert CharacterMapper(4).rows([""])[0].tolist() == [259, 260, 261, 261]


def test_no_words_give_no_rows():
    assert CharacterMapper(7).rows([]).shape == (0, 7)


@given(word=words(), max_characters=st.sampled_from([3, 7, 50]))
def test_a_word_is_cut_if_and_only_if_its_bytes_do_not_fit(word, max_characters):
    mapper = CharacterMapper(max_characters)
    special = word in ("<S>", "</S>")
    fits = special or len(word.encode()) <= max_characters - 2
    assert mapper.are_cut([word])[0] == (not fits)
    assert mapper.capacity == max_characters - 2


def test_a_boundary_is_never_cut():
    assert not CharacterMapper(3).are_cut(["</S>"]).any()


@given(batch=batches())
def test_a_batch_is_padded_with_zeros_on_the_right(batch):
    mapper = CharacterMapper(9)
    ids = mapper.batch(batch)
    assert ids.shape == (len(batch), max(map(len, batch), default=0), 9)
    for row, sentence in zip(ids, batch, strict=True):
        assert torch.equal(row[: len(sentence)], mapper.rows(sentence))
        assert not row[len(sentence) :].any()
        assert (row[: len(sentence)] > 0).all()


@given(batch=batches())
def test_batch_to_ids_is_a_batch_of_the_standard_mapper(batch):
    assert torch.equal(batch_to_ids(batch), CharacterMapper(50).batch(batch))


def test_batch_to_ids_refuses_a_string_in_the_place_of_a_sentence():
    with pytest.raises(InputError, match="sentence 1 is 'The cat', expected a list of words"):
        batch_to_ids([["The"], "The cat"])


def test_batch_to_ids_refuses_what_is_no_word():
    with pytest.raises(InputError, match="sentence 1, word 0 is None of type NoneType"):
        batch_to_ids([["The"], [None]])
    with pytest.raises(InputError, match="sentence 0: received None of type NoneType"):
        batch_to_ids([None])


def test_added_tokens_are_spelled_by_one_character():
    mapper = CharacterMapper(5, tokens_to_add={"[MASK]": 1})
    assert mapper.rows(["[MASK]"])[0].tolist() == [259, 2, 260, 261, 261]
    assert not mapper.are_cut(["[MASK]"]).any()
    # Others of the same mapper are not touched.
    assert torch.equal(mapper.rows(["<S>", "x"]), CharacterMapper(5).rows(["<S>", "x"]))


@pytest.mark.parametrize("character", [-1, 261, 300])
def test_an_added_token_outside_the_table_is_refused(character):
    with pytest.raises(InputError, match=f"id {character} of 'new' is outside"):
        CharacterMapper(tokens_to_add={"new": character})


@given(lengths=st.lists(st.integers(0, 5), max_size=6))
def test_ragged_positions_walk_row_by_row(lengths):
    row, column = ragged_positions(np.array(lengths, dtype=np.int64))
    naive = [(r, c) for r, length in enumerate(lengths) for c in range(length)]
    assert list(zip(row.tolist(), column.tolist(), strict=True)) == naive


def test_a_row_has_room_for_its_marks():
    with pytest.raises(InputError, match="max_characters is 2"):
        CharacterMapper(2)

"""The encoders of words: the vectors of the plain ones, however words are grouped."""

import pytest
import torch

import elmo.backends.cpu.characters
from elmo import Alphabet, BiLM, CharacterMapper, ElmoConfig, batch_to_ids
from elmo.backends.cpu.compiler import kernel
from elmo.backends.cpu.model import CPUBackend
from elmo.backends.cpu.native import kernel_threads
from elmo.backends.cpu.products import onednn_works
from elmo.text.characters import word_ids
from strategies import rows_are_exact, seeded_bilm, word_config

needs_onednn = pytest.mark.skipif(
    not onednn_works(torch.float32), reason="this PyTorch has no oneDNN for this CPU"
)


@torch.no_grad()
def test_words_that_fill_their_row_see_only_whole_windows(tiny_config):
    plain = seeded_bilm(tiny_config.replace(max_characters=8))
    words = ["a" * n for n in range(9)]
    ids = word_ids(plain.config, None).rows(words)
    packed = CPUBackend(plain)
    expected = plain.encode_words(ids)
    torch.testing.assert_close(packed.encode_words(ids), expected, rtol=0, atol=1e-5)
    # Alone or together: lengths are grouped, and must not be told apart by it.
    for row in range(len(words)):
        alone = packed.encode_words(ids[row : row + 1])
        torch.testing.assert_close(alone, expected[row : row + 1], rtol=0, atol=1e-5)


@needs_onednn
@pytest.mark.parametrize("slice_bytes", [1, 3000])
@torch.no_grad()
def test_grouping_words_changes_no_bit(monkeypatch, tiny_config, slice_bytes):
    words = ["a" * n for n in range(12)] + ["the", "cat", "x" * 60]
    ids = word_ids(tiny_config, None).rows(words)
    plain = seeded_bilm(tiny_config)
    expected = CPUBackend(plain).encode_words(ids)
    monkeypatch.setattr(elmo.backends.cpu.characters, "_SLICE_BYTES", slice_bytes)
    assert torch.equal(CPUBackend(plain).encode_words(ids), expected)


def large_model():
    """An alphabet for whose windows a table of 7 x 6,007 x 512 floats would be too large."""
    alphabet = Alphabet(chr(0x4E00 + number) for number in range(6000))
    config = ElmoConfig.preset(
        "tiny",
        max_characters=10,
        n_characters=alphabet.n_characters,
        filters=((1, 64), (2, 64), (3, 128), (7, 256)),
    )
    return BiLM(config, alphabet=alphabet).eval()


@torch.no_grad()
def test_a_large_alphabet_needs_no_large_table():
    plain = large_model()
    packed = CPUBackend(plain)
    assert packed.words._table is None
    words = [chr(0x4E00 + n) + chr(0x4E00 + 7 * n % 6000) * (n % 12) for n in range(0, 6000, 13)]
    ids = word_ids(plain.config, None, plain.alphabet).rows([*words, "<S>", "</S>", "no", ""])
    expected = plain.encode_words(ids)
    torch.testing.assert_close(packed.encode_words(ids), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_words_of_a_large_alphabet_do_not_depend_on_their_company():
    if not rows_are_exact():
        pytest.skip("this machine rounds a row differently among other rows")
    plain = large_model()
    packed = CPUBackend(plain)
    words = [chr(0x4E00 + n) * (1 + n % 9) for n in range(0, 6000, 17)]
    ids = word_ids(plain.config, None, plain.alphabet).rows(words)
    together = packed.encode_words(ids)
    for size in (1, 2, 5, 64):
        parts = [packed.encode_words(part) for part in ids[:128].split(size)]
        assert torch.equal(torch.cat(parts), together[:128])
    assert torch.equal(packed.encode_words(ids.flip(0)).flip(0), together)


def test_a_word_model_shares_no_memory_with_the_plain_one():
    plain = seeded_bilm(word_config())
    packed = CPUBackend(plain)
    ids = torch.tensor([[4, 5]])
    before = packed.run(ids).layers.clone()
    with torch.no_grad():
        plain.words.embedding.weight.zero_()
    assert torch.equal(packed.run(ids).layers, before)


@torch.no_grad()
def test_a_padding_character_inside_a_word_does_not_end_it(tiny_bilm):
    ids = CharacterMapper(50, {"[GAP]": 260}).rows(["[GAP]", "a"])
    torch.testing.assert_close(
        CPUBackend(tiny_bilm).encode_words(ids), tiny_bilm.encode_words(ids), rtol=0, atol=1e-5
    )


@pytest.mark.skipif(kernel() is None, reason="no native kernel")
@pytest.mark.parametrize(
    "filters", [((1, 4), (2, 8), (3, 16)), ((1, 3), (5, 70), (7, 5)), ((2, 128), (7, 1))]
)
def test_filters_by_the_kernel_are_those_of_plain_code_bit_for_bit(filters) -> None:
    bilm = seeded_bilm(ElmoConfig(dim=8, projection_dim=4, n_layers=1, filters=filters))
    encoder = CPUBackend(bilm).words
    words = ["a", "word", "hippopotamus", "x" * 41, "y" * 48, "Donaudampfschiff" * 3]
    ids = batch_to_ids([[word] for word in words])[:, 0]
    vectors = encoder(ids)
    assert encoder._is_native
    encoder._is_native = False
    assert torch.equal(encoder(ids), vectors)
    with kernel_threads():
        assert torch.equal(encoder(ids[:0]), vectors[:0])

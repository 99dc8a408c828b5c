"""Layers of sentences on disk: written once, shared by processes, repaired."""

import multiprocessing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo import ELMo
from elmo.tasks.features.layer_cache import LayerCache, digest
from strategies import seeded_bilm

SENTENCES = [["The", "cat", "sat"], ["Hello"], [], ["the", "zyzzyva", "sat", "."]]


def computed(elmo, sentences):
    arrays = elmo.encode_tokens(sentences, dtype="float16")
    return np.concatenate([np.swapaxes(array, 0, 1) for array in arrays])


def cache_of(folder, elmo):
    return LayerCache(folder, elmo.fingerprint, elmo.n_layers, elmo.dim)


def gathered(cache, sentences):
    return cache.gather([cache.place(words) for words in sentences])


def test_the_cache_holds_what_the_model_gives(tmp_path, tiny_elmo):
    cache = cache_of(tmp_path, tiny_elmo)
    cache.add([*SENTENCES, SENTENCES[0]], lambda: tiny_elmo)
    assert len(cache.rows()) == sum(map(len, SENTENCES))
    np.testing.assert_array_equal(gathered(cache, SENTENCES), computed(tiny_elmo, SENTENCES))


def test_what_is_cached_is_not_computed_again(tmp_path, tiny_elmo):
    cache_of(tmp_path, tiny_elmo).add(SENTENCES, lambda: tiny_elmo)

    def never():
        raise AssertionError("the model was asked for")

    again = cache_of(tmp_path, tiny_elmo)
    again.add(SENTENCES, never)
    np.testing.assert_array_equal(gathered(again, SENTENCES), computed(tiny_elmo, SENTENCES))


def test_sentences_are_added_to_those_that_are_there(tmp_path, tiny_elmo):
    cache = cache_of(tmp_path, tiny_elmo)
    for some in (SENTENCES[:2], SENTENCES[1:]):
        cache.add(some, lambda: tiny_elmo)
    np.testing.assert_array_equal(gathered(cache, SENTENCES), computed(tiny_elmo, SENTENCES))


def test_another_model_has_another_file(tmp_path, tiny_elmo, tiny_config):
    other = ELMo(seeded_bilm(tiny_config, seed=5))
    for elmo in (tiny_elmo, other):
        cache_of(tmp_path, elmo).add(SENTENCES, lambda elmo=elmo: elmo)
    assert len(list(tmp_path.glob("*.layers"))) == 2


@pytest.mark.parametrize(("file", "kept"), [("layers", 0.5), ("index", 0.7), ("layers", 0.0)])
def test_a_file_that_was_cut_short_is_filled_again(tmp_path, tiny_elmo, file, kept):
    cache_of(tmp_path, tiny_elmo).add(SENTENCES, lambda: tiny_elmo)
    (path,) = tmp_path.glob(f"*.{file}")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    cache = cache_of(tmp_path, tiny_elmo)
    assert cache.missing(SENTENCES)
    cache.add(SENTENCES, lambda: tiny_elmo)
    np.testing.assert_array_equal(gathered(cache, SENTENCES), computed(tiny_elmo, SENTENCES))


def fill(folder, first):
    elmo = ELMo(seeded_bilm(__import__("elmo").ElmoConfig.preset("tiny")))
    cache_of(folder, elmo).add([[f"w{k}", "x"] for k in range(first, first + 30)], lambda: elmo)


def test_processes_may_fill_one_cache_at_the_same_time(tmp_path, tiny_elmo):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=fill, args=(tmp_path, first)) for first in (0, 20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    sentences = [[f"w{k}", "x"] for k in range(50)]
    cache = cache_of(tmp_path, tiny_elmo)
    assert cache.missing(sentences) == []
    np.testing.assert_array_equal(gathered(cache, sentences), computed(tiny_elmo, sentences))


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_sentences_share_a_digest_only_if_they_are_the_same(one, other):
    assert (digest(one) == digest(other)) == (one == other)

"""Vectors of spans: means of their words, in every layer and in the mix, or static."""

import numpy as np
import torch

from elmo.analysis.span_vectors import (
    all_span_vectors,
    every_word,
    layer_names,
    static_span_vectors,
)
from elmo.embed.pipeline import mix_layers
from elmo.text.static_vectors import open_vectors


def test_targets_are_means_of_their_words_in_every_layer(tiny_elmo):
    sentences = [["a", "b", "c"], ["d"], ["e", "f"]]
    spans = np.array([[0, 0, 2], [0, 2, 3], [2, 0, 2]])
    found = all_span_vectors(tiny_elmo, sentences, spans)
    vectors = tiny_elmo.encode_tokens(sentences)
    expected = np.stack([vectors[s][:, a:b].mean(axis=1) for s, a, b in spans], axis=1)
    np.testing.assert_allclose(found[:-1], expected, atol=1e-6)
    mixed = tiny_elmo.encode_tokens(sentences, layers="mix")
    np.testing.assert_allclose(found[-1, 1], mixed[0][2], atol=1e-6)
    assert every_word(sentences).tolist()[3] == [1, 0, 1]
    assert layer_names(tiny_elmo) == ["0", "1", "2", "mix"]


def test_static_span_vectors_know_the_word_and_the_mean_of_its_sentence(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 0\nB 0 2\nb 0 4\n", encoding="utf-8")
    sentences = [["A", "B", "?"], ["b"]]
    spans = np.array([[0, 0, 1], [0, 0, 2], [1, 0, 1]])
    alone, together = static_span_vectors(open_vectors(str(path)), sentences, spans)
    np.testing.assert_allclose(alone, [[1, 0], [0.5, 1], [0, 4]])
    np.testing.assert_allclose(together, [[1 / 3, 2 / 3], [1 / 3, 2 / 3], [0, 4]], atol=1e-6)


def test_the_mix_is_the_models_own(tiny_elmo):
    vectors = tiny_elmo.encode_tokens([["a", "b"]])[0]
    found = all_span_vectors(tiny_elmo, [["a", "b"]], every_word([["a", "b"]]))
    expected = mix_layers([torch.from_numpy(layer) for layer in vectors], tiny_elmo.config)
    np.testing.assert_allclose(found[-1], expected.numpy(), atol=1e-6)

"""Vectors of words without context."""

import pytest
import torch

from elmo.errors import ConfigError
from elmo.tasks.features.static_words import StaticWords
from elmo.text.static_vectors import VectorFile


def test_words_are_looked_up_as_written_then_in_lower_case_then_are_unknown(vectors):
    static = StaticWords.from_source(VectorFile(str(vectors)), ["The", "cat", "dog"], False)
    static.unknown.data = torch.tensor([9.0, 9.0])
    rows = torch.tensor([static.row(word) for word in ("The", "cat", "dog")])
    assert static(rows).tolist() == [[1, 2], [3, 4], [9, 9]]


def test_only_the_unknown_vector_learns_unless_told(vectors):
    source = VectorFile(str(vectors))
    frozen = StaticWords.from_source(source, ["the"], False)
    tuned = StaticWords.from_source(source, ["the"], True)
    assert [name for name, _ in frozen.named_parameters()] == ["unknown"]
    assert {name for name, _ in tuned.named_parameters()} == {"unknown", "table"}


def test_further_words_are_added_behind_the_others(vectors):
    static = StaticWords.from_source(VectorFile(str(vectors)), ["the"], False)
    static.add(["Sat", "dog"])
    assert static(torch.tensor([static.row("the"), static.row("Sat")])).tolist() == [[1, 2], [5, 6]]
    assert static.row("dog") == 0


def test_random_vectors_are_for_words_that_occur_twice():
    static = StaticWords.random([["a", "b"], ["a", "c"]], 4)
    assert static.words == ["a"]
    assert static.table.requires_grad
    with pytest.raises(ConfigError, match="occurs twice"):
        StaticWords.random([["a", "b"]], 4)

"""A model as plain data: what its fingerprint depends on."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import BiLM, ElmoConfig
from elmo.errors import (
    ConfigError,
)
from elmo.model.checkpoint import Checkpoint
from elmo.text.vocabulary import Vocabulary
from elmo.weights.tensors import tensor_table
from strategies import (
    configs,
    seeded_bilm,
    with_changed_weight,
)
from weight_files import assert_same_tensors

EVERY_KIND = {
    "cells": ("lstm", "gru"),
    "reads": ("characters", "words"),
    "spells": ("bytes", "code points"),
}


@pytest.fixture
def checkpoint(tiny_bilm):
    return tiny_bilm.to_checkpoint()


@settings(max_examples=15)
@given(config=configs(**EVERY_KIND), data=st.data())
def test_the_fingerprint_changes_with_every_weight(config, data):
    checkpoint = seeded_bilm(config).to_checkpoint()
    name = data.draw(st.sampled_from(sorted(checkpoint.tensors)))
    changed = with_changed_weight(checkpoint, name, 123.0)
    assert changed.fingerprint() != checkpoint.fingerprint()


def test_the_fingerprint_changes_with_what_decides_the_vectors_and_nothing_else(checkpoint):
    expected = checkpoint.fingerprint()
    for change in ({"cell_clip": 2.0}, {"skip_connections": False}, {"activation": "tanh"}):
        other = replace(checkpoint, config=checkpoint.config.replace(**change))
        assert other.fingerprint() != expected
    mixed = checkpoint.config.replace(mix_weights=(1.0, 2.0, 3.0))
    assert replace(checkpoint, config=mixed).fingerprint() == expected
    warm = (torch.zeros(2, 2, 16), torch.zeros(2, 2, 64))
    assert replace(checkpoint, warm_state=warm).fingerprint() == expected


def test_a_checkpoint_builds_the_model_it_came_from(checkpoint, tiny_bilm):
    built = BiLM.from_checkpoint(checkpoint)
    assert_same_tensors(built.state_dict(), tiny_bilm.state_dict())
    assert torch.equal(built.boundaries, tiny_bilm.boundaries)
    assert not built.training
    assert isinstance(built.to_checkpoint(), Checkpoint)


def test_a_vocabulary_is_part_of_the_fingerprint_of_a_word_model(word_bilm):
    checkpoint = word_bilm.to_checkpoint()
    words = checkpoint.vocabulary.words
    other = replace(checkpoint, vocabulary=Vocabulary([*words[:3], *reversed(words[3:])]))
    assert other.fingerprint() != checkpoint.fingerprint()


def test_a_vocabulary_must_fit_the_model(word_bilm):
    with pytest.raises(ConfigError, match="the vocabulary has 1 words"):
        BiLM(word_bilm.config, Vocabulary(["<S>"]))


def test_the_fingerprint_of_a_model_of_bytes_is_what_it_always_was():
    # From before there were alphabets: files of vectors carry it.
    config = ElmoConfig.preset("tiny", dim=4, projection_dim=2, filters=((1, 2),), n_highway=0)
    zeros = {
        name: torch.zeros(shape) for row in tensor_table(config) for name, shape in row.ours.items()
    }
    found = Checkpoint(config=config, tensors=zeros).fingerprint()
    assert found == "eec5326531d01ad83c2a86233bc47f570712137daa7756f8cdd120e9a624a003"

"""The output layer of a language model, checked when it is read."""

from dataclasses import replace

import pytest
import torch

from elmo.errors import ElmoWarning, WeightsError
from elmo.text.vocabulary import Vocabulary
from elmo.weights.formats import load_checkpoint, save_checkpoint
from strategies import VOCABULARY


def load(path):
    return load_checkpoint(path)


def save_both(checkpoint, base):
    """Save in both layouts; returns the two folders."""
    save_checkpoint(checkpoint, base / "ours")
    save_checkpoint(checkpoint, base / "hdf5", "hdf5")
    return base / "ours", base / "hdf5"


def save_softmax(checkpoint, base, softmax, words=VOCABULARY):
    vocabulary = None if words is None else Vocabulary(words)
    return save_both(replace(checkpoint, softmax=softmax, vocabulary=vocabulary), base)


def softmax_of(words, width=16):
    return {"weight": torch.randn(words, width), "bias": torch.randn(words)}


def test_a_softmax_for_another_vocabulary_is_told(tmp_path, tiny_bilm):
    for folder in save_softmax(tiny_bilm.to_checkpoint(), tmp_path, softmax_of(5)):
        with pytest.raises(
            WeightsError, match=r"weight \(5, 16\).* 5 words, .* lists 9.* \(9, 16\); put"
        ):
            load(folder)
        (folder / "vocab.txt").unlink()
        assert load(folder).softmax["bias"].shape == (5,)


@pytest.mark.parametrize(
    ("softmax", "message"),
    [
        (softmax_of(9, width=7), r"softmax weight' has shape \(9, 7\).*asks for \(9, 16\)"),
        (softmax_of(9) | {"bias": torch.zeros(8)}, r"weight' has shape \(9, 16\).*\(8, 16\)"),
        (softmax_of(9) | {"bias": torch.zeros(9, 1)}, r"bias' has shape \(9, 1\).*\(9,\)"),
        ({"weight": torch.zeros(9, 16)}, "has 'weight', expected weight and bias"),
        ({"bias": torch.zeros(9)}, "has 'bias', expected weight and bias"),
        (softmax_of(9) | {"bias": torch.full((9,), torch.nan)}, r"'softmax bias' has 9 values"),
        (softmax_of(9) | {"weight": torch.full((9, 16), torch.inf)}, "'softmax weight' has 144"),
    ],
)
def test_a_damaged_softmax_is_told(tmp_path, tiny_bilm, softmax, message):
    for folder in save_softmax(tiny_bilm.to_checkpoint(), tmp_path, softmax):
        with pytest.raises(WeightsError, match=message):
            load(folder)


def test_a_model_that_reads_words_may_share_its_table_with_the_softmax(tmp_path, word_bilm):
    bias = {"bias": torch.randn(len(VOCABULARY))}
    for folder in save_softmax(word_bilm.to_checkpoint(), tmp_path, bias):
        assert torch.equal(load(folder).softmax["bias"], bias["bias"])


def test_an_adaptive_softmax_is_checked_and_kept(tmp_path, tiny_bilm):
    tree = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 9, [3, 6], head_bias=True)
    softmax = dict(tree.state_dict())
    with pytest.warns(ElmoWarning, match="no place for an adaptive softmax"):
        ours, published = save_softmax(tiny_bilm.to_checkpoint(), tmp_path, softmax)
    kept = load(ours).softmax
    assert set(kept) == set(softmax)
    assert all(torch.equal(kept[name], tensor) for name, tensor in softmax.items())
    assert not load(published).softmax  # no place for it there
    Vocabulary(VOCABULARY[:-1]).write(ours / "vocab.txt")
    with pytest.raises(WeightsError, match=r"is for 9 words, but .* lists 8"):
        load(ours)

"""Encoders, pooling and dropout: padding changes nothing, every word sees all others."""

import numpy as np
import pytest
import torch

from elmo.tasks.heads.base import Layout
from elmo.tasks.heads.encoders import (
    AttentionPooling,
    BiLstm,
    HighwayLstm,
    SequenceDropout,
    TrilinearScores,
    attend,
    masked_softmax,
)


@pytest.mark.parametrize(
    "encoder", [BiLstm(4, 6, 2), HighwayLstm(4, 6, 3, 0.0), HighwayLstm(4, 6, 4, 0.0)]
)
def test_padding_does_not_change_what_encoders_give(encoder):
    vectors = torch.randn(2, 5, 4)
    layout = Layout.of([3, 5])
    both = encoder(vectors * layout.mask.unsqueeze(-1), layout)
    alone = encoder(vectors[:1, :3], Layout.of([3]))
    torch.testing.assert_close(both[:1, :3], alone)
    assert (both[0, 3:] == 0).all()


def test_a_deep_encoder_lets_every_word_see_all_others():
    encoder = HighwayLstm(4, 6, 2, 0.0)
    vectors = torch.randn(1, 5, 4, requires_grad=True)
    for place in range(5):
        read = encoder(vectors, Layout.of([5]))
        (gradient,) = torch.autograd.grad(read[0, place].sum(), vectors)
        seen = gradient[0].abs().sum(dim=1) > 0
        assert seen.all(), (place, seen)


def test_pooling_ignores_padding_and_gives_zeros_for_nothing():
    pooling = AttentionPooling(4)
    vectors = torch.randn(2, 3, 4)
    mask = torch.tensor([[True, True, False], [False] * 3])
    pooled = pooling(vectors, mask)
    torch.testing.assert_close(pooled[:1], pooling(vectors[:1, :2], mask[:1, :2]))
    assert (pooled[1] == 0).all()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.75])
def test_sequence_dropout_drops_the_same_values_of_all_words_and_no_more_than_its_share(share):
    torch.manual_seed(0)
    dropped = SequenceDropout(share).train()(torch.ones(3, 7, 1000))
    assert (dropped == dropped[:, :1]).all()
    assert (dropped == 0).float().mean().item() == pytest.approx(share, abs=0.05)
    assert dropped.max().item() == pytest.approx(1 / (1 - share))
    assert dropped.mean().item() == pytest.approx(1, abs=0.1)
    assert not torch.equal(dropped[0], dropped[1])


def test_attention_to_nothing_is_zero():
    mask = torch.tensor([[True, False], [False, False]])
    weights = masked_softmax(torch.zeros(2, 2), mask)
    assert weights.tolist() == [[1, 0], [0, 0]]
    assert attend(torch.zeros(2, 1, 2), mask, torch.ones(2, 2, 3))[1].abs().sum() == 0


def test_trilinear_scores_are_a_weighted_sum_over_a_pair():
    torch.manual_seed(0)
    scorer = TrilinearScores(3)
    first, second = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    found = scorer(first, second)
    weights = torch.cat([scorer.first.weight[0], scorer.second.weight[0], scorer.product])
    for b, n, m in np.ndindex(2, 4, 5):
        a, c = first[b, n], second[b, m]
        torch.testing.assert_close(found[b, n, m], torch.cat([a, c, a * c]) @ weights)

"""Vectors and scores of spans, and of their antecedents, against loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.heads.coref import candidate_spans
from elmo.tasks.heads.span_scores import (
    Antecedents,
    AntecedentScorer,
    SpanEncoder,
    antecedent_loss,
    best_antecedents,
    distance_classes,
)


def test_spans_are_scored_as_their_vectors_would_be():
    """Sums of products are the first layer over start, end, head and width, written out."""
    torch.manual_seed(0)
    encoder = SpanEncoder(4, 3, hidden=5, longest=3, dropout=0.0).eval()
    encoded, given_words = torch.randn(6, 4), torch.randn(6, 3)
    words = encoder.prepared(encoded, given_words)
    spans = torch.from_numpy(candidate_spans([4, 2], 3))
    scores, vectors = encoder.mention_scores(words, spans), encoder.vectors(words, spans)
    assert vectors.shape == (spans.shape[1], encoder.output_dim)
    first_layer = torch.cat(
        [encoder.start.weight, encoder.stop.weight, encoder.head.weight, encoder.width.weight], 1
    )
    for number, (start, stop, _) in enumerate(spans.T.tolist()):
        attention = torch.softmax(words.attention[start:stop], 0)
        head = (attention.unsqueeze(1) * given_words[start:stop]).sum(0)
        width = encoder.widths.weight[stop - start - 1]
        vector = torch.cat([encoded[start], encoded[stop - 1], head, width])
        torch.testing.assert_close(vectors[number], vector)
        hidden = torch.relu(first_layer @ vector + encoder.start.bias)
        score = encoder.output(torch.relu(encoder.between(hidden)))[0]
        torch.testing.assert_close(scores[number], score)


def scored(n_spans, limit, hidden=4):
    torch.manual_seed(0)
    scorer = AntecedentScorer(6, hidden=hidden, dropout=0.0).eval()
    vectors, mentions = torch.randn(n_spans, 6), torch.randn(n_spans)
    return scorer, vectors, mentions, scorer(vectors, mentions, limit)


def test_antecedents_are_scored_pair_by_pair():
    scorer, vectors, mentions, found = scored(7, 10)
    reduced = torch.relu(scorer.reduced(vectors))
    keys = scorer.coarse(reduced)
    for i in range(7):
        assert sorted(found.numbers[i][found.mask[i]].tolist()) == list(range(i))
        for j, score in zip(
            found.numbers[i][found.mask[i]].tolist(), found.scores[i][found.mask[i]], strict=True
        ):
            distance = scorer.distances(distance_classes(torch.tensor(i - j)))
            first = (
                scorer.later(reduced[i])
                + scorer.earlier(reduced[j])
                + scorer.product(reduced[i] * reduced[j])
                + scorer.distance(distance)
            )
            fine = scorer.output(torch.relu(scorer.between(torch.relu(first))))[0]
            coarse = keys[i] @ reduced[j] / math.sqrt(4)
            torch.testing.assert_close(score, mentions[i] + mentions[j] + coarse + fine)


def test_the_cheap_score_keeps_the_most_likely_antecedents(monkeypatch):
    scorer, vectors, mentions, found = scored(20, 3)
    reduced = torch.relu(scorer.reduced(vectors))
    keys = scorer.coarse(reduced)
    cheap = keys @ reduced.T / math.sqrt(4) + mentions
    for i in range(4, 20):
        best = cheap[i, :i].topk(3).indices
        assert set(found.numbers[i].tolist()) == set(best.tolist())
    monkeypatch.setattr("elmo.tasks.heads.span_scores._ROWS_AT_ONCE", 6)
    torch.testing.assert_close(scorer(vectors, mentions, 3).scores, found.scores)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_the_loss_is_that_of_a_double_loop(n_spans, seed):
    generator = torch.Generator().manual_seed(seed)
    clusters = torch.randint(0, 4, (n_spans,), generator=generator)
    _, _, _, found = scored(n_spans, 10)
    expected = 0.0
    for i in range(n_spans):
        right = total = 0.0
        own = False
        for j, counts, score in zip(
            found.numbers[i].tolist(), found.mask[i].tolist(), found.scores[i].tolist(), strict=True
        ):
            if not counts:
                continue
            total += math.exp(score)
            if clusters[i] > 0 and clusters[j] == clusters[i]:
                right += math.exp(score)
                own = True
        expected -= math.log((right if own else 1.0) / (total + 1.0))
    assert antecedent_loss(found, clusters).item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_best_antecedent_must_beat_none():
    numbers = torch.tensor([[0, 0], [0, 0], [1, 0]])
    mask = torch.tensor([[False, False], [True, False], [True, True]])
    scores = torch.tensor([[9.0, 9.0], [-1.0, 9.0], [0.5, 2.0]])
    assert best_antecedents(Antecedents(numbers, mask, scores)).tolist() == [-1, -1, 0]


def test_distances_fall_into_nine_classes():
    distances = torch.tensor([1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 999])
    assert distance_classes(distances).tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]

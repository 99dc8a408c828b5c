"""Sequences of tags: rules, the best path and the likelihood, against trying out all sequences."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.tasks.heads.crf import FORBIDDEN, Crf, tag_rules, viterbi
from elmo.tasks.tag_schemes import spans_of, to_bioes, to_iob2

TAGS = {"iob2": ["O", "B-X", "I-X", "B-Y", "I-Y"], "bioes": ["O", "B-X", "I-X", "E-X", "S-X"]}


def everything_allowed(n):
    every = torch.ones(n, dtype=torch.bool)
    return torch.ones(n, n, dtype=torch.bool), every, every


def some_rules(n, generator):
    """Rules under which the first tag is always possible."""
    allowed = torch.rand(n, n, generator=generator) < 0.6
    allowed[0], allowed[:, 0] = True, True
    start, end = (torch.rand(n, generator=generator) < 0.6 for _ in range(2))
    start[0], end[0] = True, True
    return allowed, start, end


def crf_and_scores(seed, n_tags, lengths, rules=None):
    generator = torch.Generator().manual_seed(seed)
    crf = Crf(rules or some_rules(n_tags, generator))
    for parameter in crf.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    scores = torch.randn(len(lengths), max(lengths), n_tags, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return crf, scores, mask


def score_of(crf, scores, path):
    """Score a sequence by walking along it."""
    transitions, start, end = crf.tables()
    total = start[path[0]] + end[path[-1]]
    total = total + sum(scores[step, tag] for step, tag in enumerate(path))
    return total + sum(transitions[a, b] for a, b in pairwise(path))


def all_paths(crf, scores, length):
    return {
        path: score_of(crf, scores, path).item()
        for path in product(range(scores.shape[1]), repeat=length)
    }


sizes = st.tuples(st.integers(0, 2**16), st.integers(2, 4), st.lists(st.integers(1, 4), max_size=3))


@given(sizes)
def test_the_likelihood_is_a_share_of_all_sequences(drawn):
    seed, n_tags, more = drawn
    lengths = [4, *more]
    crf, scores, mask = crf_and_scores(seed, n_tags, lengths)
    for row, length in enumerate(lengths):
        paths = all_paths(crf, scores[row, :length], length)
        total = torch.tensor(list(paths.values()), dtype=torch.float64).logsumexp(0).item()
        path = max(paths, key=paths.__getitem__)
        tags = torch.zeros(len(lengths), 4, dtype=torch.long)
        tags[row, :length] = torch.tensor(path)
        found = crf.log_likelihood(scores, tags, mask)[row].item()
        assert found == pytest.approx(paths[path] - total, abs=1e-4)


@given(sizes)
def test_the_best_path_is_the_best_of_all_sequences(drawn):
    seed, n_tags, more = drawn
    lengths = [4, *more]
    crf, scores, mask = crf_and_scores(seed, n_tags, lengths)
    for row, path in enumerate(crf.decode(scores, mask)):
        paths = all_paths(crf, scores[row, : lengths[row]], lengths[row])
        assert len(path) == lengths[row]
        assert paths[tuple(path)] == pytest.approx(max(paths.values()), abs=1e-4)


def test_what_is_forbidden_does_not_happen_however_high_its_scores():
    rules = tag_rules(TAGS["iob2"], "iob2")
    crf = Crf(rules)
    scores = torch.zeros(1, 3, 5)
    scores[0, :, 2] = 50.0  # I-X everywhere
    (path,) = crf.decode(scores, torch.ones(1, 3, dtype=torch.bool))
    tags = [TAGS["iob2"][tag] for tag in path]
    assert tags == ["B-X", "I-X", "I-X"]


def test_an_empty_sentence_has_no_tags_and_does_not_disturb_others():
    crf, scores, _ = crf_and_scores(0, 3, [2, 2], everything_allowed(3))
    mask = torch.tensor([[False, False], [True, True]])
    alone = crf.decode(scores[1:], mask[1:])
    assert crf.decode(scores, mask) == [[], *alone]


def test_gradients_are_finite_under_rules():
    crf = Crf(tag_rules(TAGS["bioes"], "bioes"))
    scores = torch.randn(2, 6, 5, requires_grad=True)
    tags = torch.zeros(2, 6, dtype=torch.long)
    mask = torch.ones(2, 6, dtype=torch.bool)
    crf.log_likelihood(scores, tags, mask).sum().backward()
    for gradient in (scores.grad, *(p.grad for p in crf.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("scheme", ["iob2", "bioes"])
def test_the_rules_allow_exactly_the_tags_of_spans(scheme):
    """A sequence keeps to the rules if and only if writing its spans down gives it back."""
    tags = TAGS[scheme]
    transitions, start, end = tag_rules(tags, scheme)
    written = to_iob2 if scheme == "iob2" else to_bioes
    for path in product(range(len(tags)), repeat=3):
        names = [tags[tag] for tag in path]
        keeps = bool(start[path[0]] and end[path[-1]])
        keeps = keeps and all(transitions[a, b] for a, b in pairwise(path))
        assert keeps == (written(spans_of(names), 3) == names), names


def test_padding_does_not_change_the_best_path():
    crf, scores, mask = crf_and_scores(3, 4, [3, 5])
    alone = viterbi(scores[:1, :3], mask[:1, :3], crf.tables())
    assert crf.decode(scores, mask)[0] == alone[0]


def test_forbidden_scores_outweigh_long_sentences():
    """Even thousands of words cannot gain as much as one forbidden step costs in float32."""
    crf, scores, mask = crf_and_scores(0, 3, [2000], everything_allowed(3))
    assert crf.tables()[0].max() > FORBIDDEN
    (path,) = crf.decode(scores, mask)
    assert len(path) == 2000

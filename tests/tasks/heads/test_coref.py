"""Coreference: candidates, scores against double loops, padding, what it can learn."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmo.tasks.heads.coref as coref_module
from elmo.errors import ElmoWarning, InputError
from elmo.tasks.heads.coref import Coref, CorefBatch, candidate_spans, cluster_numbers, grouped
from elmo.tasks.heads.span_scores import (
    Antecedents,
    AntecedentScorer,
    SpanEncoder,
    antecedent_loss,
    best_antecedents,
    distance_classes,
)
from elmo.tasks.readers.examples import Document, Span
from elmo.tasks.settings import ReadOptions
from heads import built, half_loss, predictions, trained, vectors_of, widened

TASK = Coref(singletons=True)
NAMES = "Ann Bo Cy Di".split()
sentences = st.lists(
    st.lists(st.sampled_from([*NAMES, "saw", "and", "."]), min_size=1, max_size=6),
    min_size=1,
    max_size=4,
)


def document(*texts):
    """Names that are the same mean the same."""
    words = [word for text in texts for word in text.split()]
    clusters = [[Span(k, k + 1) for k, w in enumerate(words) if w == name] for name in NAMES]
    return Document([text.split() for text in texts], sorted(c for c in clusters if c))


def made_up(count):
    generator = np.random.default_rng(0)
    return [
        document(*(f"{generator.choice(NAMES)} saw {generator.choice(NAMES)} ." for _ in "abc"))
        for _ in range(count)
    ]


def test_it_learns_that_equal_names_mean_the_same():
    examples = made_up(12)
    head = trained(TASK, examples, steps=100, batch=3, rate=5e-3, hidden_size=16)
    found = predictions(TASK, head, examples)
    measured = TASK.evaluate(examples, found)
    assert measured["average_f1"] == pytest.approx(1)
    assert measured["mention_f1"] == pytest.approx(1)
    assert any(len(mentions) == 1 for clusters in found for mentions in clusters)


def test_without_singletons_in_training_none_are_predicted():
    examples = [document("Ann saw Ann .", "Bo ."), document("Cy .", "Cy saw Cy .")]
    examples = [Document(e.sentences, [c for c in e.clusters if len(c) > 1]) for e in examples]
    task = Coref.from_examples(examples)
    assert not task.singletons
    head = trained(task, examples, steps=40, batch=2, rate=1e-2, hidden_size=12)
    found = predictions(task, head, examples)
    assert found == [example.clusters for example in examples]


@given(st.lists(sentences, min_size=1, max_size=3), st.integers(1, 4), st.sampled_from([0, 3]))
def test_neighbours_and_padding_change_no_score(texts, more, output_dim):
    examples = [Document(text) for text in texts]
    head = built(TASK, hidden_size=4, output_dim=output_dim).eval()
    batch = TASK.collate(examples)
    vectors = vectors_of(TASK, examples, output_dim)
    wider = CorefBatch(widened(batch.layout, more), batch.spans, batch.clusters, batch.sizes)
    with torch.inference_mode():
        together = [head._ranked(part) for part in head._documents(vectors, batch)]
        padded = [head._ranked(part) for part in head._documents(vectors, wider)]
        for number, example in enumerate(examples):
            single = TASK.collate([example])
            (part,) = head._documents(vectors_of(TASK, [example], output_dim), single)
            for other in (padded[number], head._ranked(part)):
                torch.testing.assert_close(other[0], together[number][0], rtol=1e-4, atol=1e-5)


def test_products_in_bfloat16_give_nearly_the_same_loss():
    examples = made_up(6)
    exact = built(TASK, hidden_size=8, dropout=0.0)
    expected = exact.loss(vectors_of(TASK, examples), TASK.collate(examples)).item()
    head = built(TASK, hidden_size=8, dropout=0.0)
    assert half_loss(TASK, head, examples) == pytest.approx(expected, rel=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert len(predictions(TASK, head.eval(), examples)) == 6


# Candidates


@given(st.lists(st.integers(0, 5), max_size=5), st.integers(1, 4))
def test_candidates_are_all_short_spans_within_sentences(lengths, longest):
    found = [tuple(span) for span in candidate_spans(lengths, longest).T.tolist()]
    expected, first = [], 0
    for number, length in enumerate(lengths):
        for start in range(first, first + length):
            for stop in range(start + 1, min(start + longest, first + length) + 1):
                expected.append((start, stop, number))
        first += length
    assert found == expected


def test_candidates_know_their_clusters():
    spans = candidate_spans([3], 2)
    numbers = cluster_numbers(spans, [[Span(0, 1), Span(1, 3)], [Span(2, 3)]])
    assert dict(zip(map(tuple, spans[:2].T.tolist()), numbers.tolist(), strict=True)) == {
        (0, 1): 1,
        (0, 2): 0,
        (1, 2): 0,
        (1, 3): 1,
        (2, 3): 2,
    }


@given(
    st.lists(st.integers(0, 5), max_size=5),
    st.sets(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=8),
)
def test_clusters_are_those_of_a_dictionary(lengths, mentions):
    clusters = [[Span(start, start + width)] for start, width in sorted(mentions)]
    spans = candidate_spans(lengths, 3)
    numbers = {span: k for k, (span,) in enumerate(clusters, start=1)}
    expected = [numbers.get(Span(*place), 0) for place in spans[:2].T.tolist()]
    assert cluster_numbers(spans, clusters).tolist() == expected


def test_long_mentions_are_counted_with_file_and_line(monkeypatch):
    monkeypatch.setattr(coref_module, "LONGEST_MENTION", 2)
    clusters = [[Span(0, 1), Span(4, 7)]]
    example = Document([["a"] * 3, ["b"] * 5], clusters, "d", "f.conll, line 1")
    with pytest.warns(
        ElmoWarning, match=r"1 of 2 mentions have more than 2 words.*f\.conll, line 1"
    ):
        TASK.check([example])
    with pytest.warns(ElmoWarning, match="1 of 2 mentions"):
        assert not Coref.from_examples([example]).singletons
    with pytest.raises(InputError, match="two mentions of the same entity"):
        Coref.from_examples([Document([["a"]], [[Span(0, 1)]])])


# Scores


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


def test_spans_are_grouped_by_chains_of_antecedents():
    spans = [Span(k, k + 1) for k in range(6)]
    antecedents = [-1, -1, 0, -1, 2, -1]
    alone = [True, True, False, False, False, False]
    assert grouped(spans, antecedents, alone) == [[(0, 1), (2, 3), (4, 5)], [(1, 2)]]


def test_long_documents_are_trained_in_pieces(monkeypatch):
    monkeypatch.setattr(coref_module, "TRAINED_WORDS", 8)
    example = document(*["Ann saw Bo ."] * 6)
    head = built(TASK, hidden_size=4)
    (part,) = head._documents(vectors_of(TASK, [example]), TASK.collate([example]))
    torch.manual_seed(1)
    some = part.random_window(8)
    assert len(some.encoded) == 8
    assert some.spans[1].max() <= 8
    assert some.spans[0].min() >= 0
    loss = head.loss(vectors_of(TASK, [example]), TASK.collate([example]))
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)


# The task


def test_documents_are_read_parsed_and_shown(tmp_path):
    rows = ["#begin document (b); part 0"]
    rows += ["\t".join(["b", "0", str(k), w, *"________", f"({c})" if c else ""])
             for k, (w, c) in enumerate([("Ann", "1"), ("saw", ""), ("Ann", "1")])]  # fmt: skip
    path = tmp_path / "b.conll"
    path.write_text("\n".join([*rows, "#end document", ""]))
    (example,) = Coref.read([path], ReadOptions())
    assert example.clusters == [[(0, 1), (2, 3)]]
    (raw,) = TASK.parse("Ann saw Bo. He left.", ReadOptions())
    assert [len(words) for words in raw.sentences] == [4, 3]
    shown = TASK.render(raw, [[Span(2, 3), Span(4, 5)]])
    assert [mention["text"] for mention in shown["clusters"][0]] == ["Bo", "He"]
    json.dumps(shown)
    assert predictions(TASK, built(TASK, hidden_size=4).eval(), [raw]) is not None


def test_a_blank_text_has_no_clusters_and_disturbs_no_other():
    blank, other = TASK.parse(" ", ReadOptions())[0], document("Ann saw Ann .")
    head = built(TASK, hidden_size=4).eval()
    found = predictions(TASK, head, [blank, other])
    assert found[0] == []
    assert found[1] == predictions(TASK, head, [other])[0]


def test_singletons_are_measured_as_annotated_and_left_out():
    example = document("Ann saw Ann .", "Bo .")
    measured = TASK.evaluate([example], [[[Span(0, 1), Span(2, 3)]]])
    assert measured["average_f1_without_singletons"] == pytest.approx(1)
    assert measured["muc_f1"] == pytest.approx(1)
    assert measured["average_f1"] < 1

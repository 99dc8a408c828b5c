"""Coreference: candidates, scores against double loops, padding, what it can learn."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmo.tasks.heads.coref as coref_module
from elmo.errors import ElmoWarning, InputError
from elmo.tasks.heads.coref import Coref, CorefBatch, candidate_spans, cluster_numbers, grouped
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
def test_neighbors_and_padding_change_no_score(texts, more, output_dim):
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

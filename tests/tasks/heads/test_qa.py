"""Question answering: the network against loops, padding, what it can learn."""

import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import InputError
from elmo.tasks.heads.passages import align
from elmo.tasks.heads.qa import Qa, QaBatch, best_spans, bidirectional_attention, marginal_loss
from elmo.tasks.readers.examples import Answer, Question
from elmo.tasks.settings import ReadOptions
from heads import built, half_loss, predictions, trained, vectors_of, widened

TASK = Qa()
WORDS = "ant bee cat dog eel fox".split()
SPLIT = ReadOptions(tokenizer="whitespace")


def passage(context, question, answer=None):
    answers = () if answer is None else (Answer(answer, context.index(answer)),)
    return align([Question("q", context, question, answers)], SPLIT)[0]


def made_up(count):
    """Each of three things is somewhere; the answer is the word after `is`."""
    generator = np.random.default_rng(0)
    examples = []
    for _ in range(count):
        names = generator.choice(WORDS, 3, replace=False).tolist()
        places = generator.choice(["home", "north", "south", "east", "west"], 3, replace=False)
        context = " . ".join(f"the {a} is {b}" for a, b in zip(names, places, strict=True))
        asked = int(generator.integers(3))
        examples.append(passage(context, f"where is {names[asked]} ?", str(places[asked])))
    return examples


def test_it_learns_to_find_the_word_after_is():
    examples = made_up(40)
    head = trained(TASK, examples, steps=60, batch=20, rate=1e-2, hidden_size=12)
    found = predictions(TASK, head, examples)
    assert TASK.evaluate(examples, found) == {"exact_match": 1.0, "f1": 1.0}
    assert 0.5 < found[0].probability <= 1


passages = st.builds(
    passage,
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
)


@given(st.lists(passages, min_size=1, max_size=3), st.integers(1, 4), st.sampled_from([0, 3]))
def test_neighbors_and_padding_change_no_score(examples, more, output_dim):
    head = built(TASK, hidden_size=4, output_dim=output_dim).eval()
    batch = TASK.collate(examples)
    vectors = vectors_of(TASK, examples, output_dim)
    together = head(vectors, batch)
    padding = torch.zeros(len(examples), more, dtype=torch.bool)
    wider = QaBatch(
        widened(batch.contexts, more),
        widened(batch.questions, more),
        torch.cat([batch.starts, padding], dim=1),
        torch.cat([batch.stops, padding], dim=1),
    )
    padded = head(vectors, wider)
    for row, example in enumerate(examples):
        n = len(example.context)
        alone = head(vectors_of(TASK, [example], output_dim), TASK.collate([example]))
        for k in range(2):
            torch.testing.assert_close(
                padded[k][row, :n], together[k][row, :n], rtol=1e-4, atol=1e-4
            )
            torch.testing.assert_close(alone[k][0], together[k][row, :n], rtol=1e-4, atol=1e-4)
            assert together[k][row, :n].exp().sum().item() == pytest.approx(1, abs=1e-4)


def test_products_in_bfloat16_give_nearly_the_same_loss():
    examples = made_up(6)
    exact = built(TASK, hidden_size=8, dropout=0.0)
    expected = exact.loss(vectors_of(TASK, examples), TASK.collate(examples)).item()
    head = built(TASK, hidden_size=8, dropout=0.0)
    assert half_loss(TASK, head, examples) == pytest.approx(expected, rel=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert len(predictions(TASK, head.eval(), examples)) == 6


def test_context_and_question_meet_as_loops_would_have_it():
    torch.manual_seed(0)
    context, question, scores = torch.randn(1, 4, 2), torch.randn(1, 3, 2), torch.randn(1, 4, 3)
    context_mask = torch.tensor([[True, True, True, False]])
    question_mask = torch.tensor([[True, True, False]])
    found = bidirectional_attention(scores, context, context_mask, question, question_mask)[
        0
    ].numpy()
    c, q, s = context[0].numpy(), question[0].numpy(), scores[0].numpy()
    highest = np.array([max(s[n, 0], s[n, 1]) for n in range(3)])
    importance = np.exp(highest) / np.exp(highest).sum()
    important = sum(importance[n] * c[n] for n in range(3))
    for n in range(3):
        weights = np.exp(s[n, :2]) / np.exp(s[n, :2]).sum()
        asked = weights[0] * q[0] + weights[1] * q[1]
        expected = np.concatenate([c[n], asked, c[n] * asked, c[n] * important])
        np.testing.assert_allclose(found[n], expected, rtol=1e-4, atol=1e-6)


@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 1000))
def test_no_span_is_more_probable(n_words, longest, seed):
    generator = torch.Generator().manual_seed(seed)
    starts, stops = (torch.randn(2, n_words, generator=generator).log_softmax(1) for _ in "ab")
    first, last, probability = best_spans(starts, stops, longest)
    for row in range(2):
        every = {
            (a, b): float(starts[row, a] + stops[row, b])
            for a in range(n_words)
            for b in range(a, min(n_words, a + longest))
        }
        best = max(every, key=every.get)
        assert (int(first[row]), int(last[row])) == best
        assert float(probability[row]) == pytest.approx(np.exp(every[best]), rel=1e-5)


def test_any_right_place_will_do():
    shares = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    right = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    expected = -(np.log(0.8) + np.log(0.6)) / 2  # a row without a right place counts nothing
    assert marginal_loss(shares.log(), right).item() == pytest.approx(expected, rel=1e-6)
    assert marginal_loss(shares.log(), torch.zeros_like(right)).item() == 0


# The task


def test_questions_are_read_from_files_and_from_text(tmp_path):
    qas = [{"id": "x", "question": "Who?", "answers": [{"text": "Ann B.", "answer_start": 0}]}]
    data = {"data": [{"title": "t", "paragraphs": [{"context": "Ann B. sang.", "qas": qas}]}]}
    path = tmp_path / "d.json"
    path.write_text(json.dumps(data))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (example,) = Qa.read([path], ReadOptions())
    assert example.context.cut_out(example.spans[0]) == "Ann B."
    assert Qa.from_examples([example]) == TASK
    (raw,) = TASK.parse("Who sang?\tAnn sang.\n", ReadOptions())
    assert (raw.words, raw.context.text) == (["Who", "sang", "?"], "Ann sang.")
    (other,) = TASK.parse('{"question": "Who?", "context": "Ann."}', ReadOptions())
    assert other.context.sentences == [["Ann", "."]]
    for text in ("Who?", "{", "Who?\t "):
        with pytest.raises(InputError, match="expected a question, a tab and a text"):
            TASK.parse(text, ReadOptions())


def test_answers_are_cut_out_of_the_raw_context():
    (example,) = TASK.parse("Who?\tDr. O'Neil,  (Ann)  sang.", ReadOptions())
    (prediction,) = predictions(TASK, built(TASK, hidden_size=4).eval(), [example])
    shown = TASK.render(example, prediction)
    assert shown["answer"] == example.context.text[shown["start"] : shown["stop"]]
    assert shown["answer"]
    json.dumps(shown)

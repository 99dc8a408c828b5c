"""Classification: what it can learn, padding, records; and what tasks with one label share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import InputError
from elmo.tasks.heads.classify import Classify
from elmo.tasks.heads.labels import LabelBatch, LabelPrediction
from elmo.tasks.readers.examples import TextExample
from elmo.tasks.settings import ReadOptions
from heads import built, half_loss, predictions, trained, vectors_of, widened

EXAMPLES = [
    TextExample(f"a {word} film".split(), label)
    for word, label in (("good", "pos"), ("fine", "pos"), ("bad", "neg"), ("poor", "neg"))
]
TASK = Classify.from_examples(EXAMPLES)
texts = st.lists(st.sampled_from("a good bad film".split()), min_size=1, max_size=5)


def test_it_learns_labels():
    head = trained(TASK, EXAMPLES, steps=40, hidden_size=8)
    found = predictions(TASK, head, EXAMPLES)
    assert [p.label for p in found] == [example.label for example in EXAMPLES]
    assert TASK.evaluate(EXAMPLES, found) == {"accuracy": 1.0, "macro_f1": 1.0}
    assert all(sum(p.probabilities.values()) == pytest.approx(1) for p in found)


@given(st.lists(texts, min_size=1, max_size=3), st.integers(1, 4), st.sampled_from([0, 3]))
def test_padding_and_neighbors_do_not_change_probabilities(given_texts, more, output_dim):
    examples = [TextExample(words) for words in given_texts]
    head = built(TASK, hidden_size=4, output_dim=output_dim).eval()
    batch = TASK.collate(examples)
    vectors = vectors_of(TASK, examples, output_dim)
    wide = head.predict(vectors, LabelBatch(widened(batch.layout, more), batch.labels))
    for example, found in zip(examples, wide, strict=True):
        one = vectors_of(TASK, [example], output_dim)
        (alone,) = head.predict(one, TASK.collate([example]))
        assert found.probabilities == pytest.approx(alone.probabilities, abs=1e-5)


def test_products_in_bfloat16_give_nearly_the_same_loss():
    head = built(TASK, hidden_size=8, dropout=0.0)
    exact = head.loss(vectors_of(TASK, EXAMPLES), TASK.collate(EXAMPLES)).item()
    assert half_loss(TASK, head, EXAMPLES) == pytest.approx(exact, rel=0.02)


def test_labels_are_sorted_and_at_least_two():
    assert TASK.labels == ("neg", "pos")
    assert TASK.numbers([*EXAMPLES[:1], TextExample(["x"])]).tolist() == [1, 0]
    with pytest.raises(InputError, match="all training examples have the label 'pos'"):
        Classify.from_examples(EXAMPLES[:2])
    with pytest.raises(InputError, match="a training example has no label"):
        Classify.from_examples([TextExample(["x"])])
    with pytest.raises(InputError, match="unknown label 'odd'; the training data have neg, pos"):
        TASK.check([TextExample(["x"], "odd")])


def test_a_text_is_shown_with_all_probabilities():
    (example,) = TASK.parse("It isn't bad.", ReadOptions())
    record = TASK.render(example, LabelPrediction("pos", {"neg": 0.25, "pos": 0.75}))
    assert record == {
        "text": "It is n't bad .",
        "label": "pos",
        "probabilities": {"neg": 0.25, "pos": 0.75},
    }
